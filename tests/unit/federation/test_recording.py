"""Recordings of what a participant receives and sends."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fkge.federation.events import Lost
from fkge.federation.recording import Recorder, read_recording


def test_records_read_back_in_order_with_the_bytes_received(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "folder" / "ant.tape")
    recorder.note("begin", trained=False)
    recorder.received("bee", b'{"what": "begin"}\n')
    recorder.sent("bee", b"answer")
    recorder.event(Lost("bee"))
    recorder.close()
    records = list(read_recording(tmp_path / "folder" / "ant.tape"))
    assert [record["what"] for record, _ in records] == ["begin", "heard", "said", "event"]
    assert [data for _, data in records] == [b"", b'{"what": "begin"}\n', b"", b""]
    assert records[2][0]["sha256"] == hashlib.sha256(b"answer").hexdigest()
    assert records[3][0] | {"what": ""} == {"what": "", "kind": "Lost", "fields": {"peer": "bee"}}


def test_pauses_without_input_are_counted_and_a_halt_is_recorded(tmp_path: Path) -> None:
    recorder, answers = Recorder(tmp_path / "ant.tape"), iter([False, False, False, True])
    pause = recorder.wrap(lambda: next(answers))
    assert pause is not None
    assert recorder.wrap(None) is None
    recorder.note("improve")
    assert [pause() for _ in range(4)] == [False, False, False, True]
    recorder.close()
    records = [record for record, _ in read_recording(tmp_path / "ant.tape")]
    assert records == [{"what": "improve"}, {"what": "pauses", "count": 4}, {"what": "left"}]

"""The trace survives a crash in the middle of a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.trace import Trace, write_atomically


def test_records_read_back_and_a_cut_line_is_left_out(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "t.jsonl")
    assert trace.read() == []
    trace.write("epoch", epoch=1, loss=0.5)
    trace.write("note", text="zwei\nZeilen · ε")
    with trace.path.open("a") as f:
        f.write('{"event": "epoch", "ep')
    assert trace.read() == [{"event": "epoch", "epoch": 1, "loss": 0.5}, {"event": "note", "text": "zwei\nZeilen · ε"}]
    trace.keep(trace.read()[:1])
    assert trace.read() == [{"event": "epoch", "epoch": 1, "loss": 0.5}]


def test_no_number_that_json_lacks(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        Trace(tmp_path / "t.jsonl").write("epoch", loss=float("nan"))


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    write_atomically(path, b"old")

    def no_space(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"

"""The trace survives a crash in the middle of a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.trace import Trace


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


def test_nan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        Trace(tmp_path / "t.jsonl").write("epoch", loss=float("nan"))


def test_lines_that_are_no_records_are_left_out(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace.jsonl")
    trace.path.write_text('[1, 2]\n"x"\n{"no": 1}\n{"event": "a"}\n')
    assert trace.read() == [{"event": "a"}]

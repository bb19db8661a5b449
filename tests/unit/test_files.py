"""Atomic writes, folders made whole or not at all, and locks between processes."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest

from fkge.errors import RunError
from fkge.files import FileLock, create_once, is_locked, read_json, whole_or_nothing, write_atomically


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
def test_a_half_made_folder_is_removed(error: type[BaseException], there: bool, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if there:
        folder.mkdir()
    with pytest.raises(error):
        make(folder, error())
    assert folder.exists() is there
    assert not there or not any(folder.iterdir())


def test_an_existing_folder_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(OSError, match="full"), whole_or_nothing(tmp_path):
        raise OSError("full")
    assert (tmp_path / "mine").read_text() == "x"


def test_a_folder_of_another_run_is_not_touched(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(RunError):
        make(folder, RunError("is there already"))
    assert (folder / "part" / "file").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", "is damaged"), ("[1]", "is damaged"), ('{"a": 1}', "does not say b; it is damaged, or of another version")],
)
def test_a_damaged_file_raises_an_error_with_advice(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(RunError, match=rf"x\.json: {problem}.*Put it back\."):
        read_json(tmp_path / "x.json", "Put it back.", "a", "b")
    (tmp_path / "x.json").write_text('{"a": 1, "b": 2}')
    assert read_json(tmp_path / "x.json", "Put it back.", "a", "b") == {"a": 1, "b": 2}


def test_a_private_file_is_unreadable_for_others(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_atomically(path, b"new", private=True)
    create_once(tmp_path / "other", b"x", private=True)
    assert path.read_bytes() == b"new"
    assert {stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()} == {0o600}


def test_an_atomic_write_does_not_follow_a_link_in_place_of_its_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "a.part").symlink_to(tmp_path / "victim")
    write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "a").is_symlink()


def test_create_once_keeps_an_existing_file(tmp_path: Path) -> None:
    create_once(tmp_path / "a", b"first")
    create_once(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_second_lock_is_refused_until_the_first_is_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_locked(path)
    with FileLock(path) as held:
        assert is_locked(path)
        for timeout in (0, 0.02):
            with pytest.raises(RunError, match="busy"):
                FileLock(path, timeout=timeout, error=RunError("busy"))
        with pytest.raises(BlockingIOError):
            FileLock(path, timeout=0)
        held.close()
        assert not is_locked(path)
    with FileLock(path, timeout=0):
        pass


def test_shared_locks_exclude_only_exclusive_ones(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with FileLock(path, shared=True), FileLock(path, shared=True, create=False):
        assert not is_locked(path)
        with pytest.raises(BlockingIOError):
            FileLock(path, timeout=0)


def _die_with_lock(path: Path) -> None:
    FileLock(path)
    raise SystemExit(1)


def test_a_process_that_dies_releases_its_lock(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_die_with_lock, args=(tmp_path / "lock",))
    process.start()
    process.join()
    with FileLock(tmp_path / "lock", timeout=0):
        pass


def test_a_lock_file_is_never_emptied(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"precious")
    with FileLock(tmp_path / "lock"):
        pass
    assert (tmp_path / "lock").read_bytes() == b"precious"


def test_a_lock_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / "lock").symlink_to(tmp_path / "victim")
    (tmp_path / "other").symlink_to(tmp_path / "missing")
    for name in ("lock", "other"):
        with pytest.raises(OSError, match="must not be a symbolic link"):
            FileLock(tmp_path / name)
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "missing").exists()


def test_create_false_locks_only_a_file_that_exists(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "key", create=False)
    (tmp_path / "key").write_bytes(b"k")
    (tmp_path / "key").chmod(0o400)
    (tmp_path / "link").symlink_to(tmp_path / "key")
    with FileLock(tmp_path / "link", create=False):
        assert is_locked(tmp_path / "key")

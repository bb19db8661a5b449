"""Write files so that a crash leaves the old or the new content, and lock them against other processes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeAlias

from fkge.errors import RunError

JsonObject: TypeAlias = dict[str, Any]
"""What a JSON file or answer holds, by key."""

_POLL_SECONDS = 0.005


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` on success and is removed on any error.

    Two processes must not replace the same file at the same time: take a `FileLock` where that can happen.
    """
    temporary = path.with_name(path.name + ".part")
    temporary.unlink(missing_ok=True)  # left by a process that was killed, or a link somebody put there
    try:
        yield temporary
        with temporary.open("rb+") as f:
            os.fsync(f.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_atomically(path: Path, data: bytes, *, private: bool = False) -> None:
    """Write `data` so that a reader, or a crash, sees the old file or the new one and nothing between.

    Args:
        path: the file to create or replace.
        data: its new content.
        private: only the current user may read the file, from the moment it exists.
    """
    with replacing(path) as temporary:
        _write_new(temporary, data, private)


def create_once(path: Path, data: bytes, *, private: bool = False) -> None:
    """Create a file, complete and synced; if it exists, or another process is faster, that file stays.

    Args:
        path, data, private: see `write_atomically`.
    """
    if path.exists():
        return
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        _write_new(temporary, data, private)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def _write_new(path: Path, data: bytes, private: bool) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    with os.fdopen(handle, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names of files that were just created or renamed in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def stamp(file: Path) -> tuple[int, int, int] | None:
    """Return what tells whether a file has changed, or was replaced; None if it is not there."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def read_json(path: Path, advice: str, *keys: str) -> JsonObject:
    """Read a file that holds a JSON object.

    Args:
        path: the file.
        advice: how to repair a damaged file; the error message ends with it.
        keys: keys that must be present.

    Raises:
        RunError: the file is not a JSON object, or lacks one of `keys`.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RunError(f"{path}: is damaged. {advice}")
    if missing := [key for key in keys if key not in found]:
        raise RunError(
            f"{path}: does not say {', '.join(missing)}; it is damaged, or of another version of fkge. {advice}"
        )
    return found


def check_free(folder: Path, resume: str | None) -> None:
    """Refuse (`RunError`) a folder that holds something; `resume` says how to continue what it holds."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        way_out = "Choose another --out." if resume is None else f"{resume}, or choose another --out."
        raise RunError(f"{folder}: exists already. {way_out}")


@contextmanager
def whole_or_nothing(folder: Path) -> Iterator[None]:
    """Remove what the block wrote into a new or empty folder if it fails, unless with `RunError`: then it is another's.

    A folder that already holds something is never touched.
    """
    existed = folder.exists()
    if existed and any(folder.iterdir()):
        yield
        return
    try:
        yield
    except RunError:
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if existed:
            folder.mkdir(exist_ok=True)
        raise


class FileLock:
    """An advisory lock (`flock`) on a file, held from construction until `close` or the end of a `with` block.

    The kernel releases it when the process dies. The content of the file is never changed.
    """

    def __init__(
        self,
        path: Path,
        *,
        timeout: float | None = None,
        error: Exception | None = None,
        shared: bool = False,
        create: bool = True,
    ) -> None:
        """Acquire the lock.

        Args:
            path: the file to lock.
            timeout: seconds to wait for another holder; 0 tries once, None waits for as long as it takes.
            error: raised if the lock is still held after `timeout`; by default `BlockingIOError`.
            shared: other shared locks are allowed at the same time.
            create: create the file if it does not exist, and refuse a symbolic link, which could create or open a file
                elsewhere. Without it the file is opened for reading only, so links are harmless and are followed.

        Raises:
            OSError: the file cannot be opened.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW if create else os.O_RDONLY
        try:
            self._handle = os.open(path, flags, 0o666)
        except OSError as problem:
            if problem.errno == errno.ELOOP:
                raise OSError(errno.ELOOP, "a lock file must not be a symbolic link", str(path)) from None
            raise
        try:
            self._acquire(fcntl.LOCK_SH if shared else fcntl.LOCK_EX, timeout, error)
        except BaseException:
            self.close()
            raise

    def _acquire(self, kind: int, timeout: float | None, error: Exception | None) -> None:
        if timeout is None:
            fcntl.flock(self._handle, kind)
            return None
        end = time.monotonic() + timeout
        while True:
            try:
                return fcntl.flock(self._handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    if error is None:
                        raise
                    raise error from None
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_locked(path: Path) -> bool:
    """Return whether another holder has an exclusive `FileLock` on `path` now; the probe holds a shared one briefly."""
    try:
        FileLock(path, timeout=0, shared=True, create=False).close()
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False

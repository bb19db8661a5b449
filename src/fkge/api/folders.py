"""The folder a call works in, and the exception it raises when it is interrupted."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


class _Temporary:
    """A temporary folder, removed when this object is garbage-collected or Python exits."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fkge-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)


def working_folder(out: str | Path | None) -> tuple[Path, object]:
    """Return the folder to work in and an object to hold a reference to as long as the folder is needed."""
    if out is not None:
        return Path(out), None
    temporary = _Temporary()
    return temporary.folder, temporary


def interrupted(call: str, out: str | Path | None) -> KeyboardInterrupt:
    """Return the exception that says how to resume `call`, or that its temporary folder is gone."""
    if out is None:
        return KeyboardInterrupt("stopped; the work was in a temporary folder, which is gone. Set out=… to keep it")
    return KeyboardInterrupt(f"stopped; nothing is lost. Resume with: {call}, out={str(out)!r}, resume=True)")

"""Where embedded federations are kept once they are built, and how they come to be there.

A federation's folder is named after a key of all that decides what is in it: the texts of the recipe's modules and
the versions of the packages it reads. One process at a time makes it, under another name beside, and renames it: so a
reader or a crash sees a whole folder or none. A manifest of digests tells a damaged folder, which is built anew.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fkge.errors import DataError
from fkge.trace import sync_folder, write_atomically

MANIFEST = "manifest.json"


def cache_folder() -> Path:
    """``$FKGE_CACHE``, else ``$XDG_CACHE_HOME/fkge``, else ``~/.cache/fkge``."""
    if own := os.environ.get("FKGE_CACHE"):
        return Path(own)
    if (base := os.environ.get("XDG_CACHE_HOME")) and Path(base).is_absolute():
        return Path(base) / "fkge"
    return Path.home() / ".cache" / "fkge"


def key_of(name: str, versions: Mapping[str, str]) -> str:
    """All that a federation's content depends on, in twelve letters: this package's text, other packages' versions."""
    digest = hashlib.sha256(json.dumps([name, sorted(versions.items())]).encode())
    folder = Path(__file__).parent
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"\n{file.relative_to(folder)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache, filled by `fill` if it is missing or damaged.

    Args:
        name: of the folder; names its content too, since an intact folder is never filled again.
        fill: writes the content into the folder it is given.
    """
    root = cache_folder()
    folder = root / name
    if is_intact(folder):
        return folder
    with _alone(root, name):
        if is_intact(folder):  # somebody else's work, while we waited for it
            return folder
        made = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
        try:
            fill(made)
            _seal(made)
            if folder.exists():
                shutil.rmtree(folder)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        sync_folder(root)
    return folder


@contextmanager
def _alone(root: Path, name: str) -> Iterator[None]:
    """Hold the right to build `name`; whoever comes second waits."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = (root / f".{name}.lock").open("w")
    except OSError as error:
        raise DataError(
            f"{root}: cannot be written to ({error.strerror}); set FKGE_CACHE to a folder that can"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_intact(folder: Path) -> bool:
    """Whether a folder holds the files of its manifest, byte for byte."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest) and all(_digest(folder / name) == digest for name, digest in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def _seal(folder: Path) -> None:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    manifest = {file.relative_to(folder).as_posix(): _digest(file) for file in files}
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    folder.chmod(0o755)  # a temporary folder is its maker's alone


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()

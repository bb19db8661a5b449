"""The cache of embedded federations.

The name of a federation's folder holds a hash of everything its content depends on: the source text of this package and
the versions of the packages it reads. One process at a time builds it under a temporary name and renames it, so that a
reader, or a crash, sees a complete folder or none. A manifest of digests reveals a damaged folder, which is rebuilt.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from fkge.errors import DataError
from fkge.files import FileLock, sync_folder, write_atomically

MANIFEST = "manifest.json"


def cache_folder() -> Path:
    """Return ``$FKGE_CACHE``, else ``$XDG_CACHE_HOME/fkge``, else ``~/.cache/fkge``."""
    if own := os.environ.get("FKGE_CACHE"):
        return Path(own)
    if (base := os.environ.get("XDG_CACHE_HOME")) and Path(base).is_absolute():
        return Path(base) / "fkge"
    return Path.home() / ".cache" / "fkge"


def key_of(name: str, versions: Mapping[str, str]) -> str:
    """Hash what a federation's content depends on: the text of this package, and the versions of others."""
    digest = hashlib.sha256(json.dumps([name, sorted(versions.items())]).encode())
    folder = Path(__file__).parent
    for file in sorted(folder.rglob("*.py")):
        digest.update(f"\n{file.relative_to(folder)}\n".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def cached(name: str, fill: Callable[[Path], None]) -> Path:
    """Return the folder `name` of the cache, filled by `fill` if it is missing or damaged.

    Args:
        name: of the folder; it must identify the content, since an intact folder is never filled again.
        fill: writes the content into the folder it is given.

    Raises:
        DataError: the cache cannot be written.
    """
    root = cache_folder()
    folder = root / name
    if is_intact(folder):
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / f".{name}.lock")
    except OSError as error:
        raise DataError(
            f"{root}: cannot be written to ({error.strerror}); set FKGE_CACHE to a folder that can"
        ) from None
    with lock:
        if is_intact(folder):  # built by another process while this one waited for the lock
            return folder
        made = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=root))
        try:
            fill(made)
            _write_manifest(made)
            if folder.exists():
                shutil.rmtree(folder)
            made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
        sync_folder(root)
    return folder


def is_intact(folder: Path) -> bool:
    """Return whether a folder holds the files of its manifest, byte for byte."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return bool(manifest) and all(_digest(folder / name) == digest for name, digest in manifest.items())
    except (OSError, ValueError, AttributeError):
        return False


def _write_manifest(folder: Path) -> None:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    manifest = {file.relative_to(folder).as_posix(): _digest(file) for file in files}
    write_atomically(folder / MANIFEST, json.dumps(manifest, indent=1).encode())
    folder.chmod(0o755)  # mkdtemp makes it private


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()

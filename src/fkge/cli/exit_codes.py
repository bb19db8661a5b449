"""Exit codes: a number for each kind of error, and a page of help for each number (exit_codes.toml).

A person reads the sentence of an error, a script its number; `fkge errors NUMBER` explains it.
"""

from __future__ import annotations

import errno
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fkge import errors

DONE, BUG, USAGE = 0, 1, 2
OTHER, GRAPH, SETTINGS, RUN, LABEL, ENGINE, PEER, EXTRA, DATA = range(10, 19)
PRIVACY, BUDGET, LEFT, LEDGER, BROKEN = range(20, 25)
DISK, FILES, PORT, MEMORY = range(30, 34)
EXPORT, TRACKER = range(40, 42)
NODE, IDENTITY = range(50, 52)
INTERRUPTED = 130


class Misuse(errors.FkgeError):
    """Options that are valid each, but not together."""


@dataclass(frozen=True)
class Page:
    """Help on one exit code: its meaning in a few words and in a sentence or two, usual causes, what to do."""

    title: str
    means: str
    causes: tuple[str, ...] = ()
    ways_out: tuple[str, ...] = ()


@cache
def pages() -> dict[int, Page]:
    """Return the help on every exit code, in order."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return {int(code): Page(**page) for code, page in tomllib.loads(text).items()}


_CODES: dict[type[BaseException], int] = {
    Misuse: USAGE,
    errors.GraphError: GRAPH, errors.SettingsError: SETTINGS, errors.RunError: RUN, errors.UnknownLabelError: LABEL,
    errors.EngineError: ENGINE, errors.NodeError: NODE, errors.IdentityError: IDENTITY,
    errors.PeerError: PEER, errors.PrivacyError: PRIVACY, errors.BudgetError: BUDGET,
    errors.AlreadyLeft: LEFT, errors.LedgerError: LEDGER, errors.MissingLibraryError: EXTRA, errors.DataError: DATA,
    errors.ExportError: EXPORT, errors.TrackerError: TRACKER, errors.FkgeError: OTHER,
}  # fmt: skip
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST)
_NO_SPACE_TEXTS = ("No space left on device", "File too large", "Disk quota exceeded", "database or disk is full")
_NO_MEMORY_TEXTS = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")


def explain(error: BaseException) -> tuple[int, str] | None:
    """Return the exit code and the message of an error that the user can act on; None for a bug."""
    text = str(error)
    # Libraries wrap errors of the system in their own, and so does an owner's process that dies of one.
    if (isinstance(error, OSError) and error.errno in _NO_SPACE) or any(part in text for part in _NO_SPACE_TEXTS):
        if isinstance(error, errors.FkgeError):
            return DISK, text
        where = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        way_out = "Free some space and run it again, with --resume if its folder exists"
        return DISK, f"{where}the disk is full; finished files are intact. {way_out}"
    if isinstance(error, errors.FkgeError):
        if isinstance(error.__context__, OSError) and error.__context__.errno == errno.EADDRINUSE:
            return PORT, text
        if isinstance(error, errors.RunError) and getattr(error.__context__, "errno", None) in _REFUSED:
            return FILES, text
        if "pip install 'fkge[" in text:  # readers of graphs raise this as a GraphError
            return EXTRA, text
        return next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES), text
    if isinstance(error, MemoryError) or any(part in text for part in _NO_MEMORY_TEXTS):
        return MEMORY, "there is not enough memory for this; choose a smaller dim, batch or number of negatives"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return PORT, "that port is taken; choose another with --port, or --port 0 for any that is free"
    if isinstance(error, OSError) and error.filename is not None:
        return FILES, f"{error.filename}: {(error.strerror or 'cannot be used').lower()}; choose another path"
    return None


def hint(code: int, sentence: str) -> str:
    """Return where to read more, unless the message names the solution itself."""
    return "" if "did you mean" in sentence else f" (exit {code}; fkge errors {code})"

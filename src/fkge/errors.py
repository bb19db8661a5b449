"""Every error a user can cause, in one tree.

    FkgeError                 base: one sentence on what is wrong, where, and what to do
    ├── GraphError            an input graph cannot be read as it stands
    ├── SettingsError         a setting is unknown or out of range
    ├── DataError             an embedded federation cannot be built
    ├── RunError              a run folder is missing, foreign, or damaged
    ├── PeerError             what a peer sent cannot be used
    ├── EngineError           an owner's process died or failed
    ├── NodeError             a node cannot start, go on or be reached
    ├── IdentityError         a certificate, a kit or a signature does not hold
    ├── PrivacyError          what may leave, and at what price, is not settled: so it does not leave
    │   ├── BudgetError       a release would cost more than the owner allowed
    │   ├── AlreadyLeft       a release went out before; to draw its noise anew would be another one
    │   └── LedgerError       a privacy ledger is missing, foreign, altered or rolled back
    ├── UnknownLabelError     an entity, relation or model name that is not there
    ├── ExportError           vectors cannot be written in that format, or there
    ├── TrackerError          a tracker refuses what is logged, or cannot be reached
    └── MissingLibraryError   an optional library is asked for and not installed

Anything else that escapes is a bug.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class FkgeError(Exception):
    """Base of all errors meant for the user's eyes."""


class GraphError(FkgeError):
    """An input graph cannot be read. Carries the file, the line (1-based) and the way out."""

    def __init__(self, path: str | Path, problem: str, advice: str, line: int | None = None) -> None:
        self.path = Path(path)
        self.problem = problem
        self.advice = advice
        self.line = line
        where = f"{path}:{line}" if line is not None else str(path)
        super().__init__(f"{where}: {problem}. {advice}")


class SettingsError(FkgeError):
    """A setting is unknown or has a value that cannot work."""


class DataError(FkgeError):
    """An embedded federation cannot be built: something it is made from is missing, or the cache cannot be written."""


class RunError(FkgeError):
    """A run folder is missing, foreign, or damaged."""


class PeerError(FkgeError):
    """What a peer sent cannot be used. Whoever raises it is as it was before the message came."""


class EngineError(FkgeError):
    """An owner's process died or failed; what the others did is kept."""


class NodeError(FkgeError):
    """A node cannot start, go on or be reached."""


class IdentityError(FkgeError):
    """A certificate, a kit or a signature does not hold.

    Attributes:
        reason: one word for it: expired, early, revoked, stranger, forged, name, unreadable, old.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        self.reason = reason
        super().__init__(sentence)


class PrivacyError(FkgeError):
    """What may leave, and at what price, is not settled. Whoever raises it has let nothing out."""


class BudgetError(PrivacyError):
    """A release would cost more than the owner allowed; says what would fit. Nothing was written."""


class AlreadyLeft(PrivacyError):
    """A release went out before under this key; to draw its noise anew would be a second release."""


class LedgerError(PrivacyError):
    """A privacy ledger is missing, foreign, altered or rolled back, or was asked for what it never heard of."""


class UnknownLabelError(FkgeError):
    """A name that is not in a vocabulary; the nearest ones are named."""

    def __init__(self, kind: str, label: str, known: Iterable[str]) -> None:
        super().__init__(f"no {kind} {label!r}{did_you_mean(label, known)}")


class ExportError(FkgeError):
    """Vectors cannot be written in that format, or there."""


class TrackerError(FkgeError):
    """A tracker refuses what is logged, or cannot be reached."""


class MissingLibraryError(FkgeError):
    """An optional library is asked for and not installed; says how to install it."""


def need(module: str, extra: str, what: str) -> Any:
    """The optional `module`, imported; without it, one sentence that says `what` needs it and which extra has it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        raise MissingLibraryError(
            f"{what} needs {missing}, which is not installed. Run: pip install 'fkge[{extra}]'"
        ) from None


def did_you_mean(word: str, known: Iterable[str], limit: int = 3) -> str:
    """``"; did you mean a, b?"`` with the nearest known words, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=limit, cutoff=0.5)
    return f"; did you mean {', '.join(near)}?" if near else ""

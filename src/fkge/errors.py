"""All errors that a user can cause; any other exception is a bug."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class FkgeError(Exception):
    """Base of all errors that a user can cause; the message says what is wrong, where, and what to do."""


class GraphError(FkgeError):
    """An input graph cannot be read.

    Args:
        path: the file.
        problem: what is wrong, without a full stop.
        advice: what to do, a sentence.
        line: number of the line, from 1.
    """

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
    """A message of a peer cannot be used. The receiver's state is as before the message."""


class EngineError(FkgeError):
    """An owner's process died or failed; the work of the others is kept."""


class NodeError(FkgeError):
    """A node cannot start, continue or be reached."""


class IdentityError(FkgeError):
    """A certificate, a kit or a signature is not valid.

    Attributes:
        reason: one word for it: expired, early, revoked, stranger, forged, name, unreadable, old.
    """

    def __init__(self, reason: str, sentence: str) -> None:
        self.reason = reason
        super().__init__(sentence)


class PrivacyError(FkgeError):
    """A policy or privacy setting leaves open what may be sent, or at what price. Nothing was sent."""


class BudgetError(PrivacyError):
    """A release would cost more than the owner's budget; the message says what would fit. Nothing was written."""


class AlreadyLeft(PrivacyError):
    """A release was sent before under this key; to draw its noise again would be a second release."""


class LedgerError(PrivacyError):
    """A privacy ledger is missing, foreign, altered or rolled back, or has no such entry."""


class UnknownLabelError(FkgeError):
    """A name is not in a vocabulary; the message has similar ones.

    Args:
        kind: what is named, such as an owner; label, known: the name, and those that there are.
    """

    def __init__(self, kind: str, label: str, known: Iterable[str]) -> None:
        super().__init__(f"no {kind} {label!r}{did_you_mean(label, known)}")


class ExportError(FkgeError):
    """Vectors cannot be written in that format, or there."""


class TrackerError(FkgeError):
    """A tracker rejects what is logged, or cannot be reached."""


class MissingLibraryError(FkgeError):
    """An optional library is needed and not installed; the message says how to install it."""


def need(module: str, extra: str, what: str) -> Any:
    """Import an optional library.

    Args:
        module: its module.
        extra: the extra of fkge that installs it.
        what: what needs it, for the message.

    Raises:
        MissingLibraryError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        raise MissingLibraryError(
            f"{what} needs {missing}, which is not installed. Run: pip install 'fkge[{extra}]'"
        ) from None


def did_you_mean(word: str, known: Iterable[str], limit: int = 3) -> str:
    """Return ``"; did you mean a, b?"`` with the `limit` most similar known words, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=limit, cutoff=0.5)
    return f"; did you mean {', '.join(near)}?" if near else ""

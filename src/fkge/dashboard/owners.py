"""An owner's own page: its course, what it learned from whom, its policy, and its ledger."""

from __future__ import annotations

import fcntl
import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fkge.dashboard.state import Watched
from fkge.errors import LedgerError
from fkge.history import Course

SECONDS_BETWEEN_PRICES = 5.0
"""A ledger is read and priced again at most this often."""


def describe_owner(watched: Watched, name: str) -> dict[str, Any]:
    """What the history and the folder tell of one owner."""
    with watched.lock:
        stages = {arm: stage.courses[name] for arm, stage in watched.history.stages.items() if name in stage.courses}
        result = (watched.result or {}).get("owners", {}).get(name)
        return {
            "name": name,
            "arms": {arm: _course(course) for arm, course in stages.items()},
            "result": result and {key: result[key] for key in ("model", "entities", "relations", "triples", "shares")},
            "test": result and {arm: scored["test"] for arm, scored in result["arms"].items()},
            "versus": result and result["versus"].get(watched.before),
            "policy": _policy(watched.run / "owners" / name),
        }


def _course(course: Course) -> dict[str, Any]:
    return {
        "epoch": course.epoch, "best": course.best, "tests": len(course.tests), "accepted": course.accepted,
        "turned_down": course.turned_down, "backtracked": course.backtracked, "sent": course.sent,
        "learned": {peer: [course.learned[peer], count] for peer, count in sorted(course.hosted.items())},
    }  # fmt: skip


def _policy(home: Path) -> str | None:
    path = home / "policy.toml"
    return path.read_text(encoding="utf-8") if path.exists() else None


class Ledgers:
    """The owners' privacy ledgers, told for people; each is verified on the way, in a copy.

    To open a ledger is to take part in it: it may bring an anchor up to date, and it keeps its owner from writing while
    it is checked. So files are copied, under the lock that writers take (for the milliseconds of the copy), into a
    folder that nobody else can read, and the copy is opened.
    """

    def __init__(self) -> None:
        self._told: dict[Path, tuple[float, bytes, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def of(self, run: Path, owner: str) -> dict[str, Any] | None:
        """That of a federated owner."""
        from fkge.federation import FederationSettings

        kept = FederationSettings.load(run / "owners" / owner / "settings.toml").privacy.ledger
        its = run / "arms" / "federated" / owner / "ledger.sqlite"
        return self.describe(its if kept is None else Path(kept) / f"{owner}.sqlite")

    def describe(self, path: Path) -> dict[str, Any] | None:
        """`fkge.privacy.describe` of the ledger at `path`, or an ``error``; None if there is no ledger."""
        anchor = path.with_name(path.name + ".anchor")
        with self._lock:
            if not path.exists():
                return None
            when, at, told = self._told.get(path, (0.0, b"", {}))
            now = anchor.read_bytes() if anchor.exists() else b""
            if told and (now == at or time.monotonic() - when < SECONDS_BETWEEN_PRICES):
                return told
            told = _describe(path)
            self._told[path] = time.monotonic(), now, told
            return told


def _describe(path: Path) -> dict[str, Any]:
    from fkge.privacy import Ledger, describe

    try:
        with TemporaryDirectory(prefix="fkge-ledger-") as folder:
            copy = _copied(path, Path(folder))
            with Ledger.open(copy, anchor=copy.with_name(copy.name + ".anchor")) as ledger:
                return describe(ledger) | {"ledger": path.name}
    except (LedgerError, OSError) as error:
        return {"error": str(error)}


def _copied(path: Path, folder: Path) -> Path:
    """The ledger's files as they are between two turns of its writers.

    Whoever closes it last empties its log into it and removes the log, without taking a turn: then it is copied again.
    """
    log = path.with_name(path.name + "-wal")
    with path.with_name(path.name + ".key").open("rb") as key:
        fcntl.flock(key, fcntl.LOCK_SH)
        while True:
            logged = log.exists()
            (folder / log.name).unlink(missing_ok=True)
            for source in (path, *([log] if logged else []), Path(key.name), path.with_name(path.name + ".anchor")):
                with suppress(FileNotFoundError):
                    shutil.copy2(source, folder / source.name)
            if log.exists() == logged:
                return folder / path.name

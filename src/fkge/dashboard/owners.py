"""The page of one owner: its scores, what it learned from whom, its policy, and its ledger."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from fkge.dashboard.events import Json
from fkge.dashboard.state import WatchedRun
from fkge.errors import LedgerError
from fkge.experiment.history import Course
from fkge.federation import FederationSettings
from fkge.files import FileLock
from fkge.privacy import Ledger, describe

SECONDS_BETWEEN_PRICES = 5.0
"""A ledger is read and priced again at most this often."""


def describe_owner(watched: WatchedRun, name: str) -> Json:
    """Describe one owner from the history and the folder of a simulation."""
    with watched.lock:
        stages = {arm: stage.courses[name] for arm, stage in watched.history.stages.items() if name in stage.courses}
        policy = watched.run / "owners" / name / "policy.toml"
        result = None if watched.result is None else watched.result.owners[name]
        return {
            "name": name,
            "arms": {arm: _course(course) for arm, course in stages.items()},
            "result": result and result.to_json("model", "entities", "relations", "triples", "shares"),
            "test": result and {arm: report.to_json("test")["test"] for arm, report in result.arms.items()},
            "versus": result and result.to_json("versus")["versus"].get(watched.baseline),
            "policy": policy.read_text(encoding="utf-8") if policy.exists() else None,
        }


def _course(course: Course) -> Json:
    return {
        "epoch": course.epoch, "best": course.best, "tests": len(course.tests), "accepted": course.accepted,
        "rejected": course.rejected, "backtracked": course.backtracked, "sent": course.sent,
        "learned": {peer: [course.learned[peer], count] for peer, count in sorted(course.hosted.items())},
    }  # fmt: skip


class Ledgers:
    """Describe the owners' privacy ledgers; each is verified, in a copy.

    Opening a ledger may update its anchor, and keeps its owner from writing while it is verified. So its files are
    copied, under the lock of its writers (for the milliseconds of the copy), into a folder that nobody else can read,
    and the copy is opened.
    """

    def __init__(self) -> None:
        self._described: dict[Path, tuple[float, bytes, Json]] = {}
        self._lock = threading.Lock()

    def of(self, run: Path, owner: str) -> Json | None:
        """Describe the ledger of a federated owner; see `describe`."""
        kept = FederationSettings.load(run / "owners" / owner / "settings.toml").privacy.ledger
        its = run / "arms" / "federated" / owner / "ledger.sqlite"
        return self.describe(its if kept is None else Path(kept) / f"{owner}.sqlite")

    def describe(self, path: Path) -> Json | None:
        """Return `fkge.privacy.describe` of the ledger at `path`, or an ``error``; None if there is no ledger."""
        anchor = path.with_name(path.name + ".anchor")
        with self._lock:
            if not path.exists():
                return None
            when, at, described = self._described.get(path, (0.0, b"", {}))
            now = anchor.read_bytes() if anchor.exists() else b""
            if described and (now == at or time.monotonic() - when < SECONDS_BETWEEN_PRICES):
                return described
            described = _describe(path)
            self._described[path] = time.monotonic(), now, described
            return described


def _describe(path: Path) -> Json:
    try:
        with TemporaryDirectory(prefix="fkge-ledger-") as folder:
            copy = _copied(path, Path(folder))
            with Ledger.open(copy, anchor=copy.with_name(copy.name + ".anchor")) as ledger:
                return describe(ledger).to_json() | {"ledger": path.name}
    except (LedgerError, OSError) as error:
        return {"error": str(error)}


def _copied(path: Path, folder: Path) -> Path:
    """Copy the ledger's files while no writer holds the lock.

    Closing its last connection merges the write-ahead log into the ledger and removes it, without the lock: if that
    happens during the copy, it is copied again.
    """
    log = path.with_name(path.name + "-wal")
    key = path.with_name(path.name + ".key")
    with FileLock(key, shared=True, create=False):
        while True:
            logged = log.exists()
            (folder / log.name).unlink(missing_ok=True)
            for source in (path, *([log] if logged else []), key, path.with_name(path.name + ".anchor")):
                with suppress(FileNotFoundError):
                    shutil.copy2(source, folder / source.name)
            if log.exists() == logged:
                return folder / path.name

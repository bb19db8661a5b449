"""`OwnerReport` and `TrainingResult`: what one owner's training and `fkge train` reached, as written to `result.json`
once and read everywhere.

Light on purpose: the command line, the report and the live page read results without importing torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fkge.errors import RunError
from fkge.files import JsonObject, read_json, write_atomically

RESULT = "result.json"
METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy")
"""Names of the metrics in `Scores`, as they stand in files."""


class ResultModel(BaseModel):
    """Base of all results: immutable, read by name or by the key in the file, keys of later versions are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", validate_by_name=True, validate_by_alias=True)

    def to_json(self, *only: str) -> JsonObject:
        """The value, or only some fields, as plain JSON data with the keys of files; what was never set is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, include=set(only) or None)

    def write(self, path: Path) -> None:
        """Write the value to `path` in one step."""
        write_atomically(path, (self.model_dump_json(by_alias=True, exclude_unset=True, indent=2) + "\n").encode())

    @classmethod
    def read(cls, path: Path, way_out: str) -> Self:
        """Read what `write` wrote; `way_out` is what the user can do about a damaged file.

        Raises:
            RunError: the file is damaged, or not of this kind.
        """
        return cls.parse(read_json(path, way_out), path, way_out)

    @classmethod
    def parse(cls, data: JsonObject, path: Path, way_out: str) -> Self:
        """Check JSON data that was read from a file.

        Args:
            data: the file's content; path, way_out: see `read`, and its `RunError`.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise RunError(f"{path}: {where}: {first['msg']}; the file is damaged. {way_out}") from None


class VersionedResult(ResultModel):
    """Base of results with a file of their own. One without a version is of version 1, as fkge 0.1.0 wrote it."""

    VERSION: ClassVar[int] = 2
    version: int = 1

    @classmethod
    def parse(cls, data: JsonObject, path: Path, way_out: str) -> Self:
        """Check JSON data that was read from `path`; see `read`."""
        version = data.get("version", 1)
        if version not in range(1, cls.VERSION + 1):
            raise RunError(f"{path}: is of version {version!r}; this fkge reads up to {cls.VERSION}. Update fkge.")
        return super().parse(data, path, way_out)


class Scores(ResultModel):
    """Link prediction (filtered, ties realistic) and triple classification on some triples."""

    triples: int | None = None
    mr: float
    mrr: float
    hits_at_1: float = Field(alias="hits@1")
    hits_at_3: float = Field(alias="hits@3")
    hits_at_10: float = Field(alias="hits@10")
    accuracy: float | None = None  # without validation triples there are no thresholds to classify by

    def __getitem__(self, metric: str) -> float:
        """Return the value of a metric by its name in `METRICS`, such as ``hits@10``."""
        return float(getattr(self, metric.replace("@", "_at_")))


class PrivateTrack(ResultModel):
    """The private track as it was chosen: its pull towards the shared rows, and its epoch.

    Attributes:
        score: validation MRR of the track; shared: that of the shared vectors it began with.
        pull: None where training alone from fresh vectors was best.
        epoch: 0 where the shared vectors before any private training were best.
    """

    score: float
    shared: float
    pull: float | None
    epoch: int


class Blend(ResultModel):
    """The blend of an owner's model with one that it trained without peers.

    Attributes:
        epochs: spent without peers, in addition to those of the report.
        score: validation MRR of the blend; first: of the model that was blended, the federated one where there are
            peers; lone: of the one without peers.
        weight: of the first model, over all relations; 0 where it was replaced, since peers had harmed it.
        relations: how many relations, and directions, have another weight.
        failed: why there is no lone model, if its training failed.
    """

    epochs: int
    score: float
    first: float
    lone: float
    weight: float
    relations: int
    failed: str = ""


class Spent(ResultModel):
    """The use of a budget: ε by each accountant that can tell, and the number of releases."""

    epsilon: float | None
    pld: float | None
    rdp: float | None
    paper: float | None
    count: int


class BudgetAccount(ResultModel):
    """One privacy budget and its use. `epsilon` and `left` are None where there is no limit."""

    unit: str
    relation: str
    delta: float
    epsilon: float | None
    spent: Spent
    left: float | None


class Unprotected(ResultModel):
    """Messages of one kind that were sent to a peer without protection."""

    what: str
    peer: str | None
    messages: int
    nbytes: int
    protection: str


class PrivacyAccount(ResultModel):
    """An owner's ledger at the end: budgets, messages that left unprotected, and what no ε covers."""

    mode: str
    budgets: list[BudgetAccount]
    unprotected: list[Unprotected]
    uncovered: str


class Payments(ResultModel):
    """Releases of one mechanism to one peer: how many were paid for, and how many, of how many bytes, were sent."""

    mechanism: str
    unit: str
    peer: str | None
    paid: int
    paid_count: int
    left: int
    nbytes: int


class LedgerStatement(ResultModel):
    """A whole ledger: every ε with its unit, relation and δ, and what it does not cover.

    Attributes:
        graph: whose ledger it is; ledger: its path.
        head: how far its chain has come, as JSON data.
        paid_not_left: releases that were paid for and not sent yet.
    """

    graph: str
    ledger: str
    head: dict[str, str | int]
    budgets: list[BudgetAccount]
    entries: list[Payments]
    paid_not_left: int
    unprotected: list[Unprotected]
    uncovered: str


class TrainingResult(VersionedResult):
    """What `fkge train` reached: what was trained, how long, and the scores of every split that has triples."""

    model: str
    graph: str
    entities: int
    relations: int
    triples: int
    seed: int
    epochs: int
    best_epoch: int
    seconds: float
    valid: Scores | None = None
    test: Scores | None = None

    @classmethod
    def load(cls, run: Path) -> Self | None:
        """Read that of the run in the folder `run`; None if it is not finished."""
        path = run / RESULT
        way_out = f"Restore it from a copy, or remove it and train again: fkge train --resume --out {run}"
        return cls.read(path, way_out) if path.exists() else None

    @property
    def splits(self) -> dict[str, Scores]:
        """Scores by split, of those that have triples."""
        return {name: scores for name, scores in (("valid", self.valid), ("test", self.test)) if scores is not None}


class OwnerReport(VersionedResult):
    """What one owner reached in one training, what it did for it, and what it cost.

    Attributes:
        valid: scores on all validation triples.
        test: scores on the test triples, by part. A node has one part, ``all``; a simulation knows more.
        epochs: spent; best_epoch: the one with the highest validation score, best_score.
        tests: validations; stale: those since the best one, or since the last roll-back.
        rounds: exchanges that were aggregated and trained on; pending: those since the last validation;
            accepted: those that led to a better validation score.
        backtracked: roll-backs to the best vectors.
        handshakes: exchanges as host, by peer.
        seconds: CPU time by activity; sent: bytes by peer; price: of a game's votes, as the paper counts it.
        private, privacy: of owners with two tracks; of owners with a ledger.
        blend: of owners that also trained without peers.
    """

    valid: Scores
    test: dict[str, Scores]
    epochs: int
    best_score: float | None
    best_epoch: int
    tests: int
    stale: int
    rounds: int
    pending: int
    accepted: int
    backtracked: int
    handshakes: dict[str, int]
    seconds: dict[str, float]
    sent: dict[str, int]
    price: dict[str, float]
    private: PrivateTrack | None = None
    privacy: PrivacyAccount | None = None
    blend: Blend | None = None

    @property
    def epsilon(self) -> float | None:
        """The largest ε that was spent of any budget; None without a ledger, or where one has no finite price."""
        spent = [budget.spent.epsilon for budget in self.privacy.budgets] if self.privacy is not None else []
        finite = [epsilon for epsilon in spent if epsilon is not None]
        return max(finite) if finite and len(finite) == len(spent) else None

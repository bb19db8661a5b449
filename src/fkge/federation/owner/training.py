"""`Owner`: one owner's rounds of training (the body of Algorithm 1), its roles in exchanges, and its checkpoint.

The protocol decides when; an engine carries the messages.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from fkge.align import Tokens, initial_vectors
from fkge.align.links import KINDS
from fkge.embed import DpTrainer, Snapshot, Tables, Trainer, initial_bound, load_tensors, make_tables, save_tensors
from fkge.embed.dp_noise import Noise, fresh_key
from fkge.embed.fit import BestState, TrainingLoop, is_due
from fkge.embed.losses import margin_of
from fkge.embed.models import Kind
from fkge.errors import RunError
from fkge.evaluation import Known, metrics, rank
from fkge.federation.egress import Egress, dp_sgd
from fkge.federation.exchange import ClientRole, HostRole, ReceivedUpdate, Update, client_role, host_role
from fkge.federation.owner.exchange import Exchange, PeerProfile
from fkge.federation.settings import FederationSettings, Translate
from fkge.graph import Graph, sample_triples
from fkge.graph.graph import Triples
from fkge.privacy import Head, Release, noise_for
from fkge.settings import TrainSettings

TOGETHER = ""
"""The frame of owners that started together. It sorts before every name, so later owners turn into it."""

OWNER_FILE = "fkge.owner.1"


@dataclass(frozen=True)
class Plan:
    """How many epochs an owner spends, and on what.

    Attributes:
        initial: epochs of the first training.
        total: epochs of everything.
        alone: the first training is a lone owner's, with a learning-rate schedule and early best of its own.
    """

    initial: int
    total: int
    alone: bool

    @classmethod
    def of(cls, settings: FederationSettings) -> Plan:
        """The plan that `settings` describe."""
        if settings.start == "alone":
            return cls(settings.initial_epochs, settings.total_epochs, alone=True)
        return cls(min(settings.epochs, settings.total_epochs), settings.total_epochs, alone=False)

    def phase(self, epoch: int) -> tuple[int, int]:
        """First epoch and end of the phase that `epoch` is in: a lone first training is a phase of its own."""
        if not self.alone:
            return 0, self.total
        return (0, self.initial) if epoch < self.initial else (self.initial, self.total)


@dataclass
class Activity(BestState):
    """What an owner did so far.

    Attributes:
        epochs: finished.
        tests: validations done.
        rounds: exchanges aggregated and trained on; pending: those since the last validation; accepted: those that led
            to a better score at the next validation.
        backtracked: times it rolled back to its best vectors.
        handshakes: translations hosted, by peer.
        seconds: CPU time by activity.
        sent: bytes, by peer.
        price: what translations cost in privacy, by their own account.
    """

    epochs: int = 0
    tests: int = 0
    rounds: int = 0
    pending: int = 0
    accepted: int = 0
    backtracked: int = 0
    handshakes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "translate": 0.0, "test": 0.0})
    sent: dict[str, int] = field(default_factory=dict)
    price: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def clock(self, what: str) -> Iterator[None]:
        """Add the CPU time of the context to that of `what`."""
        started = time.thread_time()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.thread_time() - started

    def count(self, updates: Sequence[ReceivedUpdate]) -> None:
        """Note an exchange that brought `updates`."""
        for update in updates:
            for key, value in update.price.items():
                self.price[key] = self.price.get(key, 0.0) + value
            self.handshakes[update.peer] = self.handshakes.get(update.peer, 0) + 1
        self.rounds += 1
        self.pending += 1


@dataclass(frozen=True)
class Outcome:
    """The result of an `Owner.improve`.

    Attributes:
        news: there is something new to send.
        spent: all epochs are used up.
        score: on validation triples, if a validation was due; best: the highest so far.
        improved: this one is; backtracked: the owner rolled back to its best vectors.
        halted: `pause` asked to leave; the round is not finished, and can be resumed later.
    """

    news: bool = False
    spent: bool = False
    score: float | None = None
    best: float | None = None
    improved: bool = False
    backtracked: bool = False
    halted: bool = False


class Owner:
    """An owner of a graph.

    Args:
        name: what peers call it.
        graph: its own.
        settings: how it federates; `train` is how it trains.
        peers: profiles of those it knows.
        plan: what it spends; as the settings say if None.
        seed: of everything random that is not secret.
        decide: (k, 3) validation triples that decide; all of the graph's if None. A sample of
            `train.validation_triples` of them is used, always the same.
        tokens: where aligned rows begin, to start together.
        secret: seed of rotations and of a game's noise. Draw it in secret; a simulation may fix it.
        egress: releases what is sent and keeps the ledger; None for an owner that trains alone, without a ledger.
        noise: of DP-SGD; drawn from the system's entropy if None. A noise that can be drawn again protects nothing.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        settings: FederationSettings,
        peers: Mapping[str, PeerProfile] | None = None,
        *,
        plan: Plan | None = None,
        seed: int = 0,
        decide: Triples | None = None,
        tokens: Tokens | None = None,
        secret: int = 0,
        egress: Egress | None = None,
        noise: torch.Generator | None = None,
    ) -> None:
        self.name = name
        self.graph = graph
        self.settings = settings
        self.plan = plan or Plan.of(settings)
        self.egress = egress or Egress(settings)
        train = settings.shared_train if egress is not None else settings.train
        self.train_settings: TrainSettings = train.model_copy(update={"seed": seed_of(seed, name, "train")})
        self.tables: Tables = make_tables(self.train_settings, len(graph.entities), len(graph.relations))
        together = tokens is not None and settings.start == "together"
        if tokens is not None and together:
            begin_together(self.tables, tokens, self.train_settings, seed)
        self._priced: Release | None = None  # the steps of an epoch, under differential privacy
        self.trainer = self._make_trainer(noise, lone=egress is None)
        self.exchange = Exchange(
            graph, settings, self.tables, self.train_settings.model, dict(peers or {}),
            frame=TOGETHER if together else name, blind=self._blind,
        )  # fmt: skip
        self._secret = secret
        self._known = Known.of(graph)
        deciding = graph.valid if decide is None else decide
        self._decide = sample_triples(deciding, self.train_settings.validation_triples, seed)
        self.activity = Activity()
        self.loop = TrainingLoop(self.trainer, phase=self.plan.phase, state=self.activity)
        self._best_frame = self.exchange.frame
        self._untested = 0

    def _make_trainer(self, noise: torch.Generator | None, lone: bool) -> Trainer | DpTrainer:
        """Plain training; for a shared track under differential privacy, DP-SGD with noise for the whole plan."""
        settings, privacy = self.settings, self.settings.privacy
        if privacy.mode != "dp" or lone:
            return Trainer(self.tables, self.graph.train, self.train_settings)
        assert privacy.epsilon is not None
        steps = settings.dp.steps_in(self.plan.total)
        sampling = settings.dp.rate if settings.dp.rate < 1 else None
        multiplier = noise_for(privacy.epsilon, privacy.delta, steps, sampling)
        margin = margin_of(self.train_settings)
        lr = settings.dp.rate_for(multiplier, steps, self.tables.width("entity"), margin)
        dp = settings.dp.model_copy(update={"noise": multiplier, "lr": lr})
        self._priced = dp_sgd(multiplier, settings.dp.steps_in(1), sampling)
        return DpTrainer(self.tables, self.graph.train, self.train_settings, dp, noise)

    @property
    def _blind(self) -> bool:
        """Whether nothing that others could see may follow from counts or validation triples (differential privacy)."""
        return self._priced is not None

    @property
    def peers(self) -> dict[str, PeerProfile]:
        """The peers it exchanges with, by name."""
        return self.exchange.peers

    @property
    def frame(self) -> str:
        """The coordinate frame its vectors are in."""
        return self.exchange.frame

    # -- training ------------------------------------------------------------------------------------

    @property
    def spent(self) -> bool:
        """Whether the owner has used up its epochs."""
        return self.trainer.epoch >= self.plan.total

    def epochs_in_next_round(self, initial: bool) -> int:
        """How many epochs the next `improve` finishes, the rest of an interrupted one included."""
        # A later round first finishes an interrupted epoch, before updates are aggregated; a first training resumes it.
        interrupted = bool(self.trainer.chunk) and not initial
        epoch = self.trainer.epoch + interrupted
        # Rounds end on the same epochs at every owner and after every restart, so that validations do too.
        begun = max(0, epoch - self.plan.initial) % self.settings.epochs
        until = min(self.plan.initial if initial else epoch - begun + self.settings.epochs, self.plan.total)
        return max(0, until - epoch) + interrupted

    def improve(
        self, updates: Sequence[ReceivedUpdate] = (), *, initial: bool = False, pause: Callable[[], bool] | None = None
    ) -> Outcome:
        """Do one round: aggregate, train, validate, keep or roll back.

        Args:
            updates: what peers sent since the last round.
            initial: the first training: as many epochs as the plan has for it, less those done before a restart.
            pause: called after every epoch, and between the chunks of a long one, to look after other things. If it
                returns True, the round is left where it is.
        """
        trainer, plan, activity = self.trainer, self.plan, self.activity
        until = trainer.epoch + self.epochs_in_next_round(initial)
        if trainer.chunk and not initial:
            halted = self._epoch(pause)
            if not trainer.chunk and (self.spent or (trainer.epoch - plan.initial) % self.settings.epochs == 0):
                outcome = self._end_round(None, initial=False)  # of the round whose last epoch was interrupted
                if trainer.epoch == until:
                    return outcome
            if halted:
                return Outcome(best=activity.best_score, halted=True)
        brought: list[ReceivedUpdate] = []
        if updates:
            activity.count(updates)
            with self.activity.clock("translate"):
                frame = self.exchange.frame
                brought = self.exchange.aggregate(updates, self._timed_score)
                if self.exchange.frame != frame and not self.tables.model.rotation_invariant:
                    trainer.lr_scale = 1.0  # rows were drawn afresh: what was learned of the rate is of other ones
            if self.settings.validate_means and self._untested + 1 >= self.settings.test_every and not self._blind:
                self._validate_mean()
        every = self.settings.test_every * self.settings.epochs
        validates = initial and plan.alone and not self._blind
        tested: tuple[float | None, bool] | None = None
        with self.exchange.grafted(trainer, brought):
            while trainer.epoch < until:
                halted = self._epoch(pause)
                if validates and not trainer.chunk and is_due(trainer.epoch, every, until):
                    score, better = self._validate()
                    tested = score, better or bool(tested and tested[1])
                if halted:
                    break
        if trainer.epoch < until:
            return Outcome(best=activity.best_score, halted=True)
        return self._end_round(tested, initial)

    def _end_round(self, tested: tuple[float | None, bool] | None, initial: bool) -> Outcome:
        """Validate if that is due, keep the vectors or roll back; `tested` is what validations before this found."""
        activity = self.activity
        score, improved = tested or (None, False)
        backtracked = False
        self._untested += 1
        if initial and self.plan.alone:
            backtracked = self._roll_back()
            self._untested = 0
            self.trainer.lr_scale = 1.0  # the next phase begins at the full rate
        elif not self._blind and (self._untested >= self.settings.test_every or self.spent):
            score, improved = self._validate()
            activity.accepted += activity.pending if improved else 0
            activity.pending = self._untested = 0
            if self.settings.patience and activity.stale >= self.settings.patience:
                backtracked = self._roll_back()
                activity.backtracked += 1
        news = improved or initial or not backtracked
        return Outcome(news, self.spent, score, activity.best_score, improved, backtracked)

    def _epoch(self, pause: Callable[[], bool] | None) -> bool:
        """Train one epoch, or the rest of one; return whether `pause` asked to leave."""
        trainer = self.trainer

        def between() -> bool:
            # An epoch with virtual triples cannot be left half-way: they will not be there when it is resumed.
            return pause is not None and pause() and not trainer.grafted

        if self._priced is not None and not trainer.chunk:
            self.egress.pay_for_epoch(trainer.epoch, self._priced)
        with self.activity.clock("train"):
            whole = self.loop.run_epoch(stop=between) is not None
        self.activity.epochs = trainer.epoch
        return not whole or (pause is not None and pause())

    # -- validating ----------------------------------------------------------------------------------

    def score(self) -> float:
        """Filtered MRR of the vectors as they are, on the validation triples that decide.

        Raises:
            RunError: there are no such triples.
        """
        if len(self._decide) == 0:
            raise RunError(
                f"{self.name}: has no validation triples to decide on; give it more, or let all decide (--decide all)"
            )
        return metrics(rank(self.tables, self._decide, known=self._known))["mrr"]

    def _timed_score(self) -> float:
        """`score`, counted: every look at validation triples is a test."""
        with self.activity.clock("test"):
            score = self.score()
        self.activity.tests += 1
        return score

    def _validate(self) -> tuple[float, bool]:
        """Score the vectors and keep them if they are the best; return the score, and whether they are."""
        score = self._timed_score()
        improved = self.loop.record(score)
        if improved:
            self._best_frame = self.exchange.frame
        return score, improved

    def _validate_mean(self) -> None:
        """Keep the vectors as an exchange left them, if they are the best so far; else nothing changes.

        Owners' means know more of what each of them states; training on one graph takes some of it away again, for
        its loss counts what that graph does not state as wrong.
        """
        score, best = self._timed_score(), self.activity.best_score
        if best is not None and score > best:
            self.loop.best.update(score, self.trainer.epoch)
            self._best_frame = self.exchange.frame

    def _roll_back(self) -> bool:
        """Return to the best vectors, with the optimiser's state and the frame they had."""
        if not self.loop.roll_back():
            return False
        self.exchange.frame = self._best_frame
        return True

    def best(self) -> Tables:
        """The tables at their best, for answers and reports, once all rounds are done.

        Under differential privacy that is where they ended: nothing is chosen on raw validation triples.
        """
        if isinstance(self.trainer, DpTrainer):
            for kind in KINDS:  # private training knows no inverse rows
                self.tables[kind].copy_(self.trainer.averaged(kind))
            return self.tables
        if self._untested:  # it ended between two validations
            self._validate()
            self._untested = 0
        if self.loop.best.restore():
            self.exchange.frame = self._best_frame
        return self.tables

    # -- exchanging ----------------------------------------------------------------------------------

    def make_update(self, peer: str, mode: Translate) -> Update:
        """The update to send to `peer`. Experiments override it to send something else."""
        return self.exchange.make_update(peer, mode)

    def client(self, peer: str, session: int) -> ClientRole:
        """The client's role in an exchange with `peer`."""
        with self.activity.clock("translate"):
            mode = self.exchange.mode(peer)
            host_dim = self.peers[peer].widths["entity"]
            noise = self._noise(peer, session, "client")
            return client_role(mode, self.make_update(peer, mode), host_dim, self.settings.ppat, noise)

    def host(self, peer: str, session: int) -> HostRole:
        """The host's role in an exchange with `peer`.

        Its first step raises `BudgetError` if the votes of a game would exceed what the owner may ever spend.
        """
        with self.activity.clock("translate"):
            exchange, game = self.exchange, self.settings.ppat
            queries = game.queries(len(exchange.common(peer)))
            return host_role(
                exchange.mode(peer), peer, exchange.rows(peer), self.peers[peer].widths, game,
                self._noise(peer, session, "host"),
                # Votes that were paid for get noise from the system's entropy, whatever seed the run has.
                Noise(fresh_key()) if self.settings.privacy.mode == "paper" else None,
                wanted=exchange.extras(peer),
                pay=lambda: self.egress.pay_for_votes(peer, session, queries, game.lam),
            )  # fmt: skip

    @property
    def work(self) -> int:
        """Triples in an epoch, for an engine's clock; a public number where counts are private."""
        return 10_000 * self.settings.dp.steps_in(1) if self._blind else self.trainer.triples

    def _noise(self, peer: str, session: int, role: str) -> torch.Generator:
        return torch.Generator().manual_seed(
            seed_of(self._secret, self.name, peer, str(session), str(self.trainer.epoch), role)
        )

    # -- checkpoint ----------------------------------------------------------------------------------

    @property
    def can_save(self) -> bool:
        """Whether `save` may be called now: at any time but while virtual rows are grafted, which must not be kept."""
        return not self.trainer.grafted

    def renew_secret(self) -> None:
        """Draw a new seed of rotations and noise: a round that is done again must not repeat what peers have seen."""
        self._secret = secrets.randbits(62)

    def save(self, path: Path) -> None:
        """Write everything that is needed to resume from here, the best vectors included, as one file."""
        tensors = {f"now/{name}": t for name, t in self.tables.export(state=True).items()}
        if (best := self.loop.best.snapshot) is not None:
            tensors |= {f"best/{kind}/{name}": t for (kind, name), t in best.tensors.items()}
        state = {
            "owner": self.name, "graph": self.graph.fingerprint, "trainer": self.trainer.position(),
            "activity": asdict(self.activity), "frame": self.frame, "best_frame": self._best_frame,
            "untested": self._untested, "ledger": None if self.egress.head is None else asdict(self.egress.head),
        }  # fmt: skip
        save_tensors(path, OWNER_FILE, tensors, state, digest=True)

    def load(self, path: Path) -> None:
        """Resume from what `save` wrote.

        Raises:
            RunError: the file is damaged, or of another owner or graph.
            LedgerError: the ledger is behind what the file says was spent.
        """
        tensors, state = load_tensors(path, OWNER_FILE)
        if state.get("owner") != self.name or state.get("graph") != self.graph.fingerprint:
            raise RunError(f"{path}: belongs to {state.get('owner')!r} with another graph, not to {self.name!r}")
        if state["ledger"] is not None and self.egress.ledger is not None:
            self.egress.ledger.verify(Head(**state["ledger"]))
        self.tables.load({name.removeprefix("now/"): t for name, t in tensors.items() if name.startswith("now/")})
        self.trainer.move_to(state["trainer"])
        self.egress.resume(self.trainer.epoch)
        if self._priced is not None and self.trainer.chunk:  # the rest of an epoch is made with other noise
            self.egress.pay_for_epoch(self.trainer.epoch, self._priced)
        self.activity = self.loop.best.state = Activity(**state["activity"])
        self.exchange.frame, self._best_frame, self._untested = state["frame"], state["best_frame"], state["untested"]
        best = {name.removeprefix("best/"): t for name, t in tensors.items() if name.startswith("best/")}
        if best:
            keys = self.tables.snapshot().tensors
            tensors_of_best = {key: best[f"{key[0]}/{key[1]}"].to(self.tables.device) for key in keys}
            self.loop.best.snapshot = Snapshot(tensors_of_best)


def begin_together(
    tables: Tables, tokens: Tokens, settings: TrainSettings, seed: int, rows: Mapping[Kind, Tensor] | None = None
) -> None:
    """Every row begins at a vector given by its token, so that rows with one token begin alike wherever they are.

    Args:
        rows: where the tokens' rows stand in `tables`, by kind; in the same order if None.
    """
    for number, kind in enumerate(KINDS):
        spec = tables.spec(kind)
        if spec.init != "uniform":
            continue  # phases of RotatE: each owner's own, brought together by the first exchange
        half = initial_bound(settings) if spec.bound is None else spec.bound
        vectors = torch.from_numpy(initial_vectors(tokens[kind], tables.width(kind), half, 2 * seed + number))
        place = torch.arange(tables.count(kind)) if rows is None else rows[kind]
        tables.replace(kind, place, vectors.to(tables.dtype), keep_state=True)


def seed_of(*parts: object) -> int:
    """A seed below 2⁶³ that follows from all parts."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1

"""One owner: its graph, its vectors, and everything it can do with them. Knows peers by name; sends nothing itself.

`improve` is the body of Algorithm 1: aggregate, train, test, keep or go back. `client` and `host` give the roles of an
exchange. The protocol says when; an engine carries the messages.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.align import Common, Tokens, initial_vectors
from fkge.align.links import KINDS, degrees
from fkge.embed import DpTrainer, Snapshot, Tables, Trainer, initial_bound, load_tensors, make_tables, save_tensors
from fkge.embed.dp_noise import Noise, fresh_key
from fkge.embed.losses import margin_of
from fkge.embed.models import Kind
from fkge.errors import RunError
from fkge.evaluation import Known, metrics, rank
from fkge.federation.aggregate import MIXES, Part, given, weighted_mean
from fkge.federation.exchange import SLOTS, ClientRole, Gift, HostRole, Offer, aligned, client_role, host_role
from fkge.federation.gate import Gate, Step
from fkge.federation.limits import limited, short
from fkge.federation.settings import FederationSettings, Translate
from fkge.graph import Graph, sample_triples
from fkge.graph.graph import HEAD, RELATION, TAIL, Triples
from fkge.privacy import Head, noise_for
from fkge.settings import TrainSettings

TOGETHER = ""
"""The frame of owners that started together. It sorts before every name, so whoever comes later turns into it."""

OWNER_FILE = "fkge.owner.1"
_ENTITIES: tuple[Kind, ...] = ("entity",)


@dataclass(frozen=True)
class Acquaintance:
    """What an owner knows of a peer: what they share, and the form of the peer's vectors.

    Attributes:
        common: this owner's side of the alignment.
        model: the peer's model.
        widths: of its vectors, by kind.
    """

    common: Common
    model: str
    widths: Mapping[Kind, int]


@dataclass(frozen=True)
class Plan:
    """How many epochs an owner spends, and on what.

    Attributes:
        initial: of the first training.
        total: of everything.
        alone: the first training is a lone owner's, with a learning-rate schedule and early best of its own.
    """

    initial: int
    total: int
    alone: bool

    @classmethod
    def of(cls, settings: FederationSettings) -> Plan:
        """As the settings say."""
        if settings.start == "alone":
            return cls(settings.initial_epochs, settings.total_epochs, alone=True)
        return cls(min(settings.epochs, settings.total_epochs), settings.total_epochs, alone=False)


@dataclass
class Activity:
    """What an owner did so far.

    Attributes:
        epochs: spent so far.
        best_score: on the validation triples that decide; best_epoch: when.
        tests: how many; stale: since the best one, or since it went back to that.
        rounds: exchanges aggregated and trained on; pending: those since the last test; accepted: those that led to a
            better score at the next test.
        backtracked: times it went back to its best vectors.
        handshakes: translations hosted, by peer.
        seconds: CPU time by activity.
        sent: bytes, by peer.
    """

    epochs: int = 0
    best_score: float | None = None
    best_epoch: int = 0
    tests: int = 0
    stale: int = 0
    rounds: int = 0
    pending: int = 0
    accepted: int = 0
    backtracked: int = 0
    handshakes: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=lambda: {"train": 0.0, "translate": 0.0, "test": 0.0})
    sent: dict[str, int] = field(default_factory=dict)
    price: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What came of an `improve`.

    Attributes:
        news: there is something new to offer.
        spent: all epochs are used up.
        score: on validation triples, if a test was due; best: the highest so far.
        improved: this one is; backtracked: the owner went back to its best vectors.
        halted: `pause` asked to leave; the work is not over, and can be taken up again later.
    """

    news: bool
    spent: bool
    score: float | None
    best: float | None
    improved: bool
    backtracked: bool
    halted: bool = False


class Owner:
    """An owner of a graph.

    Args:
        name: what peers call it.
        graph: its own.
        settings: how it federates; `train` is how it trains.
        peers: whom it knows.
        plan: what it spends; as the settings say if None.
        seed: of everything random that is not secret.
        decide: (k, 3) validation triples that decide; all of the graph's if None. A sample of
            `train.validation_triples` of them is used, always the same.
        tokens: where aligned rows begin, to start together.
        secret: seed of rotations and of a game's noise. Draw it where nobody can look; a simulation may fix it.
        random: offer random vectors instead of rows: a control.
        gate: the way out; one without a ledger if None.
        noise: of DP-SGD; drawn from the system's entropy if None. A noise that can be drawn again protects nothing.
    """

    def __init__(
        self,
        name: str,
        graph: Graph,
        settings: FederationSettings,
        peers: Mapping[str, Acquaintance] | None = None,
        *,
        plan: Plan | None = None,
        seed: int = 0,
        decide: Triples | None = None,
        tokens: Tokens | None = None,
        secret: int = 0,
        random: bool = False,
        gate: Gate | None = None,
        noise: torch.Generator | None = None,
    ) -> None:
        self.name = name
        self.graph = graph
        self.settings = settings
        self.peers = dict(peers or {})
        """Whom it deals with; see `_deals_with`."""
        self.plan = plan or Plan.of(settings)
        self.activity = Activity()
        self.gate = gate or Gate(settings)
        train = settings.shared_train if gate is not None else settings.train
        self.train_settings: TrainSettings = train.model_copy(update={"seed": seed_of(seed, name, "train")})
        self.tables: Tables = make_tables(self.train_settings, len(graph.entities), len(graph.relations))
        self.frame = name
        if tokens is not None and settings.start == "together":
            begin_together(self.tables, tokens, self.train_settings, seed)
            self.frame = TOGETHER
        self._random = random
        self._step: Step | None = None
        self.trainer = self._make_trainer(noise, lone=gate is None)
        self.peers = {peer: known for peer, known in self.peers.items() if self._deals_with(peer)}
        self._secret = secret
        self._known = Known.of(graph)
        deciding = graph.valid if decide is None else decide
        self._decide = sample_triples(deciding, self.train_settings.validation_triples, seed)
        # Under differential privacy nothing that others see may follow from raw counts, whatever a peer sends.
        self._support = {k: torch.ones(len(v)) for k, v in _support(graph).items()} if self._blind else _support(graph)
        self._best: Snapshot | None = None
        self._best_frame = self.frame
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
        self._step = Step(multiplier, sampling)
        return DpTrainer(self.tables, self.graph.train, self.train_settings, dp, noise)

    @property
    def _blind(self) -> bool:
        """Whether nothing that others could see may be decided on validation triples."""
        return self._step is not None

    # -- training ------------------------------------------------------------------------------------

    @property
    def spent(self) -> bool:
        """Whether the owner has used up its epochs."""
        return self.trainer.epoch >= self.plan.total

    def improve(
        self, gifts: Sequence[Gift] = (), *, initial: bool = False, pause: Callable[[], bool] | None = None
    ) -> Outcome:
        """Aggregate, train, test, keep or go back.

        Args:
            gifts: what peers gave since.
            initial: the first training: as many epochs as the plan has for it, less those done in an earlier life.
            pause: called after every epoch, and between the chunks of a long one, to look after other things. If it
                says True, the owner leaves its work where it is.
        """
        trainer, plan = self.trainer, self.plan
        if trainer.chunk and not initial and self._epoch(pause):  # an epoch that broke off; before gifts come into it
            return self._left()
        brought: list[Gift] = []
        if gifts:
            with self.clock("translate"):
                brought = self._aggregate(gifts)
            self.activity.rounds += 1
            self.activity.pending += 1
        # Slices end on the same epochs at every owner and in every life, so that tests do too.
        begun = max(0, trainer.epoch - plan.initial) % self.settings.epochs
        until = min(plan.initial if initial else trainer.epoch - begun + self.settings.epochs, plan.total)
        score, improved, backtracked = None, False, False
        with self._grafted(brought):
            while trainer.epoch < until:
                halted = self._epoch(pause)
                if initial and plan.alone and not self._blind and not trainer.chunk and self._due(until):
                    score, better = self._test()
                    improved = improved or better
                if halted:
                    break
        if trainer.epoch < until:
            return self._left()
        self._untested += 1
        if initial and plan.alone:
            backtracked = self._go_back()
            self._untested = 0
            trainer.lr_scale = 1.0  # what comes next is a phase of its own
        elif not self._blind and (self._untested >= self.settings.test_every or self.spent):
            score, improved = self._test()
            self.activity.accepted += self.activity.pending if improved else 0
            self.activity.pending = self._untested = 0
            patience = self.settings.patience
            if patience and self.activity.stale >= patience:
                backtracked = self._go_back()
                self.activity.backtracked += 1
        news = improved or initial or not backtracked
        return Outcome(news, self.spent, score, self.activity.best_score, improved, backtracked)

    def _left(self) -> Outcome:
        return Outcome(False, False, None, self.activity.best_score, improved=False, backtracked=False, halted=True)

    def _epoch(self, pause: Callable[[], bool] | None) -> bool:
        """One epoch, or the rest of one. Whether `pause` said to leave."""
        trainer = self.trainer
        if self.train_settings.schedule == "linear":
            first, last = self._phase(trainer.epoch)
            trainer.fall_linearly(trainer.epoch - first, last - first)

        def between() -> bool:
            # An epoch with virtual triples in it cannot be left half-way: they will not be there to go on with.
            return pause is not None and pause() and not trainer.grafted

        if self._step is not None and not trainer.chunk:
            self.gate.pay_for_epoch(trainer.epoch, self._step, self.settings.dp.steps_in(1))
        with self.clock("train"):
            whole = trainer.run_epoch(stop=between) is not None
        self.activity.epochs = trainer.epoch
        return not whole or (pause is not None and pause())

    def _phase(self, epoch: int) -> tuple[int, int]:
        """The epochs, from and to, over which the learning rate falls: a lone first training is a phase of its own."""
        if not self.plan.alone:
            return 0, self.plan.total
        return (0, self.plan.initial) if epoch < self.plan.initial else (self.plan.initial, self.plan.total)

    def _due(self, until: int) -> bool:
        every = self.settings.test_every * self.settings.epochs
        return self.trainer.epoch % every == 0 or self.trainer.epoch == until

    # -- testing -------------------------------------------------------------------------------------

    def score(self) -> float:
        """Filtered MRR of the vectors as they are, on the validation triples that decide."""
        if len(self._decide) == 0:
            raise RunError(
                f"{self.name}: has no validation triples to decide on; give it more, or let all decide (--decide all)"
            )
        return metrics(rank(self.tables, self._decide, known=self._known))["mrr"]

    def _test(self) -> tuple[float, bool]:
        """The validation score, and whether it is the best so far; then the vectors are kept."""
        with self.clock("test"):
            score = self.score()
        activity = self.activity
        activity.tests += 1
        if activity.best_score is not None and score <= activity.best_score:
            activity.stale += 1
            if self.train_settings.schedule == "plateau":
                self.trainer.lr_scale *= self.train_settings.decay
            return score, False
        activity.best_score, activity.best_epoch, activity.stale = score, self.trainer.epoch, 0
        self._best = self.tables.snapshot(self._best)
        self._best_frame = self.frame
        return score, True

    def _go_back(self) -> bool:
        """To the best vectors, with the optimiser's state and the frame they had."""
        if self._best is None or self.activity.stale == 0:
            return False
        self.tables.restore(self._best)
        self.frame = self._best_frame
        self.activity.stale = 0
        return True

    def best(self) -> Tables:
        """The tables, at their best. For answers and reports; the owner's work is over.

        Under differential privacy that is where they ended: nothing is chosen on raw validation triples.
        """
        if isinstance(self.trainer, DpTrainer):
            for kind in KINDS:
                self.tables[kind].copy_(self.trainer.averaged(kind))
            return self.tables
        if self._untested:  # it ended between two tests
            self._test()
            self._untested = 0
        if self._best is not None:
            self.tables.restore(self._best)
            self.frame = self._best_frame
        return self.tables

    # -- exchanging ----------------------------------------------------------------------------------

    def mode(self, peer: str) -> Translate:
        """How vectors pass between this owner and `peer`. Owners with other models or widths cannot share a frame."""
        mode = self.settings.translate
        if mode == "frame" and not self._alike(peer):
            return "procrustes"
        return mode

    def _alike(self, peer: str) -> bool:
        other = self.peers[peer]
        return other.model == self.train_settings.model and all(
            other.widths[kind] == self.tables.width(kind) for kind in KINDS
        )

    def common(self, peer: str) -> Common:
        """What is exchanged with `peer`: relations only if both models use them alike, and in the entities' space."""
        common = self.peers[peer].common
        return common if self._relations_pass(peer) else common.only(_ENTITIES)

    def _relations_pass(self, peer: str) -> bool:
        return self._alike(peer) and (self.mode(peer) == "frame" or self._one_space)

    def _deals_with(self, peer: str) -> bool:
        """Whether there is enough to exchange; both sides come to the same answer."""
        rows = len(self.common(peer))
        return rows >= self.settings.ppat.teachers if self.mode(peer).startswith("ppat") else rows > 0

    def meet(self, peer: str, known: Acquaintance) -> bool:
        """Make a new acquaintance, or an old one anew. Whether there is enough to exchange with it."""
        self.peers[peer] = known
        if not self._deals_with(peer):
            del self.peers[peer]
            return False
        return True

    def part_with(self, peer: str) -> None:
        """Know a peer no more."""
        self.peers.pop(peer, None)

    @property
    def _one_space(self) -> bool:
        """Whether relations live in the entities' space, so that one mapping serves both."""
        return (
            self.tables.width("relation") == self.tables.width("entity")
            and self.tables.spec("relation").turns == "vector"
        )

    def client(self, peer: str, session: int) -> ClientRole:
        """The client's role in an exchange with `peer`."""
        with self.clock("translate"):
            mode = self.mode(peer)
            host_dim = self.peers[peer].widths["entity"]
            return client_role(
                mode, self._offer(peer, mode), host_dim, self.settings.ppat, self._noise(peer, session, "client")
            )

    def host(self, peer: str, session: int) -> HostRole:
        """The host's role in an exchange with `peer`.

        Its first step raises `BudgetError` if the votes of a game would exceed what the owner may ever spend.
        """
        with self.clock("translate"):
            game = self.settings.ppat
            queries = game.queries(len(self.common(peer)))
            return host_role(
                self.mode(peer), peer, self._rows(peer), self.peers[peer].widths, self.settings.ppat,
                self._noise(peer, session, "host"),
                # Votes that were paid for get noise from the system's entropy, whatever seed the run has.
                Noise(fresh_key()) if self.settings.privacy.mode == "paper" else None,
                wanted=self._wanted(peer), pay=lambda: self.gate.pay_for_votes(peer, session, queries, game.lam),
            )  # fmt: skip

    def _wanted(self, peer: str) -> frozenset[str]:
        """What an offer may hold beside rows: as this owner would send it."""
        wanted = set[str]()
        if self.settings.aggregate == "support" and not self._blind:
            wanted.add("weights")
        if self.settings.moments == "average":
            wanted.add("moments")
        if self.settings.neighbours and self._relations_pass(peer):
            wanted.add("neighbours")
        return frozenset(wanted)

    @property
    def work(self) -> int:
        """How much an epoch is, in triples, for an engine's clock: a public number where counts are not."""
        return 10_000 * self.settings.dp.steps_in(1) if self._blind else self.trainer.triples

    def _noise(self, peer: str, session: int, role: str) -> torch.Generator:
        return torch.Generator().manual_seed(
            seed_of(self._secret, self.name, peer, str(session), str(self.trainer.epoch), role)
        )

    def _ids(self, peer: str, kind: Kind) -> Tensor:
        return torch.from_numpy(self.common(peer).ids(kind).copy())

    def _rows(self, peer: str) -> dict[Kind, Tensor]:
        return {kind: self.tables.read(kind, self._ids(peer, kind)).cpu() for kind in KINDS}

    def _offer(self, peer: str, mode: Translate) -> Offer:
        rows = self._rows(peer)
        if self._random:
            return Offer(0, self.frame, *(self._at_random(kind, rows[kind]) for kind in KINDS))
        extra: dict[str, Tensor] = {}
        if self.settings.aggregate == "support" and mode in ("frame", "procrustes") and not self._blind:
            for kind in KINDS:
                extra[f"{kind}_weight"] = self._support[kind][self._ids(peer, kind)]
        if self.settings.moments == "average" and mode == "frame":
            for kind in KINDS:
                if all(self.tables.has_state(kind, slot) for slot in SLOTS):
                    ids = self._ids(peer, kind).to(self.tables.device)
                    states = [self.tables.state(kind, slot)[ids].cpu() for slot in SLOTS]
                    extra[f"{kind}_moments"] = torch.stack(states)
        if self.settings.neighbours and self._relations_pass(peer):  # a neighbour is told by the relation to it
            extra |= self._neighbourhood(peer)
        return Offer(0, self.frame, rows["entity"], rows["relation"], **extra)

    def _at_random(self, kind: Kind, rows: Tensor) -> Tensor:
        """Vectors that know nothing, as large as the owner's own."""
        seed = seed_of(self._secret, self.name, kind, self.trainer.epoch)
        return torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed)) * self.tables[kind].std().cpu()

    def _neighbourhood(self, peer: str) -> dict[str, Tensor]:
        """Entities next to shared ones, the relations between, and those triples; positions as `Offer` counts them."""
        common, train = self.common(peer), self.graph.train
        place = _places(len(self.graph.entities), common.entities)
        near = train[(place[train[:, HEAD]] >= 0) != (place[train[:, TAIL]] >= 0)]
        ends = near[:, [HEAD, TAIL]]
        others = np.unique(ends[place[ends] < 0])
        place[others] = len(common.entities) + np.arange(len(others))
        joint = _places(len(self.graph.relations), common.relations)
        joining = np.unique(near[:, RELATION][joint[near[:, RELATION]] < 0])
        joint[joining] = len(common.relations) + np.arange(len(joining))
        coded = np.stack([place[near[:, HEAD]], joint[near[:, RELATION]], place[near[:, TAIL]]], axis=1)
        return {
            "neighbours": self.tables.read("entity", torch.from_numpy(others.astype(np.int64))).cpu(),
            "joining": self.tables.read("relation", torch.from_numpy(joining.astype(np.int64))).cpu(),
            "triples": torch.from_numpy(coded.astype(np.int64)),
        }

    # -- aggregating ---------------------------------------------------------------------------------

    def _aggregate(self, gifts: Sequence[Gift]) -> list[Gift]:
        """Take the gifts into the tables; return them as they were brought into this owner's space."""
        for gift in gifts:
            for key, value in gift.price.items():
                self.activity.price[key] = self.activity.price.get(key, 0.0) + value
            self.activity.handshakes[gift.peer] = self.activity.handshakes.get(gift.peer, 0) + 1
        self._agree_on_frame(gifts)
        brought = [self._limited(self._bring_home(gift)) for gift in gifts]
        for kind in KINDS:
            self._aggregate_kind(kind, brought)
        return brought

    def _agree_on_frame(self, gifts: Sequence[Gift]) -> None:
        """Turn the whole table, once, into the most senior frame among the gifts, if it is senior to one's own.

        Frames are ordered by their founders' names, and every pair of owners applies this rule; so all owners that
        are connected end in one frame, the first. Without a server, and whoever joins late.
        """
        if self.settings.translate != "frame" or not self.tables.model.rotation_invariant:
            return
        senior = min((g for g in gifts if g.frame is not None and not g.refine), key=_frame, default=None)
        if senior is not None and _frame(senior) < self.frame:
            self.tables.rotate(aligned(senior, self._rows(senior.peer), self._one_space).T)
            self.frame = _frame(senior)

    def _bring_home(self, gift: Gift) -> Gift:
        """The gift in this owner's space: as it is where both live in one frame, else aligned on the shared rows.

        Relations that live in a space of their own (TransR, RotatE) are not brought along: of them, the host keeps its
        own, and neighbours, which they lead to, are left out.
        """
        if not gift.refine and gift.frame in (None, self.frame):
            return gift
        own, one_space = self._rows(gift.peer), self._one_space
        gift = short(gift, own, self.settings.limit)
        w = aligned(gift, own, one_space)
        rows = {
            kind: rows @ w if rows.numel() and (one_space or kind == "entity") else own[kind]
            for kind, rows in gift.rows.items()
        }
        virtual = gift.virtual if one_space else None
        if virtual is not None:
            relations = virtual.relations @ w if virtual.relations.numel() else virtual.relations
            virtual = type(virtual)(virtual.entities @ w, relations, virtual.triples)
        return Gift(gift.peer, rows, frame=self.frame, weights=gift.weights, virtual=virtual)

    def _limited(self, gift: Gift) -> Gift:
        largest = {kind: float(self._support[kind].max()) for kind in KINDS}
        squares = {
            kind: float(self.tables.state(kind, "square").max()) if self.tables.has_state(kind, "square") else 0.0
            for kind in KINDS
        }
        return limited(gift, self._rows(gift.peer), self.settings.limit, largest, squares)

    def _aggregate_kind(self, kind: Kind, gifts: Sequence[Gift]) -> None:
        table = self.tables[kind].cpu()
        how = self.settings.aggregate
        weighted = how == "support" and not self._blind and all(g.weights is not None for g in gifts)
        parts = []
        for gift in gifts:
            ids = self._ids(gift.peer, kind)
            weights = gift.weights[kind] if weighted and gift.weights is not None else torch.ones(len(ids))
            parts.append(Part(ids, gift.rows[kind], weights.to(table.dtype)))
        ids = given(len(table), parts)
        if len(ids) == 0:
            return
        own = self._support[kind] if weighted else torch.ones(len(table))
        if how in ("replace", "validation"):
            own = own.clone()
            own[ids] = 0
        mean = weighted_mean(table, own.to(table.dtype), parts)[ids]
        if how == "validation":
            mean = self._best_mix(kind, ids, mean)
        self.tables.replace(kind, ids, mean, keep_state=self.settings.moments != "fresh")
        if self.settings.moments == "average":
            self._average_moments(kind, gifts, parts, own)

    def _best_mix(self, kind: Kind, ids: Tensor, received: Tensor) -> Tensor:
        """The mix of own and received rows with the best validation score, before any training."""
        own = self.tables.read(kind, ids).cpu()
        scores = {}
        for mix in MIXES:
            self.tables.replace(kind, ids, torch.lerp(own, received, mix), keep_state=True)
            with self.clock("test"):
                scores[mix] = self.score()
            self.activity.tests += 1  # it is a look at validation triples like any other
        return torch.lerp(own, received, max(scores, key=lambda mix: scores[mix]))

    def _average_moments(self, kind: Kind, gifts: Sequence[Gift], parts: Sequence[Part], own: Tensor) -> None:
        states = [self.tables.state(kind, slot) for slot in SLOTS]
        moments = [
            Part(part.ids, gift.moments[kind], part.weights)
            for gift, part in zip(gifts, parts, strict=True)
            if gift.moments is not None
        ]
        if not moments:
            return
        mean = weighted_mean(torch.stack([s.cpu() for s in states]), own.to(states[0].dtype), moments)
        ids = given(mean.shape[1], moments).to(self.tables.device)
        for state, new in zip(states, mean.to(self.tables.device), strict=True):
            state[ids] = new[ids]

    @contextmanager
    def _grafted(self, gifts: Sequence[Gift]) -> Iterator[None]:
        """Virtual rows and triples of all gifts, for the time of a training; gone afterwards, whatever happens."""
        brought = [gift for gift in gifts if gift.virtual is not None]
        if not brought:
            yield
            return
        entities, relations, triples = [], [], []
        e, r = self.tables.entities, self.tables.relations
        for gift in brought:
            virtual = gift.virtual
            assert virtual is not None
            known_e, known_r = self._ids(gift.peer, "entity"), self._ids(gift.peer, "relation")
            place_e = torch.cat([known_e, torch.arange(len(virtual.entities)) + e])
            place_r = torch.cat([known_r, torch.arange(len(virtual.relations)) + r])
            coded = virtual.triples
            triples.append(torch.stack([place_e[coded[:, 0]], place_r[coded[:, 1]], place_e[coded[:, 2]]], dim=1))
            entities.append(virtual.entities)
            relations.append(virtual.relations)
            e, r = e + len(virtual.entities), r + len(virtual.relations)
        self.trainer.graft(torch.cat(entities), torch.cat(relations), torch.cat(triples))
        try:
            yield
        finally:
            self.trainer.ungraft()

    # -- surviving -----------------------------------------------------------------------------------

    @property
    def can_save(self) -> bool:
        """Whether `save` may be called now: at any time but while virtual rows are grafted, which must not be kept."""
        return not self.trainer.grafted

    def renew_secret(self) -> None:
        """Draw rotations and noise anew from now on: what is lived again must not repeat what peers have seen."""
        self._secret = secrets.randbits(62)

    def save(self, path: Path) -> None:
        """Write everything that is needed to go on from here, the best vectors included, as one file."""
        tensors = {f"now/{name}": t for name, t in self.tables.export(state=True).items()}
        if self._best is not None:
            tensors |= {f"best/{kind}/{name}": t for (kind, name), t in self._best.tensors.items()}
        state = {
            "owner": self.name, "graph": self.graph.fingerprint, "trainer": self.trainer.position(),
            "activity": asdict(self.activity), "frame": self.frame, "best_frame": self._best_frame,
            "untested": self._untested, "ledger": None if self.gate.head is None else asdict(self.gate.head),
        }  # fmt: skip
        save_tensors(path, OWNER_FILE, tensors, state, digest=True)

    def load(self, path: Path) -> None:
        """Go on from what `save` wrote."""
        tensors, state = load_tensors(path, OWNER_FILE)
        if state.get("owner") != self.name or state.get("graph") != self.graph.fingerprint:
            raise RunError(f"{path}: belongs to {state.get('owner')!r} with another graph, not to {self.name!r}")
        if state["ledger"] is not None and self.gate.head is not None:
            self.gate.verify(Head(**state["ledger"]))
        self.tables.load({name.removeprefix("now/"): t for name, t in tensors.items() if name.startswith("now/")})
        self.trainer.move_to(state["trainer"])
        self.gate.resume(self.trainer.epoch)
        if self._step is not None and self.trainer.chunk:  # the rest of an epoch is made with other noise
            self.gate.pay_for_epoch(self.trainer.epoch, self._step, self.settings.dp.steps_in(1))
        self.activity = Activity(**state["activity"])
        self.frame, self._best_frame, self._untested = state["frame"], state["best_frame"], state["untested"]
        best = {name.removeprefix("best/"): t for name, t in tensors.items() if name.startswith("best/")}
        if best:
            keys = self.tables.snapshot().tensors
            self._best = Snapshot({key: best[f"{key[0]}/{key[1]}"].to(self.tables.device) for key in keys})

    def account(self) -> dict[str, Any]:
        """What was spent and what left, for the report."""
        return self.gate.account()

    @contextmanager
    def clock(self, activity: str) -> Iterator[None]:
        started = time.thread_time()
        try:
            yield
        finally:
            self.activity.seconds[activity] = self.activity.seconds.get(activity, 0.0) + time.thread_time() - started


def _frame(gift: Gift) -> str:
    assert gift.frame is not None
    return gift.frame


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
        vectors = torch.from_numpy(initial_vectors(tokens[kind], spec.width, half, 2 * seed + number))
        place = slice(None) if rows is None else rows[kind].to(tables.device)
        tables[kind][place] = vectors.to(tables.device, tables.dtype)


def seed_of(*parts: object) -> int:
    """A seed below 2⁶³ that follows from all parts."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def _support(graph: Graph) -> dict[Kind, Tensor]:
    """log(1 + training triples) of each row: what a mean weighs it by."""
    return {kind: torch.from_numpy(np.log1p(degrees(graph, kind)).astype(np.float32)) for kind in KINDS}


def _places(rows: int, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """(rows,) the position of each id in `ids`, −1 for none."""
    out = np.full(rows, -1, np.int64)
    out[ids] = np.arange(len(ids))
    return out

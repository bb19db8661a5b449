"""`Exchange` is an owner's side of all its exchanges: it selects the rows to send to each peer, and aggregates received
rows into the owner's tables (agree on a coordinate frame, shorten, align, limit, weighted mean).

It knows peers by name, draws nothing at random, sends nothing and writes no ledger:
`fkge.federation.owner.training.Owner` does that, and the messages are those of `fkge.federation.exchange`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.align import Common
from fkge.align.links import KINDS, degrees
from fkge.embed import DpTrainer, Tables, Trainer
from fkge.embed.models import Kind
from fkge.embed.optimizers import SLOTS
from fkge.federation.aggregation import MIXES, Part, given, weighted_mean
from fkge.federation.exchange import ReceivedUpdate, Update, Virtual, aligned
from fkge.federation.limits import limited, short
from fkge.federation.settings import FederationSettings, Translate
from fkge.graph import Graph
from fkge.graph.graph import HEAD, RELATION, TAIL

_ENTITIES: tuple[Kind, ...] = ("entity",)


@dataclass(frozen=True)
class PeerProfile:
    """A peer as an owner knows it: their alignment, and the form of the peer's vectors.

    Attributes:
        common: this owner's side of the alignment.
        model: the peer's model.
        widths: of its vectors, by kind.
    """

    common: Common
    model: str
    widths: Mapping[Kind, int]


@dataclass(eq=False)
class Exchange:
    """An owner's side of all its exchanges.

    Attributes:
        graph: the owner's.
        settings: how it federates.
        tables: the owner's; `aggregate` writes to them.
        model: name of the owner's model.
        peers: profiles of those it exchanges with, by name; of those given, it leaves out the ones with too little in
            common.
        frame: the name of the coordinate frame the tables are in; owners in one frame exchange rows as they are.
        blind: nothing that peers see may depend on counts of triples (differential privacy).
        support: log(1 + training triples) of each row, by kind: what a mean weighs it by.
    """

    graph: Graph
    settings: FederationSettings
    tables: Tables
    model: str
    peers: dict[str, PeerProfile]
    frame: str
    blind: bool
    support: dict[Kind, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.peers, given = {}, self.peers
        for peer, profile in given.items():
            self.add_peer(peer, profile)
        self.support = {
            kind: torch.ones(self.tables.count(kind))
            if self.blind
            else torch.from_numpy(np.log1p(degrees(self.graph, kind)).astype(np.float32))
            for kind in KINDS
        }

    # -- peers -----------------------------------------------------------------------------------------

    def add_peer(self, peer: str, profile: PeerProfile) -> bool:
        """Add a peer, or replace its profile; return False, and forget it, if the two have too little in common."""
        self.peers[peer] = profile
        if not self._has_enough(peer):
            del self.peers[peer]
            return False
        return True

    def mode(self, peer: str) -> Translate:
        """Return how vectors pass between this owner and `peer`; other models or widths cannot share a frame."""
        mode = self.settings.translate
        return "procrustes" if mode == "frame" and not self._alike(peer) else mode

    def common(self, peer: str) -> Common:
        """Return the rows shared with `peer`: relations only if both models use them alike, in the entities' space."""
        common = self.peers[peer].common
        return common if self._shares_relations(peer) else common.only(_ENTITIES)

    def extras(self, peer: str) -> frozenset[str]:
        """Return the parts of an update to or from `peer` in addition to rows, keys of `EXTRAS`."""
        settings = self.settings
        agreed = {
            "weights": settings.aggregate == "support" and not self.blind,
            "moments": settings.moments == "average",
            # A neighbour is described by the relation to it.
            "neighbours": settings.neighbours and self._shares_relations(peer),
        }
        return frozenset(extra for extra, used in agreed.items() if used)

    def _alike(self, peer: str) -> bool:
        other = self.peers[peer]
        return other.model == self.model and all(other.widths[kind] == self.tables.width(kind) for kind in KINDS)

    def _shares_relations(self, peer: str) -> bool:
        return self._alike(peer) and (self.mode(peer) == "frame" or self.one_space)

    def _has_enough(self, peer: str) -> bool:
        """Return whether the two share enough rows to exchange; both sides come to the same answer."""
        rows = len(self.common(peer))
        return rows >= self.settings.ppat.teachers if self.mode(peer).startswith("ppat") else rows > 0

    @property
    def one_space(self) -> bool:
        """Whether relations are vectors of the entities' space, so that one mapping serves both."""
        return (
            self.tables.width("relation") == self.tables.width("entity")
            and self.tables.spec("relation").turns == "vector"
        )

    # -- sending ---------------------------------------------------------------------------------------

    def ids(self, peer: str, kind: Kind) -> Tensor:
        """Return the ids of the rows shared with `peer`, (n,) int64, in the order both agreed on."""
        return torch.from_numpy(self.common(peer).ids(kind).copy())

    def rows(self, peer: str) -> dict[Kind, Tensor]:
        """Return copies of the owner's rows that it shares with `peer`, (n, width) by kind, ordered as `ids`."""
        return {kind: self.tables.read(kind, self.ids(peer, kind)).cpu() for kind in KINDS}

    def make_update(self, peer: str, mode: Translate) -> Update:
        """Return the update for `peer`: the shared rows, and what `extras` allows in this mode."""
        rows, allowed = self.rows(peer), self.extras(peer)
        extra: dict[str, Tensor | None] = {}
        if "weights" in allowed and mode in ("frame", "procrustes"):
            extra |= {f"{kind}_weight": self.support[kind][self.ids(peer, kind)] for kind in KINDS}
        if "moments" in allowed and mode == "frame":
            extra |= {f"{kind}_moments": self._moments(peer, kind) for kind in KINDS}
        if "neighbours" in allowed:
            extra |= self._neighbourhood(peer)
        return Update(0, self.frame, rows["entity"], rows["relation"], **extra)

    @property
    def slots(self) -> tuple[str, ...]:
        """The parts of the optimiser's state that peers can average, of `SLOTS`; empty if it keeps none."""
        names = [name for kind in KINDS for name in self.tables.exchanged(kind)]
        for slots in SLOTS.values():
            if slots and all(self.tables.has_state(name, slot) for name in names for slot in slots):
                return slots
        return ()

    def _moments(self, peer: str, kind: Kind) -> Tensor | None:
        """Return a copy of the optimiser's state of the rows shared with `peer`, (k, n, d); None if there is none."""
        ids = self.ids(peer, kind)
        states = [self.tables.read_state(kind, slot, ids).cpu() for slot in self.slots]
        return torch.stack(states) if states else None

    def _neighbourhood(self, peer: str) -> dict[str, Tensor]:
        """Return entities next to shared ones, the relations between, and those triples, coded as in `Update`."""
        common, train = self.common(peer), self.graph.train
        place = _positions(len(self.graph.entities), common.entities)
        near = train[(place[train[:, HEAD]] >= 0) != (place[train[:, TAIL]] >= 0)]
        ends = near[:, [HEAD, TAIL]]
        others = np.unique(ends[place[ends] < 0])
        place[others] = len(common.entities) + np.arange(len(others))
        joint = _positions(len(self.graph.relations), common.relations)
        joining = np.unique(near[:, RELATION][joint[near[:, RELATION]] < 0])
        joint[joining] = len(common.relations) + np.arange(len(joining))
        coded = np.stack([place[near[:, HEAD]], joint[near[:, RELATION]], place[near[:, TAIL]]], axis=1)
        return {
            "neighbours": self.tables.read("entity", torch.from_numpy(others.astype(np.int64))).cpu(),
            "joining": self.tables.read("relation", torch.from_numpy(joining.astype(np.int64))).cpu(),
            "triples": torch.from_numpy(coded.astype(np.int64)),
        }

    # -- receiving -------------------------------------------------------------------------------------

    def aggregate(self, updates: Sequence[ReceivedUpdate], score: Callable[[], float]) -> list[ReceivedUpdate]:
        """Merge the rows of `updates` into the tables.

        Args:
            updates: at most one of each peer.
            score: validation score of the tables as they are, for ``aggregate = validation``.

        Returns:
            The updates as they were brought into this owner's space, within limits.
        """
        adopted = self.agree_on_frame(updates)
        updates = [update for update in updates if self._can_bring(update)]
        brought = [self.limit(self.bring_into_frame(update), adopted=adopted) for update in updates]
        for kind in KINDS:
            self._aggregate_kind(kind, brought, score, adopted)
        return brought

    def agree_on_frame(self, updates: Sequence[ReceivedUpdate]) -> bool:
        """Change to the most senior frame among the updates, if it is senior to the owner's own.

        Frames are ordered by the names of the owners that began them, and every pair of owners applies this rule; so
        all owners that are connected end in one frame, the first, without a server and however late one joins.

        Where the model allows it, the whole table is turned into that frame, and no score changes. Vectors that are
        tied to their axes (ComplEx, DistMult, RotatE, L1 distances) cannot be turned: the owner *adopts* the frame. Its
        shared rows become the mean of what peers in that frame sent, with their optimisers' state, its own not counted;
        all other rows are drawn again, and the training that follows fits them to these. docs/explanation/federation.md
        compares this with other ways.

        Returns:
            Whether the frame was adopted: then own rows do not count in this round's means.
        """
        if self.settings.translate != "frame":
            return False
        framed = {u.frame: u for u in reversed(updates) if u.frame is not None and not u.refine}
        frame = min(framed, default=self.frame)
        if frame >= self.frame:
            return False
        turns = self.tables.model.rotation_invariant
        if turns:
            self.tables.rotate(aligned(framed[frame], self.rows(framed[frame].peer), self.one_space).T)
        self.frame = frame
        if not turns:
            self._redraw([update for update in updates if self._can_bring(update)])
        return not turns

    def _redraw(self, updates: Sequence[ReceivedUpdate]) -> None:
        """Draw new values for all rows that are in none of the updates."""
        for number, kind in enumerate(KINDS):
            missing = torch.ones(self.tables.count(kind), dtype=torch.bool)
            for update in updates:
                missing[self.ids(update.peer, kind)] = False
            self.tables.redraw(kind, missing.nonzero().squeeze(1), seed=number)

    def _can_bring(self, update: ReceivedUpdate) -> bool:
        """Return whether the rows can be brought into this owner's space.

        Among owners of one model that is tied to its axes, rows in another frame are useless: turned by Procrustes,
        they come near one's own as points, and lose the coordinates that the model's scores are made of. Their sender
        adopts this frame as soon as it receives an update, and counts from then on.
        """
        alike = self.settings.translate == "frame" and not update.refine
        return not alike or update.frame in (None, self.frame) or self.tables.model.rotation_invariant

    def bring_into_frame(self, update: ReceivedUpdate) -> ReceivedUpdate:
        """Return the update in this owner's space: unchanged if both are in one frame, else aligned on the shared rows.

        Relations that have a space of their own (TransR, RotatE) are not brought along: of them, the host keeps its
        own, and neighbours, which they lead to, are left out.
        """
        if not update.refine and update.frame in (None, self.frame):
            return update
        own, one_space = self.rows(update.peer), self.one_space
        update = short(update, own, self.settings.limit)
        w = aligned(update, own, one_space)
        rows = {
            kind: rows @ w if rows.numel() and (one_space or kind == "entity") else own[kind]
            for kind, rows in update.rows.items()
        }
        virtual = update.virtual if one_space else None
        if virtual is not None:
            relations = virtual.relations @ w if virtual.relations.numel() else virtual.relations
            virtual = Virtual(virtual.entities @ w, relations, virtual.triples)
        return ReceivedUpdate(update.peer, rows, frame=self.frame, weights=update.weights, virtual=virtual)

    def limit(self, update: ReceivedUpdate, *, adopted: bool = False) -> ReceivedUpdate:
        """Return the update within what this owner's own numbers allow; see `fkge.federation.limits`.

        Moments that this owner's optimiser has no use for are left out.

        Args:
            update: in this owner's space.
            adopted: its frame was just adopted. Own rows are of another one, so only lengths can be compared.
        """
        own = self.rows(update.peer)
        if adopted:
            update = short(update, own, self.settings.limit)
            own = dict(update.rows)
        if update.moments is not None and any(len(m) != len(self.slots) for m in update.moments.values()):
            update = replace(update, moments=None)
        weight = {kind: float(self.support[kind].max()) for kind in KINDS}
        square = {kind: _largest_square(self.tables, kind, self.slots) for kind in KINDS}
        sums = None
        if update.moments is not None and len(self.slots) == 1:
            ids = {kind: self.ids(update.peer, kind) for kind in KINDS}
            sums = {kind: self.tables.read_state(kind, *self.slots, ids[kind]).cpu() for kind in KINDS}
        return limited(update, own, self.settings.limit, weight, square, sums)

    def _aggregate_kind(
        self, kind: Kind, updates: Sequence[ReceivedUpdate], score: Callable[[], float], adopted: bool
    ) -> None:
        table = self.tables.vectors(kind).cpu()
        how = self.settings.aggregate
        weighted = how == "support" and not self.blind and all(u.weights is not None for u in updates)
        parts = []
        for update in updates:
            ids = self.ids(update.peer, kind)
            weights = update.weights[kind] if weighted and update.weights is not None else torch.ones(len(ids))
            parts.append(Part(ids, update.rows[kind], weights.to(table.dtype)))
        ids = given(len(table), parts)
        if len(ids) == 0:
            return
        own = self.support[kind] if weighted else torch.ones(len(table))
        if adopted or how in ("replace", "validation"):
            own = own.clone()
            own[ids] = 0
        mean = weighted_mean(table, own.to(table.dtype), parts)[ids]
        if how == "validation" and not adopted:
            mean = self._best_mix(kind, ids, mean, score)
        self.tables.replace(kind, ids, mean, keep_state=self.settings.moments != "fresh")
        if self.settings.moments == "average":
            self._average_moments(kind, updates, parts, own)

    def _best_mix(self, kind: Kind, ids: Tensor, received: Tensor, score: Callable[[], float]) -> Tensor:
        """Return the mix of own and received rows with the best validation score, before any training."""
        own = self.tables.read(kind, ids).cpu()
        scores = {}
        for mix in MIXES:
            self.tables.replace(kind, ids, torch.lerp(own, received, mix), keep_state=True)
            scores[mix] = score()
        return torch.lerp(own, received, max(scores, key=lambda mix: scores[mix]))

    def _average_moments(
        self, kind: Kind, updates: Sequence[ReceivedUpdate], parts: Sequence[Part], own: Tensor
    ) -> None:
        slots = self.slots
        moments = [
            Part(part.ids, update.moments[kind], part.weights)
            for update, part in zip(updates, parts, strict=True)
            if update.moments is not None
        ]
        if not moments or not slots:
            return
        everyone = torch.arange(self.tables.count(kind))
        states = torch.stack([self.tables.read_state(kind, slot, everyone).cpu() for slot in slots])
        mean = weighted_mean(states, own.to(states.dtype), moments)
        ids = given(mean.shape[1], moments)
        for slot, new in zip(slots, mean, strict=True):
            self.tables.replace_state(kind, slot, ids, new[ids])

    @contextmanager
    def grafted(self, trainer: Trainer | DpTrainer, updates: Sequence[ReceivedUpdate]) -> Iterator[None]:
        """Train on the virtual rows and triples of all updates too, within the context; they are removed at its end."""
        virtuals = [(update.peer, update.virtual) for update in updates if update.virtual is not None]
        if not virtuals:
            yield
            return
        triples = []
        e, r = self.tables.entities, self.tables.relations
        for peer, virtual in virtuals:
            place_e = torch.cat([self.ids(peer, "entity"), torch.arange(len(virtual.entities)) + e])
            place_r = torch.cat([self.ids(peer, "relation"), torch.arange(len(virtual.relations)) + r])
            coded = virtual.triples
            triples.append(torch.stack([place_e[coded[:, 0]], place_r[coded[:, 1]], place_e[coded[:, 2]]], dim=1))
            e, r = e + len(virtual.entities), r + len(virtual.relations)
        entities = torch.cat([virtual.entities for _, virtual in virtuals])
        relations = torch.cat([virtual.relations for _, virtual in virtuals])
        trainer.graft(entities, relations, torch.cat(triples))
        try:
            yield
        finally:
            trainer.ungraft()


def _largest_square(tables: Tables, kind: Kind, slots: tuple[str, ...]) -> float:
    """Return the largest of an optimiser's squares, or of their sums; 0 if it keeps none."""
    return max(float(tables.state(name, slots[-1]).max()) for name in tables.exchanged(kind)) if slots else 0.0


def _positions(rows: int, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return (rows,) the position of each id in `ids`, −1 for none."""
    out = np.full(rows, -1, np.int64)
    out[ids] = np.arange(len(ids))
    return out

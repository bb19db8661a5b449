"""The two sides of one exchange, client (sends its rows) and host (receives them), and the messages between them.

A role takes messages and returns messages, nothing else. The client opens; the host's ends with a `ReceivedUpdate`.
There are four modes:

    frame        the rows as they are, with the name of the frame they live in; one message
    procrustes   the rows under a secret rotation, new for every exchange; one message
    ppat         the adversarial game (`fkge.ppat`); the host uses the translation as it is
    ppat+refine  the same game, then the host aligns the translation with its own rows
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor

from fkge.align import procrustes, random_rotation
from fkge.align.links import KINDS
from fkge.embed.dp_noise import Noise
from fkge.embed.models import Kind
from fkge.embed.optimizers import SLOTS
from fkge.errors import PeerError
from fkge.federation.settings import Translate
from fkge.ppat import Candidate, PpatClient, PpatHost, PpatSettings, Samples
from fkge.ppat.messages import Message, check_vectors

HIDDEN = "?"
"""The frame of rows that were turned by a secret rotation."""


@dataclass(frozen=True, eq=False)
class Update(Message):
    """Client to host: the rows that the two share, in the order of their alignment.

    Attributes:
        frame: the name of the rows' frame, or `HIDDEN`.
        entity: (n, d), relation: (m, d').
        entity_weight: (n,) log(1 + training triples) of each row, relation_weight: (m,); None if not sent.
        entity_moments: (k, n, d) the optimiser's state, relation_moments: (k, m, d'); None if not sent. With k = 2
            Adam's mean and mean square, with k = 1 Adagrad's sum of squares.
        neighbours: (k, d) rows of entities adjacent to shared ones, joining: (l, d') of the relations between.
        triples: (t, 3) int64, those triples: entities count shared ones first, then neighbours; so do relations.
    """

    frame: str
    entity: Tensor
    relation: Tensor
    entity_weight: Tensor | None = None
    relation_weight: Tensor | None = None
    entity_moments: Tensor | None = None
    relation_moments: Tensor | None = None
    neighbours: Tensor | None = None
    joining: Tensor | None = None
    triples: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Structure(Message):
    """Client to host, before a game with neighbours: their triples, coded as in `Update`, and how many are entities."""

    entities: int
    triples: Tensor


@dataclass(frozen=True, eq=False)
class Ack(Message):
    """Host to client: the message has arrived. It carries nothing else, on purpose."""


@dataclass(frozen=True, eq=False)
class Virtual:
    """A peer's neighbourhood of shared rows, trained on for one round.

    Attributes:
        entities: (k, d), relations: (l, d') rows.
        triples: (t, 3) int64: shared rows by position, then virtual ones.
    """

    entities: Tensor
    relations: Tensor
    triples: Tensor


@dataclass(frozen=True, eq=False)
class ReceivedUpdate:
    """A peer's rows as a host has received them in one exchange.

    Attributes:
        peer: the client.
        rows: vectors by kind, (n, d).
        frame: of the rows; None if a translation has brought them into the host's space.
        weights, moments: by kind, where they were sent.
        refine: align them with the host's own rows before use.
        virtual: neighbours and their triples, if sent.
        price: what the exchange cost the host in privacy, as the translation accounts for it.
    """

    peer: str
    rows: Mapping[Kind, Tensor]
    frame: str | None = None
    weights: Mapping[Kind, Tensor] | None = None
    moments: Mapping[Kind, Tensor] | None = None
    refine: bool = False
    virtual: Virtual | None = None
    price: Mapping[str, float] = field(default_factory=dict)


_KEPT = frozenset(len(slots) for slots in SLOTS.values() if slots)
"""Numbers for each parameter that an optimiser may send."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    "weights": ("entity_weight", "relation_weight"),
    "moments": ("entity_moments", "relation_moments"),
    "neighbours": ("neighbours", "joining", "triples"),
}
"""Parts of an update in addition to rows, by name, and their fields."""

FROM_CLIENT = (Update, Structure, Samples, Candidate)
"""Messages of a client; all others within an exchange are a host's."""


# -- one message -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sender:
    """The client of the modes with one message."""

    update: Update

    def start(self) -> Message:
        return self.update

    def step(self, message: Message) -> Message | None:
        _check_ack(message)
        return None


def _check_ack(message: Message) -> None:
    if not isinstance(message, Ack):
        raise PeerError(f"got {type(message).__name__} where Ack was due")


def hidden(update: Update, generator: torch.Generator) -> Update:
    """Return the update under a random rotation that is discarded; distances and angles among the rows stay visible."""
    q = random_rotation(update.entity.shape[1], generator).to(update.entity.dtype)

    def turned(rows: Tensor | None) -> Tensor | None:
        return None if rows is None or rows.numel() == 0 else rows @ q

    return replace(
        update,
        frame=HIDDEN,
        entity=update.entity @ q,
        relation=update.relation @ q if update.relation.numel() else update.relation,
        entity_moments=None,
        relation_moments=None,
        neighbours=turned(update.neighbours),
        joining=turned(update.joining),
    )


@dataclass(eq=False)
class Receiver:
    """The host of the modes with one message; see `host_role`.

    Attributes:
        shapes: (rows, width) expected of each kind.
        align: align the rows with the host's, whatever frame they claim to be in.
        update: set once the exchange is complete.
    """

    peer: str
    shapes: Mapping[Kind, tuple[int, int]]
    dtype: torch.dtype
    align: bool = False
    wanted: frozenset[str] = frozenset()
    update: ReceivedUpdate | None = None

    def step(self, message: Message) -> Message:
        """Take the client's update and return the acknowledgement; raise `PeerError` if it does not fit."""
        if not isinstance(message, Update):
            raise PeerError(f"got {type(message).__name__} where Update was due")
        for extra, fields in EXTRAS.items():
            if extra not in self.wanted and any(getattr(message, name) is not None for name in fields):
                raise PeerError(f"Update: {self.peer} sent {extra}, which was not agreed on")
        rows = {kind: getattr(message, kind) for kind in KINDS}
        weights = {kind: getattr(message, f"{kind}_weight") for kind in KINDS}
        moments = {kind: getattr(message, f"{kind}_moments") for kind in KINDS}
        for kind in KINDS:
            n, width = self.shapes[kind]
            check_vectors(message, rows[kind], (n, width), self.dtype)
            if weights[kind] is not None:
                if weights[kind].shape != (n,):
                    raise PeerError(f"Update: {kind} weights of shape {tuple(weights[kind].shape)}, due {(n,)}")
                check_vectors(message, weights[kind].reshape(-1, 1), (n, 1), self.dtype)
                if bool((weights[kind] < 0).any()):
                    raise PeerError(f"Update: a weight of {self.peer}'s {kind} rows is negative")
            if moments[kind] is not None:
                self._check_moments(message, kind, moments[kind])
        self.update = ReceivedUpdate(
            self.peer, rows, frame=message.frame,
            weights=weights if all(w is not None for w in weights.values()) else None,
            moments=moments if all(m is not None for m in moments.values()) else None,
            refine=self.align or message.frame == HIDDEN,
            virtual=_virtual(message, self.shapes, self.dtype),
        )  # fmt: skip
        return Ack(message.step)

    def _check_moments(self, message: Update, kind: Kind, moments: Tensor) -> None:
        """Raise `PeerError` unless it is what some optimiser keeps; which, only the host's own optimiser decides."""
        n, width = self.shapes[kind]
        if moments.ndim != 3 or len(moments) not in _KEPT or moments.shape[1:] != (n, width):
            due = " or ".join(str((k, n, width)) for k in sorted(_KEPT))
            raise PeerError(f"Update: moments of shape {tuple(moments.shape)}, due {due}")
        check_vectors(message, moments.reshape(-1, width), (len(moments) * n, width), self.dtype)
        if bool((moments[-1] < 0).any()):  # squares come last, whatever precedes them
            raise PeerError(f"Update: a mean square of {self.peer}'s {kind} rows is negative")


def _virtual(update: Update, shapes: Mapping[Kind, tuple[int, int]], dtype: torch.dtype) -> Virtual | None:
    neighbours, joining, triples = update.neighbours, update.joining, update.triples
    if triples is None or neighbours is None:
        return None
    if joining is None:
        joining = neighbours.new_empty(0, shapes["relation"][1])
    check_vectors(update, neighbours, (None, shapes["entity"][1]), dtype)
    check_vectors(update, joining, (None, shapes["relation"][1]), dtype)
    _check_triples(triples, shapes["entity"][0] + len(neighbours), shapes["relation"][0] + len(joining))
    return Virtual(neighbours, joining, triples)


def _check_triples(triples: Tensor, entities: int, relations: int) -> None:
    """Raise `PeerError` unless every triple (t, 3) refers to one of so many entities and relations."""
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype != torch.int64:
        raise PeerError(f"virtual triples must be (t, 3) int64, got {tuple(triples.shape)} {triples.dtype}")
    if len(triples) == 0:
        return
    ends, middles = triples[:, [0, 2]], triples[:, 1]
    if int(triples.min()) < 0 or int(ends.max()) >= entities or int(middles.max()) >= relations:
        raise PeerError(f"a virtual triple names a row beyond the {entities} entities and {relations} relations sent")


# -- the game --------------------------------------------------------------------------------------


class GameClient:
    """The client of the adversarial game: entities and relations stacked, neighbours announced first.

    Args:
        update: what it has to send.
        host_dim: width of the host's entities.
        settings, generator: see `client_role`.
    """

    def __init__(self, update: Update, host_dim: int, settings: PpatSettings, generator: torch.Generator) -> None:
        extra = [r for r in (update.neighbours, update.joining) if r is not None and r.numel()]
        self._structure: Structure | None = None  # to be announced
        if update.triples is not None and update.neighbours is not None:
            self._structure = Structure(0, len(update.neighbours), update.triples)
        around = torch.cat(extra) if extra else None
        self._game = PpatClient(_stacked(update.entity, update.relation), host_dim, settings, generator, around)

    def start(self) -> Message:
        return self._game.start() if self._structure is None else self._structure

    def step(self, message: Message) -> Message | None:
        if self._structure is not None:
            _check_ack(message)
            self._structure = None
            return self._game.start()
        return self._game.step(message)  # type: ignore[arg-type]  # the role refuses what it does not expect


@dataclass(eq=False)
class GameHost:
    """The host of the adversarial game; see `host_role`.

    Attributes:
        game: with the rows of `own` stacked.
        refine: align the translation with them before use.
        update: set once the exchange is complete.
        structure: the client's neighbours, once they are announced.
    """

    peer: str
    own: Mapping[Kind, Tensor]
    game: PpatHost
    refine: bool
    wanted: frozenset[str] = frozenset()
    pay: Callable[[], None] | None = None
    update: ReceivedUpdate | None = None
    structure: Structure | None = None

    def step(self, message: Message) -> Message:
        """Return the answer to a message of the client; raise `PeerError` if it is not due or does not fit."""
        if isinstance(message, Structure):
            if "neighbours" not in self.wanted:
                raise PeerError(f"Structure: {self.peer} sent neighbours, which was not agreed on")
            if self.structure is not None and not message.same_as(self.structure):
                raise PeerError("the structure of neighbours came twice")
            self.structure = message
            return Ack(0)
        if self.pay is not None and isinstance(message, Samples):
            self.pay()  # once, and only before the first vote: a peer that merely announces a game costs nothing
            self.pay = None
        answer = self.game.step(message)  # type: ignore[arg-type]  # the role refuses what it does not expect
        if self.game.finished and self.update is None:
            self.update = self._unpack()
        return answer

    def _unpack(self) -> ReceivedUpdate:
        got, own = self.game.translation, self.own["relation"]
        n = len(self.own["entity"])
        relation = got.vectors[n:] if own.numel() else got.vectors.new_empty(0, own.shape[1])
        virtual = None
        if self.structure is not None and got.neighbours is not None:
            k = self.structure.entities
            entities, relations = got.neighbours[:k], got.neighbours[k:]
            _check_triples(self.structure.triples, n + len(entities), len(relation) + len(relations))
            virtual = Virtual(entities, relations, self.structure.triples)
        return ReceivedUpdate(
            self.peer, {"entity": got.vectors[:n], "relation": relation}, refine=self.refine, virtual=virtual,
            price=self.game.price,
        )  # fmt: skip


def _stacked(entity: Tensor, relation: Tensor) -> Tensor:
    """Return the rows of both kinds in one tensor; where no relations are shared, their width does not matter."""
    return torch.cat([entity, relation]) if relation.numel() else entity


ClientRole: TypeAlias = Sender | GameClient
"""The side that translates: `start` opens, `step` is the next message, or None when the exchange is complete."""

HostRole: TypeAlias = Receiver | GameHost
"""The side that learns: `step` is the answer to a message; `update` is set once the exchange is complete."""


def client_role(
    mode: Translate, update: Update, host_dim: int, settings: PpatSettings, generator: torch.Generator
) -> ClientRole:
    """Return the client's role in an exchange.

    Args:
        mode: of the exchange.
        update: what it has to send.
        host_dim: width of the host's entities.
        settings, generator: of a game; the generator also draws the rotation of ``procrustes``.
    """
    if mode == "frame":
        return Sender(update)
    if mode == "procrustes":
        return Sender(hidden(update, generator))
    return GameClient(update, host_dim, settings, generator)


def host_role(
    mode: Translate,
    peer: str,
    own: Mapping[Kind, Tensor],
    widths: Mapping[Kind, int],
    settings: PpatSettings,
    generator: torch.Generator,
    noise: Noise | None = None,
    *,
    wanted: frozenset[str] = frozenset(),
    pay: Callable[[], None] | None = None,
) -> HostRole:
    """Return the host's role in an exchange.

    Args:
        mode: of the exchange.
        peer: the client.
        own: this owner's rows of what the two share, by kind.
        widths: of the client's vectors, by kind; a game translates them, the other modes leave them.
        settings, generator: of a game.
        noise: of a game's votes; from `generator` if None.
        wanted: the keys of `EXTRAS` that an update may contain. The rest was not agreed on, and is refused.
        pay: called before a game's first vote.
    """
    if mode in ("frame", "procrustes"):
        shapes: dict[Kind, tuple[int, int]] = {kind: (len(own[kind]), widths[kind]) for kind in KINDS}
        return Receiver(peer, shapes, own["entity"].dtype, align=mode == "procrustes", wanted=wanted)
    game = PpatHost(_stacked(own["entity"], own["relation"]), settings, generator, noise)
    return GameHost(peer, own, game, mode == "ppat+refine", wanted, pay)


def aligned(update: ReceivedUpdate, own: Mapping[Kind, Tensor], one_space: bool = True) -> Tensor:
    """W (d_peer, d_own) that maps received rows nearest to the host's own: orthogonal Procrustes on all pairs.

    Args:
        update: the received rows.
        own: the host's rows of the same things, by kind.
        one_space: relations are vectors in the entities' space, and determine W too.
    """
    kinds = KINDS if one_space and update.rows["relation"].numel() else ("entity",)
    return procrustes(torch.cat([update.rows[kind] for kind in kinds]), torch.cat([own[kind] for kind in kinds]))

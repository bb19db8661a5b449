"""What passes between a client and a host, and how each side plays its part.

Either side of an exchange is a role: messages in, messages out, nothing else. The client opens. Four ways:

    frame        the rows as they are, with the name of the frame they live in; one message
    procrustes   the rows under a secret rotation, new for every exchange; one message
    ppat         the adversarial game (`fkge.ppat`); the host uses the translation as it comes
    ppat+refine  the same game, then the host aligns what it got with its own rows

What the host does afterwards, it does alone: nothing more leaves either side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from fkge.align import procrustes, random_rotation
from fkge.align.links import KINDS
from fkge.embed.dp_noise import Noise
from fkge.embed.models import Kind
from fkge.errors import PeerError
from fkge.federation.settings import Translate
from fkge.ppat import Candidate, PpatClient, PpatHost, PpatSettings, Samples
from fkge.ppat.messages import Message, check_vectors

HIDDEN = "?"
"""The frame of rows that were turned by a secret rotation."""

SLOTS = ("mean", "square")
"""Adam's moments, in the order they are sent."""


@dataclass(frozen=True, eq=False)
class Offer(Message):
    """Client to host: rows of everything the two share, in the order agreed on.

    Attributes:
        frame: the frame the rows live in, or `HIDDEN`.
        entity: (n, d), relation: (m, d').
        entity_weight: (n,) log(1 + training triples) of each row, relation_weight: (m,); None if not sent.
        entity_moments: (2, n, d) the optimiser's moments, relation_moments: (2, m, d'); None if not sent.
        neighbours: (k, d) rows of entities that stand next to shared ones, joining: (l, d') of the relations between.
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
    """Client to host, before a game with neighbours: their triples, coded as in `Offer`, and how many are entities."""

    entities: int
    triples: Tensor


@dataclass(frozen=True, eq=False)
class Thanks(Message):
    """Host to client: it has come. It says nothing else, on purpose."""


@dataclass(frozen=True, eq=False)
class Virtual:
    """A peer's neighbourhood of shared things, to be trained on for a while.

    Attributes:
        entities: (k, d), relations: (l, d') rows.
        triples: (t, 3) int64: shared things by position, then virtual ones.
    """

    entities: Tensor
    relations: Tensor
    triples: Tensor


@dataclass(frozen=True, eq=False)
class Gift:
    """What a host has got from one exchange, until it aggregates it.

    Attributes:
        peer: from whom.
        rows: vectors by kind, (n, d).
        frame: where they live; None if they are in the host's space as far as the translation brought them there.
        weights, moments: by kind, where they were sent.
        refine: align them with the host's own rows before use.
        virtual: neighbours and their triples, if sent.
        price: what the exchange cost the host in privacy, by the translation's own account.
    """

    peer: str
    rows: Mapping[Kind, Tensor]
    frame: str | None = None
    weights: Mapping[Kind, Tensor] | None = None
    moments: Mapping[Kind, Tensor] | None = None
    refine: bool = False
    virtual: Virtual | None = None
    price: Mapping[str, Any] = field(default_factory=dict)


EXTRAS: Mapping[str, tuple[str, ...]] = {
    "weights": ("entity_weight", "relation_weight"),
    "moments": ("entity_moments", "relation_moments"),
    "neighbours": ("neighbours", "joining", "triples"),
}
"""What an offer may hold beside rows, and the fields it stands in."""

FROM_CLIENT = (Offer, Structure, Samples, Candidate)
"""What a client says; all else within an exchange is a host's."""


class ClientRole(Protocol):
    """The side that translates."""

    def start(self) -> Message:
        """The opening message."""

    def step(self, message: Message) -> Message | None:
        """The next message; None when there is no more to say."""


class HostRole(Protocol):
    """The side that learns."""

    gift: Gift | None
    """Set once the exchange is complete."""

    def step(self, message: Message) -> Message:
        """The answer to a message."""


# -- one message -----------------------------------------------------------------------------------


class Sender:
    """The client where one message does it."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer

    def start(self) -> Message:
        return self._offer

    def step(self, message: Message) -> Message | None:
        if not isinstance(message, Thanks):
            raise PeerError(f"got {type(message).__name__} where Thanks was due")
        return None


def hidden(offer: Offer, generator: torch.Generator) -> Offer:
    """The offer under a random rotation that nobody keeps. Distances and angles among the rows remain visible."""
    q = random_rotation(offer.entity.shape[1], generator).to(offer.entity.dtype)

    def turn(rows: Tensor | None) -> Tensor | None:
        return None if rows is None or rows.numel() == 0 else rows @ q

    return Offer(
        offer.step, HIDDEN, offer.entity @ q, offer.relation @ q if offer.relation.numel() else offer.relation,
        entity_weight=offer.entity_weight, relation_weight=offer.relation_weight,
        neighbours=turn(offer.neighbours), joining=turn(offer.joining), triples=offer.triples,
    )  # fmt: skip


class Receiver:
    """The host where one message does it.

    Args:
        peer: the client.
        shapes: (rows, width) due of each kind.
        dtype: of every vector.
        align: bring the rows home by alignment, whatever frame they claim to live in.
        wanted: what an offer may hold beside rows, of `EXTRAS`. The rest was not agreed on, and is refused.
    """

    def __init__(
        self, peer: str, shapes: Mapping[Kind, tuple[int, int]], dtype: torch.dtype, align: bool = False,
        wanted: frozenset[str] = frozenset(),
    ) -> None:  # fmt: skip
        self.gift: Gift | None = None
        self._peer, self._shapes, self._dtype, self._align, self._wanted = peer, shapes, dtype, align, wanted

    def step(self, message: Message) -> Message:
        if not isinstance(message, Offer):
            raise PeerError(f"got {type(message).__name__} where Offer was due")
        for extra, fields in EXTRAS.items():
            if extra not in self._wanted and any(getattr(message, name) is not None for name in fields):
                raise PeerError(f"Offer: {self._peer} sent {extra}, which nobody asked for")
        rows = {kind: getattr(message, kind) for kind in KINDS}
        weights = {kind: getattr(message, f"{kind}_weight") for kind in KINDS}
        moments = {kind: getattr(message, f"{kind}_moments") for kind in KINDS}
        for kind in KINDS:
            n, width = self._shapes[kind]
            check_vectors(message, rows[kind], (n, width), self._dtype)
            if weights[kind] is not None:
                if weights[kind].shape != (n,):
                    raise PeerError(f"Offer: {kind} weights of shape {tuple(weights[kind].shape)}, due {(n,)}")
                check_vectors(message, weights[kind].reshape(-1, 1), (n, 1), self._dtype)
                if bool((weights[kind] < 0).any()):
                    raise PeerError(f"Offer: a weight of {self._peer}'s {kind} rows is negative")
            if moments[kind] is not None:
                if moments[kind].shape != (2, n, width):
                    raise PeerError(f"Offer: moments of shape {tuple(moments[kind].shape)}, due {(2, n, width)}")
                check_vectors(message, moments[kind].reshape(-1, width), (2 * n, width), self._dtype)
                if bool((moments[kind][1] < 0).any()):
                    raise PeerError(f"Offer: a mean square of {self._peer}'s {kind} rows is negative")
        self.gift = Gift(
            self._peer, rows, frame=message.frame,
            weights=weights if all(w is not None for w in weights.values()) else None,
            moments=moments if all(m is not None for m in moments.values()) else None,
            refine=self._align or message.frame == HIDDEN,
            virtual=_virtual(message, self._shapes, self._dtype),
        )  # fmt: skip
        return Thanks(message.step)


def _virtual(offer: Offer, shapes: Mapping[Kind, tuple[int, int]], dtype: torch.dtype) -> Virtual | None:
    if offer.triples is None or offer.neighbours is None:
        return None
    joining = offer.joining
    if joining is None:
        joining = offer.neighbours.new_empty(0, shapes["relation"][1])
    check_vectors(offer, offer.neighbours, (None, shapes["entity"][1]), dtype)
    check_vectors(offer, joining, (None, shapes["relation"][1]), dtype)
    check_triples(
        offer.triples, shapes["entity"][0] + len(offer.neighbours), shapes["relation"][0] + len(joining)
    )  # fmt: skip
    return Virtual(offer.neighbours, joining, offer.triples)


def check_triples(triples: Tensor, entities: int, relations: int) -> None:
    """Raise `PeerError` unless every triple names things that are there."""
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype != torch.int64:
        raise PeerError(f"virtual triples must be (t, 3) int64, got {tuple(triples.shape)} {triples.dtype}")
    if len(triples) == 0:
        return
    ends, middles = triples[:, [0, 2]], triples[:, 1]
    if int(triples.min()) < 0 or int(ends.max()) >= entities or int(middles.max()) >= relations:
        raise PeerError(f"a virtual triple names a row beyond the {entities} entities and {relations} relations sent")


# -- the game --------------------------------------------------------------------------------------


class GameClient:
    """The client of the adversarial game: entities and relations stacked, neighbours announced before."""

    def __init__(self, offer: Offer, host_dim: int, settings: PpatSettings, generator: torch.Generator) -> None:
        rows = torch.cat([offer.entity, offer.relation]) if offer.relation.numel() else offer.entity
        extra = [r for r in (offer.neighbours, offer.joining) if r is not None and r.numel()]
        self._structure = (
            None if offer.triples is None or offer.neighbours is None
            else Structure(0, len(offer.neighbours), offer.triples)
        )  # fmt: skip
        self._game = PpatClient(rows, host_dim, settings, generator, torch.cat(extra) if extra else None)
        self._announced = self._structure is None

    def start(self) -> Message:
        return self._game.start() if self._structure is None else self._structure

    def step(self, message: Message) -> Message | None:
        if not self._announced:
            if not isinstance(message, Thanks):
                raise PeerError(f"got {type(message).__name__} where Thanks was due")
            self._announced = True
            return self._game.start()
        return self._game.step(message)  # type: ignore[arg-type]  # the role refuses what it does not expect


class GameHost:
    """The host of the adversarial game."""

    def __init__(
        self, peer: str, own: Mapping[Kind, Tensor], settings: PpatSettings, generator: torch.Generator, refine: bool,
        noise: Noise | None = None, wanted: frozenset[str] = frozenset(), pay: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.gift: Gift | None = None
        self._peer, self._own, self._refine, self._wanted, self._pay = peer, own, refine, wanted, pay
        rows = torch.cat([own["entity"], own["relation"]]) if own["relation"].numel() else own["entity"]
        self._game = PpatHost(rows, settings, generator, noise)
        self._structure: Structure | None = None

    def step(self, message: Message) -> Message:
        if isinstance(message, Structure):
            if "neighbours" not in self._wanted:
                raise PeerError(f"Structure: {self._peer} sent neighbours, which nobody asked for")
            if self._structure is not None and not message.same_as(self._structure):
                raise PeerError("the structure of neighbours came twice")
            self._structure = message
            return Thanks(0)
        if self._pay is not None and isinstance(message, Samples):
            self._pay()  # once, and before the first vote: a peer that only says it would play costs nothing
            self._pay = None
        answer = self._game.step(message)  # type: ignore[arg-type]  # the role refuses what it does not expect
        if self._game.finished and self.gift is None:
            self.gift = self._unpack()
        return answer

    def _unpack(self) -> Gift:
        got = self._game.translation
        n = len(self._own["entity"])
        width = self._own["relation"].shape[1]
        relation = got.vectors[n:] if self._own["relation"].numel() else got.vectors.new_empty(0, width)
        virtual = None
        if self._structure is not None and got.neighbours is not None:
            k = self._structure.entities
            entities, relations = got.neighbours[:k], got.neighbours[k:]
            check_triples(self._structure.triples, n + len(entities), len(relation) + len(relations))
            virtual = Virtual(entities, relations, self._structure.triples)
        spent = got.spent
        price: dict[str, float] = {"queries": spent.queries}
        if math.isfinite(spent.epsilon):  # without noise there is no ε to speak of
            price |= {"epsilon_paper_per_sample": spent.epsilon, "epsilon_paper_per_batch": spent.epsilon_per_batch}
        return Gift(
            self._peer, {"entity": got.vectors[:n], "relation": relation}, refine=self._refine, virtual=virtual,
            price=price,
        )  # fmt: skip


def client_role(
    mode: Translate, offer: Offer, host_dim: int, settings: PpatSettings, generator: torch.Generator
) -> ClientRole:
    """The client's part in an exchange of this mode."""
    if mode == "frame":
        return Sender(offer)
    if mode == "procrustes":
        return Sender(hidden(offer, generator))
    return GameClient(offer, host_dim, settings, generator)


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
    """The host's part in an exchange of this mode.

    Args:
        own: this owner's rows of what the two share, by kind.
        widths: of the client's vectors, by kind; a game translates them, the other modes leave them.
        noise: of a game's votes; from `generator` if None.
        wanted: what may come beside rows, of `EXTRAS`.
        pay: called before a game's first vote.
    """
    if mode in ("frame", "procrustes"):
        shapes: dict[Kind, tuple[int, int]] = {kind: (len(own[kind]), widths[kind]) for kind in KINDS}
        return Receiver(peer, shapes, own["entity"].dtype, align=mode == "procrustes", wanted=wanted)
    return GameHost(peer, own, settings, generator, refine=mode == "ppat+refine", noise=noise, wanted=wanted, pay=pay)


def aligned(gift: Gift, own: Mapping[Kind, Tensor], one_space: bool = True) -> Tensor:
    """W (d_peer, d_own) that brings the gift's rows nearest to the host's own: orthogonal Procrustes on all pairs.

    `one_space`: relations live in the entities' space, and say something about W too.
    """
    x, y = [gift.rows["entity"]], [own["entity"]]
    if one_space and gift.rows["relation"].numel():
        x.append(gift.rows["relation"])
        y.append(own["relation"])
    return procrustes(torch.cat(x), torch.cat(y))

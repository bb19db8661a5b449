"""Two owners that meet for the first time find out what they share, by private set intersection over their stream.

Either says how many keys it has, and the one with fewer asks (`fkge.align.psi`), first for entities, then for
relations. The owner whose name sorts first then names the alignment; each keeps it under that name. When they meet
again and both know the same name, the alignment stands; otherwise one of them has lost it, or has other data, and they
intersect anew, as often as the other's turnstile lets them.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable

from fkge.align import Common, Keys
from fkge.align.links import KINDS, Kind
from fkge.align.psi import OverlapError
from fkge.embed import make_model
from fkge.federation import Acquaintance, FederationSettings, Home
from fkge.federation.codec import LIMIT
from fkge.federation.home import widths
from fkge.node import frames_pb2 as pb
from fkge.node.frames import MEETING, Refused, decode_meeting
from fkge.node.intersection import Intersection
from fkge.node.peer import Peer
from fkge.node.settings import NodeConfig

_PACT = 16
_POINT = 33
_PATIENCE = 900.0  # seconds: a large set takes its time


async def align(
    peer: Peer, config: NodeConfig, home: Home, say: Callable[[pb.Meeting, str], None]
) -> tuple[bytes, Common]:
    """The name of a new alignment with `peer`, and this owner's side of it: nothing, if too little is common.

    Raises:
        PeerError: what the peer sent cannot be used.
    """
    settings, first = config.federation, home.name < peer.name
    keys, kinds = keys_with(peer, config, home), _kinds(settings)
    own = {kind: keys.of(kind) for kind in KINDS}
    ratio = min(settings.ratio, peer.settings.ratio)
    say(pb.Meeting(keys=pb.Keys(entities=len(own["entity"]), relations=len(own["relation"]), ratio=ratio)), "Keys")
    theirs = (await _hear(peer, "keys")).keys
    counts: dict[Kind, int] = {"entity": theirs.entities, "relation": theirs.relations}
    most = min(peer.settings.items, settings.psi.max_items)
    for kind, count in counts.items():
        if count > most:
            raise Refused(
                "too_large", f"{count:,} {kind} keys to intersect; {most:,} are the most here (items, max_items)"
            )
    if not 0 < theirs.ratio <= 1:
        raise Refused("malformed", "a ratio of common rows that is none")
    found: dict[Kind, list[str]] = {}
    if peer.session is None:
        raise Refused("leaving", "it is gone")
    peer.session.limits[MEETING] = (1 << 16) + _POINT * 2 * max(len(own[kind]) + counts[kind] for kind in KINDS)
    try:
        for kind in KINDS:
            items = max(most, len(own[kind]))  # `most` is for the peer, whose number was checked above
            least = {} if kind == "entity" else {"min_overlap": 0}
            bounds = settings.psi.model_copy(update={"max_items": items, **least})
            asks = (len(own[kind]), home.name) < (counts[kind], peer.name)
            found[kind] = await _intersect(peer, Intersection(asks, own[kind], counts[kind], bounds, kind), asks, say)
    except OverlapError:  # both sides know; they have nothing to exchange, and need not find that out again
        found = {}
    common = keys.common(found).only(kinds).sample(min(ratio, theirs.ratio), home.seed)
    return await _name(peer, first, say), common


def keys_with(peer: Peer, config: NodeConfig, home: Home) -> Keys:
    """What this owner puts into an intersection with `peer`."""
    settings, first = config.federation, home.name < peer.name
    links = peer.settings.links(config.folder, first)
    return links.keys(home.shared, 0 if first else 1, _kinds(settings), settings.psi.normalisation)


def basis(peer: Peer, config: NodeConfig, home: Home, secret: int) -> str:
    """A digest of all that an alignment with `peer` rests on, on this side. With another one, it does not hold."""
    digest = hashlib.blake2b(key=secret.to_bytes(8, "little"), digest_size=16)
    digest.update(f"{min(config.federation.ratio, peer.settings.ratio)!r} {config.federation.share}".encode())
    keys = keys_with(peer, config, home)
    for kind in KINDS:
        for key, row in keys.of(kind).items():
            digest.update(f"\0{key}\0{row}".encode())
    return digest.hexdigest()


def _kinds(settings: FederationSettings) -> list[Kind]:
    return [k for k in KINDS if settings.share in ("both", {"entity": "entities", "relation": "relations"}[k])]


async def _intersect(peer: Peer, role: Intersection, asks: bool, say: Callable[[pb.Meeting, str], None]) -> list[str]:
    try:
        said = await role.turn() if asks else None
        while True:
            if said is not None and said.frame is not None:
                say(pb.Meeting(intersect=pb.Intersect(frame=said.frame)), "Intersect")
            if said is not None and said.refused is not None:
                raise said.refused
            if said is not None and said.found is not None:
                return said.found
            said = await role.turn((await _hear(peer, "intersect")).intersect.frame)
    finally:
        role.close()


async def _name(peer: Peer, first: bool, say: Callable[[pb.Meeting, str], None]) -> bytes:
    name = secrets.token_bytes(_PACT)
    if first:
        say(pb.Meeting(pact=pb.Pact(name=name)), "Pact")
        return name
    name = (await _hear(peer, "pact")).pact.name
    if len(name) != _PACT:
        raise Refused("malformed", "an alignment's name of another length")
    return name


async def _hear(peer: Peer, what: str) -> pb.Meeting:
    try:
        async with asyncio.timeout(_PATIENCE):
            message = decode_meeting(await peer.meeting.get())
    except TimeoutError:
        raise Refused("stalled", f"said nothing for {_PATIENCE:g} seconds where {what} was due") from None
    if (came := message.WhichOneof("is")) != what:
        raise Refused("out_of_order", f"{came} came where {what} was due")
    return message


def longest(known: Acquaintance, settings: FederationSettings) -> int:
    """Bytes of the longest message that an exchange with a peer can bring."""
    own, rows = widths(make_model(settings.shared_train)), 0
    for kind in KINDS:
        wide = max(own[kind], known.widths[kind], own["entity"], known.widths["entity"])
        rows += max(len(known.common.ids(kind)), settings.ppat.batch) * (3 * wide + 1)
    return LIMIT if settings.neighbours else min((1 << 16) + 8 * rows, LIMIT)

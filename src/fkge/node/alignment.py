"""Alignment: two owners find out which rows they share, by private set intersection over their stream.

Each announces how many keys it has, and the one with fewer keys asks (`fkge.align.psi`), for entities first, then for
relations. The owner whose name sorts first then draws an id for the alignment, and each keeps the result under that id
(the wire calls it a pact). When the two connect again and both know the same id, the alignment stands; otherwise one of
them has lost it, or has other data, and they intersect again, as often as the other's rate limiter lets them.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from fkge.align import Common, Keys, RateLimiter, Tokens
from fkge.align.chains import Digests, candidates, digests, extend
from fkge.align.links import KINDS, Ids, Kind
from fkge.align.psi import OverlapError
from fkge.embed import make_model
from fkge.errors import PeerError
from fkge.federation import FederationSettings, OwnerStore, PeerProfile
from fkge.federation.codec import LIMIT
from fkge.federation.owner.store import widths
from fkge.node import frames_pb2 as pb
from fkge.node.events import AlignmentMessage, Emit, Event, Notice, supervised
from fkge.node.frames import MEETING, Refused, decode_meeting
from fkge.node.peer import Peer
from fkge.node.persistence import PersistentState
from fkge.node.psi_worker import Intersection
from fkge.node.settings import NodeConfig

_ID = 16  # bytes
_POINT = 33  # bytes of a point of the curve
_PATIENCE = 900.0  # seconds: a large set takes its time

Send = Callable[[pb.Meeting, str], None]
"""Sends an alignment message; the text is its kind, for the audit log."""


class PeerAligned(Event):
    """Both sides know what they share, now or from an earlier time.

    Attributes:
        peer: the other side.
        known: what is shared with it.
        begun: the peer has agreed on initial rows.
        fresh: the two have intersected now.
    """

    peer: Peer
    known: PeerProfile
    begun: bool
    fresh: bool


class Alignments:
    """The alignments of one owner with its peers: finished ones and those in progress.

    Args:
        config: of the node.
        state: where ids of alignments are kept.
        store: the owner's, with what it shares with each peer; the attribute is replaced when that changes.
        emit: called with `PeerAligned`, `AlignmentMessage`, notices and `Failed`.
        agreed: by peer, the ids (hex) of alignments that hold whatever data they were made from; for rehearsals.
    """

    def __init__(
        self,
        config: NodeConfig,
        state: PersistentState,
        store: OwnerStore,
        emit: Emit,
        agreed: Mapping[str, str] | None = None,
    ) -> None:
        self.store = store
        self._config, self._state, self._emit = config, state, emit
        self._limiter = RateLimiter(config.federation.psi, state.admitted)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._bases: dict[Peer, str] = {}
        self._shown: dict[str, dict[Kind, Ids]] = {}  # rows that a peer was shown digests of, and did not answer
        self._agreed = agreed
        if agreed is not None:
            state.alignments, state.bases = dict(agreed), dict(agreed)

    def id_with(self, peer: Peer) -> str:
        """Return the id of the alignment with a peer; an empty text if there is none, or its basis has changed."""
        found = self._state.alignments.get(peer.name, "")
        return found if found and self._state.bases.get(peer.name) == self._basis(peer) else ""

    def _basis(self, peer: Peer) -> str:
        """Return a keyed digest of what an alignment depends on, on this side; if it changes, both align again."""
        if self._agreed is not None:
            return self._agreed[peer.name]
        if peer not in self._bases:  # it reads files and hashes every key: once for each settings of a peer
            ratio, share = min(self._config.federation.ratio, peer.settings.ratio), self._config.federation.share
            secret = self._state.secret.to_bytes(8, "little")
            digest = hashlib.blake2b(f"{ratio!r} {share}".encode(), key=secret, digest_size=16)
            keys = _keys_with(peer, self._config, self.store)
            for kind in KINDS:
                for key, row in keys.of(kind).items():
                    digest.update(f"\0{key}\0{row}".encode())
            self._bases[peer] = digest.hexdigest()
        return self._bases[peer]

    def rows(self, peers: Collection[str]) -> tuple[Tokens, Mapping[str, Common]]:
        """Return a copy of the owner's tokens, and by peer the rows shared with those of `peers` that share any."""
        tokens, known = self.store.tokens, self.store.peers
        commons = {name: known[name].common for name in peers if name in known and len(known[name].common)}
        return Tokens({kind: tokens[kind] for kind in KINDS}), commons

    def adopt(self, tokens: Tokens) -> None:
        """Save tokens that the bootstrap members have agreed on."""
        self.store = self.store.with_peers(self.store.peers, tokens)

    # -- what is shared through third owners -----------------------------------------------------------

    def _follows_chains(self, peer: str) -> bool:
        known, settings = self._config.peers.get(peer), self._config.federation
        return self._agreed is None and settings.follows_chains and known is not None and known.ratio == 1

    def show_others(self, tokens: Tokens, peer: str) -> Digests | None:
        """Return digests for a peer of the rows that are shared with others but not with it; see `fkge.align.chains`.

        Args:
            tokens: as agreed on.
            peer: who is aligned with this owner.

        Returns:
            None if nothing is to be found through others.
        """
        if not self._follows_chains(peer) or peer not in self.store.peers:
            return None
        profiles = self.store.peers
        if peer not in self._shown:  # what the peer was shown stands until it answers, whatever this owner shares since
            commons = [profile.common for profile in profiles.values()]
            self._shown[peer] = candidates(tokens, profiles[peer].common, commons)
        return digests(tokens, self._shown[peer], self.store.name, peer)

    def extend(self, peer: str, received: Digests) -> PeerProfile | None:
        """Add the rows that a peer's digests show to be shared, if the peer was shown this owner's.

        Only what was shown counts, so both sides add the same rows, whatever changed meanwhile. The alignment has
        another id from then on: when the two connect again and one of them has missed this, they align again.

        Returns:
            What is shared now; None if that is nothing new.
        """
        rows, known = self._shown.pop(peer, None), self.store.peers.get(peer)
        if rows is None or known is None or peer not in self._state.alignments:
            return None
        tokens, state = self.store.tokens, self._state
        common = extend(known.common, tokens, rows, received, self.store.name, peer)
        if common == known.common:
            return None
        new_id = hashlib.blake2b(bytes.fromhex(state.alignments[peer]), digest_size=_ID)
        for kind, array in tokens.of(common).items():
            new_id.update(kind.encode() + array.astype("<u8").tobytes())
        more = replace(known, common=common)
        self.store = self.store.with_peers({**self.store.peers, peer: more}, tokens)
        state.alignments[peer] = new_id.hexdigest()
        state.save()
        counts = {"peer": peer, "entities": len(common.entities), "relations": len(common.relations)}
        self._emit(Notice({"peer": peer, "rows": len(common)}, audit="aligned"))
        self._emit(Notice(counts, log="aligned"))
        return more

    # -- with peers that are connected -----------------------------------------------------------------

    def start(self, peer: Peer, hello: pb.Hello) -> None:
        """Align with a peer that has a new session, unless both know the same alignment; `PeerAligned` follows."""
        self._tasks[peer.name] = supervised(self._run(peer, hello), f"align {peer.name}", self._emit)

    def cancel(self, peer: str) -> None:
        """Break off what is under way with a peer."""
        if (task := self._tasks.pop(peer, None)) is not None:
            task.cancel()

    async def close(self) -> None:
        """Break off everything."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, peer: Peer, hello: pb.Hello) -> None:
        try:
            in_hand = self.id_with(peer)
            fresh = not in_hand or bytes.fromhex(in_hand) != hello.pact
            self._shown.pop(peer.name, None)
            if fresh:
                await self._align(peer, hello)
            known = self.store.peers[peer.name]
            if (known.model, dict(known.widths)) != (hello.terms["model"], _widths(hello)):
                raise Refused("terms", f"{peer.name} has another model than when the two were aligned")
            if peer.session is not None:
                # Tokens of common rows, and digests of others, of which there are no more than keys.
                most = min(peer.settings.items, self._config.federation.psi.max_items)
                others = 16 * most if self._follows_chains(peer.name) else 0
                peer.session.limits[MEETING] = 16 * len(known.common) + others + (1 << 16)
                self._emit(PeerAligned(peer, known, hello.begun, fresh))
        except PeerError as error:
            peer.hang_up(Refused.by(error))

    async def _align(self, peer: Peer, hello: pb.Hello) -> None:
        """Intersect with a peer and save the result; each attempt counts towards the peer's limit before it starts."""
        state = self._state
        state.alignments.pop(peer.name, None)
        try:
            self._limiter.admit(peer.name, time.time())
        except PeerError as error:
            raise Refused("too_many", str(error)) from None
        state.admitted = self._limiter.state
        state.save()
        self._emit(Notice({"peer": peer.name}, audit="alignment"))

        def send(message: pb.Meeting, kind: str) -> None:
            self._emit(AlignmentMessage(peer.name, message, kind))

        try:
            name, common = await align(peer, self._config, self.store, send)
        except BaseException:
            self._emit(Notice({"peer": peer.name}, audit="alignment broken off"))
            raise
        known = PeerProfile(common, hello.terms["model"], _widths(hello))
        peers = dict(sorted({**self.store.peers, peer.name: known}.items()))
        self.store = self.store.with_peers(peers, self.store.tokens)
        state.alignments[peer.name], state.bases[peer.name] = name.hex(), self._basis(peer)
        state.save()
        self._emit(Notice({"peer": peer.name, "rows": len(common)}, audit="aligned"))
        counts = {"peer": peer.name, "entities": len(common.entities), "relations": len(common.relations)}
        self._emit(Notice(counts, log="aligned", level="info" if len(common) else "warning"))


async def align(peer: Peer, config: NodeConfig, store: OwnerStore, send: Send) -> tuple[bytes, Common]:
    """Intersect this owner's keys with a peer's.

    Args:
        peer: with a session; what it sends is read from its `meeting` queue.
        config, store: the node's and the owner's.
        send: sends a message to the peer.

    Returns:
        The id of the new alignment, and this owner's side of it: nothing, if too little is common.

    Raises:
        PeerError: what the peer sent cannot be used.
    """
    settings, first = config.federation, store.name < peer.name
    keys, kinds = _keys_with(peer, config, store), _kinds(settings)
    own = {kind: keys.of(kind) for kind in KINDS}
    ratio = min(settings.ratio, peer.settings.ratio)
    send(pb.Meeting(keys=pb.Keys(entities=len(own["entity"]), relations=len(own["relation"]), ratio=ratio)), "Keys")
    theirs = (await _receive(peer, "keys")).keys
    counts: dict[Kind, int] = {"entity": theirs.entities, "relation": theirs.relations}
    most = min(peer.settings.items, settings.psi.max_items)
    for kind, count in counts.items():
        if count > most:
            raise Refused(
                "too_large", f"{count:,} {kind} keys to intersect; {most:,} are the most here (items, max_items)"
            )
    if not 0 < theirs.ratio <= 1:
        raise Refused("malformed", "a ratio of common rows that is not within (0, 1]")
    found: dict[Kind, list[str]] = {}
    if peer.session is None:
        raise Refused("leaving", "its session is over")
    peer.session.limits[MEETING] = (1 << 16) + _POINT * 2 * max(len(own[kind]) + counts[kind] for kind in KINDS)
    try:
        for kind in KINDS:
            items = max(most, len(own[kind]))  # `most` limits the peer, whose count was checked above
            least = {} if kind == "entity" else {"min_overlap": 0}
            bounds = settings.psi.model_copy(update={"max_items": items, **least})
            asks = (len(own[kind]), store.name) < (counts[kind], peer.name)
            found[kind] = await _intersect(peer, Intersection(asks, own[kind], counts[kind], bounds, kind), asks, send)
    except OverlapError:  # both sides know it, and keep an empty alignment, so as not to intersect again
        found = {}
    common = keys.common(found).only(kinds).sample(min(ratio, theirs.ratio), store.seed)
    return await _agree_id(peer, first, send), common


def _keys_with(peer: Peer, config: NodeConfig, store: OwnerStore) -> Keys:
    """Return the keys that this owner puts into an intersection with `peer`."""
    settings, first = config.federation, store.name < peer.name
    links = peer.settings.links(config.folder, first)
    return links.keys(store.shared, 0 if first else 1, _kinds(settings), settings.psi.normalisation)


def _kinds(settings: FederationSettings) -> list[Kind]:
    return [k for k in KINDS if settings.share in ("both", {"entity": "entities", "relation": "relations"}[k])]


async def _intersect(peer: Peer, role: Intersection, asks: bool, send: Send) -> list[str]:
    try:
        turn = await role.turn() if asks else None
        while True:
            if turn is not None and turn.frame is not None:
                send(pb.Meeting(intersect=pb.Intersect(frame=turn.frame)), "Intersect")
            if turn is not None and turn.refused is not None:
                raise turn.refused
            if turn is not None and turn.found is not None:
                return turn.found
            turn = await role.turn((await _receive(peer, "intersect")).intersect.frame)
    finally:
        role.close()


async def _agree_id(peer: Peer, first: bool, send: Send) -> bytes:
    if first:
        drawn = secrets.token_bytes(_ID)
        send(pb.Meeting(pact=pb.Pact(name=drawn)), "Pact")
        return drawn
    theirs = bytes((await _receive(peer, "pact")).pact.name)
    if len(theirs) != _ID:
        raise Refused("malformed", "the id of an alignment has another length")
    return theirs


async def _receive(peer: Peer, what: str) -> pb.Meeting:
    try:
        async with asyncio.timeout(_PATIENCE):
            message = decode_meeting(await peer.meeting.get())
    except TimeoutError:
        raise Refused("stalled", f"sent nothing for {_PATIENCE:g} seconds where {what} was due") from None
    if (came := message.WhichOneof("is")) != what:
        raise Refused("out_of_order", f"{came} came where {what} was due")
    return message


def _widths(hello: pb.Hello) -> dict[Kind, int]:
    return {kind: int(hello.terms[f"width.{kind}"]) for kind in KINDS}


def longest(known: PeerProfile, settings: FederationSettings) -> int:
    """Return the number of bytes of the longest message that an exchange with a peer can bring."""
    own, rows = widths(make_model(settings.shared_train)), 0
    for kind in KINDS:
        wide = max(own[kind], known.widths[kind], own["entity"], known.widths["entity"])
        rows += max(len(known.common.ids(kind)), settings.ppat.batch) * (3 * wide + 1)
    return LIMIT if settings.neighbours else min((1 << 16) + 8 * rows, LIMIT)

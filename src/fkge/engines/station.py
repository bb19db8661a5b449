"""One owner at work: the protocol decides, the owner does, and messages come and go as bytes. No clock, no transport.

An engine gives it a way to post bytes to a peer and asks it what to do next (`work`, `timer`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fkge.errors import PeerError
from fkge.federation.codec import decode, encode
from fkge.federation.exchange import ClientRole, Gift, HostRole
from fkge.federation.owner import Outcome, Owner
from fkge.federation.protocol import (
    Accept,
    Begin,
    Defer,
    Drop,
    Event,
    Finished,
    Host,
    Improve,
    Instruction,
    Lost,
    Protocol,
    Received,
    Refuse,
    Request,
    Send,
    Serve,
    Served,
    Signal,
    Timer,
)

Post = Callable[[str, bytes], None]
Note = Callable[..., None]

_CONTROL = (Signal, Request, Accept, Defer, Refuse)


class Station:
    """Carries out what the protocol says for one owner.

    Args:
        owner: who works.
        protocol: who decides.
        post: sends bytes to a peer; must not block.
        note: told of everything worth a line in a trace: ``note(event, **fields)``.

    Attributes:
        work: an `Improve` that the engine must carry out with `improve`, or None.
        timer: seconds after which the engine must call `handle(Wake())`, or None; the engine takes it away.
    """

    def __init__(self, owner: Owner, protocol: Protocol, post: Post, note: Note) -> None:
        self.owner = owner
        self.protocol = protocol
        self.work: Improve | None = None
        self.timer: float | None = None
        self._post = post
        self._note = note
        self._clients: dict[tuple[str, int], ClientRole] = {}
        self._hosts: dict[tuple[str, int], HostRole] = {}
        self._gifts: dict[tuple[str, int], Gift] = {}
        self._state = protocol.state

    def begin(self, trained: bool) -> None:
        """Join the federation."""
        self.handle(Begin(trained=trained, spent=trained and self.owner.spent))

    def handle(self, event: Event) -> None:
        """Let the protocol decide about `event`, and do what it says."""
        for instruction in self.protocol.handle(event):
            self._do(instruction)
        if self.protocol.state is not self._state:
            self._state = self.protocol.state
            self._note("state", state=str(self._state))

    def deliver(self, peer: str, data: bytes) -> None:
        """Bytes from `peer`. A peer that sends what makes no sense is not heard any more."""
        try:
            message, session = decode(data)
            if isinstance(message, _CONTROL):
                # Who speaks is whoever holds the other end, not whoever the message names.
                self.handle(replace(message, peer=peer))
            else:
                self._data(peer, session, message)
        except PeerError as error:
            self._note("refused", peer=peer, why=str(error))
            self.handle(Lost(peer))

    def improve(self, pause: Callable[[], bool] | None = None) -> Outcome:
        """Carry out `work`. The engine reports the outcome with `finish` when its clock says that it is over."""
        work, self.work = self.work, None
        assert work is not None
        gifts = [self._gifts.pop(key) for key in work.peers if key in self._gifts]
        return self.owner.improve(gifts, initial=work.initial, pause=pause)

    def finish(self, outcome: Outcome) -> None:
        """The work is over."""
        self.handle(Finished(news=outcome.news, spent=outcome.spent))

    # -- instructions --------------------------------------------------------------------------------

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Improve():
                self.work = instruction
            case Timer(seconds):
                self.timer = seconds
            case Send(to, message, session, news, last):
                if message is Signal:
                    self._send(to, Signal(self.owner.name, news, last))
                else:
                    self._send(to, message(self.owner.name, session))  # type: ignore[arg-type]
            case Serve(peer, session):
                role = self.owner.client(peer, session)
                self._clients[peer, session] = role
                self._send(peer, role.start(), session)
            case Host(peer, session):
                self._hosts[peer, session] = self.owner.host(peer, session)
            case Drop(peer):
                for roles in (self._clients, self._hosts, self._gifts):
                    for key in [key for key in roles if key[0] == peer]:
                        del roles[key]
                self._note("lost", peer=peer)

    def _send(self, peer: str, message: Any, session: int = 0) -> None:
        data = encode(message, session)
        self.owner.ledger.sent[peer] = self.owner.ledger.sent.get(peer, 0) + len(data)
        self._post(peer, data)

    # -- exchanges -----------------------------------------------------------------------------------

    def _data(self, peer: str, session: int, message: Any) -> None:
        """A message within an exchange.

        Sessions are numbered by their hosts, so a number alone does not say which side this owner is on. The kind of
        message does: clients open and are answered.
        """
        host = self._hosts.get((peer, session))
        client = self._clients.get((peer, session))
        kind = type(message).__name__
        if kind in ("Offer", "Structure", "Samples", "Candidate") and host is not None:
            answer = host.step(message)
            self._send(peer, answer, session)
            if host.gift is not None:
                del self._hosts[peer, session]
                self._gifts[peer, session] = host.gift
                self._note("translated", peer=peer, **host.gift.price)
                self.handle(Received(peer, session))
        elif kind in ("Thanks", "Gradient", "Received") and client is not None:
            following = client.step(message)
            if following is not None:
                self._send(peer, following, session)
            else:
                del self._clients[peer, session]
                self.handle(Served(peer, session))
        else:
            raise PeerError(f"{kind} belongs to no exchange under way (session {session})")

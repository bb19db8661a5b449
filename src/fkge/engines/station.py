"""One owner at work: the protocol decides, the owner does, and messages come and go as bytes. No clock, no transport.

An engine gives it a way to post bytes to a peer and asks it what to do next (`work`, `timer`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fkge.engines.tape import Tape
from fkge.errors import BudgetError, PeerError
from fkge.federation.codec import decode, encode
from fkge.federation.exchange import FROM_CLIENT, ClientRole, Gift, HostRole
from fkge.federation.gate import Released
from fkge.federation.owner import Outcome, Owner
from fkge.federation.protocol import (
    Abort,
    Accept,
    Begin,
    Defer,
    Drop,
    Event,
    Finished,
    Forget,
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
Left = Callable[[str, Released, int, bytes], None]
Note = Callable[..., None]

_CONTROL = (Signal, Request, Accept, Defer, Refuse, Abort)


class _Stray(PeerError):
    """A message of an exchange that this side has given up on: nobody's fault."""


class Station:
    """Carries out what the protocol says for one owner.

    Args:
        owner: who works.
        protocol: who decides.
        post: sends bytes to a peer; must not block.
        note: told of everything worth a line in a trace: ``note(event, **fields)``.
        tape: records all that is heard and said.
        left: told of all that leaves, just before it does: ``left(peer, released, session, data)``.

    Attributes:
        work: an `Improve` that the engine must carry out with `improve`, or None.
        timer: seconds after which the engine must call `handle(Wake())`, or None; the engine takes it away.
        done: what the last work came to, for the trace; empty if it broke off.
    """

    def __init__(
        self, owner: Owner, protocol: Protocol, post: Post, note: Note, tape: Tape | None = None,
        left: Left | None = None,
    ) -> None:  # fmt: skip
        self.owner = owner
        self.protocol = protocol
        self.work: Improve | None = None
        self.timer: float | None = None
        self.done: dict[str, Any] = {}
        self._post = post
        self._note = note
        self._tape = tape
        self._left = left
        self._clients: dict[tuple[str, int], ClientRole] = {}
        self._hosts: dict[tuple[str, int], HostRole] = {}
        self._gifts: dict[tuple[str, int], Gift] = {}
        self._served: set[tuple[str, int]] = set()
        self._state = protocol.state

    def begin(self, trained: bool) -> None:
        """Join the federation."""
        if self._tape is not None:
            self._tape.begin(trained)
        self._handle(Begin(trained=trained, spent=trained and self.owner.spent))

    def handle(self, event: Event) -> None:
        """Take in what the engine has to tell."""
        if self._tape is not None:
            self._tape.event(event)
        self._handle(event)

    def _handle(self, event: Event) -> None:
        """Let the protocol decide about `event`, and do what it says."""
        for instruction in self.protocol.handle(event):
            self._do(instruction)
        if self.protocol.state is not self._state:
            self._state = self.protocol.state
            self._note("state", state=str(self._state))

    def deliver(self, peer: str, data: bytes) -> None:
        """Bytes from `peer`. What makes no sense is refused, and the exchange it belongs to is over."""
        if self._tape is not None:
            self._tape.heard(peer, data)
        try:
            message, session = decode(data)
            if isinstance(message, _CONTROL):
                # Who speaks is whoever holds the other end, not whoever the message names.
                self._handle(replace(message, peer=peer))
                return
        except PeerError as error:
            self._note("refused", peer=peer, why=str(error))
            self._handle(Lost(peer))
            return
        self.protocol.touch()
        from_client = isinstance(message, FROM_CLIENT)
        try:
            with self.owner.clock("translate"):
                self._data(peer, session, message, from_client)
        except (PeerError, BudgetError) as error:  # what makes no sense, or what this owner cannot afford
            stray = isinstance(error, _Stray)
            event = "stray" if stray else "refused" if isinstance(error, PeerError) else "over budget"
            self._note(event, peer=peer, why=str(error))
            self._send(peer, Abort(self.owner.name, session, host=from_client))
            self._handle(Abort(peer, session, host=not from_client))
            return
        self._after(peer, session, from_client)

    def improve(self, pause: Callable[[], bool] | None = None) -> Outcome:
        """Carry out `work`. The engine reports the outcome with `finish` when its clock says that it is over."""
        work, self.work = self.work, None
        assert work is not None
        self.done = {}
        gifts = [self._gifts.pop(key) for key in work.peers if key in self._gifts]
        before = self.owner.trainer.epoch
        if self._tape is not None:
            self._tape.improve()
        outcome = self.owner.improve(gifts, initial=work.initial, pause=self._paused(pause))
        if self._tape is not None:
            self._tape.improved()
        epoch = self.owner.trainer.epoch
        self.done = {
            "initial": work.initial, "peers": [peer for peer, _ in work.peers], "epoch": epoch,
            "epochs": epoch - before, "score": outcome.score, "best": outcome.best, "improved": outcome.improved,
            "backtracked": outcome.backtracked, "sent": sum(self.owner.activity.sent.values()),
            "spent": self.owner.gate.charged,
        }  # fmt: skip
        return outcome

    def finish(self, outcome: Outcome) -> None:
        """The work is over."""
        if self._tape is not None:
            self._tape.finish()
        self._handle(Finished(news=outcome.news, spent=outcome.spent))

    def _paused(self, pause: Callable[[], bool] | None) -> Callable[[], bool] | None:
        """`pause`, with a word to the tape."""
        tape = self._tape
        if tape is None or pause is None:
            return pause

        def paused() -> bool:
            tape.paused()
            leave = pause()
            if leave:
                tape.left()
            return leave

        return paused

    # -- instructions --------------------------------------------------------------------------------

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Improve():
                self.work = instruction
            case Timer(seconds):
                self.timer = seconds
            case Send(to, message, session, news, last, _):
                if message is Signal:
                    self._send(to, Signal(self.owner.name, news, last))
                elif message is Abort:
                    self._send(to, Abort(self.owner.name, session, instruction.host))
                else:
                    self._send(to, message(self.owner.name, session))  # type: ignore[arg-type,call-arg]
            case Serve(peer, session):
                role = self.owner.client(peer, session)
                self._clients[peer, session] = role
                self._send(peer, role.start(), session)
            case Host(peer, session):
                self._hosts[peer, session] = self.owner.host(peer, session)
                self._note("hosting", peer=peer)
            case Forget(peer, session, hosting):
                if hosting:
                    self._hosts.pop((peer, session), None)
                else:
                    self._clients.pop((peer, session), None)
                self._note("given up", peer=peer, hosting=hosting)
            case Drop(peer):
                for roles in (self._clients, self._hosts, self._gifts):
                    for key in [key for key in roles if key[0] == peer]:
                        del roles[key]
                self._note("lost", peer=peer)

    def _send(self, peer: str, message: Any, session: int = 0) -> None:
        gate = self.owner.gate
        released = gate.release(message, peer, session)
        data = encode(released, session)
        gate.leaves(released, peer, len(data))
        if self._left is not None:
            self._left(peer, released, session, data)
        self.owner.activity.sent[peer] = self.owner.activity.sent.get(peer, 0) + len(data)
        if self._tape is not None:
            self._tape.said(peer, data)
        self._post(peer, data)

    # -- exchanges -----------------------------------------------------------------------------------

    def _data(self, peer: str, session: int, message: Any, from_client: bool) -> None:
        """A message within an exchange.

        Sessions are numbered by their hosts, so a number alone does not say which side this owner is on. The kind of
        message does: clients open and are answered.
        """
        key = (peer, session)
        if from_client and key in self._hosts:
            self._send(peer, self._hosts[key].step(message), session)
        elif not from_client and key in self._clients:
            following = self._clients[key].step(message)
            if following is not None:
                self._send(peer, following, session)
            else:
                del self._clients[key]
                self._served.add(key)
        elif from_client:
            raise _Stray(f"{type(message).__name__} belongs to no exchange under way (session {session})")
        # An answer to a client that has given up needs none.

    def _after(self, peer: str, session: int, from_client: bool) -> None:
        """Tell the protocol if that was the last message of an exchange."""
        key = (peer, session)
        host = self._hosts.get(key)
        if from_client and host is not None and host.gift is not None:
            del self._hosts[key]
            self._gifts[key] = host.gift
            self._note("translated", peer=peer, **host.gift.price)
            self._handle(Received(peer, session))
        elif not from_client and key in self._served:
            self._served.discard(key)
            self._handle(Served(peer, session))

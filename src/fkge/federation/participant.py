"""Connect one owner's protocol with its engine or node: carry out its instructions; release (`egress`), encode
(`codec`), record and post what is sent; decode what arrives; keep received updates until the next round of training.
There is no clock and no transport here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from fkge import owner_events as reports
from fkge.errors import BudgetError, PeerError
from fkge.federation.codec import decode, encode
from fkge.federation.egress import Released
from fkge.federation.events import (
    Begin,
    Drop,
    Event,
    Finished,
    Forget,
    Host,
    Improve,
    Instruction,
    Lost,
    Received,
    Send,
    Serve,
    Served,
    Timer,
)
from fkge.federation.exchange import FROM_CLIENT, ClientRole, HostRole, ReceivedUpdate
from fkge.federation.messages import HANDSHAKE, Abort
from fkge.federation.owner import Outcome, Owner
from fkge.federation.protocol import Protocol
from fkge.federation.recording import Recorder
from fkge.owner_events import Emit

Post = Callable[[str, bytes], None]
OnEgress = Callable[[str, Released, int, bytes], None]


class _Stray(PeerError):
    """A message of an exchange that this side has abandoned; not an error of the peer."""


@dataclass(eq=False)
class Participant:
    """Carries out the protocol's instructions for one owner.

    Attributes:
        owner: the owner.
        protocol: decides what to do.
        post: sends bytes to a peer; must not block.
        emit: receives every event worth a line in a trace.
        recorder: records all messages and events.
        on_egress: receives every message just before it is posted: ``on_egress(peer, released, session, data)``.
        work: an `Improve` to carry out with `improve`, or None.
        timer: seconds after which to call `handle(Wake())`, or None; its reader resets it.
        report: the last round of training; None if it broke off.
    """

    owner: Owner
    protocol: Protocol
    post: Post
    emit: Emit
    recorder: Recorder = field(default_factory=Recorder)
    on_egress: OnEgress | None = None
    work: Improve | None = field(default=None, init=False)
    timer: float | None = field(default=None, init=False)
    report: reports.Worked | None = field(default=None, init=False)
    _clients: dict[tuple[str, int], ClientRole] = field(default_factory=dict, init=False)
    _hosts: dict[tuple[str, int], HostRole] = field(default_factory=dict, init=False)
    _updates: dict[tuple[str, int], ReceivedUpdate] = field(default_factory=dict, init=False)

    def begin(self, trained: bool) -> None:
        """Join the federation; `trained`: with vectors to offer from an earlier incarnation."""
        self.recorder.note("begin", trained=trained)
        self._handle(Begin(trained=trained, spent=trained and self.owner.spent))

    def handle(self, event: Event) -> None:
        """Process an event that the engine reports."""
        self.recorder.event(event)
        self._handle(event)

    def _handle(self, event: Event) -> None:
        before = self.protocol.state
        for instruction in self.protocol.handle(event):
            self._do(instruction)
        if self.protocol.state is not before:
            self.emit(reports.StateChanged(state=str(self.protocol.state)))

    def deliver(self, peer: str, data: bytes) -> None:
        """Process a message from `peer`. A malformed one is refused and ends the exchange it belongs to."""
        self.recorder.received(peer, data)
        try:
            message, session = decode(data)
            if isinstance(message, HANDSHAKE):
                # The sender is the peer at the other end of the connection, not the one that the message names.
                self._handle(replace(message, peer=peer))
                return
        except PeerError as error:
            self.emit(reports.Refused(peer=peer, why=str(error)))
            self._handle(Lost(peer))
            return
        self.protocol.touch()
        from_client = isinstance(message, FROM_CLIENT)
        try:
            with self.owner.activity.clock("translate"):
                complete = self._exchange(peer, session, message, from_client)
        except (PeerError, BudgetError) as error:  # it is malformed, or this owner cannot afford it
            stray = reports.StrayMessage if isinstance(error, _Stray) else reports.Refused
            kind = stray if isinstance(error, PeerError) else reports.OverBudget
            self.emit(kind(peer=peer, why=str(error)))
            self._send(peer, Abort(self.owner.name, session, host=from_client))
            self._handle(Abort(peer, session, host=not from_client))
            return
        if complete is not None:
            self._handle(complete)

    def improve(self, pause: Callable[[], bool] | None = None) -> Outcome:
        """Carry out `work`; call `finish` with the outcome when the round is over on the engine's clock.

        Args:
            pause: called between two chunks of training; True leaves the training.
        """
        work, self.work = self.work, None
        assert work is not None
        self.report = None
        updates = [self._updates.pop(key) for key in work.peers if key in self._updates]
        before = self.owner.trainer.epoch
        self.recorder.note("improve")
        outcome = self.owner.improve(updates, initial=work.initial, pause=self.recorder.wrap(pause))
        self.recorder.note("improved")
        epoch = self.owner.trainer.epoch
        self.report = reports.Worked(
            initial=work.initial, peers=tuple(peer for peer, _ in work.peers), epoch=epoch, epochs=epoch - before,
            score=outcome.score, best=outcome.best, improved=outcome.improved, backtracked=outcome.backtracked,
            sent=sum(self.owner.activity.sent.values()), spent=self.owner.egress.charged,
        )  # fmt: skip
        return outcome

    def finish(self, outcome: Outcome) -> None:
        """Report to the protocol that the round is over."""
        self.recorder.note("finish")
        self._handle(Finished(news=outcome.news, spent=outcome.spent))

    # -- instructions --------------------------------------------------------------------------------

    def _do(self, instruction: Instruction) -> None:
        match instruction:
            case Improve():
                self.work = instruction
            case Timer(seconds):
                self.timer = seconds
            case Send(to, message):
                values = {f.name: getattr(instruction, f.name) for f in fields(message) if f.name != "peer"}
                self._send(to, message(self.owner.name, **values))
            case Serve(peer, session):
                role = self.owner.client(peer, session)
                self._clients[peer, session] = role
                self._send(peer, role.start(), session)
            case Host(peer, session):
                self._hosts[peer, session] = self.owner.host(peer, session)
                self.emit(reports.HostingStarted(peer=peer))
            case Forget(peer, session, hosting):
                (self._hosts if hosting else self._clients).pop((peer, session), None)
                self.emit(reports.ExchangeAbandoned(peer=peer, hosting=hosting))
            case Drop(peer):
                for roles in (self._clients, self._hosts, self._updates):
                    for key in [key for key in roles if key[0] == peer]:
                        del roles[key]
                self.emit(reports.PeerLost(peer=peer))

    def _send(self, peer: str, message: Any, session: int = 0) -> None:
        egress = self.owner.egress
        released = egress.release(message, peer, session)
        data = encode(released, session)
        egress.leaves(released, peer, len(data))
        if self.on_egress is not None:
            self.on_egress(peer, released, session, data)
        self.owner.activity.sent[peer] = self.owner.activity.sent.get(peer, 0) + len(data)
        self.recorder.sent(peer, data)
        self.post(peer, data)

    # -- exchanges -----------------------------------------------------------------------------------

    def _exchange(self, peer: str, session: int, message: Any, from_client: bool) -> Received | Served | None:
        """Process a message within an exchange; what to report to the protocol, if it was the last one."""
        key = (peer, session)  # two exchanges with a peer, one in each direction, may have the same
        if from_client and (host := self._hosts.get(key)) is not None:
            self._send(peer, host.step(message), session)
            if host.update is not None:
                del self._hosts[key]
                self._updates[key] = host.update
                self.emit(reports.HostingFinished.model_validate({"peer": peer, **host.update.price}))
                return Received(peer, session)
        elif not from_client and (client := self._clients.get(key)) is not None:
            following = client.step(message)
            if following is None:
                del self._clients[key]
                return Served(peer, session)
            self._send(peer, following, session)
        elif from_client:
            raise _Stray(f"{type(message).__name__} belongs to no exchange under way (session {session})")
        return None  # there is more to come, or it answers a client that has abandoned its exchange

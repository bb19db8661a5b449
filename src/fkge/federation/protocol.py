"""The exchange protocol of one owner, as a table: when to signal news to peers, ask one for its rows (as *host*), send
one's own (as *client*), train or sleep. Events go in, instructions come out; no I/O, no clock, no numbers.

    Ready   has time: requests from peers that have news, and serves peers that request
    Busy    works on its own vectors: peers that request are deferred, and get a signal when it is over
    Sleep   has time but no partner: wakes when a peer has news or requests something, or after a while

A handshake pairs a *host*, which wants to learn, with a *client*, which translates its vectors for the host. It
succeeds if neither side is Busy; the host requests only while Ready. A translation writes to neither side's vectors, so
an owner may host and serve any number of them at once, with the same peer in both directions too: between N owners up
to N(N−1) run side by side. The only thing that writes an owner's vectors is `Improve`, and there is never more than
one under way.

What differs from Algorithm 1 as printed, and why:
    - An owner is Busy while it works on its vectors, not while it translates. The paper sets a host Busy at the start
      of a translation, with which 2·C(N, 2) translations at the same time, as it promises, cannot happen.
    - News is signalled at once, not only when the queue is empty: with several peers the queue seldom is.
    - A host may gather the updates of several peers before it trains (`gather`); the paper's way is one at a time.

Nobody waits for the slowest. A Busy owner answers too (`Defer`). Where an owner gathers, it gives peers a bounded time
to come up with news. An exchange without progress for a while is abandoned, by either side (`Abort`). And an owner that
has slept for a while without news, or whose peers will have none any more, trains alone until it has spent its epochs.

Sessions are numbered by their hosts, each counting its own requests: (peer, session) names an exchange that the peer
hosts in `_serving`, and one that this owner hosts everywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from fkge.errors import PeerError
from fkge.federation.events import (
    Begin,
    Drop,
    Event,
    Finished,
    Forget,
    Host,
    Improve,
    Instruction,
    Joined,
    Lost,
    Received,
    Send,
    Serve,
    Served,
    Timer,
    Wake,
)
from fkge.federation.messages import Abort, Accept, Defer, Peer, Refuse, Request, Signal


class State(StrEnum):
    """The state of an owner: Busy, Ready or Sleep; see the module."""

    READY = "ready"
    BUSY = "busy"
    SLEEP = "sleep"


@dataclass(frozen=True)
class ProtocolConfig:
    """Settings of an owner's protocol.

    Attributes:
        gather, window, train_alone, period, answer: see `FederationSettings`.
        patient: where no peer is there at all, sleep and train alone once in a while, rather than all the time: peers
            that are away may come back, or come for the first time.
        refuses: peers never translated for.
        avoids: peers never requested from.
    """

    gather: bool = True
    window: float = 30.0
    train_alone: bool = False
    period: float = 60.0
    answer: float = 120.0
    patient: bool = False
    refuses: frozenset[Peer] = frozenset()
    avoids: frozenset[Peer] = frozenset()


class Protocol:
    """One owner's side of every handshake.

    Args:
        peers: those that share an entity or a relation with this owner.
        config: how it behaves.

    Attributes:
        state: Ready, Busy or Sleep.
        queue: peers with news that was not fetched yet, in the order the signals came.
        spent: the owner only serves from now on.
    """

    def __init__(self, peers: Iterable[Peer], config: ProtocolConfig | None = None) -> None:
        self.config = config or ProtocolConfig()
        self.state = State.BUSY
        self.queue: list[Peer] = []
        self.spent = False
        self._begun = False
        self._peers = set(peers)
        self._present = set(self._peers)
        self._expected = set(self._peers) - self.config.avoids
        """Peers that may still come up with news within the window."""
        self._last: set[Peer] = set()
        """Peers that signalled that they will have no more news."""
        self._unwilling: set[Peer] = set(self.config.avoids)
        self._requested: dict[Peer, int] = {}
        """Requests without an answer: the session, by peer."""
        self._hosting: dict[Peer, int] = {}
        self._received: list[tuple[Peer, int]] = []
        self._serving: set[tuple[Peer, int]] = set()
        self._deferred: set[Peer] = set()
        """Peers to signal when this owner is not Busy any more."""
        self._window_open = False
        self._progress = False
        """Whether an exchange has progressed since the timer was set."""
        self._session = 0

    # -- public state --------------------------------------------------------------------------------

    @property
    def at_rest(self) -> bool:
        """Whether nothing more will happen here, unless a peer requests something."""
        return self.state is State.SLEEP and self.spent

    @property
    def over(self) -> bool:
        """Whether this owner and all connected peers are at rest, so that no request follows unless a peer joins."""
        return self.at_rest and self._all_done(self._present) and not self._serving

    @property
    def idle(self) -> bool:
        """Whether no exchange is under way, nothing received waits to be used, and no peer to be told."""
        return not (self._requested or self._hosting or self._serving or self._received or self._deferred)

    def touch(self) -> None:
        """Note that an exchange has progressed, so that it is not abandoned yet."""
        self._progress = True

    def handle(self, event: Event) -> list[Instruction]:
        """Return the instructions that follow from `event`.

        Raises:
            PeerError: the event cannot happen in this state (a peer is confused, or worse). Nothing has changed.
        """
        handler = TABLE.get((self.state, type(event)))
        peer: Peer | None = getattr(event, "peer", None)
        if handler is None:
            by = f" from {peer}" if peer else ""
            raise PeerError(f"{type(event).__name__}{by} is not allowed while the owner is {self.state}")
        if peer is not None and peer not in self._peers and not isinstance(event, Joined):
            raise PeerError(f"{peer} shares nothing with this owner")
        return handler(self, event)

    # -- one method per row of the table -------------------------------------------------------------

    def _begin(self, event: Begin) -> list[Instruction]:
        if self._begun:
            raise PeerError("an owner begins once")
        self._begun = True
        if event.trained:
            return self._finished(Finished(news=True, spent=event.spent))
        return [Improve(initial=True)]

    def _finished(self, event: Finished) -> list[Instruction]:
        if not self._begun:
            raise PeerError("an owner begins before it finishes anything")
        self.state = State.READY
        self.spent = self.spent or event.spent
        waiting, self._deferred = self._deferred, set()
        out: list[Instruction] = [
            Send(peer, Signal, news=event.news or peer in waiting, last=self.spent)
            for peer in sorted(self._present)
            if event.news or self.spent or peer in waiting
        ]
        if self.spent:
            self.queue.clear()
        return out + self._next()

    def _wake(self, event: Wake) -> list[Instruction]:
        if self.state is State.BUSY:  # left behind by a window that closed before its time
            return []
        if self.state is State.SLEEP:
            return [] if self.spent else self._improve()
        if self._window_open:
            self._window_open = False
            self._expected &= set(self.queue)
        elif self._progress:
            self._progress = False
            return [Timer(self.config.answer)]
        else:
            return self._abandon() + self._next()
        return self._next()

    def _abandon(self) -> list[Instruction]:
        """End every exchange under way, and tell the other sides."""
        out: list[Instruction] = []
        for peer, session in (*self._requested.items(), *self._hosting.items()):
            out += [Send(peer, Abort, session, host=True), Forget(peer, session, hosting=True)]
            self._expected.discard(peer)
        for peer, session in sorted(self._serving):
            out += [Send(peer, Abort, session, host=False), Forget(peer, session, hosting=False)]
        self._requested.clear()
        self._hosting.clear()
        self._serving.clear()
        return out

    def _signal(self, event: Signal) -> list[Instruction]:
        self._present.add(event.peer)
        if event.peer not in self._unwilling:
            if event.last:
                self._last.add(event.peer)
                self._expected.discard(event.peer)
            else:
                self._expected.add(event.peer)
            if event.news and event.peer not in self.queue and not self.spent:
                self.queue.append(event.peer)
        if self.state is State.BUSY or self.spent:
            return []
        if self.state is State.SLEEP:
            self.state = State.READY
        return self._next()

    def _request(self, event: Request) -> list[Instruction]:
        if event.peer in self.config.refuses:
            return [Send(event.peer, Refuse, event.session)]
        if self.state is State.BUSY or self._about_to_improve:
            self._present.add(event.peer)  # or it would not be signalled afterwards
            self._deferred.add(event.peer)
            return [Send(event.peer, Defer, event.session)]
        if (event.peer, event.session) in self._serving:
            raise PeerError(f"{event.peer} asked twice for session {event.session}")
        self.state = State.READY
        # A host requests one thing of a client at a time: it has abandoned what it requested before.
        old = sorted(serving for serving in self._serving if serving[0] == event.peer)
        out: list[Instruction] = [Forget(peer, session, hosting=False) for peer, session in old]
        self._serving -= set(old)
        self._serving.add((event.peer, event.session))
        out += [Send(event.peer, Accept, event.session), Serve(event.peer, event.session)]
        if not self._requested and not self._hosting and not self._window_open:
            out.append(Timer(self.config.answer))
        return out

    def _accept(self, event: Accept) -> list[Instruction]:
        if not self._answers(event):  # it answers a request that was abandoned
            return [Send(event.peer, Abort, event.session, host=True)]
        self._hosting[event.peer] = event.session
        return [Host(event.peer, event.session)]

    def _decline(self, event: Defer | Refuse) -> list[Instruction]:
        if not self._answers(event):
            return []
        if isinstance(event, Refuse):
            self._unwilling.add(event.peer)
            self._expected.discard(event.peer)
            self.queue = [p for p in self.queue if p != event.peer]
        return self._next()

    def _abort(self, event: Abort) -> list[Instruction]:
        if event.host:
            if (event.peer, event.session) not in self._serving:
                return []
            self._serving.remove((event.peer, event.session))
        else:
            if event.session not in (self._requested.get(event.peer), self._hosting.get(event.peer)):
                return []
            self._requested.pop(event.peer, None)
            self._hosting.pop(event.peer, None)
            self._expected.discard(event.peer)
        return [Forget(event.peer, event.session, hosting=not event.host), *self._next()]

    def _receive(self, event: Received) -> list[Instruction]:
        if self._hosting.get(event.peer) != event.session:
            raise PeerError(f"no translation {event.session} with {event.peer} is under way")
        del self._hosting[event.peer]
        self._received.append((event.peer, event.session))
        return self._next()

    def _serve(self, event: Served) -> list[Instruction]:
        if (event.peer, event.session) not in self._serving:
            raise PeerError(f"session {event.session} of {event.peer} is not being served")
        self._serving.discard((event.peer, event.session))
        return self._next()

    def _lose(self, event: Lost) -> list[Instruction]:
        self._present.discard(event.peer)
        self._expected.discard(event.peer)
        self.queue = [p for p in self.queue if p != event.peer]
        self._deferred.discard(event.peer)
        self._requested.pop(event.peer, None)
        self._hosting.pop(event.peer, None)
        self._serving = {s for s in self._serving if s[0] != event.peer}
        out: list[Instruction] = [Drop(event.peer)]
        if self.state is State.READY:
            return out + self._next()
        if self.state is State.SLEEP and not self.spent and self._no_more_news:
            return out + self._improve()
        return out

    def _join(self, event: Joined) -> list[Instruction]:
        self._peers.add(event.peer)
        self._present.add(event.peer)
        self._last.discard(event.peer)
        if event.peer not in self.config.avoids:  # one that was unwilling may have new settings
            self._unwilling.discard(event.peer)
            self._expected.add(event.peer)
        # What this owner has is news to a newcomer. A Busy owner signals it afterwards, like those it has deferred.
        if self.state is State.BUSY:
            self._deferred.add(event.peer)
            return []
        return [Send(event.peer, Signal, last=self.spent)]

    # -- shared by several rows ----------------------------------------------------------------------

    def _answers(self, event: Accept | Defer | Refuse) -> bool:
        """Return whether `event` answers an open request, which then is not open any more."""
        if self._requested.get(event.peer) != event.session:
            return False
        del self._requested[event.peer]
        return True

    @property
    def _no_more_news(self) -> bool:
        """Whether no willing peer that is there will have any; nor, for a patient owner, those that may come back."""
        if self.config.patient and not self._present:
            return bool(self._peers) and self._all_done(self._peers)
        return self._all_done(self._present)

    def _all_done(self, peers: set[Peer]) -> bool:
        return peers <= self._last | self._unwilling

    @property
    def _about_to_improve(self) -> bool:
        """Whether all translations are in, and only those being served delay the training: no new ones are accepted."""
        return bool(self._received) and not self._requested and not self._hosting

    def _next(self) -> list[Instruction]:
        """Return the next instructions of a Ready owner. In order of preference it waits, trains, requests, sleeps."""
        if self._requested or self._hosting:
            return []
        if self._received:
            return [] if self._serving else self._improve()
        wanted = [] if self.spent else self.queue[:] if self.config.gather else self.queue[:1]
        if wanted:
            if self.config.gather and not self._expected <= set(self.queue):
                # Give the peers that may have news soon a bounded time, so that one training takes in all of it.
                if self._window_open:
                    return []
                self._window_open = True
                return [Timer(self.config.window)]
            self._window_open = False
            out: list[Instruction] = []
            for peer in wanted:
                self.queue.remove(peer)
                self._session += 1
                self._requested[peer] = self._session
                out.append(Send(peer, Request, self._session))
            self._progress = False
            return [*out, Timer(self.config.answer)]
        self._window_open = False  # the peer that it was opened for is lost; the next news opens another
        if self._serving:
            return []
        if not self.spent and (self.config.train_alone or self._no_more_news):
            return self._improve()
        self.state = State.SLEEP
        return [] if self.spent else [Timer(self.config.period)]

    def _improve(self) -> list[Instruction]:
        work, self._received = tuple(self._received), []
        self.state = State.BUSY
        return [Improve(work)]


_ALWAYS: dict[type, Callable[..., list[Instruction]]] = {
    Wake: Protocol._wake,
    Signal: Protocol._signal,
    Request: Protocol._request,
    Lost: Protocol._lose,
    Joined: Protocol._join,
    Accept: Protocol._accept,
    Defer: Protocol._decline,
    Refuse: Protocol._decline,
    Abort: Protocol._abort,
}
_IN: dict[State, dict[type, Callable[..., list[Instruction]]]] = {
    State.BUSY: {Begin: Protocol._begin, Finished: Protocol._finished},
    State.READY: {Received: Protocol._receive, Served: Protocol._serve},
    State.SLEEP: {},
}

TABLE: dict[tuple[State, type], Callable[..., list[Instruction]]] = {
    (state, event): handler for state in State for event, handler in {**_ALWAYS, **_IN[state]}.items()
}
"""Every state × event pair that is allowed. Whatever is not in it is refused and changes nothing."""

"""The handshake protocol of one owner, as a table. Events go in, instructions come out; no I/O, no clock, no numbers.

    Ready   has time: asks peers that have news, and serves whoever asks
    Busy    works on its own vectors (trains, aggregates, tests): whoever asks is put off and told when it is over
    Sleep   has time but no partner: wakes when a peer has news or wants something, or after a while

A handshake pairs a *host*, which wants to learn, with a *client*, which translates its vectors for the host. It
succeeds if neither side is Busy; the host asks only while Ready. A translation writes to neither side's vectors, so
an owner may host and serve any number of them at once, with the same peer in both directions too: between N owners up
to N(N−1) run side by side. The only thing that writes an owner's vectors is `Improve`, and there is never more than
one under way.

What differs from Algorithm 1 as printed, and why:
    - An owner is Busy while it works on its vectors, not while it translates. The paper sets a host Busy at the start
      of a translation, with which 2·C(N, 2) translations at the same time, as it promises, cannot happen.
    - News is told at once, not only when the queue is empty: with several peers the queue seldom is.
    - A host may gather what several peers have before it trains (`gather`); the paper's way is one at a time.

Nobody waits for the slowest. A Busy owner answers too (`Defer`). Where an owner gathers, it gives peers a bounded time
to come up with news; one that misses it is not waited for again until it has some. An exchange in which nothing moves
for a while is given up on, by either side (`Abort`). And an owner that has slept for a while without news, or whose
peers will have none any more, trains alone until it has spent what it meant to spend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from fkge.errors import PeerError

Peer: TypeAlias = str


class State(StrEnum):
    """What an owner is up to."""

    READY = "ready"
    BUSY = "busy"
    SLEEP = "sleep"


# -- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begin:
    """The owner joins. `trained`: with vectors to offer, from an earlier life; `spent`: and nothing left to spend."""

    trained: bool = False
    spent: bool = False


@dataclass(frozen=True)
class Finished:
    """The `Improve` under way is over.

    Attributes:
        news: there is something new to offer.
        spent: the owner has used up what it meant to spend; from now on it only serves.
    """

    news: bool
    spent: bool = False


@dataclass(frozen=True)
class Wake:
    """The time asked for with `Timer` is over."""


@dataclass(frozen=True)
class Signal:
    """A peer has news, or says that there will be no more after this (`last`)."""

    peer: Peer
    news: bool = True
    last: bool = False


@dataclass(frozen=True)
class Request:
    """A peer wants to host: it asks this owner to translate for it."""

    peer: Peer
    session: int


@dataclass(frozen=True)
class Accept:
    """A peer agrees to translate for this owner."""

    peer: Peer
    session: int


@dataclass(frozen=True)
class Defer:
    """A peer is Busy; it will send a signal when it is not."""

    peer: Peer
    session: int


@dataclass(frozen=True)
class Refuse:
    """A peer will not translate for this owner, for as long as it stays."""

    peer: Peer
    session: int


@dataclass(frozen=True)
class Abort:
    """A peer gives up on an exchange. `host`: it is the peer that hosts, and this owner that serves."""

    peer: Peer
    session: int
    host: bool


@dataclass(frozen=True)
class Received:
    """A translation this owner hosts is complete."""

    peer: Peer
    session: int


@dataclass(frozen=True)
class Served:
    """A translation this owner serves is complete."""

    peer: Peer
    session: int


@dataclass(frozen=True)
class Lost:
    """A peer cannot be reached any more."""

    peer: Peer


@dataclass(frozen=True)
class Joined:
    """A peer is there, for the first time or again."""

    peer: Peer


Event: TypeAlias = (
    Begin | Finished | Wake | Signal | Request | Accept | Defer | Refuse | Abort | Received | Served | Lost | Joined
)
EVENTS: tuple[type, ...] = (
    Begin, Finished, Wake, Signal, Request, Accept, Defer, Refuse, Abort, Received, Served, Lost, Joined,
)  # fmt: skip


# -- instructions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Improve:
    """Aggregate what came from `peers`, train, test, keep or go back; then report `Finished`.

    Attributes:
        peers: sessions whose translations to aggregate, as (peer, session); none for training alone.
        initial: the first training of all.
    """

    peers: tuple[tuple[Peer, int], ...] = ()
    initial: bool = False


@dataclass(frozen=True)
class Send:
    """Tell a peer. `message` is the event that the peer will see, with this owner as its peer."""

    to: Peer
    message: type[Signal] | type[Request] | type[Accept] | type[Defer] | type[Refuse] | type[Abort]
    session: int = 0
    news: bool = True
    last: bool = False
    host: bool = False


@dataclass(frozen=True)
class Host:
    """Take the host's role in a translation; then report `Received`."""

    peer: Peer
    session: int


@dataclass(frozen=True)
class Serve:
    """Take the client's role in a translation; then report `Served`."""

    peer: Peer
    session: int


@dataclass(frozen=True)
class Drop:
    """Forget every translation with this peer, whichever side."""

    peer: Peer


@dataclass(frozen=True)
class Forget:
    """Forget one translation. `hosting`: this owner's part in it."""

    peer: Peer
    session: int
    hosting: bool


@dataclass(frozen=True)
class Timer:
    """Report `Wake` after this many seconds; replaces any timer set before."""

    seconds: float


Instruction: TypeAlias = Improve | Send | Host | Serve | Drop | Forget | Timer


@dataclass(frozen=True)
class Manners:
    """How an owner behaves in the protocol.

    Attributes:
        gather: ask all peers that have news before training, rather than one at a time (the paper).
        window: with `gather`, seconds to give peers to come up with news, once one of them has.
        train_alone: train on one's own vectors when nobody has news (the paper's self-iterative training); else sleep.
        period: seconds of sleep, if nobody wakes the owner before; then it trains alone once.
        answer: seconds after which an exchange in which nothing moves is given up on.
        patient: where nobody is there at all, sleep and train alone once in a while, rather than all the time: peers
            that are away may come back, or come for the first time.
        refuses: peers never translated for.
        avoids: peers never asked.
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
        peers: whoever shares an entity or a relation with this owner.
        manners: how it behaves.

    Attributes:
        state: Ready, Busy or Sleep.
        queue: peers with news that was not fetched yet, in the order the signals came.
        spent: the owner only serves from now on.
    """

    def __init__(self, peers: Iterable[Peer], manners: Manners | None = None) -> None:
        self.manners = manners or Manners()
        self.state = State.BUSY
        self.queue: list[Peer] = []
        self.spent = False
        self._begun = False
        self._peers = set(peers)
        self._present = set(self._peers)
        self._expected = set(self._peers) - self.manners.avoids
        """Peers that may still come up with news within the window."""
        self._last: set[Peer] = set()
        """Peers that said they will have no more news."""
        self._unwilling: set[Peer] = set(self.manners.avoids)
        self._asked: dict[Peer, int] = {}
        self._hosting: dict[Peer, int] = {}
        self._received: list[tuple[Peer, int]] = []
        self._serving: set[tuple[Peer, int]] = set()
        self._put_off: list[Peer] = []
        self._windowed = False
        self._moved = False
        self._session = 0

    # -- what others may look at ---------------------------------------------------------------------

    @property
    def at_rest(self) -> bool:
        """Nothing will happen here any more, unless a peer wants something."""
        return self.state is State.SLEEP and self.spent

    @property
    def over(self) -> bool:
        """At rest, and so is everybody who is there: nobody will ask for anything, unless somebody joins."""
        return self.at_rest and self._all_done(self._present) and not self._serving

    @property
    def working(self) -> bool:
        """An `Improve` is under way."""
        return self.state is State.BUSY and self._begun

    def touch(self) -> None:
        """Something moved in an exchange: it is not to be given up on yet."""
        self._moved = True

    def handle(self, event: Event) -> list[Instruction]:
        """What to do about `event`.

        Raises:
            PeerError: the event cannot happen in this state (a peer is confused, or worse). Nothing has changed.
        """
        handler = TABLE.get((self.state, type(event)))
        if handler is None:
            raise PeerError(f"{_describe(event)} makes no sense to an owner that is {self.state}")
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
        waiting, self._put_off = set(self._put_off), []
        out: list[Instruction] = [
            Send(peer, Signal, news=event.news or peer in waiting, last=self.spent)
            for peer in sorted(self._present)
            if event.news or self.spent or peer in waiting
        ]
        if self.spent:
            self.queue.clear()
        return out + self._go_on()

    def _wake(self, event: Wake) -> list[Instruction]:
        if self.state is State.BUSY:  # a window that closed by itself has left its timer behind
            return []
        if self.state is State.SLEEP:
            return [] if self.spent else self._work()
        if self._windowed:
            self._windowed = False
            self._expected &= set(self.queue)
        elif self._moved:
            self._moved = False
            return [Timer(self.manners.answer)]
        else:
            return self._give_up() + self._go_on()
        return self._go_on()

    def _give_up(self) -> list[Instruction]:
        """End every exchange under way, and tell the other sides."""
        out: list[Instruction] = []
        for peer, session in (*self._asked.items(), *self._hosting.items()):
            out += [Send(peer, Abort, session, host=True), Forget(peer, session, hosting=True)]
            self._expected.discard(peer)
        for peer, session in sorted(self._serving):
            out += [Send(peer, Abort, session, host=False), Forget(peer, session, hosting=False)]
        self._asked.clear()
        self._hosting.clear()
        self._serving.clear()
        return out

    def _signal(self, event: Signal) -> list[Instruction]:
        self._known(event.peer)
        self._note(event)
        if self.state is State.BUSY or self.spent:
            return []
        if self.state is State.SLEEP:
            self.state = State.READY
        return self._go_on()

    def _request(self, event: Request) -> list[Instruction]:
        self._known(event.peer)
        if event.peer in self.manners.refuses:
            return [Send(event.peer, Refuse, event.session)]
        if self.state is State.BUSY or self._about_to_work:
            self._present.add(event.peer)  # or it would not be told afterwards
            if event.peer not in self._put_off:
                self._put_off.append(event.peer)
            return [Send(event.peer, Defer, event.session)]
        if (event.peer, event.session) in self._serving:
            raise PeerError(f"{event.peer} asked twice for session {event.session}")
        self.state = State.READY
        # A host asks one thing of a client at a time: what it asked before, it has given up on.
        old = sorted(serving for serving in self._serving if serving[0] == event.peer)
        out: list[Instruction] = [Forget(peer, session, hosting=False) for peer, session in old]
        self._serving -= set(old)
        self._serving.add((event.peer, event.session))
        out += [Send(event.peer, Accept, event.session), Serve(event.peer, event.session)]
        if not self._asked and not self._hosting and not self._windowed:
            out.append(Timer(self.manners.answer))
        return out

    def _accept(self, event: Accept) -> list[Instruction]:
        if not self._answered(event):  # to a question that was given up on
            return [Send(event.peer, Abort, event.session, host=True)]
        self._hosting[event.peer] = event.session
        return [Host(event.peer, event.session)]

    def _defer(self, event: Defer) -> list[Instruction]:
        return self._go_on() if self._answered(event) else []

    def _refuse(self, event: Refuse) -> list[Instruction]:
        if not self._answered(event):
            return []
        self._unwilling.add(event.peer)
        self._expected.discard(event.peer)
        self.queue = [p for p in self.queue if p != event.peer]
        return self._go_on()

    def _abort(self, event: Abort) -> list[Instruction]:
        self._known(event.peer)
        if event.host:
            if (event.peer, event.session) not in self._serving:
                return []
            self._serving.discard((event.peer, event.session))
        else:
            if event.session not in (self._asked.get(event.peer), self._hosting.get(event.peer)):
                return []
            self._asked.pop(event.peer, None)
            self._hosting.pop(event.peer, None)
            self._expected.discard(event.peer)
        return [Forget(event.peer, event.session, hosting=not event.host), *self._go_on()]

    def _receive(self, event: Received) -> list[Instruction]:
        if self._hosting.get(event.peer) != event.session:
            raise PeerError(f"no translation {event.session} with {event.peer} is under way")
        del self._hosting[event.peer]
        self._received.append((event.peer, event.session))
        return self._go_on()

    def _serve(self, event: Served) -> list[Instruction]:
        if (event.peer, event.session) not in self._serving:
            raise PeerError(f"session {event.session} of {event.peer} is not being served")
        self._serving.discard((event.peer, event.session))
        return self._go_on()

    def _lose(self, event: Lost) -> list[Instruction]:
        self._known(event.peer)
        self._present.discard(event.peer)
        self._expected.discard(event.peer)
        self.queue = [p for p in self.queue if p != event.peer]
        self._put_off = [p for p in self._put_off if p != event.peer]
        self._asked.pop(event.peer, None)
        self._hosting.pop(event.peer, None)
        self._serving = {s for s in self._serving if s[0] != event.peer}
        out: list[Instruction] = [Drop(event.peer)]
        if self.state is State.READY:
            return out + self._go_on()
        if self.state is State.SLEEP and not self.spent and self._no_more_news:
            return out + self._work()
        return out

    def _join(self, event: Joined) -> list[Instruction]:
        if event.peer not in self._peers:
            self._peers.add(event.peer)
        self._present.add(event.peer)
        self._last.discard(event.peer)
        if event.peer not in self.manners.avoids:  # one that was unwilling may have been told otherwise
            self._unwilling.discard(event.peer)
            self._expected.add(event.peer)
        # What this owner has is news to a newcomer. One that is Busy tells everybody soon enough, or at least those it
        # put off: so it counts as such.
        if self.state is State.BUSY:
            if event.peer not in self._put_off:
                self._put_off.append(event.peer)
            return []
        return [Send(event.peer, Signal, last=self.spent)]

    # -- the same for several rows -------------------------------------------------------------------

    def _known(self, peer: Peer) -> None:
        if peer not in self._peers:
            raise PeerError(f"{peer} shares nothing with this owner")

    def _note(self, event: Signal) -> None:
        self._present.add(event.peer)
        if event.peer in self._unwilling:
            return
        if event.last:
            self._last.add(event.peer)
            self._expected.discard(event.peer)
        else:
            self._expected.add(event.peer)
        if event.news and event.peer not in self.queue and not self.spent:
            self.queue.append(event.peer)

    def _answered(self, event: Accept | Defer | Refuse) -> bool:
        """Whether this answers a question that is still open; it is not, then."""
        self._known(event.peer)
        if self._asked.get(event.peer) != event.session:
            return False
        del self._asked[event.peer]
        return True

    @property
    def _no_more_news(self) -> bool:
        """Nobody who is there and willing will have any; nor, to who is patient, will those who may come back."""
        if self.manners.patient and not self._present:
            return bool(self._peers) and self._all_done(self._peers)
        return self._all_done(self._present)

    def _all_done(self, peers: set[Peer]) -> bool:
        return peers <= self._last | self._unwilling

    @property
    def _about_to_work(self) -> bool:
        """All translations are in, and only those being served keep this owner from its work: no new ones, please."""
        return bool(self._received) and not self._asked and not self._hosting and not self._queue_now()

    def _queue_now(self) -> list[Peer]:
        """Peers to ask at this moment."""
        if self.spent or not self.queue or self._asked or self._hosting or self._received:
            return []
        if not self.manners.gather:
            return self.queue[:1]
        return list(self.queue)

    def _go_on(self) -> list[Instruction]:
        """Ready: ask, wait, work or sleep."""
        if self._asked or self._hosting:
            return []
        if self._received:
            if self._serving:
                return []
            return self._work()
        wanted = self._queue_now()
        if not wanted:  # whoever the window was opened for is lost; the next news opens one of its own
            self._windowed = False
        if wanted and self.manners.gather and not self._windowed and not self._expected <= set(self.queue):
            self._windowed = True
            return [Timer(self.manners.window)]
        if wanted and self._windowed and not self._expected <= set(self.queue):
            return []
        if wanted:
            self._windowed = False
            out: list[Instruction] = []
            for peer in wanted:
                self.queue.remove(peer)
                self._session += 1
                self._asked[peer] = self._session
                out.append(Send(peer, Request, self._session))
            self._moved = False
            return [*out, Timer(self.manners.answer)]
        if self._serving:
            return []
        if not self.spent and (self.manners.train_alone or self._no_more_news):
            return self._work()
        self.state = State.SLEEP
        return [] if self.spent else [Timer(self.manners.period)]

    def _work(self) -> list[Instruction]:
        work, self._received = tuple(self._received), []
        self.state = State.BUSY
        return [Improve(work)]


_ALWAYS: dict[type, Callable[..., list[Instruction]]] = {
    Wake: Protocol._wake, Signal: Protocol._signal, Request: Protocol._request, Lost: Protocol._lose,
    Joined: Protocol._join, Accept: Protocol._accept, Defer: Protocol._defer, Refuse: Protocol._refuse,
    Abort: Protocol._abort,
}  # fmt: skip
_IN: dict[State, dict[type, Callable[..., list[Instruction]]]] = {
    State.BUSY: {Begin: Protocol._begin, Finished: Protocol._finished},
    State.READY: {Received: Protocol._receive, Served: Protocol._serve},
    State.SLEEP: {},
}  # fmt: skip

TABLE: dict[tuple[State, type], Callable[..., list[Instruction]]] = {
    (state, event): handler for state in State for event, handler in {**_ALWAYS, **_IN[state]}.items()
}
"""Every state × event pair that is allowed. Whatever is not in it is refused and changes nothing."""


def _describe(event: Event) -> str:
    peer = getattr(event, "peer", None)
    return f"{type(event).__name__}{f' from {peer}' if peer else ''}"

"""A little network in one thread: owners that run the protocol and freeze, messages that dawdle, links that break.

Whatever may happen next is drawn at random: a message is delivered (in order within one link), a piece of work ends, a
timer fires, an exchange breaks, a link breaks or comes back, an owner dies or returns. Two things happen that nobody is
told of: a link may stall and an owner may freeze, for a while or for ever. The rules are checked from outside, by what
an owner was told to do, not by what it believes about itself.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

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
from fkge.federation.messages import Abort, Accept, Defer, Refuse, Request, Signal
from fkge.federation.protocol import Protocol, ProtocolConfig, State


class Violation(AssertionError):
    """A rule of the protocol was broken."""


@dataclass(frozen=True)
class Data:
    """A message within an exchange: the client's `step`-th, or the host's answer to it."""

    session: int
    step: int
    from_client: bool


Carried: TypeAlias = Event | Data


@dataclass
class Node:
    """An owner, as its engine sees it."""

    protocol: Protocol
    budget: int
    alive: bool = True
    frozen: bool = False
    begun: bool = False
    improving: bool = False
    timer: bool = False
    hosting: set[tuple[str, int]] = field(default_factory=set)
    """(client, session) of open translations."""
    serving: set[tuple[str, int]] = field(default_factory=set)
    asked: set[tuple[str, int]] = field(default_factory=set)
    version: int = 0
    news: int = 0
    """The version that peers have to hear of."""
    unfetched: set[str] = field(default_factory=set)
    """Peers whose news arrived here and was not asked for yet."""

    @property
    def up(self) -> bool:
        return self.alive and not self.frozen


class World:
    """Some owners, all of whom share something.

    Args:
        seed: of everything that happens.
        kind: how owners behave.
        trouble: links break and stall, owners die and freeze, exchanges fail, and timers fire at any moment. Without,
            everybody is quicker than any timer.
    """

    def __init__(self, seed: int, kind: type[Protocol] = Protocol, *, trouble: bool = True) -> None:
        self.random = random.Random(seed)
        self.kind = kind
        self.names = [f"o{i}" for i in range(self.random.randint(2, 6))]
        self.configs = {name: self._config(name) for name in self.names}
        self.nodes = {name: self._node(name, self.random.randint(1, 12)) for name in self.names}
        self.links = {(a, b): deque[Carried]() for a in self.names for b in self.names if a != b}
        self.up = dict.fromkeys(self.links, True)
        self.stalled: set[tuple[str, str]] = set()
        """(from, to): links on which nothing moves, though nobody is told."""
        self.rounds = {key: self.random.randint(1, 3) for key in self.links}
        """(host, client): messages that a client says in an exchange."""
        self.told: dict[tuple[str, str], int] = {}
        """(client, host): the last version that the client said it has, on the link as it is now."""
        self.promised: set[tuple[str, str]] = set()
        """(client, host): the client put the host off and owes it a signal."""
        self.unwilling: set[tuple[str, str]] = set()
        self.trouble = self.random.choice((0.01, 0.05, 0.2)) if trouble else 0.0
        self.haste = self.random.choice((0.02, 0.1, 0.4)) if trouble else 0.0
        """How readily timers fire, in place of anything else."""
        self.sloth = self.random.choice((0.0, 0.9))
        """How long work takes."""
        self.steps = 0
        self.side_by_side = 0
        self.given_up = 0
        if trouble and self.random.random() < 0.3:  # one comes late
            self._crash(self.random.choice(self.names))

    def _config(self, name: str) -> ProtocolConfig:
        pick = self.random
        others = [n for n in self.names if n != name]
        shunned = frozenset(n for n in others if pick.random() < 0.1)
        return ProtocolConfig(
            gather=pick.random() < 0.6, window=1.0, train_alone=pick.random() < 0.4, period=2.0, answer=3.0,
            patient=pick.random() < 0.5, refuses=shunned, avoids=shunned if pick.random() < 0.5 else frozenset(),
        )  # fmt: skip

    def _node(self, name: str, budget: int) -> Node:
        return Node(self.kind([n for n in self.names if n != name], self.configs[name]), budget)

    # -- what may happen -----------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Random events for a while, `steps` at most; then no more trouble, until nothing moves.

        What is stalled or frozen by then thaws, or stays so for ever and the others have to live with it.
        """
        for _ in range(self.random.randint(0, steps)):
            if self.random.random() < self.trouble:
                self._make_trouble()
            elif not self._something(timers=self.random.random() < self.haste):
                break
        self._mend()
        self.settle()

    def settle(self) -> None:
        """Deliver, finish and wake until waking up changes nothing any more."""
        quiet = 0
        for _ in range(300):
            while self._something(timers=self.random.random() < self.haste):
                pass
            before = self.steps
            woken = [name for name in self.names if self.nodes[name].up and self.nodes[name].timer]
            for name in woken:
                self._wake(name)
            while self._something(timers=False):
                pass
            quiet = quiet + 1 if self.steps == before + len(woken) else 0
            if quiet == 3:
                return self._check_rest()
        raise Violation("it never comes to rest")

    def _something(self, timers: bool) -> bool:
        """One event that is due, if there is any."""
        due: list[tuple[str, tuple[str, ...]]] = [
            ("deliver", (a, b))
            for (a, b), link in self.links.items()
            if link and (a, b) not in self.stalled and not self.nodes[b].frozen
        ]
        for name, node in self.nodes.items():
            if node.up and not node.begun:
                due.append(("begin", (name,)))
            if node.up and node.improving:
                due.append(("finish", (name,)))
        wakes = [("wake", (name,)) for name, node in self.nodes.items() if node.up and node.timer]
        if timers and wakes:
            due = list(wakes)
        if not due:
            return False
        if self.random.random() < self.sloth:
            due = [d for d in due if d[0] != "finish"] or due
        what, args = self.random.choice(due)
        getattr(self, f"_{what}")(*args)
        self.side_by_side = max(self.side_by_side, sum(len(n.hosting) for n in self.nodes.values()))
        return True

    def _deliver(self, a: str, b: str) -> None:
        event, node = self.links[a, b].popleft(), self.nodes[b]
        if isinstance(event, Data):
            self._data(a, b, event)
            return
        match event:
            case Signal(news=True):
                if not (node.protocol.spent or a in self.configs[b].avoids or (b, a) in self.unwilling):
                    node.unfetched.add(a)
            case Defer(_, session):
                node.asked.discard((a, session))
            case Refuse(_, session) if (a, session) in node.asked:  # one that comes too late may be forgotten
                node.asked.discard((a, session))
                node.unfetched.discard(a)
                self.unwilling.add((b, a))
            case Lost():
                node.unfetched.discard(a)
            case Joined():
                self.unwilling.discard((b, a))
        self._tell(b, event)

    def _data(self, a: str, b: str, message: Data) -> None:
        """As a station does it: whatever belongs to no exchange, or breaks one, is answered with `Abort`."""
        node, key = self.nodes[b], (a, message.session)
        node.protocol.touch()
        hosting = message.from_client
        known = key in (node.hosting if hosting else node.serving)
        if not known and not hosting:
            return  # an answer to a client that has given up
        if not known or self.random.random() < 0.1 * bool(self.trouble):
            self._post(b, a, Abort(b, message.session, host=hosting))
            self._tell(b, Abort(a, message.session, host=not hosting))
        elif hosting:
            self._post(b, a, Data(message.session, message.step, from_client=False))
            if message.step == self.rounds[b, a]:
                node.hosting.discard(key)
                self._tell(b, Received(*key))
        elif message.step < self.rounds[a, b]:
            self._post(b, a, Data(message.session, message.step + 1, from_client=True))
        else:
            node.serving.discard(key)
            self._tell(b, Served(*key))

    def _begin(self, name: str) -> None:
        node = self.nodes[name]
        node.begun = True
        if node.version:
            node.news = node.version
        self._tell(name, Begin(trained=node.version > 0, spent=node.version > 0 and node.budget == 0))

    def _finish(self, name: str) -> None:
        node = self.nodes[name]
        first = node.version == 0
        node.improving = False
        node.version += 1
        node.budget = max(0, node.budget - 1)
        news = first or self.random.random() < 0.6
        if news:
            node.news = node.version
        self._tell(name, Finished(news, spent=node.budget == 0))

    def _wake(self, name: str) -> None:
        self.nodes[name].timer = False
        self._tell(name, Wake())

    # -- trouble -------------------------------------------------------------------------------------

    def _make_trouble(self) -> None:
        a, b = self.random.sample(self.names, 2)
        dead = [name for name in self.names if not self.nodes[name].alive]
        what = self.random.random()
        if what < 0.3:
            self.nodes[a].frozen = self.nodes[a].alive and not self.nodes[a].frozen
        elif what < 0.5 and self.up[a, b]:
            self.stalled ^= {(a, b)}
        elif dead and what < 0.8:
            self._revive(dead[0])
        elif not self.up[a, b]:
            self._connect(a, b)
        elif self.random.random() < 0.5:
            self._break(a, b)
        else:
            self._crash(a)

    def _break(self, a: str, b: str) -> None:
        """A broken link loses what was under way; both sides hear of it in their own time, before anything newer."""
        for x, y in ((a, b), (b, a)):
            if self.up[x, y]:
                self.links[x, y].clear()
                if self.nodes[y].alive:
                    self.links[x, y].append(Lost(x))
            self.up[x, y] = False
            self.told.pop((x, y), None)
        self.stalled -= {(a, b), (b, a)}
        self.promised -= {(a, b), (b, a)}

    def _connect(self, a: str, b: str) -> None:
        if not (self.nodes[a].alive and self.nodes[b].alive) or self.links[a, b] or self.links[b, a]:
            return  # the break was not noticed yet
        self.up[a, b] = self.up[b, a] = True
        self.links[a, b].append(Joined(a))
        self.links[b, a].append(Joined(b))

    def _crash(self, name: str) -> None:
        self.nodes[name].alive = self.nodes[name].frozen = False
        for other in self.names:
            if other != name:
                self._break(name, other)
                self.links[other, name].clear()

    def _revive(self, name: str) -> None:
        if any(self.links[name, other] for other in self.names if other != name):
            return
        old = self.nodes[name]
        new = self.nodes[name] = self._node(name, old.budget)
        new.version, new.news = old.version, old.news
        for other in self.names:
            if other != name and self.nodes[other].alive:
                self._connect(name, other)
            elif other != name:
                self.links[other, name].append(Lost(other))

    def _mend(self) -> None:
        """Some of what is broken comes back. What nobody noticed stays as it is in some worlds, in others it passes."""
        if self.random.random() < 0.5:
            self.stalled.clear()
            for node in self.nodes.values():
                node.frozen = False
        while self._something(timers=False) and any(self.links.values()):
            pass
        for name in self.names:
            if not self.nodes[name].alive and self.random.random() < 0.5:
                self._revive(name)
        for a, b in self.links:
            if not self.up[a, b] and self.random.random() < 0.7:
                self._connect(a, b)

    # -- the rules -----------------------------------------------------------------------------------

    def _tell(self, name: str, event: Event) -> None:
        self.steps += 1
        instructions = self.nodes[name].protocol.handle(event)
        for instruction in instructions:
            self._do(name, instruction)
            if isinstance(instruction, Forget) and not isinstance(event, Abort):
                self.given_up += 1
                peer, session, hosting = instruction.peer, instruction.session, instruction.hosting
                if Send(peer, Abort, session, host=hosting) not in instructions:
                    raise Violation(f"{name} gives up on {peer} and does not say so")
        node = self.nodes[name]
        if node.protocol.spent:
            node.unfetched.clear()
        alone = Improve() in instructions
        if node.unfetched and (alone or node.protocol.state is State.SLEEP):
            raise Violation(f"{name} {'trains alone' if alone else 'sleeps'} over news of {node.unfetched}")

    def _do(self, name: str, instruction: Instruction) -> None:
        node = self.nodes[name]
        match instruction:
            case Improve():
                if node.improving:
                    raise Violation(f"{name} improves twice at once")
                if node.hosting or node.serving or node.asked:
                    raise Violation(f"{name} improves while it hosts, serves or has asked")
                node.improving = True
            case Send(peer):
                self._send(name, instruction, peer)
            case Host(peer, session):
                if node.improving:
                    raise Violation(f"{name} hosts while Busy")
                if (peer, session) not in node.asked:
                    raise Violation(f"{name} hosts what it has not asked for, or has given up on")
                node.asked.discard((peer, session))
                node.hosting.add((peer, session))
            case Serve(peer, session):
                if node.improving:
                    raise Violation(f"{name} serves while Busy")
                node.serving.add((peer, session))
                self._post(name, peer, Data(session, 1, from_client=True))
            case Drop(peer):
                for which in (node.hosting, node.serving, node.asked):
                    which -= {key for key in which if key[0] == peer}
            case Forget(peer, session, hosting):
                if hosting:
                    node.asked.discard((peer, session))
                    node.hosting.discard((peer, session))
                else:
                    node.serving.discard((peer, session))
            case Timer():
                node.timer = True

    def _send(self, name: str, send: Send, to: str) -> None:
        node, kind = self.nodes[name], send.message
        if kind is Request:
            if node.improving or to in self.configs[name].avoids or (name, to) in self.unwilling:
                raise Violation(f"{name} asks {to}, and must not")
            node.asked.add((to, send.session))
            node.unfetched.discard(to)
        if not self.up[name, to]:
            return
        if kind is Accept and node.improving:
            raise Violation(f"{name} opens a handshake with {to} while Busy")
        if kind is Defer:
            self.promised.add((name, to))
        if kind is Signal and send.news:
            self.promised.discard((name, to))
            self.told[name, to] = node.news
        event: Event
        if kind is Signal:
            event = Signal(name, send.news, send.last)
        elif kind is Abort:
            event = Abort(name, send.session, send.host)
        else:
            event = kind(name, send.session)  # type: ignore[call-arg,arg-type]
        self._post(name, to, event)

    def _post(self, name: str, to: str, what: Carried) -> None:
        if self.up[name, to]:
            self.links[name, to].append(what)

    def _check_rest(self) -> None:
        """Everybody who was not lost or frozen has done what it meant to do, and has nothing open with anybody."""
        for name, node in self.nodes.items():
            if not node.up:
                continue
            protocol = node.protocol
            if not protocol.at_rest or node.improving or node.hosting or node.serving or node.asked:
                raise Violation(f"{name} is stuck: {vars(protocol)}")
            if node.budget:
                raise Violation(f"{name} rests with {node.budget} epochs to spend")
            if protocol.queue or not protocol.idle:
                raise Violation(f"{name} sleeps over something to do, or an exchange that is over: {vars(protocol)}")
            for other in self.names:
                if (name, other) in self.promised:
                    raise Violation(f"{name} put {other} off and never told it")
                if other == name or not self.up[name, other] or self.links[other, name]:
                    continue  # it may not even know that the other is there
                if self.told.get((name, other), 0) < node.news:
                    raise Violation(f"{name} never told {other} of version {node.news}")

"""A little network in one thread: owners that run the protocol, messages that dawdle, links that break.

Whatever may happen next is drawn at random: a message is delivered (in order within one link), a piece of work ends, a
timer fires, a link breaks or comes back, an owner dies or returns. The rules are checked from outside, by what an owner
was told to do, not by what it believes about itself.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

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
    Joined,
    Lost,
    Manners,
    Protocol,
    Received,
    Refuse,
    Request,
    Send,
    Serve,
    Served,
    Signal,
    Timer,
    Wake,
)


class Violation(AssertionError):
    """A rule of the protocol was broken."""


@dataclass
class Node:
    """An owner, as its engine sees it."""

    protocol: Protocol
    budget: int
    alive: bool = True
    begun: bool = False
    improving: bool = False
    timer: bool = False
    hosting: dict[tuple[str, int], bool] = field(default_factory=dict)
    """(client, session) of open translations; True once the translation is through."""
    serving: dict[tuple[str, int], bool] = field(default_factory=dict)
    asked: set[tuple[str, int]] = field(default_factory=set)
    version: int = 0
    news: int = 0
    """The version last announced."""
    fetched: dict[str, int] = field(default_factory=dict)


class World:
    """Some owners, all of whom share something."""

    def __init__(self, seed: int, kind: type[Protocol] = Protocol, *, trouble: bool = True) -> None:
        self.random = random.Random(seed)
        self.kind = kind
        self.names = [f"o{i}" for i in range(self.random.randint(2, 6))]
        self.manners = {name: self._manners(name) for name in self.names}
        self.nodes = {name: self._node(name, self.random.randint(1, 12)) for name in self.names}
        self.links = {(a, b): deque[Event]() for a in self.names for b in self.names if a != b}
        self.up = dict.fromkeys(self.links, True)
        self.promised: set[tuple[str, str]] = set()
        """(client, host): the client put the host off and owes it a signal."""
        self.unwilling: set[tuple[str, str]] = set()
        self.trouble = self.random.choice((0.01, 0.05, 0.2)) if trouble else 0.0
        self.haste = self.random.choice((0.02, 0.1, 0.4))
        """How readily timers fire, in place of anything else."""
        self.sloth = self.random.choice((0.0, 0.9))
        """How long work takes."""
        self.steps = 0
        self.side_by_side = 0
        if trouble and self.random.random() < 0.3:  # one comes late
            self._crash(self.random.choice(self.names))

    def _manners(self, name: str) -> Manners:
        pick = self.random
        others = [n for n in self.names if n != name]
        shunned = frozenset(n for n in others if pick.random() < 0.1)
        return Manners(
            gather=pick.random() < 0.6, window=1.0, train_alone=pick.random() < 0.4, period=2.0,
            refuses=shunned, avoids=shunned if pick.random() < 0.5 else frozenset(),
        )  # fmt: skip

    def _node(self, name: str, budget: int) -> Node:
        return Node(self.kind([n for n in self.names if n != name], self.manners[name]), budget)

    # -- what may happen -----------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Random events for a while, `steps` at most; then no more trouble, until nothing moves."""
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
            woken = [name for name in self.names if self.nodes[name].timer]
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
        due: list[tuple[str, tuple[str, ...] | tuple[str, str, int]]] = []
        for key, link in self.links.items():
            if link:
                due.append(("deliver", key))
        for name, node in self.nodes.items():
            if not node.alive:
                continue
            if not node.begun:
                due.append(("begin", (name,)))
            if node.improving:
                due.append(("finish", (name,)))
            due += [("translate", (name, *key)) for key, through in node.hosting.items() if not through]
            due += [("received", (name, *key)) for key, through in node.hosting.items() if through]
            due += [("served", (name, *key)) for key, through in node.serving.items() if through]
        wakes = [("wake", (name,)) for name, node in self.nodes.items() if node.alive and node.timer]
        if timers and wakes:
            due = list(wakes)
        due = [d for d in due if d[0] != "translate" or self._both_there(*d[1])]  # type: ignore[arg-type]
        if not due:
            return False
        if self.random.random() < self.sloth:
            due = [d for d in due if d[0] != "finish"] or due
        what, args = self.random.choice(due)
        getattr(self, f"_{what}")(*args)
        self.side_by_side = max(self.side_by_side, sum(len(n.hosting) for n in self.nodes.values()))
        return True

    def _both_there(self, host: str, client: str, session: int) -> bool:
        return self.up[host, client] and (host, session) in self.nodes[client].serving

    def _deliver(self, a: str, b: str) -> None:
        event = self.links[a, b].popleft()
        if isinstance(event, Accept | Defer | Refuse):
            self.nodes[b].asked.discard((a, event.session))
        if isinstance(event, Refuse):
            self.unwilling.add((b, a))
        self._tell(b, event)

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

    def _translate(self, host: str, client: str, session: int) -> None:
        self.nodes[host].hosting[client, session] = True
        self.nodes[client].serving[host, session] = True

    def _received(self, host: str, client: str, session: int) -> None:
        del self.nodes[host].hosting[client, session]
        self.nodes[host].fetched[client] = self.nodes[client].version
        self._tell(host, Received(client, session))

    def _served(self, client: str, host: str, session: int) -> None:
        del self.nodes[client].serving[host, session]
        self._tell(client, Served(host, session))

    def _wake(self, name: str) -> None:
        self.nodes[name].timer = False
        self._tell(name, Wake())

    # -- trouble -------------------------------------------------------------------------------------

    def _make_trouble(self) -> None:
        a, b = self.random.sample(self.names, 2)
        dead = [name for name in self.names if not self.nodes[name].alive]
        if dead and self.random.random() < 0.6:
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
        self.promised -= {(a, b), (b, a)}

    def _connect(self, a: str, b: str) -> None:
        if not (self.nodes[a].alive and self.nodes[b].alive) or self.links[a, b] or self.links[b, a]:
            return  # the break was not noticed yet
        self.up[a, b] = self.up[b, a] = True
        self.links[a, b].append(Joined(a))
        self.links[b, a].append(Joined(b))

    def _crash(self, name: str) -> None:
        self.nodes[name].alive = False
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
        self.unwilling = {(host, client) for host, client in self.unwilling if host != name}
        for other in self.names:
            if other != name and self.nodes[other].alive:
                self._connect(name, other)
            elif other != name:
                self.links[other, name].append(Lost(other))

    def _mend(self) -> None:
        """Some of what is broken comes back."""
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
        for instruction in self.nodes[name].protocol.handle(event):
            self._do(name, instruction)

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
                node.hosting[peer, session] = False
            case Serve(peer, session):
                if node.improving:
                    raise Violation(f"{name} serves while Busy")
                node.serving[peer, session] = False
            case Drop(peer):
                node.hosting = {key: v for key, v in node.hosting.items() if key[0] != peer}
                node.serving = {key: v for key, v in node.serving.items() if key[0] != peer}
                node.asked = {key for key in node.asked if key[0] != peer}
            case Timer():
                node.timer = True

    def _send(self, name: str, send: Send, to: str) -> None:
        node, other = self.nodes[name], self.nodes[to]
        kind = send.message
        if kind is Request:
            if node.improving or to in self.manners[name].avoids or (name, to) in self.unwilling:
                raise Violation(f"{name} asks {to}, and must not")
            node.asked.add((to, send.session))
        if not self.up[name, to]:
            return
        if kind is Accept and (node.improving or other.improving):
            raise Violation(f"a handshake of {to} with {name} opens while one of them is Busy")
        if kind is Defer:
            self.promised.add((name, to))
        if kind is Signal and send.news:
            self.promised.discard((name, to))
        event: Event
        event = Signal(name, send.news, send.last) if kind is Signal else kind(name, send.session)
        self.links[name, to].append(event)

    def _check_rest(self) -> None:
        for name, node in self.nodes.items():
            if not node.alive:
                continue
            protocol = node.protocol
            if not protocol.at_rest or node.improving or node.hosting or node.serving or node.asked:
                raise Violation(f"{name} is stuck: {vars(protocol)}")
            if protocol.queue or protocol._asked or protocol._hosting or protocol._received or protocol._put_off:
                raise Violation(f"{name} sleeps over something to do: {vars(protocol)}")
            if self.manners[name].train_alone and node.budget:
                raise Violation(f"{name} sleeps with epochs to spend")
            for client in self.names:
                if client != name and self.up[name, client] and not protocol.spent:
                    self._check_news(name, client)
        if self.promised:
            raise Violation(f"put off and never told: {self.promised}")

    def _check_news(self, host: str, client: str) -> None:
        if client in self.manners[host].avoids or (host, client) in self.unwilling:
            return
        if self.nodes[host].fetched.get(client, 0) < self.nodes[client].news:
            raise Violation(f"{host} never fetched version {self.nodes[client].news} of {client}")

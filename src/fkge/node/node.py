"""A node: one owner as a long-running peer, in its own organisation.

One loop deals with streams, meetings and the handshake protocol; one thread trains. They do not get into each other's
way because the protocol does not let them: while an owner works on its vectors nothing is served from them, and whoever
asks is put off. What has not been kept on disk does not leave; so a node may be killed at any time, and goes on from there.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fkge.align import Tokens, Turnstile
from fkge.engines.station import Station
from fkge.engines.tape import Tape
from fkge.errors import BudgetError, IdentityError, NodeError, PeerError
from fkge.federation import Acquaintance, Arm, Home, Plan, Protocol, Released, found_home
from fkge.federation.owner import Outcome, Owner, seed_of
from fkge.federation.protocol import Joined, Lost, Wake
from fkge.federation.source import Member
from fkge.graph import Policy, read_graph
from fkge.node import control, metrics
from fkge.node import frames_pb2 as pb
from fkge.node.auditlog import AuditLog
from fkge.node.frames import FEDERATION, MEETING, VERSIONS, Refused, bye, decode_frame, decode_meeting, refusal
from fkge.node.greeting import (
    CAPABILITIES,
    check_greeting,
    check_proof,
    new_life,
    not_trusted,
    program,
    signed,
    terms_of,
)
from fkge.node.identity import Identity
from fkge.node.logs import Log
from fkge.node.meeting import align, longest
from fkge.node.memory import Memory
from fkge.node.peer import Peer, hello_frame
from fkge.node.score import Score
from fkge.node.settings import NodeConfig, address
from fkge.node.settling import Settling, spoken
from fkge.node.transport import Line, Transport
from fkge.node.trust import fingerprint, public_key, read_certificate
from fkge.privacy import Unprotected, describe

ARM = "federated"
_GREETING = 15.0  # seconds that a greeting may take
_BETWEEN_CHECKPOINTS = 10.0
_BETWEEN_LOOKS = 1.0
_PATIENCE = (0.2, 15.0)  # seconds before a peer is called again: at first, and at most
_LONG_PATIENCE = 60.0  # after it said no
_EARLY = 64


class Node:
    """A node; `run` is its life.

    Args:
        config: what it is.
        anew: put aside what it has reached, and begin again; what was spent stays spent.
        echo: log to standard error, too.
        tape: record all that it hears and says.
        score: an order to follow, of a simulation with the same seed; see `fkge.node.score`.
    """

    def __init__(
        self, config: NodeConfig, *, anew: bool = False, echo: bool = False, tape: Path | None = None,
        score: Path | None = None,
    ) -> None:  # fmt: skip
        self.config = config
        self.name = config.node.name
        self._identity = Identity.load(config.folder / config.node.identity)
        if self._identity.name != self.name:
            raise NodeError(
                f"{config.folder}: node.toml is {self.name}'s, and the certificate in {config.node.identity} is "
                f"{self._identity.name}'s; use the kit that was made for {self.name}"
            )
        self._identity_seen = self._kit_stamp()
        self._anew, self._echo, self._tape_path = anew, echo, tape
        self._score = Score(score) if score is not None else None
        plan = Plan.of(config.federation)
        self._arm = Arm(ARM, plan)
        self._terms = terms_of(config.federation, config.node.seed)
        self._life = new_life()
        self._peers = {name: Peer(name, settings, self) for name, settings in config.peers.items()}
        self._met: set[str] = set()
        self._joined: set[str] = set()
        self._settling: Settling | None = None
        self._early_tokens: dict[str, list[pb.Tokens]] = {}
        self._station: Station | None = None
        self._outcome: Outcome | None = None
        self._working = self._concluding = self._held = False
        self._concluded = False
        self._timer: asyncio.TimerHandle | None = None
        self._grace: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._meetings: dict[str, asyncio.Task[None]] = {}
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="work")
        self._leaving = threading.Event()
        self._going_on = threading.Event()
        self._going_on.set()
        self._error: BaseException | None = None
        self._state, self._since = "starting", time.time()
        self._started = self._since
        self._saved = self._said = time.monotonic()
        self._epoch = 0
        self._exchanges: dict[str, int] = {}
        self.port = 0

    # -- a life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Live, until somebody says stop. Raises what ended it, if that was not on purpose."""
        state = self.config.state
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(state):
            self._loop = asyncio.get_running_loop()
            self._end = asyncio.Event()
            if self._anew:
                _put_aside(state)
            self._memory = Memory.open(state / "node.json")
            self._memory.lives += 1
            self._memory.keep()
            self._turnstile = Turnstile(self.config.federation.psi, self._memory.admitted)
            with (
                AuditLog.open(state / "audit", self.name) as self._audit,
                Log(state / "node.log", echo=self._echo, words=_WORDS) as self._log,
            ):
                self._log.know(
                    self.name, *self._peers, program(), *(p.settings.address or "" for p in self._peers.values())
                )
                self._metrics = metrics.Metrics(self._peers, _WORDS)
                self._audit.note("life", number=self._memory.lives, program=program())
                self._log.info("node started", life=self._memory.lives, node=self.name)
                try:
                    await self._live()
                except BaseException as error:
                    self._error = self._error or error
                    raise
                finally:
                    self._audit.note("end", clean=self._error is None)
                    self._log.info("node stopped" if self._error is None else "node failed", life=self._memory.lives)
        if self._error is not None:
            raise self._error

    async def _live(self) -> None:
        node = self.config.node
        torch.set_num_threads(node.threads)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop)
        transport = Transport(lambda: self._identity, at_once=4 * len(self._peers) + 32)
        servers: list[Any] = []
        try:
            handlers = {"status": self._on_status, "stop": self._on_stop, "pause": self._on_pause,
                        "resume": self._on_resume}  # fmt: skip
            servers.append(await control.serve(self.config.state / control.SOCKET, handlers))
            if node.metrics:
                servers.append(await metrics.serve(*address(node.metrics), self._metrics, self._health))
            self._home = await self._loop.run_in_executor(self._worker, self._open_home)
            self._task(self._look(), "look")
            if node.listen:
                self.port = await transport.listen(*address(node.listen), self._welcome)
            self._become("waiting")
            for peer in self._peers.values():
                if peer.settings.address and (not node.listen or self.name < peer.name):
                    self._task(self._call(transport, peer), f"call {peer.name}")
            if self._memory.begun or not self._founding:
                self._task(self._begin(), "begin")
            await self._end.wait()
            self._become("stopping")
        finally:
            await self._leave(transport, servers)

    async def _leave(self, transport: Transport, servers: list[Any]) -> None:
        self._leaving.set()
        self._going_on.set()
        why = Refused("leaving", "the node stops")
        for peer in self._peers.values():
            peer.hang_up(why)
        for task in [*self._tasks, *self._meetings.values()]:
            if not task.get_name().startswith("work"):
                task.cancel()
        await asyncio.gather(*self._tasks, *self._meetings.values(), return_exceptions=True)
        await transport.close()
        for server in servers:
            await server.close()
        station = self._station
        try:
            if station is not None and self._fit_to_keep(station.owner):
                await self._loop.run_in_executor(self._worker, self._save)
            if station is not None:
                await self._loop.run_in_executor(self._worker, station.owner.gate.close)
        except Exception as error:
            self._error = self._error or error
        self._worker.shutdown()

    def stop(self) -> None:
        """End this life, in order. Safe within the loop only."""
        self._leaving.set()
        self._going_on.set()
        self._end.set()

    def failed(self, error: BaseException) -> None:
        """What nobody thought of ends the node: it goes on from what it has kept when it is started again."""
        if self._error is None and not isinstance(error, asyncio.CancelledError):
            self._error = error
        self.stop()

    def _task(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.failed(error)

        task.add_done_callback(done)
        return task

    # -- the home ------------------------------------------------------------------------------------

    @property
    def _founding(self) -> bool:
        """This node waits for all founders before it begins."""
        return self.config.node.founder and self.config.federation.start == "together"

    def _open_home(self) -> Home:
        config, node = self.config, self.config.node
        source = node.graph if node.graph.startswith("pykeen:") else str(config.folder / node.graph)
        member = Member(read_graph(source))
        if node.policy is not None:
            member = member.keeping(Policy.load(config.folder / node.policy))
        folder = config.state / "owners" / self.name
        secret = seed_of(node.seed, self.name, "tokens") if node.rehearsal else self._memory.secret
        if not (folder / "peers.safetensors").exists():
            return found_home(config.state, self.name, member, config.federation, node.seed, secret)
        home = Home.open(folder)
        part = (member.policy or Policy.everything()).shareable(member.graph) if home.two_tracks else None
        shared = member.graph if part is None else part.graph
        changed = [
            what
            for what, now, then in (
                ("its graph", member.graph.fingerprint, home.graph.fingerprint),
                ("what it shares", shared.fingerprint, home.shared.fingerprint),
                ("how it trains", config.federation.shared_train, home.settings.shared_train),
                ("its privacy mode", config.federation.privacy.mode, home.settings.privacy.mode),
                ("the seed", node.seed, home.seed),
            )
            if now != then
        ]
        if changed:
            raise NodeError(
                f"{config.state}: {' and '.join(changed)} changed since this node began, so it cannot go on from there. Put "
                f"it back, or begin anew: fkge node --anew; what was spent stays in the ledger"
            )
        return replace(home, settings=config.federation)

    def _save(self) -> None:
        assert self._station is not None
        self._home.save(self._arm, self._station.owner)
        self._saved = time.monotonic()

    @staticmethod
    def _fit_to_keep(owner: Owner) -> bool:
        # An epoch with virtual triples that broke off cannot be finished without them: an older checkpoint must do.
        return owner.can_save and not (owner.trainer.chunk > 0 and owner.settings.neighbours)

    # -- greeting ------------------------------------------------------------------------------------

    def _now(self) -> datetime:
        return datetime.now(UTC)

    def _hello(self, peer: Peer) -> pb.Hello:
        session = peer.session
        return pb.Hello(
            versions=VERSIONS, program=program(), consortium=self._identity.consortium, owner=self.name,
            capabilities=CAPABILITIES, life=self._life, your_life=peer.life if session is not None else b"",
            heard=0 if session is None else session.heard, nonce=secrets.token_bytes(16),
            clock=int(time.time() * 1000), terms=self._terms, pact=bytes.fromhex(self._memory.pacts.get(peer.name, "")),
            begun=self._memory.begun,
        )  # fmt: skip

    async def _welcome(self, line: Line) -> None:
        """A peer has called."""
        name = ""
        try:
            try:
                name = self._identity.trust.check(line.certificate or b"", self._now())
            except IdentityError as error:
                raise not_trusted(error) from None
            peer = self._peers.get(name)
            if peer is None:
                raise Refused("stranger", f"{name} is nobody this node deals with; its owner would have to name it")
            self._check_pin(peer, line.certificate or b"")
            if not peer.hellos.allows():
                raise Refused("too_many", f"{name} calls too often; it may do so again in a while")
            hello = await self._greeted(line)
            self._check(peer, hello)
            await peer.drop(Refused("replaced", "a newer stream of the same peer took over"))
            answer = signed(self._hello(peer), self._identity, self._identity.certificate_pem, hello)
            if await line.write(hello_frame(answer)):
                await self._carry(peer, line, hello, answer)
        except Refused as error:
            self._turned_away(self._peers.get(name), name, error)
            with contextlib.suppress(Refused, TimeoutError):
                async with asyncio.timeout(2.0):
                    await line.write(bye(error.reason, str(error)))
        except asyncio.CancelledError:
            pass  # the caller is gone
        except Exception as error:
            self.failed(error)

    async def _call(self, transport: Transport, peer: Peer) -> None:
        """Call a peer, again and again, for as long as this node lives."""
        wait, most = _PATIENCE
        while True:
            if not peer.here and peer.settings.open_at(self._now()):
                came = await self._call_once(transport, peer)
                wait = _PATIENCE[0] if came else wait
                most = _LONG_PATIENCE if peer.state == "refused" else _PATIENCE[1]
            await asyncio.sleep(wait * (0.75 + secrets.randbelow(1000) / 2000))
            wait = min(2 * wait, most)

    async def _call_once(self, transport: Transport, peer: Peer) -> bool:
        """Whether the two came to speak."""
        assert peer.settings.address is not None
        line = await transport.call(peer.settings.address, peer.name)
        try:
            ours = self._hello(peer)
            async with asyncio.timeout(_GREETING):
                if not await line.write(hello_frame(ours)):
                    return False
            hello = await self._greeted(line)
            self._check(peer, hello)
            check_proof(hello, self._identity, ours.nonce, peer.name, self._now())
            self._check_pin(peer, hello.certificate)
            await self._carry(peer, line, hello, ours)
            return True
        except TimeoutError:
            return False
        except Refused as error:
            self._turned_away(peer, peer.name, error)
            if error.ours:
                with contextlib.suppress(Refused, TimeoutError):
                    async with asyncio.timeout(2.0):
                        await line.write(bye(error.reason, str(error)))
            return False
        finally:
            await line.close()

    async def _greeted(self, line: Line) -> pb.Hello:
        try:
            async with asyncio.timeout(_GREETING):
                data = await line.read()
        except TimeoutError:
            raise Refused("stalled", f"no greeting within {_GREETING:g} seconds") from None
        if data is None:
            raise Refused("unspecified", "hung up before it said anything", ours=False)
        frame = decode_frame(data)
        if frame.WhichOneof("is") == "bye":
            raise refusal(frame.bye)
        if frame.WhichOneof("is") != "hello":
            raise Refused("out_of_order", "something else came where a greeting was due")
        return frame.hello

    def _check(self, peer: Peer, hello: pb.Hello) -> None:
        check_greeting(
            hello, peer.name, self._identity.consortium, self._terms, peer.settings, self.config.federation, self._now(),
            self.config.node.clock,
        )  # fmt: skip

    def _check_pin(self, peer: Peer, certificate: bytes) -> None:
        pin = peer.settings.certificate
        if pin is not None and pin != fingerprint(public_key(read_certificate(certificate))):
            raise Refused("stranger", f"{peer.name} shows another certificate than the one that its owner pinned")

    def _turned_away(self, peer: Peer | None, name: str, why: Refused) -> None:
        if peer is not None:
            peer.refuse(why)
        self._metrics.refused(name, why.reason)
        if why.reason != "unspecified":
            self._log.warning("peer refused" if why.ours else "refused", peer=name, reason=why.reason)
            self._audit.note("refused", peer=name, reason=why.reason, sentence=str(why), ours=why.ours)

    # -- streams -------------------------------------------------------------------------------------

    async def _carry(self, peer: Peer, line: Line, hello: pb.Hello, ours: pb.Hello) -> None:
        """Speak over a stream, until it ends."""
        peer.program = hello.program[:80]
        if (timer := self._grace.pop(peer.name, None)) is not None:
            timer.cancel()
        resumed = bool(ours.your_life) and hello.life == peer.life and hello.your_life == self._life
        if resumed:
            assert peer.session is not None
            peer.session.resume(hello.heard)
        else:
            self._forget(peer)
            peer.fresh(hello.life)
            self._meetings[peer.name] = asyncio.create_task(self._meet(peer, hello), name=f"meet {peer.name}")
        self._log.info("peer connected", peer=peer.name, resumed=resumed)
        ended = await peer.carry(line)
        self._log.info("peer lost", peer=peer.name, reason=ended.reason if ended else "closed")
        if ended is not None and ended.reason != "replaced":
            if ended.reason != "leaving":
                self._turned_away(peer, peer.name, ended)
            self._forget(peer)
            peer.session = None
        elif ended is None and not self._leaving.is_set():
            self._grace[peer.name] = self._loop.call_later(self.config.node.grace, self._given_up, peer)

    def _given_up(self, peer: Peer) -> None:
        """A peer whose stream broke has not come back."""
        self._grace.pop(peer.name, None)
        if not peer.here:
            self._forget(peer)
            peer.session = None

    def _forget(self, peer: Peer) -> None:
        """A life of the peer is over: so is everything that was under way with it."""
        if (meeting := self._meetings.pop(peer.name, None)) is not None:
            meeting.cancel()
        self._early_tokens.pop(peer.name, None)
        peer.early.clear()
        if peer.name in self._joined:
            self._joined.discard(peer.name)
            if self._station is not None and peer.name in self._station.owner.peers:
                self._station.handle(Lost(peer.name))
                self._look_after()

    def heard(self, peer: Peer, channel: int, body: bytes) -> None:
        """A message has come."""
        if channel == FEDERATION:
            self._metrics.received(peer.name, "message")
            if self._station is None or peer.name not in self._joined or self._held:
                if len(peer.early) >= _EARLY:
                    raise Refused("too_many", "more came than can wait")
                peer.early.append(body)
                return
            self._deliver(peer.name, body)
            return
        message = decode_meeting(body)
        if message.WhichOneof("is") == "tokens":
            self._hear_tokens(peer, message.tokens)
            return
        try:
            peer.meeting.put_nowait(body)
        except asyncio.QueueFull:
            raise Refused("too_many", "more came than can wait") from None

    def _deliver(self, name: str, body: bytes) -> None:
        assert self._station is not None
        if self._score is not None:
            self._score.came(name, body)
        else:
            self._station.deliver(name, body)
        self._look_after()

    # -- meeting -------------------------------------------------------------------------------------

    def _say(self, peer: Peer, message: pb.Meeting, what: str) -> None:
        """Say something of a meeting; it is written down like everything that leaves."""
        body = bytes(message.SerializeToString())
        digest = hashlib.sha256(body).hexdigest()
        self._audit.left(
            to=peer.name, what=what, nbytes=len(body), digest=digest, protection=_MEETING_PROTECTION[what], price=None,
            session=0,
        )  # fmt: skip
        self._metrics.sent(peer.name, what, len(body))
        peer.send(MEETING, body)

    async def _meet(self, peer: Peer, hello: pb.Hello) -> None:
        """Find out what the two share, unless they know, and deal with each other from then on."""
        try:
            pact = self._memory.pacts.get(peer.name, "")
            if not pact or bytes.fromhex(pact) != hello.pact:
                if peer.name in self._memory.pacts:
                    del self._memory.pacts[peer.name]
                    self._memory.keep()
                self._turnstile.admit(peer.name, time.time())
                self._memory.admitted = self._turnstile.state
                self._memory.keep()
                self._audit.note("alignment", peer=peer.name)
                name, common = await align(peer, self.config, self._home, lambda m, what: self._say(peer, m, what))
                form = Acquaintance(common, hello.terms["model"], _widths(hello))
                peers = dict(sorted({**self._home.peers, peer.name: form}.items()))
                self._home = self._home.knowing(peers, self._home.tokens)
                self._memory.pacts[peer.name] = name.hex()
                self._memory.keep()
                self._audit.note("aligned", peer=peer.name, rows=len(common))
                self._log.info(
                    "aligned", peer=peer.name, entities=len(common.entities), relations=len(common.relations)
                )
            known = self._home.peers[peer.name]
            if (known.model, dict(known.widths)) != (hello.terms["model"], _widths(hello)):
                raise Refused("terms", f"{peer.name} has another model than when the two were aligned")
            self._introduced(peer, hello, known)
        except asyncio.CancelledError:
            raise
        except PeerError as error:
            why = error if isinstance(error, Refused) else Refused(_reason(error), str(error))
            peer.hang_up(why)
        except Exception as error:
            self.failed(error)

    def _introduced(self, peer: Peer, hello: pb.Hello, known: Acquaintance) -> None:
        """Both sides know what they share."""
        assert peer.session is not None
        most = longest(known, self._home, self.config.federation)
        peer.session.limits[FEDERATION] = most
        peer.session.backlog = 2 * most + (64 << 20)
        peer.session.limits[MEETING] = 16 * len(known.common) + (1 << 16)
        again = peer.name in self._met
        self._met.add(peer.name)
        if self._memory.begun:
            if not hello.begun and len(known.common):
                tokens = spoken(self._home.tokens, known.common, settled=True)
                self._say(peer, pb.Meeting(tokens=tokens), "Tokens")
            self._join(peer, known)
            return
        if self._settling is not None:
            if again:
                self._settling.anew()
                self._tell_tokens([self._settling.words()])
            return
        founders = {name for name, other in self._peers.items() if other.settings.founder}
        if self._founding and founders <= self._met:
            self._settle(founders)
        elif self._founding:
            self._log.info("state", state="waiting", count=len(founders - self._met))

    def _settle(self, founders: set[str]) -> None:
        """All founders are there: agree on where rows begin."""
        self._become("settling")
        commons = {n: k.common for n, k in self._home.peers.items() if n in founders and len(k.common)}
        tokens = Tokens.restore({"entity": self._home.tokens["entity"], "relation": self._home.tokens["relation"]})
        self._settling = Settling(tokens, commons, len(founders) + 1)
        self._tell_tokens([self._settling.words()])
        early, self._early_tokens = self._early_tokens, {}
        for name, words in early.items():
            for word in words:
                self._hear_tokens(self._peers[name], word)
        self._settled()

    def _hear_tokens(self, peer: Peer, word: pb.Tokens) -> None:
        if self._memory.begun:
            if not word.settled and peer.name in self._home.peers:
                tokens = spoken(self._home.tokens, self._home.peers[peer.name].common, settled=True)
                self._say(peer, pb.Meeting(tokens=tokens), "Tokens")
            return
        if self._settling is None:
            waiting = self._early_tokens.setdefault(peer.name, [])
            if len(waiting) >= 8:
                raise Refused("too_many", "more tokens came than can wait")
            waiting.append(word)
            return
        self._tell_tokens(self._settling.hear(peer.name, word))
        self._settled()

    def _tell_tokens(self, rounds: list[dict[str, pb.Tokens]]) -> None:
        for words in rounds:
            for name, word in words.items():
                self._say(self._peers[name], pb.Meeting(tokens=word), "Tokens")

    def _settled(self) -> None:
        settling = self._settling
        if settling is None or not settling.done or self._memory.begun:
            return
        self._home = self._home.knowing(self._home.peers, settling.tokens)
        self._memory.begun = True
        self._memory.keep()
        self._task(self._begin(), "begin")

    # -- federating ----------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Take up the owner's work."""
        self._memory.begun = True
        self._memory.keep()
        made: tuple[Owner, bool] = await self._loop.run_in_executor(self._worker, self._make_owner)
        owner, trained = made
        self._concluded = self._home.result(ARM) is not None
        refuses = frozenset(name for name, peer in self._peers.items() if not peer.settings.ask)
        manners = replace(self._home.manners(self._arm), refuses=refuses)
        tape = Tape(self._tape_path) if self._tape_path is not None else None
        station = Station(owner, Protocol(owner.peers, manners), self._post, self._note, tape, self._left)
        owner.gate.keep = self._save
        owner.gate.caps = {n: p.settings.epsilon for n, p in self._peers.items() if p.settings.epsilon is not None}
        self._station = station
        for name in list(owner.peers):
            if name in self._met and self._peers[name].session is not None:
                self._joined.add(name)
            else:
                station.handle(Lost(name))
        if self._score is None:
            station.begin(trained)
        self._become("training")
        for name in self._met - self._joined:
            if self._peers[name].session is not None and name in self._home.peers:
                self._join(self._peers[name], self._home.peers[name])
        self._flush()
        self._look_after()

    def _make_owner(self) -> tuple[Owner, bool]:
        if (wrong := self._home.mend(self._arm)) is not None:
            self._log.error("checkpoint", reason="damaged")
            self._audit.note("checkpoint damaged", sentence=wrong)
        late = self.config.federation.start == "together" and not self.config.node.founder
        secret = None if self.config.node.rehearsal else secrets.randbits(62)
        return self._home.owner(self._arm, late=late, secret=secret)

    def _join(self, peer: Peer, known: Acquaintance) -> None:
        """Deal with a peer from now on."""
        station = self._station
        if station is None or peer.name in self._joined:
            return
        if not station.owner.meet(peer.name, known):
            self._log.info("alignment refused", peer=peer.name, rows=len(known.common))
            return
        self._joined.add(peer.name)
        self._log.info("peer joined", peer=peer.name)
        station.handle(Joined(peer.name))
        self._flush()
        self._look_after()

    def _flush(self) -> None:
        """Deliver what came before this node was ready for it."""
        for name in sorted(self._joined):
            early = self._peers[name].early
            while early and not self._held:
                self._deliver(name, early.pop(0))

    def _post(self, name: str, data: bytes) -> None:
        peer = self._peers[name]
        if name in self._joined:
            peer.send(FEDERATION, data)

    def _left(self, name: str, released: Released, session: int, data: bytes) -> None:
        """Something leaves: write down to whom, what, under which protection and at what price."""
        what, price = type(released.message).__name__, None
        if isinstance(released.protection, Unprotected):
            protection = f"none: {released.protection.what}"
        else:
            protection = released.protection
            if protection != "public" and self._station is not None:
                charged = self._station.owner.gate.charged
                price = None if charged is None else f"ε {charged:.4g} so far"
        digest = hashlib.sha256(data).hexdigest()
        self._audit.left(
            to=name, what=what, nbytes=len(data), digest=digest, protection=protection, price=price, session=session
        )
        self._metrics.sent(name, what, len(data))

    def _look_after(self) -> None:
        """Start the work, and set the timer, that the last event brought about."""
        station = self._station
        if station is None or self._leaving.is_set():
            return
        if self._score is not None:
            self._play(station, self._score)
        if station.timer is not None:
            seconds, station.timer = station.timer, None
            if self._timer is not None:
                self._timer.cancel()
            if self._score is None:
                self._timer = self._loop.call_later(seconds, self._wake)
        if station.work is not None and not self._working:
            self._working = True
            self._become("training")
            self._task(self._work(station), "work")
        elif not self._working and not self._concluded and not self._concluding:
            over = station.protocol.over if self._score is None else self._score.over
            if over:
                self._concluding = True
                self._task(self._conclude(station), "work: conclude")
            elif self._state == "training" and station.work is None:
                self._become("exchanging")

    def _play(self, station: Station, score: Score) -> None:
        """Do what the score says next, as far as it is there to be done."""
        while True:
            item = score.following(finished=self._outcome is not None and not self._working)
            if item is None:
                return
            what, name, body = item
            if what == "begin":
                station.begin(False)
            elif what == "heard":
                station.deliver(name, body)
            elif what == "finish":
                outcome, self._outcome = self._outcome, None
                assert outcome is not None
                station.finish(outcome)
            else:
                station.handle(Wake())
            if station.work is not None:
                return

    def _wake(self) -> None:
        self._timer = None
        if self._station is not None and not self._leaving.is_set():
            try:
                self._station.handle(Wake())
                self._look_after()
            except Exception as error:
                self.failed(error)

    async def _work(self, station: Station) -> None:
        try:
            outcome = await self._loop.run_in_executor(self._worker, self._improve, station)
        finally:
            self._working = False
        if outcome.halted:
            return
        done = station.done
        self._metrics.epochs(done["epochs"])
        if done["best"] is not None:
            self._metrics.validated(done["best"])
        self._metrics.spent(done["spent"])
        self._log.info("epoch", epoch=done["epoch"], peers=len(done["peers"]), validation_mrr=done["score"])
        if self._score is not None:
            self._outcome = outcome
        else:
            station.finish(outcome)
        self._look_after()

    def _improve(self, station: Station) -> Outcome:
        try:
            outcome = station.improve(pause=self._between)
        except BudgetError as error:
            # What it meant to spend does not fit any more, after an older checkpoint say: it ends where it is.
            self._audit.note("budget", sentence=str(error))
            self._log.warning("budget spent")
            return Outcome(False, True, None, station.owner.activity.best_score, improved=False, backtracked=False)
        if not outcome.halted and time.monotonic() - self._saved > _BETWEEN_CHECKPOINTS:
            self._save()
        return outcome

    def _between(self) -> bool:
        """Within training: keep it every now and then, wait while paused. True: leave it."""
        assert self._station is not None
        owner = self._station.owner
        self._epoch = owner.trainer.epoch
        if time.monotonic() - self._saved > _BETWEEN_CHECKPOINTS and owner.can_save:
            self._save()
        if not self._going_on.is_set():
            if self._fit_to_keep(owner):
                self._save()
            self._going_on.wait()
        return self._leaving.is_set()

    async def _conclude(self, station: Station) -> None:
        """The federation is over, for now: leave the model. Whoever comes later is still served."""
        self._held = True
        try:
            await self._loop.run_in_executor(self._worker, self._keep_best, station.owner)
        finally:
            self._held = False
        self._flush()
        whole = await self._loop.run_in_executor(
            self._worker,
            lambda: self._home.conclude(self._arm, station.owner, self._note, self._leaving.is_set, stays=True),
        )
        self._concluding = False
        if whole:
            self._concluded = True
            self._audit.note("concluded", epochs=station.owner.activity.epochs)
            self._become("done")

    def _keep_best(self, owner: Owner) -> None:
        self._save()
        owner.best()

    def _note(self, event: str, **fields: Any) -> None:
        """What a station or an owner tells, from the loop or from the worker."""
        name = fields.get("peer", "")
        match event:
            case "refused":
                why = Refused("malformed", str(fields["why"]))
                self._peers[name].hang_up(why)
            case "stray" | "over budget" | "given up":
                outcome = "aborted" if event != "over budget" else "refused"
                self._metrics.exchanged(name, outcome)
                self._log.info("exchange abandoned", peer=name, outcome=outcome)
            case "translated":
                self._exchanges[name] = self._exchanges.get(name, 0) + 1
                self._metrics.exchanged(name, "finished")
            case "progress":
                self._epoch = int(fields["epoch"])

    # -- looking around ------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Every second: revocations, new certificates, hours, expiry."""
        while True:
            await asyncio.sleep(_BETWEEN_LOOKS)
            try:
                if self._identity.trust.reload():
                    self._log.info("revocation list", number=self._identity.trust.revoked.number)
                    self._recheck()
            except IdentityError as error:
                self._log.warning("revocation list", reason=error.reason)
            if (stamp := self._kit_stamp()) != self._identity_seen:
                self._identity_seen = stamp
                try:
                    self._identity = Identity.load(self.config.folder / self.config.node.identity)
                    self._log.info("certificate")
                    self._recheck()
                except IdentityError as error:
                    self._log.warning("certificate", reason=error.reason)
            now = self._now()
            for peer in self._peers.values():
                if peer.here and not peer.settings.open_at(now):
                    peer.hang_up(Refused("hours", f"not now: the hours are {peer.settings.hours} UTC"))
            states: dict[str, int] = {}
            for peer in self._peers.values():
                states[peer.state] = states.get(peer.state, 0) + 1
            self._metrics.peers(states)

    def _recheck(self) -> None:
        """Hang up on everybody; who still may comes back at once."""
        for peer in self._peers.values():
            if peer.here:
                peer.hang_up(Refused("leaving", "certificates changed; call again"))

    def _kit_stamp(self) -> tuple[int, int]:
        stat = (self._identity.folder / "consortium.json").stat()
        return stat.st_mtime_ns, stat.st_size

    def _become(self, state: str) -> None:
        if state != self._state:
            self._state, self._since = state, time.time()
            self._metrics.state(state)
            self._log.info("state", state=state)

    def _health(self) -> tuple[bool, dict[str, Any]]:
        here = sum(peer.here for peer in self._peers.values())
        ready = self._station is not None and not self._leaving.is_set()
        return ready, {"state": self._shown_state, "peers": here, "of": len(self._peers)}

    @property
    def _shown_state(self) -> str:
        return "paused" if not self._going_on.is_set() and self._state != "stopping" else self._state

    # -- what an operator says -----------------------------------------------------------------------

    async def _on_status(self, _: dict[str, Any]) -> control.Status:
        owner = self._station.owner if self._station is not None else None
        known = getattr(self, "_home", None)
        return {
            "name": self.name, "life": self._memory.lives, "pid": os.getpid(), "version": version("fkge"),
            "time": time.time(), "started": self._started, "state": self._shown_state, "since": self._since,
            "epoch": None if owner is None else owner.trainer.epoch,
            "epochs": self._arm.plan.total, "validation_mrr": None if owner is None else owner.activity.best_score,
            "privacy": self.config.federation.privacy.mode,
            "spent": [] if owner is None else _spent(owner),
            "peers": [self._peer_status(peer, known) for peer in self._peers.values()],
            "audit": {"entries": self._audit.entries, "head": self._audit.head},
        }  # fmt: skip

    def _peer_status(self, peer: Peer, home: Home | None) -> control.PeerStatus:
        state = "connected" if peer.here else peer.state
        if peer.here and peer.name not in self._met:
            state = "aligning"
        elif peer.here and peer.name in self._joined:
            state = "joined"
        shared = len(home.peers[peer.name].common) if home is not None and peer.name in home.peers else None
        return {
            "name": peer.name, "state": state, "since": peer.since, "shared": shared,
            "exchanges": self._exchanges.get(peer.name, 0), "bytes_in": peer.bytes_in, "bytes_out": peer.bytes_out,
            "heard": peer.last_heard if peer.bytes_in else None, "reason": peer.sentence or peer.reason or None,
        }  # fmt: skip

    async def _on_stop(self, _: dict[str, Any]) -> dict[str, Any]:
        self._loop.call_later(0.05, self.stop)
        return {"state": "stopping"}

    async def _on_pause(self, _: dict[str, Any]) -> dict[str, Any]:
        self._going_on.clear()
        self._audit.note("paused")
        self._log.info("node paused")
        return {"state": "paused"}

    async def _on_resume(self, _: dict[str, Any]) -> dict[str, Any]:
        self._going_on.set()
        self._log.info("node resumed")
        return {"state": self._shown_state}


_WORDS = {
    "state": ("settling", "here", "aligning", "joined"),
    "reason": (*(name.lower() for name in pb.Reason.keys()), "damaged", "replaced"),
    "kind": ("Keys", "Intersect", "Pact", "Tokens", "message"),
    "event": ("checkpoint", "peer joined", "budget spent"),
}
_MEETING_PROTECTION = {
    "Keys": "none: how many keys there are",
    "Intersect": "private set intersection",
    "Pact": "public",
    "Tokens": "random bits",
}


def _widths(hello: pb.Hello) -> dict[Any, int]:
    return {"entity": int(hello.terms["width.entity"]), "relation": int(hello.terms["width.relation"])}


def _reason(error: PeerError) -> str:
    from fkge.align.psi import OverlapError

    if isinstance(error, OverlapError):
        return "overlap"
    return "too_many" if "may come back" in str(error) else "malformed"


def _spent(owner: Owner) -> list[control.Spent]:
    if owner.gate.ledger is None:
        return []
    return [
        {"unit": b["unit"], "relation": b["relation"], "epsilon": b["epsilon"], "spent": b["spent"]["epsilon"],
         "delta": b["delta"]}
        for b in describe(owner.gate.ledger)["budgets"]
    ]  # fmt: skip


@contextlib.contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Hold a state folder, so that no other process is this node at the same time."""
    with (state / "node.lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NodeError(f"{state}: another process is this node; stop it (fkge stop), or wait for it") from None
        yield


def _put_aside(state: Path) -> None:
    """Move what a node has reached away; ledger and audit log stay, for they are for good."""
    number = 1
    while (aside := state / f"before-{number}").exists():
        number += 1
    for name in ("owners", "arms", "node.json"):
        if (state / name).exists():
            aside.mkdir(exist_ok=True)
            shutil.move(state / name, aside / name)


def run(config: NodeConfig, **options: Any) -> None:
    """Live as the node that `config` describes, until it is told to stop."""
    asyncio.run(Node(config, **options).run())

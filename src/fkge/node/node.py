"""A node: one owner as a long-running peer, in its own organisation.

It knows its peers from a file that is its owner's alone. Each that comes is met: the two find out what they share,
unless they know from an earlier time. Founders wait for each other once (`fkge.node.founding`); from then on nobody
waits for anybody, and whoever comes later is met while the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from fkge.align import Common, Tokens, Turnstile
from fkge.errors import GraphError, IdentityError, NodeError, PeerError, RunError, SettingsError
from fkge.federation import Acquaintance, Arm, Home, Plan, Released, found_home
from fkge.federation.owner import Owner, seed_of
from fkge.federation.protocol import Abort, Defer, Refuse, Request
from fkge.node import control, metrics
from fkge.node import frames_pb2 as pb
from fkge.node.auditlog import AuditLog
from fkge.node.company import Company
from fkge.node.door import Door
from fkge.node.founding import Founding
from fkge.node.frames import FEDERATION, MEETING, VERSIONS, Refused, decode_meeting
from fkge.node.greeting import CAPABILITIES, new_life, program, terms_of
from fkge.node.leaving import Leaving
from fkge.node.logs import Log
from fkge.node.meeting import align, basis
from fkge.node.memory import Memory
from fkge.node.peer import Bucket, Peer
from fkge.node.runner import Runner
from fkge.node.score import Score
from fkge.node.settings import NodeConfig, address, read_peers
from fkge.node.transport import Line
from fkge.privacy import Head, Ledger, describe

ARM = "federated"
_BETWEEN_LOOKS = 1.0
_COMING_AND_GOING = ("training", "exchanging", "resting")


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
        self.config, self.name = config, config.node.name
        self._anew, self._echo, self._tape = anew, echo, tape
        self._score = Score(score) if score is not None else None
        self._arm = Arm(ARM, Plan.of(config.federation))
        self._terms = terms_of(config.federation, config.node.seed, config.node.rehearsal)
        self._life = new_life()
        self._peers = {name: Peer(name, settings, self) for name, settings in config.peers.items()}
        self._company = Company(self._peers, config.federation, lambda event, **about: self._log.info(event, **about))
        self._door = Door(
            config, self._terms, self._peers, self._hello, self._carry, self._turned_away, self.failed
        )  # fmt: skip
        if self._door.identity.name != self.name:
            raise SettingsError(
                f"{config.folder}: node.toml is {self.name}'s, and the certificate in {config.node.identity} is "
                f"{self._door.identity.name}'s; use the kit that was made for {self.name}"
            )
        self._noted = Bucket(1, 1000)  # refusals that are written down: nobody can fill the disk by knocking
        self._founding: Founding | None = None
        self._grace: dict[str, asyncio.TimerHandle] = {}
        self._meetings: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls: dict[str, asyncio.Task[Any]] = {}
        self._peers_seen = _stamp(self._peers_file)
        self._exchanges: dict[str, int] = {}
        self._error: BaseException | None = None
        self._state, self._since = "starting", time.time()
        self._started = self._since

    # -- a life --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Live, until somebody says stop. Raises what ended it, if that was not on purpose."""
        state = self.config.state
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(state):
            self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
            self._memory = Memory.open(state / "node.json")
            if self._anew:
                self._put_aside(state)
            self._memory.lives += 1
            self._memory.keep()
            self._turnstile = Turnstile(self.config.federation.psi, self._memory.admitted)
            with (
                AuditLog.open(state / "audit", self.name) as self._audit,
                Log(state / "node.log", echo=self._echo, words=_WORDS) as self._log,
            ):
                self._log.know(self.name, program(), *self._peers)
                self._log.listen("grpc", "asyncio")
                self._metrics = metrics.Metrics(self._peers, _WORDS)
                self._leaving = Leaving(self._audit, self._metrics, self._charged)
                self._audit.note("life", number=self._memory.lives, program=program())
                self._log.info("node started", life=self._memory.lives, node=self.name)
                try:
                    await self._live()
                except BaseException as error:
                    self._error = self._error or error
                clean = self._error is None
                self._audit.note("end", clean=clean)
                self._log.write(
                    *(("info", "node stopped", {}) if clean else ("error", "node failed", {"error": self._error}))
                )
        if self._error is not None:
            raise self._error

    def _put_aside(self, state: Path) -> None:
        """Move what the node has reached away. Ledger, audit log and turnstile stay, for they are for good."""
        number = 1
        while (aside := state / f"before-{number}").exists():
            number += 1
        home = state / "owners" / self.name
        if (home / "peers.safetensors").exists():
            self._memory.has_seen(Home.open(home).seen(self._arm))
        self._memory.anew()
        for name in ("owners", "arms"):
            if (state / name).exists():
                aside.mkdir(exist_ok=True)
                shutil.move(state / name, aside / name)

    async def _live(self) -> None:
        node = self.config.node
        torch.set_num_threads(node.threads)
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.stop)
        servers: list[Any] = []
        try:
            handlers = {"status": self._on_status, "stop": self._on_stop, "pause": self._on_pause,
                        "resume": self._on_resume}  # fmt: skip
            servers.append(await control.serve(self.config.state / control.SOCKET, handlers))
            if node.metrics:
                servers.append(await metrics.serve(*address(node.metrics), self._metrics, self._health))
            self._check_ledger()
            self._home = await self._loop.run_in_executor(None, self._open_home)
            if self._founds:
                self._founding = Founding(
                    self, self._founders, self._company.met.keys(), node.wait, self._later, self._memory.begun
                )
            if node.listen:
                await self._door.transport.listen(*address(node.listen), self._door.welcome)
            self._look_at_oneself()
            self._become("waiting")
            self._task(self._look(), "look")
            for peer in self._peers.values():
                self._call(peer)
            if self._founding is None or self._memory.begun:
                self._task(self._begin(), "begin")
            else:
                self._founding.look()
            await self._end.wait()
        finally:
            self._become("stopping")
            await self._leave(servers)

    async def _leave(self, servers: list[Any]) -> None:
        if self._founding is not None:
            self._founding.end()
        for peer in self._peers.values():
            peer.hang_up(Refused("leaving", "the node stops"))
        going = [*self._tasks, *self._meetings.values()]
        for task in going:
            task.cancel()
        await asyncio.gather(*going, return_exceptions=True)
        await self._door.transport.close()
        try:
            self._see_ledger()
            await self._company.leave()
        except Exception as error:
            self._error = self._error or error
        for server in servers:
            await server.close()

    def stop(self) -> None:
        """End this life, in order."""
        self._end.set()

    def failed(self, error: BaseException) -> None:
        """What nobody thought of ends the node: it goes on from what it has kept when it is started again."""
        if self._error is None and not isinstance(error, asyncio.CancelledError):
            self._error = error
        self.stop()

    def _call(self, peer: Peer) -> None:
        if self._door.calls(peer):
            self._calls[peer.name] = self._task(self._door.call(peer), f"call {peer.name}")

    def _later(self, seconds: float, do: Callable[[], None]) -> asyncio.TimerHandle:
        """Have it done in a while; what goes wrong with it ends the node, and not just the callback."""

        def done() -> None:
            try:
                do()
            except Exception as error:
                self.failed(error)

        return self._loop.call_later(seconds, done)

    def _task(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)

        def done(task: asyncio.Task[Any]) -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.failed(error)

        task.add_done_callback(done)
        return task

    @property
    def _founds(self) -> bool:
        """This node and the other founders settle on where rows begin."""
        return self.config.node.founder and self.config.federation.start == "together"

    @property
    def _founders(self) -> set[str]:
        return {name for name, peer in self._peers.items() if peer.settings.founder}

    def _open_home(self) -> Home:
        config, node = self.config, self.config.node
        member = config.member()
        folder = config.state / "owners" / self.name
        if not (folder / "peers.safetensors").exists():
            secret = seed_of(node.seed, self.name, "tokens") if node.rehearsal else self._memory.secret
            return found_home(config.state, self.name, member, config.federation, node.seed, secret)
        home = Home.open(folder)
        if changed := home.changed(member, config.federation, node.seed):
            raise RunError(
                f"{config.state}: {' and '.join(changed)} changed since this node began, so it cannot go on from "
                "there. Put it back, or begin anew: fkge node --anew; what was spent stays in the ledger"
            )
        return replace(home, settings=config.federation)

    # -- streams -------------------------------------------------------------------------------------

    def _hello(self, peer: Peer) -> pb.Hello:
        session = peer.session
        return pb.Hello(
            versions=VERSIONS, program=program(), consortium=self._door.identity.consortium, owner=self.name,
            capabilities=CAPABILITIES, life=self._life, your_life=b"" if session is None else peer.life,
            heard=0 if session is None else session.heard, nonce=secrets.token_bytes(16),
            clock=int(time.time() * 1000), terms=self._terms,
            pact=bytes.fromhex(self._pact(peer)), begun=self._memory.begun and self._founds,
        )  # fmt: skip

    def _pact(self, peer: Peer) -> str:
        """The name of the alignment in hand with a peer, if that still rests on what it rested on; or nothing."""
        name = self._memory.pacts.get(peer.name, "")
        return name if name and self._memory.bases.get(peer.name) == self._basis(peer) else ""

    def _basis(self, peer: Peer) -> str:
        if not peer.basis:
            peer.basis = basis(peer, self.config, self._home, self._memory.secret)
        return peer.basis

    async def _carry(self, peer: Peer, line: Line, hello: pb.Hello, ours: pb.Hello) -> None:
        """Speak over a stream, until it ends."""
        if self._peers.get(peer.name) is not peer:
            raise Refused("stranger", "its owner has changed what it may have; call again")
        peer.program = hello.program[:80]
        if (timer := self._grace.pop(peer.name, None)) is not None:
            timer.cancel()
        resumed = bool(ours.your_life) and hello.life == peer.life and hello.your_life == self._life
        if resumed:
            try:
                if peer.session is None:
                    raise Refused("leaving", "it was given up on a moment ago; call again")
                peer.session.resume(hello.heard)
            except Refused:
                self._forget(peer)
                raise
        else:
            self._forget(peer)
            peer.fresh(hello.life)
            self._meetings[peer.name] = asyncio.create_task(self._meet(peer, hello), name=f"meet {peer.name}")
        self._log.info("peer connected", peer=peer.name, resumed=resumed)
        self._audit.note("connected", peer=peer.name, resumed=resumed)
        ended = await peer.carry(line)
        self._log.info("peer lost", peer=peer.name, reason=ended.reason if ended else "closed")
        if ended is not None and ended.reason != "replaced":
            if ended.reason != "leaving":
                self._turned_away(peer, peer.name, ended)
            self._forget(peer)
        elif not self._end.is_set():
            self._grace[peer.name] = self._later(self.config.node.grace, lambda: self._given_up(peer))

    def _turned_away(self, peer: Peer | None, name: str, why: Refused) -> None:
        if peer is not None:
            peer.refuse(why)
        self._metrics.refused(name, why.reason)
        if why.reason in ("unspecified", "leaving", "replaced"):
            return
        if (self._noted if peer is None else peer.noted).allows():
            self._log.know(name)  # what stands in a certificate of the consortium is no secret
            self._log.warning("peer refused" if why.ours else "refused", peer=name, reason=why.reason)
            self._audit.note("refused", peer=name, reason=why.reason, sentence=str(why), ours=why.ours)

    def ended(self, peer: Peer, why: Refused) -> None:
        """A session is over while no stream is there."""
        if self._end.is_set() or peer.session is not None:
            return
        if why.reason != "leaving":
            self._turned_away(peer, peer.name, why)
        self._forget(peer)

    def _given_up(self, peer: Peer) -> None:
        """A peer whose stream broke has not come back."""
        self._grace.pop(peer.name, None)
        if not peer.here:
            self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        """A life of the peer is over: so is everything that was under way with it."""
        if self._peers.get(peer.name) is not peer:
            return  # its owner has changed what it may have, and another stands in its place
        if (meeting := self._meetings.pop(peer.name, None)) is not None:
            meeting.cancel()
        if self._founding is not None:
            self._founding.lost(peer.name)
        peer.session = None
        self._company.lost(peer)

    def heard(self, peer: Peer, channel: int, body: bytes) -> None:
        """A message has come."""
        if channel == FEDERATION:
            self._metrics.received(peer.name, "message")
            self._company.heard(peer, body)
            return
        message = decode_meeting(body)
        if message.WhichOneof("is") == "tokens":
            if self._founding is not None:
                self._founding.hear(peer.name, message.tokens)
            return
        try:
            peer.meeting.put_nowait(body)
        except asyncio.QueueFull:
            raise Refused("too_many", "more came than can wait") from None

    # -- meeting -------------------------------------------------------------------------------------

    def _say(self, peer: Peer, message: pb.Meeting, what: str) -> None:
        """Say something of a meeting; it is written down like everything that leaves."""
        body = bytes(message.SerializeToString())
        self._leaving.meeting(peer.name, what, body)
        peer.send(MEETING, body)

    async def _meet(self, peer: Peer, hello: pb.Hello) -> None:
        """Find out what the two share, unless they know, and deal with each other from then on."""
        try:
            pact = self._pact(peer)
            if not pact or bytes.fromhex(pact) != hello.pact:
                await self._align(peer, hello)
            known = self._home.peers[peer.name]
            if (known.model, dict(known.widths)) != (hello.terms["model"], _widths(hello)):
                raise Refused("terms", f"{peer.name} has another model than when the two were aligned")
            self._introduced(peer, hello, known)
        except asyncio.CancelledError:
            raise
        except Refused as error:
            peer.hang_up(error)
        except PeerError as error:
            peer.hang_up(Refused("malformed", str(error)))
        except Exception as error:
            self.failed(error)

    async def _align(self, peer: Peer, hello: pb.Hello) -> None:
        memory = self._memory
        memory.pacts.pop(peer.name, None)
        try:
            self._turnstile.admit(peer.name, time.time())
        except PeerError as error:
            raise Refused("too_many", str(error)) from None
        memory.admitted = self._turnstile.state
        memory.keep()
        self._audit.note("alignment", peer=peer.name)
        try:
            name, common = await align(peer, self.config, self._home, lambda what, kind: self._say(peer, what, kind))
        except BaseException:
            self._audit.note("alignment broken off", peer=peer.name)
            raise
        known = Acquaintance(common, hello.terms["model"], _widths(hello))
        peers = dict(sorted({**self._home.peers, peer.name: known}.items()))
        self._home = self._home.knowing(peers, self._home.tokens)
        memory.pacts[peer.name], memory.bases[peer.name] = name.hex(), self._basis(peer)
        memory.keep()
        self._audit.note("aligned", peer=peer.name, rows=len(common))
        counts = {"entities": len(common.entities), "relations": len(common.relations)}
        self._log.write("info" if len(common) else "warning", "aligned", {"peer": peer.name, **counts})

    def _introduced(self, peer: Peer, hello: pb.Hello, known: Acquaintance) -> None:
        """Both sides know what they share."""
        if peer.session is None:
            return
        peer.session.limits[MEETING] = 16 * len(known.common) + (1 << 16)
        self._company.introduced(peer, known)
        if self._founding is not None:
            self._founding.introduced(peer.name, hello.begun)

    # -- founding ------------------------------------------------------------------------------------

    def tell_tokens(self, peer: str, word: pb.Tokens) -> None:
        """Say to a peer where common rows begin, as far as this node knows."""
        self._say(self._peers[peer], pb.Meeting(tokens=word), "Tokens")

    def refuse(self, peer: str, why: Refused) -> None:
        """Have no more to do with a peer's present life."""
        self._peers[peer].hang_up(why)

    def common_rows(self, peers: Collection[str]) -> tuple[Tokens, Mapping[str, Common]]:
        """This owner's tokens, and the rows that it shares with these peers."""
        tokens, known = self._home.tokens, self._home.peers
        commons = {name: known[name].common for name in peers if name in known and len(known[name].common)}
        return Tokens.restore({"entity": tokens["entity"], "relation": tokens["relation"]}), commons

    def settling(self) -> None:
        """Nobody is waited for any more."""
        self._become("settling")

    def left_behind(self, peer: str) -> None:
        """A founder has not come, or has gone: this node begins without it."""
        self._log.warning("founder missing", peer=peer)
        self._audit.note("founder missing", peer=peer)

    def settled(self, tokens: Tokens) -> None:
        """Begin from these."""
        self._home = self._home.knowing(self._home.peers, tokens)
        self._memory.begun = True
        self._memory.keep()
        self._task(self._begin(), "begin")

    # -- federating ----------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Take up the owner's work."""
        node, federation = self.config.node, self.config.federation
        self._memory.begun = True
        self._memory.keep()
        runner = Runner(
            self._home, self._arm, self._company.post, self._left, self._note, self.failed,
            late=federation.start == "together" and not node.founder,
            secret=None if node.rehearsal else secrets.randbits(62), tape=self._tape, score=self._score,
            ledger=Head(**self._memory.ledger) if self._memory.ledger else None,
        )  # fmt: skip
        await self._company.begin(runner)
        self._see_ledger()
        self._become("done" if runner.concluded else "training")
        self._company.join_all()
        runner.look_after()

    def _check_ledger(self) -> None:
        """What this node has spent must be there, and whole, before anything else is looked at."""
        if self._memory.ledger:
            folder = self.config.federation.privacy.ledger
            assert folder is not None
            Ledger.open(Path(folder) / f"{self.name}.sqlite", at_least=Head(**self._memory.ledger)).close()

    def _see_ledger(self) -> None:
        """Remember how far the ledger has come: a node without it, or with an older one, must not go on."""
        if (owner := self._company.owner) is not None:
            self._memory.has_seen(owner.gate.head)
            self._memory.keep()

    def _left(self, name: str, released: Released, session: int, data: bytes) -> None:
        """Something leaves, which is written down first."""
        self._leaving.released(name, released, session, data)
        if isinstance(released.message, (Request, Defer, Refuse, Abort)) and not self._peers[name].answers.allows():
            self._peers[name].hang_up(Refused("too_many", "one small message after the other, that want an answer"))

    def _charged(self) -> float | None:
        return None if (owner := self._company.owner) is None else owner.gate.charged

    def _note(self, event: str, **fields: Any) -> None:
        """What the owner's work tells, from the loop or from its thread."""
        name = str(fields.get("peer", ""))
        match event:
            case "refused":
                self._peers[name].hang_up(Refused("malformed", str(fields["why"])))
            case "stray" | "over budget" | "given up":
                outcome = "refused" if event == "over budget" else "aborted"
                self._metrics.exchanged(name, outcome)
                self._log.info("exchange abandoned", peer=name, outcome=outcome)
                waste = event == "stray" or (event == "given up" and not fields["hosting"])
                if waste and not self._peers[name].strays.allows():
                    self._peers[name].hang_up(Refused("too_many", f"exchanges that come to nothing ({event})"))
            case "translated":
                self._exchanges[name] = self._exchanges.get(name, 0) + 1
                self._metrics.exchanged(name, "finished")
            case "work":
                self._metrics.epochs(fields["epochs"])
                self._metrics.spent(fields["spent"])
                if fields["best"] is not None:
                    self._metrics.validated(fields["best"])
                score = {} if fields["score"] is None else {"validation_mrr": fields["score"]}
                self._log.info("epoch", epoch=fields["epoch"], peers=len(fields["peers"]), **score)
                self._later(0, self._company.join_all)
            case "damaged":
                self._log.error("checkpoint", reason="damaged")
                self._audit.note("checkpoint damaged", sentence=fields["why"])
            case "spent":
                self._log.warning("budget spent")
                self._audit.note("budget", sentence=fields["why"])
            case "held":
                self._company.join_all()
            case "state":
                if fields["state"] in ("ready", "busy", "sleep"):
                    self._become({"ready": "exchanging", "busy": "training", "sleep": "resting"}[fields["state"]])
            case "concluded":
                self._audit.note("concluded")
                self._loop.call_soon_threadsafe(self._become, "done")

    # -- looking around ------------------------------------------------------------------------------

    def _look_at_oneself(self) -> None:
        """Say if one's own certificate does not hold by one's own clock: then TLS fails, and tells nobody why."""
        try:
            self._door.identity.check(datetime.now(UTC))
        except IdentityError as error:
            self._log.error("certificate", reason=error.reason)
            self._audit.note("certificate", reason=error.reason, sentence=str(error))

    async def _look(self) -> None:
        """Every second: revocations, new certificates, hours."""
        while True:
            await asyncio.sleep(_BETWEEN_LOOKS)
            try:
                before = self._door.identity
                if self._door.reread():
                    self._log.info("certificate", number=self._door.identity.trust.revoked.number)
                if self._door.identity is not before:
                    for peer in self._peers.values():  # they come back at once, and go on where they were
                        peer.hang_up(Refused("replaced", "this node has a new certificate; call again"))
            except IdentityError as error:
                self._log.warning("certificate", reason=error.reason)
            self._reread_peers()
            self._door.look_round()
            states: dict[str, int] = {}
            for peer in self._peers.values():
                states[peer.state] = states.get(peer.state, 0) + 1
            self._metrics.peers(states)

    @property
    def _peers_file(self) -> Path:
        return self.config.folder / self.config.node.peers

    def _reread_peers(self) -> None:
        """The owner has changed its mind about who may have what: so does the node, while it runs."""
        stamp = _stamp(self._peers_file)
        if stamp == self._peers_seen:
            return
        self._peers_seen = stamp
        try:
            now = read_peers(self._peers_file, self.name)
        except (SettingsError, GraphError) as error:
            self._log.error("peers", reason="settings")
            self._audit.note("peers", changed=False, sentence=str(error))
            return
        before = self.config.peers
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) == now.get(name):
                continue
            if (old := self._peers.get(name)) is not None:
                old.hang_up(Refused("leaving" if name in now else "stranger", "its owner has changed what it may have"))
                if (calling := self._calls.pop(name, None)) is not None:
                    calling.cancel()
                self._forget(old)
                self._company.forget(name)
                del self._peers[name]
            if name in now:
                self._peers[name] = peer = Peer(name, now[name], self)
                if old is not None:
                    peer.bytes_in, peer.bytes_out = old.bytes_in, old.bytes_out
                self._log.know(name)
                self._metrics.know(name)
                self._call(peer)
            self._audit.note("peers", peer=name, changed=True, named=name in now)
        self.config.peers = now
        self._company.limit()
        if self._founding is not None:  # perhaps it waited for one that is none of them any more
            self._founding.changed(self._founders)

    def _become(self, state: str) -> None:
        if state != self._state and not (self._state == "done" and state in ("exchanging", "resting")):
            self._state, self._since = state, time.time()
            self._metrics.state(state)
            self._log.write("debug" if state in _COMING_AND_GOING else "info", "state", {"state": state})

    def _health(self) -> tuple[bool, dict[str, Any]]:
        here = sum(peer.here for peer in self._peers.values())
        ready = self._company.owner is not None and not self._end.is_set()
        return ready, {"state": self._shown_state, "peers": here, "of": len(self._peers)}

    @property
    def _shown_state(self) -> str:
        return "paused" if self._company.paused and self._state != "stopping" else self._state

    # -- what an operator says -----------------------------------------------------------------------

    async def _on_status(self, _: dict[str, Any]) -> control.Status:
        owner = self._company.owner
        return {
            "name": self.name, "life": self._memory.lives, "pid": os.getpid(), "version": version("fkge"),
            "time": time.time(), "started": self._started, "state": self._shown_state, "since": self._since,
            "epoch": None if owner is None else owner.trainer.epoch,
            "epochs": self._arm.plan.total, "validation_mrr": None if owner is None else owner.activity.best_score,
            "privacy": self.config.federation.privacy.mode, "spent": [] if owner is None else _spent(owner),
            "peers": [self._peer_status(peer) for peer in self._peers.values()],
            "audit": {"entries": self._audit.entries, "head": self._audit.head},
        }  # fmt: skip

    def _peer_status(self, peer: Peer) -> control.PeerStatus:
        state = peer.state
        if peer.here:
            company = self._company
            state = "joined" if peer.name in company.joined else "connected" if peer.name in company.met else "aligning"
        known = self._home.peers.get(peer.name) if hasattr(self, "_home") else None
        return {
            "name": peer.name, "state": state, "since": peer.since,
            "shared": None if known is None else len(known.common), "exchanges": self._exchanges.get(peer.name, 0),
            "bytes_in": peer.bytes_in, "bytes_out": peer.bytes_out,
            "heard": peer.last_heard if peer.bytes_in else None,
            "reason": peer.sentence or peer.reason or (_NOTHING if known is not None and not known.common else None),
        }  # fmt: skip

    async def _on_stop(self, _: dict[str, Any]) -> dict[str, Any]:
        self._loop.call_soon(self.stop)
        return {"state": "stopping"}

    async def _on_pause(self, _: dict[str, Any]) -> dict[str, Any]:
        self._company.pause()
        self._audit.note("paused")
        self._log.info("node paused")
        return {"state": "paused"}

    async def _on_resume(self, _: dict[str, Any]) -> dict[str, Any]:
        self._company.resume()
        self._audit.note("resumed")
        self._log.info("node resumed")
        return {"state": self._shown_state}


_WORDS = {
    "state": ("settling", "here", "aligning", "joined"),
    "reason": (*(name.lower() for name in pb.Reason.keys()), "damaged"),  # noqa: SIM118
    "kind": ("Keys", "Intersect", "Pact", "Tokens", "message"),
}
_NOTHING = "nothing in common: see same, entities and relations in peers.toml, on both sides"


def _widths(hello: pb.Hello) -> dict[Any, int]:
    return {"entity": int(hello.terms["width.entity"]), "relation": int(hello.terms["width.relation"])}


def _spent(owner: Owner) -> list[control.Spent]:
    ledger = owner.gate.ledger
    budgets = [] if ledger is None else describe(ledger)["budgets"]
    return [
        {"unit": b["unit"], "relation": b["relation"], "epsilon": b["epsilon"], "spent": b["spent"]["epsilon"],
         "delta": b["delta"]}
        for b in budgets
    ]  # fmt: skip


def _stamp(path: Path) -> tuple[int, int]:
    """By which one sees that a file has changed."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


@contextlib.contextmanager
def _alone(state: Path) -> Iterator[None]:
    """Hold a state folder, so that no other process is this node at the same time."""
    with (state / "node.lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NodeError(f"{state}: another process is this node; stop it (fkge stop), or wait for it") from None
        yield


def run(config: NodeConfig, **options: Any) -> None:
    """Live as the node that `config` describes, until it is told to stop."""
    asyncio.run(Node(config, **options).run())

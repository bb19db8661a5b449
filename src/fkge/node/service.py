"""`Node` takes every event of a node from one queue, messages in both directions included, and dispatches it to
membership, alignment, connections and records.

A node reads from `peers.toml`, which is its owner's alone, which peers it deals with. With each that connects it finds
out what they share, unless both know from an earlier time. The initial members wait for each other once
(`fkge.node.bootstrap`); after that nobody waits for anybody, and peers that come later join while the others work.

The parts of a node never call it: they put events.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fkge import owner_events as reports
from fkge.errors import IdentityError, PeerError, SettingsError
from fkge.federation import OwnerStore, Plan, Released
from fkge.federation.messages import Abort, Defer, Refuse, Request
from fkge.federation.owner.job import Job, ProductionJob
from fkge.node import frames_pb2 as pb
from fkge.node.alignment import Alignments, PeerAligned
from fkge.node.bootstrap import AgreementStarted, Bootstrap, BootstrapTimeout, OthersShown, TokensAgreed
from fkge.node.connections import ConnectionManager, PeerConnected, PeerDisconnected
from fkge.node.driver import DeliveryOrder, NodeDriver, open_in_thread
from fkge.node.events import (
    AlignmentMessage,
    ControlSent,
    Event,
    EventQueue,
    Failed,
    JoinDue,
    MessageReady,
    Misbehaved,
    OwnerReported,
    Pause,
    Stop,
    supervised,
)
from fkge.node.frames import FEDERATION, MEETING, Refused, decode_meeting
from fkge.node.handshake import greeting, new_incarnation, terms_of
from fkge.node.membership import Membership
from fkge.node.ops import control, metrics
from fkge.node.ops.records import Records, open_records
from fkge.node.ops.status import StatusView
from fkge.node.peer import MessageReceived, Peer, SessionEnded
from fkge.node.persistence import PersistentState, lock, open_store, put_aside, workspace
from fkge.node.settings import NodeConfig, PeerSettings, address
from fkge.node.state import LifeCycle, NodeState, Trigger
from fkge.node.watch import CertificateReloaded, FileWatch, PeersChanged, Tick
from fkge.owner_events import Emit, OwnerEvent
from fkge.privacy import Ledger


@dataclass(frozen=True)
class Prepared:
    """The store, job and alignments that a rehearsal has prepared for a node."""

    store: OwnerStore  # with its alignments and tokens
    job: Job
    alignments: Mapping[str, str]  # by peer, the id (32 hexadecimal digits) under which both sides know theirs


@dataclass(frozen=True)
class Inputs:
    """Inputs of a node in addition to its configuration, for recordings, rehearsals and tests."""

    recording: Path | None = None  # a file to record everything that it receives and sends
    order: DeliveryOrder | None = None  # in which messages are delivered to the owner; as they arrive, if None
    prepared: Prepared | None = None  # by a rehearsal: the node then aligns with nobody
    observe: Emit | None = None  # called with everything that the owner's work notes, from the loop or its thread


class Node:
    """A node that runs; `open_node` makes one. The `peers` of its `config` follow `peers.toml` while it does.

    Args:
        config, persistent, records: of the node, open; inputs: in addition to its configuration.

    Raises:
        SettingsError: the certificate is another owner's.
    """

    def __init__(self, config: NodeConfig, persistent: PersistentState, records: Records, inputs: Inputs) -> None:
        self.config, self.name = config, config.node.name
        self.life_cycle = LifeCycle(time.time)
        self._persistent, self._records, self._inputs = persistent, records, inputs
        prepared = inputs.prepared
        self._terms = terms_of(config.federation, config.node.seed, config.node.rehearsal)
        self._incarnation = new_incarnation()
        self._bootstraps = prepared is not None or (config.node.founder and config.federation.start == "together")
        self._queue = EventQueue(self._handle)
        emit = self._queue.put
        self._peers = {name: Peer(name, settings, emit) for name, settings in config.peers.items()}
        self.membership = Membership(self._peers, config.federation, emit)
        self._connections = ConnectionManager(config, self._terms, self._peers, self._greeting, emit)
        self._watch = FileWatch(config, self._connections, emit)
        self._status = StatusView(config, persistent, records, self._peers, self.membership, self.life_cycle)
        self._alignments: Alignments | None = None  # with each peer, once the owner's store is open
        self._bootstrap: Bootstrap | None = None  # if this node takes part in it, and from then on
        self._tasks: set[asyncio.Task[None]] = set()
        self._end = asyncio.Event()
        self._error: BaseException | None = None
        if (named := self._connections.identity.name) != self.name:
            raise SettingsError(
                f"{config.folder}: node.toml is {self.name}'s, and the certificate in {config.node.identity} is "
                f"{named}'s; use the kit that was made for {self.name}"
            )

    @property
    def store(self) -> OwnerStore | None:
        """The owner's store, once it is open."""
        return None if self._alignments is None else self._alignments.store

    # -- life cycle ----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run until stopped. Raises what ended the node, unless it was asked to stop."""
        loop = asyncio.get_running_loop()
        torch.set_num_threads(self.config.node.threads)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._queue.put, Stop())
        try:
            async with contextlib.AsyncExitStack() as servers:
                try:
                    await self._open(servers)
                    await self._end.wait()
                finally:
                    self._move(Trigger.STOP)
                    await self._close()
        except BaseException as error:
            self._error = self._error or error
        self._move(Trigger.CLOSED if self._error is None else Trigger.FAIL)
        if self._error is not None:
            raise self._error

    async def _open(self, servers: contextlib.AsyncExitStack) -> None:
        """Serve the operator, open the store, connect to peers; begin, if nobody has to be waited for."""
        node, persistent, prepared = self.config.node, self._persistent, self._inputs.prepared
        events = {"pause": Pause(True), "resume": Pause(False), "stop": Stop()}
        commands = {name: partial(self._command, event) for name, event in events.items()}
        path = self.config.state / control.SOCKET
        server = await control.serve(path, {"status": self._status.status, **commands})
        servers.push_async_callback(server.close)
        if node.metrics:
            shown = await metrics.serve(*address(node.metrics), self._records.metrics, self._status.health)
            servers.push_async_callback(shown.close)
        if persistent.ledger is not None and prepared is None:  # what was spent must be there before anything else
            ledger = Path(str(self.config.federation.privacy.ledger)) / f"{self.name}.sqlite"
            Ledger.open(ledger, at_least=persistent.ledger).close()
        if prepared is None:
            loop, agreed = asyncio.get_running_loop(), None
            store = await loop.run_in_executor(None, open_store, self.config, persistent.secret)
        else:
            store, agreed, persistent.begun = prepared.store, prepared.alignments, False
        self._alignments = Alignments(self.config, persistent, store, self._queue.put, agreed)
        self._status.alignments = self._alignments
        bootstrap = self._bootstrap = self._make_bootstrap(self._alignments) if self._bootstraps else None
        await self._connections.open()
        try:
            self._connections.identity.check(datetime.now(UTC))
        except IdentityError as error:
            self._records.certificate(error)
        self._move(Trigger.OPENED)
        self._task(self._watch.run(), "watch")
        if bootstrap is None or persistent.begun:
            self._task(self._begin(), "begin")
        else:
            bootstrap.check()

    def _make_bootstrap(self, alignments: Alignments) -> Bootstrap:
        # A rehearsal's tokens were agreed on when it was prepared: its members wait for each other, and that is all.
        prepared = self._inputs.prepared is not None
        return Bootstrap(
            self._members(), self.membership.aligned.keys(), self.config.node.wait,
            rows=lambda peers: alignments.rows(() if prepared else peers), emit=self._queue.put,
            after=self._queue.after, begun=self._persistent.begun, others=alignments.show_others,
        )  # fmt: skip

    def _members(self) -> set[str]:
        """Return the other initial members."""
        return {name for name, peer in self._peers.items() if peer.settings.founder}

    async def _begin(self) -> None:
        """Load the owner, and let it work with the peers that are here."""
        assert self._alignments is not None
        node, federation, persistent = self.config.node, self.config.federation, self._persistent
        persistent.begun = True
        persistent.save()
        prepared, store = self._inputs.prepared, self._alignments.store
        job = prepared.job if prepared else ProductionJob(store, workspace(self.config), Plan.of(federation))
        own, thread = await open_in_thread(
            job, lambda peer, body: self._queue.put(MessageReady(peer, body)), self._note,
            on_egress=self._record_egress, recording=self._inputs.recording, ledger=persistent.ledger,
            late=federation.start == "together" and not node.founder,
            secret=None if node.rehearsal else secrets.randbits(62),
        )  # fmt: skip
        driver = NodeDriver(own, thread, self._note, self._queue.put, federation.train_alone, self._inputs.order)
        self.membership.begin(driver)
        self._remember_ledger()
        self._move(Trigger.CONCLUDED if own.concluded else Trigger(own.participant.protocol.state))
        self.membership.join_all()
        driver.advance()

    async def _close(self) -> None:
        if self._bootstrap is not None:
            self._bootstrap.close()
        for task in self._tasks:
            task.cancel()
        closing = [self._connections.close(), *([self._alignments.close()] if self._alignments else [])]
        await asyncio.gather(*closing, *self._tasks, return_exceptions=True)
        try:
            self._remember_ledger()
        finally:  # also on a full disk: the training thread must end, or the process does not
            await self.membership.leave()
        self._queue.drain()  # what the training thread has reported last

    def stop(self) -> None:
        """Stop the node; `run` saves and returns."""
        self._end.set()

    def _task(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.add(task := supervised(work, name, self._queue.put))
        task.add_done_callback(self._tasks.discard)

    def _move(self, trigger: Trigger) -> None:
        if self.life_cycle.move(trigger) and not self.life_cycle.over:
            self._records.state(self.life_cycle.state)

    def _remember_ledger(self) -> None:
        """Remember how far the ledger has come: a node without it, or with an older one, must not continue."""
        if (owner := self.membership.owner) is not None:
            self._persistent.saw_ledger(owner.egress.head)
            self._persistent.save()

    # -- events --------------------------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        """Handle one event; what goes wrong is the sender's fault (`PeerError`), or ends the node."""
        try:
            self._records.record(event)
            self._dispatch(event)
        except Exception as error:
            if isinstance(error, PeerError) and isinstance(event, MessageReceived):
                event.peer.hang_up(Refused.by(error))
                return
            self._error = self._error or error
            self.stop()

    def _dispatch(self, event: Event) -> None:
        membership, alignments, bootstrap = self.membership, self._alignments, self._bootstrap
        match event:
            # Messages, first because they are most of all events
            case MessageReceived(peer, channel, body):
                if channel == FEDERATION:
                    membership.receive(peer, body)
                else:
                    self._receive_alignment(peer, body)
            case MessageReady(name, body):
                membership.post(name, body)
            case ControlSent(name):
                if not self._peers[name].answers.allows():
                    self._peers[name].hang_up(Refused("too_many", "a flood of messages that want an answer"))
            # Peers
            case PeerConnected(peer, hello, resumed):
                if not resumed and alignments is not None:
                    alignments.start(peer, hello)
            case PeerDisconnected(peer, why):
                if why is not None and why.reason != "replaced":
                    self._forget(peer)
            case SessionEnded(peer, _):
                self._forget(peer)
            case Misbehaved(name, reason, sentence):
                self._peers[name].hang_up(Refused(reason, sentence))
            case AlignmentMessage(name, message, kind):
                body = bytes(message.SerializeToString())
                self._records.alignment(name, kind, body)
                self._peers[name].send(MEETING, body)
            case PeerAligned(peer, known, begun, fresh):
                membership.add(peer, known)
                if bootstrap is not None:
                    bootstrap.add(peer.name, begun, fresh)
            # The bootstrap
            case AgreementStarted():
                self._move(Trigger.AGREE)
            case BootstrapTimeout() if bootstrap is not None:
                bootstrap.timeout(event)
            case TokensAgreed(tokens) if alignments is not None:
                if self._inputs.prepared is None:
                    alignments.adopt(tokens)
                self._task(self._begin(), "begin")
            case OthersShown(name, digests) if alignments is not None:
                if (more := alignments.extend(name, digests)) is not None:
                    membership.replace(self._peers[name], more)
            # The owner's work
            case OwnerReported(reports.StateChanged(state="ready" | "busy" | "sleep" as state)) if membership.owner:
                self._move(Trigger(state))
            case OwnerReported(reports.Concluded()) if membership.owner:
                self._move(Trigger.CONCLUDED)
            case OwnerReported(reports.HostingFinished(peer=name)):
                self._peers[name].exchanges += 1
            case OwnerReported(reports.StrayMessage() | reports.ExchangeAbandoned(hosting=False) as reported):
                peer, sentence = self._peers[reported.peer], f"exchanges that come to nothing ({reported.kind})"
                if not peer.strays.allows():  # a peer can provoke any number of them
                    peer.hang_up(Refused("too_many", sentence))
            case OwnerReported(reports.Refused(peer=name, why=sentence)):
                self._peers[name].hang_up(Refused("malformed", sentence))
            case OwnerReported(reports.Worked()):  # before the driver has finished; see `NodeDriver._train`
                self._queue.after(0, JoinDue())
            case JoinDue():
                membership.join_all()
            # Files and the operator
            case PeersChanged(peers):
                self._change_peers(peers)
            case CertificateReloaded(_, replaced):
                for peer in self._peers.values() if replaced else ():  # they connect again, and resume their sessions
                    peer.hang_up(Refused("replaced", "this node has a new certificate; connect again"))
            case Tick():
                self._connections.check_open()
                states = [peer.state for peer in self._peers.values()]
                self._records.metrics.peers({state: states.count(state) for state in states})
            case Pause(paused):
                membership.pause(paused)
            case Stop():
                self.stop()
            case Failed(error):
                raise error

    def _receive_alignment(self, peer: Peer, body: bytes) -> None:
        message = decode_meeting(body)
        if message.WhichOneof("is") == "tokens":
            if self._bootstrap is not None:
                self._bootstrap.receive(peer.name, message.tokens)
            return
        try:
            peer.meeting.put_nowait(body)
        except asyncio.QueueFull:
            raise Refused("too_many", "more came than can wait") from None

    def _forget(self, peer: Peer) -> None:
        """Drop everything that is under way with an incarnation of a peer."""
        if self._peers.get(peer.name) is not peer or self._alignments is None:
            return  # `peers.toml` has changed, and another stands in its place
        self._alignments.cancel(peer.name)
        if self._bootstrap is not None:
            self._bootstrap.remove(peer.name)
        self.membership.remove(peer.name)

    def _change_peers(self, now: Mapping[str, PeerSettings]) -> None:
        """Apply a changed `peers.toml`: peers whose settings are others are disconnected, and connect again."""
        before = self.config.peers
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) == now.get(name):
                continue
            if (old := self._peers.get(name)) is not None:
                reason = "leaving" if name in now else "stranger"
                old.hang_up(Refused(reason, "its settings in this node's peers.toml have changed"))
                self._connections.forget(old)
                self._forget(old)
                self.membership.forget(name)
                del self._peers[name]
            if name in now:
                self._peers[name] = peer = Peer(name, now[name], self._queue.put)
                if old is not None:
                    peer.bytes_in, peer.bytes_out, peer.exchanges = old.bytes_in, old.bytes_out, old.exchanges
                self._records.know(name)
                self._connections.dial(peer)
            self._records.audit.note("peers", peer=name, changed=True, named=name in now)
        self.config.peers = dict(now)
        self.membership.limit()
        if self._bootstrap is not None:
            self._bootstrap.change(self._members())  # perhaps it waited for one that is no member any more

    # -- asked by parts ------------------------------------------------------------------------------

    def _greeting(self, peer: Peer) -> pb.Hello:
        assert self._alignments is not None
        return greeting(
            self._incarnation, self._connections.identity.consortium, self.name, self._terms, peer,
            pact=bytes.fromhex(self._alignments.id_with(peer)),
            begun=self._persistent.begun and self._bootstraps,
        )  # fmt: skip

    def _record_egress(self, peer: str, released: Released, session: int, data: bytes) -> None:
        """Write the audit-log entry of a message before it is queued; directly, so that nothing is sent unrecorded."""
        owner = self.membership.owner
        self._records.released(peer, released, session, data, None if owner is None else owner.egress.charged)
        if isinstance(released.message, (Request, Defer, Refuse, Abort)):
            self._queue.put(ControlSent(peer))

    def _note(self, event: OwnerEvent) -> None:
        """Take in a report of the owner; called from the loop or the training thread."""
        self._queue.put(OwnerReported(event))
        if self._inputs.observe is not None:
            self._inputs.observe(event)

    async def _command(self, event: Event) -> dict[str, str]:
        if isinstance(event, Stop):
            asyncio.get_running_loop().call_soon(self._queue.put, event)  # the answer goes first
            return {"state": str(NodeState.STOPPING)}
        self._queue.put(event)
        return {"state": self._status.state}


@contextlib.contextmanager
def open_node(
    config: NodeConfig, inputs: Inputs | None = None, *, anew: bool = False, echo: bool = False
) -> Iterator[Node]:
    """Lock the state folder of a node, and open what it keeps there; `Node.run` does the rest. Needs a running loop.

    Args:
        config: what the node is.
        inputs: what it is given in addition to its configuration.
        anew: set its training state aside and start over; what was spent stays spent.
        echo: log to standard error, too.

    Raises:
        NodeError: another process is this node.
    """
    with lock(config.state):
        persistent = PersistentState.open(config.state / "node.json")
        if anew:
            put_aside(config, persistent)
        persistent.starts += 1
        persistent.save()
        with open_records(config.node.name, config.peers, config.state, echo, persistent.starts) as records:
            yield Node(config, persistent, records, inputs or Inputs())


async def run_node(config: NodeConfig, inputs: Inputs | None = None, *, anew: bool = False, echo: bool = False) -> None:
    """Run the node that `config` describes until it is stopped.

    Args:
        config, inputs, anew, echo: see `open_node`.
    """
    with open_node(config, inputs, anew=anew, echo=echo) as node:
        await node.run()

"""Check whether a node would start and which peers it would reach, without changing anything.

A running peer is probed with a handshake that ends before a session starts; it reports what it would refuse.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from fkge.embed import make_model
from fkge.errors import FkgeError, NodeError, did_you_mean
from fkge.federation.egress import budgets
from fkge.federation.owner.store import OwnerStore, widths
from fkge.federation.source import Member
from fkge.node.frames import Refused
from fkge.node.handshake import check_greeting, check_proof, greeting, new_incarnation, read_greeting, terms_of
from fkge.node.ops import control
from fkge.node.ops.audit_log import verify
from fkge.node.peer import hello_frame
from fkge.node.settings import NodeConfig, address
from fkge.node.transport import Transport
from fkge.pki.certificates import KIT
from fkge.pki.site import Identity
from fkge.privacy import Ledger

Verdict = Literal["good", "mind", "bad"]

_EXPIRES_SOON = 30  # days
TIMEOUT = 5.0
"""Seconds within which a peer, or this node if it runs, has to answer."""

_COPIES = 4  # of all vectors with their optimiser's state: two checkpoints, one being written, a model


@dataclass(frozen=True)
class Finding:
    """The result of one check: a sentence on what was found, and the way out.

    A `verdict` of mind is a warning: the node starts. With bad, it does not start, or not for long.
    """

    what: str
    verdict: Verdict
    sentence: str


@dataclass
class _Site:
    """A node under check: its configuration, and the results of earlier checks."""

    config: NodeConfig
    running: int | None
    identity: Identity | None = None
    member: Member | None = None

    @property
    def folder(self) -> Path:
        """The state folder, or the nearest folder above it that exists."""
        state = self.config.state
        return next(folder for folder in (state, *state.resolve().parents) if folder.exists())


Results = Iterator[tuple[Verdict, str]]


def preflight(path: Path) -> Iterator[Finding]:
    """Check everything that the node configured in `path` needs, and yield findings one by one. Changes nothing."""
    try:
        config = NodeConfig.load(path)
    except FkgeError as error:
        yield Finding("configuration", "bad", str(error))
        return
    yield Finding("configuration", "good", f"{path}: {config.node.name}, {len(config.peers)} peers")
    site = _Site(config, _running(config))
    for what, check in _CHECKS.items():
        try:
            for verdict, sentence in check(site):
                yield Finding(what, verdict, sentence)
        except FkgeError as error:
            yield Finding(what, "bad", str(error))
    if site.identity is not None:
        yield from asyncio.run(_peers(config, site.identity))


def _running(config: NodeConfig) -> int | None:
    """Return the process of this node, if it runs."""
    try:
        return control.ask_status(config.state / control.SOCKET, TIMEOUT)["pid"]
    except (NodeError, KeyError):
        return None


def _links(site: _Site) -> Results:
    for name, peer in site.config.peers.items():
        if not (peer.same or peer.entities or peer.relations):
            yield "mind", f"{name} has no links: set same = true, or entities = FILE, in peers.toml"


def _certificate(site: _Site) -> Results:
    config = site.config
    identity = site.identity = Identity.load(config.folder / config.node.identity)
    if identity.name != config.node.name:
        yield "bad", f"it is {identity.name}'s, and node.toml is {config.node.name}'s"
        return
    now = datetime.now(UTC)
    identity.check(now)
    days = (identity.expires - now).days
    sentence = f"{identity.name} of {identity.consortium}, {days} days left; fingerprint {identity.short_fingerprint}"
    yield ("mind", f"{sentence}. Renew it: fkge cert renew") if days < _EXPIRES_SOON else ("good", sentence)


def _members(site: _Site) -> Results:
    members = {} if site.identity is None else site.identity.kit.members
    for name in site.config.peers:
        if members and name not in members:
            yield "mind", f"[peers.{name}]: is no member in the installed kit{did_you_mean(name, members)}"


def _clock(site: _Site) -> Results:
    """Compare the clock with the newest file at hand; peers' clocks are compared when they are probed."""
    now = time.time()
    installed = 0.0 if site.identity is None else (site.identity.folder / KIT).stat().st_mtime
    if installed > now + 300:
        yield "bad", f"it is {installed - now:,.0f} s behind the installation of the kit; set it right"
    else:
        yield "good", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _graph(site: _Site) -> Results:
    member = site.member = site.config.member()
    graph = member.graph if member.policy is None else member.policy.shareable(member.graph).graph
    yield "good", f"{len(graph.entities):,} entities and {len(graph.train):,} training triples to share"


def _state(site: _Site) -> Results:
    config, state = site.config, site.config.state
    try:
        with tempfile.TemporaryFile(dir=site.folder):
            pass
    except OSError as error:
        yield "bad", f"{site.folder}: cannot be written ({error.strerror}); change its permissions, or state"
        return
    if state.exists() and state.stat().st_mode & 0o077:
        yield "mind", f"{state}: others on this machine can read it; chmod 700 it"
        return
    store = state / "owners" / config.node.name
    if site.running is not None:
        yield "mind", f"{state}: this node runs already, as process {site.running}"
    elif not (store / "peers.safetensors").exists():
        yield "good", f"{state}: starts from nothing"
    elif site.member is not None and (
        changed := OwnerStore.open(store).changed(site.member, config.federation, config.node.seed)
    ):
        what = " and ".join(changed)
        yield "bad", f"{state}: {what} changed since the first start. Undo that, or start over (fkge node --anew)"
    else:
        yield "good", f"{state}: continues from what is there"


def _audit_log(site: _Site) -> Results:
    folder = site.config.state / "audit"
    yield "good", f"intact, {verify(folder).entries:,} entries" if folder.exists() else "a new one"


def _disk(site: _Site) -> Results:
    free = shutil.disk_usage(site.folder).free
    width = widths(make_model(site.config.federation.shared_train))
    graph = None if site.member is None else site.member.graph
    vectors = len(graph.entities) * width["entity"] + len(graph.relations) * width["relation"] if graph else 0
    needed = _COPIES * vectors * 4 * 6 + (256 << 20)
    sentence = f"{free >> 20:,} MiB free, some {needed >> 20:,} MiB needed"
    yield ("good", sentence) if free > needed else ("bad", f"{sentence}; free some space")


def _device(site: _Site) -> Results:
    import torch

    wanted, available = site.config.federation.train.device, torch.cuda.is_available()
    if wanted.startswith("cuda") and not available:
        yield "bad", f"train.device is {wanted}, and there is no GPU here; set cpu or auto"
    else:
        found = torch.cuda.get_device_name() if available else "no GPU; trains on the CPU"
        yield "good", f"{found} (device {wanted})"


def _privacy(site: _Site) -> Results:
    privacy, allowed = site.config.federation.privacy, budgets(site.config.federation)
    if not allowed:
        yield "mind", "mode none: what is exchanged has no guarantee"
        return
    path = Path(str(privacy.ledger)) / f"{site.config.node.name}.sqlite"
    epsilon = "without limit" if privacy.epsilon is None else f"{privacy.epsilon:g}"
    promise = f"mode {privacy.mode}, ε {epsilon}, δ {privacy.delta:g}"
    if not path.exists():
        yield "good", f"{promise}; a new ledger"
        return
    with Ledger.open(path, graph=site.config.node.name) as ledger:
        before = ledger.budgets
        spent = max(ledger.charged(budget) for budget in allowed)
    if set(before) != set(allowed):
        were = ", ".join(f"ε {budget.epsilon:g} and δ {budget.delta:g} for each {budget.unit}" for budget in before)
        yield "mind", f"{promise}, from the next start on; so far {were}; {spent:.3g} spent"
    else:
        yield "good", f"{promise}; {spent:.3g} spent"


def _rehearsal(site: _Site) -> Results:
    if site.config.node.rehearsal:
        yield "mind", "every secret follows from the seed: never with real data"


def _port(site: _Site, key: Literal["listen", "metrics"]) -> Results:
    text = getattr(site.config.node, key)
    if not text:
        return
    try:
        host, port = address(text)
        with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET):
            yield "good", f"{host}:{port} is free"
    except OSError as error:
        if site.running is not None:
            yield "mind", f"{text} is taken, by this node itself"
        else:
            yield "bad", f"{text}: {os.strerror(error.errno or 0).lower()}; see {key} in node.toml"


_CHECKS: dict[str, Callable[[_Site], Results]] = {
    "links": _links, "certificate": _certificate, "peers": _members, "clock": _clock, "graph": _graph, "state": _state,
    "audit log": _audit_log, "disk": _disk, "device": _device, "privacy": _privacy, "rehearsal": _rehearsal,
    "port": lambda site: _port(site, "listen"), "metrics": lambda site: _port(site, "metrics"),
}  # fmt: skip
"""In this order: the identity and the graph that one loads, later ones use."""


async def _peers(config: NodeConfig, identity: Identity) -> list[Finding]:
    transport = Transport(lambda: identity)
    return list(await asyncio.gather(*(_peer(config, identity, transport, name) for name in config.peers)))


async def _peer(config: NodeConfig, identity: Identity, transport: Transport, name: str) -> Finding:
    settings = config.peers[name]
    what = f"peer {name}"
    if not settings.address:
        return Finding(what, "good", "it connects to this node; nothing to probe")
    host, port = address(settings.address)
    try:
        async with asyncio.timeout(TIMEOUT):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else os.strerror(error.errno or 0).lower()
        return Finding(what, "mind", f"{settings.address} cannot be reached ({why}): fine if it starts later")
    line = await transport.call(settings.address, name)
    terms = terms_of(config.federation, config.node.seed, config.node.rehearsal)
    ours = greeting(new_incarnation(), identity.consortium, config.node.name, terms, None, probe=True)
    try:
        async with asyncio.timeout(TIMEOUT):
            await line.write(hello_frame(ours))
            hello = await read_greeting(line)
        now = datetime.now(UTC)
        check_greeting(hello, name, identity.consortium, terms, settings, config, now)
        check_proof(hello, identity, ours.nonce, name, now)
    except TimeoutError:
        return Finding(what, "bad", f"{settings.address} answers, but not as a node does; is the address right?")
    except Refused as error:
        return Finding(what, "bad", f"{'refused here' if error.ours else 'it refuses'} ({error.reason}): {error}")
    finally:
        await line.close()
    apart = abs(hello.clock / 1000 - time.time())
    return Finding(what, "good", f"{hello.program} at {settings.address}; clocks {apart:.1f} s apart")

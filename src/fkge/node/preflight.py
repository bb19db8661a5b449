"""Would this node start, and whom would it reach? Looked at before anything starts; nothing is changed.

Peers that run are greeted, and asked for nothing: what they would refuse, they say.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from fkge.embed import make_model
from fkge.errors import FkgeError, IdentityError, NodeError, did_you_mean
from fkge.federation.home import Home, widths
from fkge.federation.settings import FederationSettings
from fkge.federation.source import Member
from fkge.graph import Graph
from fkge.node import control
from fkge.node import frames_pb2 as pb
from fkge.node.auditlog import verify
from fkge.node.frames import VERSIONS, Refused, decode_frame, refusal
from fkge.node.greeting import CAPABILITIES, check_greeting, check_proof, new_life, program, terms_of
from fkge.node.identity import Identity
from fkge.node.peer import hello_frame
from fkge.node.settings import NodeConfig, address
from fkge.node.transport import Transport

Verdict = Literal["good", "mind", "bad"]

_SOON = 30  # days before a certificate ends that somebody should know
_PATIENCE = 5.0
_COPIES = 4  # of all vectors with their optimiser's state: two checkpoints, one being written, a model


@dataclass(frozen=True)
class Found:
    """What one look has found.

    Attributes:
        what: was looked at.
        verdict: good; mind: a node starts, but somebody should look; bad: it does not, or not for long.
        sentence: what is so, and the way out.
    """

    what: str
    verdict: Verdict
    sentence: str


def preflight(path: Path) -> Iterator[Found]:
    """Look at everything that the node described by `path` needs, one thing after another."""
    try:
        config = NodeConfig.load(path)
    except FkgeError as error:
        yield Found("configuration", "bad", str(error))
        return
    yield Found("configuration", "good", f"{path}: {config.node.name}, {len(config.peers)} peers")
    for name, peer in config.peers.items():
        if not (peer.same or peer.entities or peer.relations):
            sentence = f"with {name} there is nothing to share by: same = true, or entities = FILE, in peers.toml"
            yield Found("links", "mind", sentence)
    identity: Identity | None = None
    try:
        identity = Identity.load(config.folder / config.node.identity)
        yield from _certificate(config, identity)
    except IdentityError as error:
        yield Found("certificate", "bad", str(error))
    yield _clock(identity)
    member: Member | None = None
    try:
        member = config.member()
        graph = member.graph if member.policy is None else member.policy.shareable(member.graph).graph
        told = f"{len(graph.entities):,} entities and {len(graph.train):,} training triples to share"
        yield Found("graph", "good", told)
    except FkgeError as error:
        yield Found("graph", "bad", str(error))
    running = _running(config)
    yield from _state(config, member, running)
    yield _audit(config)
    yield _disk(config, None if member is None else member.graph)
    yield _device(config.federation)
    yield _ledger(config)
    if config.node.rehearsal:
        yield Found("rehearsal", "mind", "every secret follows from the seed: never with real data")
    yield from _ports(config, running)
    if identity is not None:
        yield from asyncio.run(_peers(config, identity))


def _certificate(config: NodeConfig, identity: Identity) -> Iterator[Found]:
    if identity.name != config.node.name:
        yield Found("certificate", "bad", f"it is {identity.name}'s, and node.toml is {config.node.name}'s")
        return
    now = datetime.now(UTC)
    try:
        identity.trust.check(identity.certificate_pem, now, identity.name)
    except IdentityError as error:
        yield Found("certificate", "bad", str(error))
        return
    for name in config.peers:
        if name not in identity.kit.members:
            near = did_you_mean(name, identity.kit.members)
            yield Found("peers", "mind", f"[peers.{name}]: is no member, by the kit that is installed{near}")
    days = (identity.expires - now).days
    sentence = f"{identity.name} of {identity.consortium}, {days} days left; fingerprint {identity.spoken}"
    if days < _SOON:
        yield Found("certificate", "mind", f"{sentence}. Renew it: fkge cert renew")
    else:
        yield Found("certificate", "good", sentence)


def _clock(identity: Identity | None) -> Found:
    """A clock can only be wrong against something: here, when the files at hand were made; then, peers' clocks."""
    now = time.time()
    made = 0.0 if identity is None else (identity.folder / "consortium.json").stat().st_mtime
    if made > now + 300:
        return Found("clock", "bad", f"it stands {made - now:,.0f} s before the kit was put here; set it right")
    return Found("clock", "good", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")


def _running(config: NodeConfig) -> int | None:
    """The process that is this node, if there is one."""
    try:
        return int(control.call(config.state / control.SOCKET, "status", patience=_PATIENCE)["pid"])
    except (NodeError, KeyError):
        return None


def _state(config: NodeConfig, member: Member | None, running: int | None) -> Iterator[Found]:
    state = config.state
    there = next(folder for folder in (state, *state.resolve().parents) if folder.exists())
    try:
        probe = there / f".fkge-{secrets.token_hex(4)}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        yield Found("state", "bad", f"{there}: cannot be written ({error.strerror}); change its permissions, or state")
        return
    if state.exists() and state.stat().st_mode & 0o077:
        yield Found("state", "mind", f"{state}: others on this machine can read it; chmod 700 it")
        return
    home = state / "owners" / config.node.name
    if running is not None:
        yield Found("state", "mind", f"{state}: this node runs already, as process {running}")
    elif not (home / "peers.safetensors").exists():
        yield Found("state", "good", f"{state}: begins there")
    elif member is not None and (changed := Home.open(home).changed(member, config.federation, config.node.seed)):
        what = " and ".join(changed)
        sentence = f"{state}: {what} changed since this node began. Put it back, or begin anew (fkge node --anew)"
        yield Found("state", "bad", sentence)
    else:
        yield Found("state", "good", f"{state}: goes on from what is there")


def _audit(config: NodeConfig) -> Found:
    folder = config.state / "audit"
    if not folder.exists():
        return Found("audit log", "good", "a new one")
    try:
        return Found("audit log", "good", f"sound, {verify(folder).entries:,} entries")
    except FkgeError as error:
        return Found("audit log", "bad", str(error))


def _disk(config: NodeConfig, graph: Graph | None) -> Found:
    there = next(folder for folder in (config.state, *config.state.resolve().parents) if folder.exists())
    free = shutil.disk_usage(there).free
    wide = widths(make_model(config.federation.shared_train))
    rows = (0, 0) if graph is None else (len(graph.entities), len(graph.relations))
    vectors = rows[0] * wide["entity"] + rows[1] * wide["relation"]
    needed = _COPIES * vectors * 4 * 6 + (256 << 20)
    sentence = f"{free >> 20:,} MiB free, some {needed >> 20:,} MiB needed"
    return Found("disk", "good" if free > needed else "bad", sentence if free > needed else f"{sentence}; make room")


def _device(settings: FederationSettings) -> Found:
    import torch

    wanted, there = settings.train.device, torch.cuda.is_available()
    if wanted.startswith("cuda") and not there:
        return Found("device", "bad", f"train.device is {wanted}, and there is no GPU here; say cpu or auto")
    if there:
        return Found("device", "good", f"{torch.cuda.get_device_name()} (device {wanted})")
    return Found("device", "good", f"no GPU; trains on the CPU (device {wanted})")


def _ledger(config: NodeConfig) -> Found:
    from fkge.federation.gate import budgets
    from fkge.privacy import Ledger

    privacy, allowed = config.federation.privacy, budgets(config.federation)
    if not allowed:
        return Found("privacy", "mind", "mode none: what is exchanged has no guarantee")
    path = Path(str(privacy.ledger)) / f"{config.node.name}.sqlite"
    epsilon = "without limit" if privacy.epsilon is None else f"{privacy.epsilon:g}"
    promise = f"mode {privacy.mode}, ε {epsilon}, δ {privacy.delta:g}"
    if not path.exists():
        return Found("privacy", "good", f"{promise}; a new ledger")
    try:
        with Ledger.open(path, graph=config.node.name) as ledger:
            before = ledger.budgets
            spent = max(ledger.charged(budget) for budget in allowed)
    except FkgeError as error:
        return Found("privacy", "bad", str(error))
    if set(before) != set(allowed):
        were = ", ".join(f"ε {budget.epsilon:g} and δ {budget.delta:g} for each {budget.unit}" for budget in before)
        return Found("privacy", "mind", f"{promise}, from the next start on; so far {were}; {spent:.3g} spent")
    return Found("privacy", "good", f"{promise}; {spent:.3g} spent")


def _ports(config: NodeConfig, running: int | None) -> Iterator[Found]:
    for what, text in (("port", config.node.listen), ("metrics", config.node.metrics)):
        if not text:
            continue
        try:
            host, port = address(text)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with socket.create_server((host, port), family=family):
                pass
            yield Found(what, "good", f"{host}:{port} is free")
        except FkgeError as error:
            yield Found(what, "bad", str(error))
        except OSError as error:
            if running is not None:
                yield Found(what, "mind", f"{text} is taken, by this node itself")
            else:
                key = "listen" if what == "port" else "metrics"
                yield Found(what, "bad", f"{text}: {os.strerror(error.errno or 0).lower()}; see {key} in node.toml")


async def _peers(config: NodeConfig, identity: Identity) -> list[Found]:
    transport = Transport(lambda: identity)
    return list(await asyncio.gather(*(_peer(config, identity, transport, name) for name in config.peers)))


async def _peer(config: NodeConfig, identity: Identity, transport: Transport, name: str) -> Found:
    settings = config.peers[name]
    what = f"peer {name}"
    if not settings.address:
        return Found(what, "good", "it calls; nothing to try")
    host, port = address(settings.address)
    try:
        async with asyncio.timeout(_PATIENCE):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
    except (OSError, TimeoutError) as error:
        why = "no answer" if isinstance(error, TimeoutError) else os.strerror(error.errno or 0).lower()
        return Found(what, "mind", f"{settings.address} cannot be reached ({why}): fine if it starts later")
    line = await transport.call(settings.address, name)
    terms = terms_of(config.federation, config.node.seed, config.node.rehearsal)
    ours = pb.Hello(
        versions=VERSIONS, program=program(), consortium=identity.consortium, owner=config.node.name,
        capabilities=CAPABILITIES, life=new_life(), nonce=secrets.token_bytes(16), clock=int(time.time() * 1000),
        terms=terms, probe=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_PATIENCE):
            await line.write(hello_frame(ours))
            data = await line.read()
        if data is None:
            raise Refused("unspecified", "it hung up without a word", ours=False)
        frame = decode_frame(data)
        if frame.WhichOneof("is") == "bye":
            raise refusal(frame.bye)
        now = datetime.now(UTC)
        check_greeting(
            frame.hello, name, identity.consortium, terms, settings, config.federation, now, config.node.clock
        )  # fmt: skip
        check_proof(frame.hello, identity, ours.nonce, name, now)
    except TimeoutError:
        return Found(what, "bad", f"{settings.address} answers, but not as a node does; is the address right?")
    except Refused as error:
        return Found(what, "bad", f"{'refused here' if error.ours else 'it refuses'} ({error.reason}): {error}")
    finally:
        await line.close()
    apart = abs(frame.hello.clock / 1000 - time.time())
    return Found(what, "good", f"{frame.hello.program} at {settings.address}; clocks {apart:.1f} s apart")


def check(path: Path, told: Callable[[Found], None]) -> bool:
    """Look at everything, telling as it goes. Whether the node would start."""
    worst = True
    for found in preflight(path):
        told(found)
        worst = worst and found.verdict != "bad"
    return worst

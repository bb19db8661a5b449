"""Settings of a node: `node.toml`, and `peers.toml`, in which the owner alone decides what each peer may receive."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field

from fkge.align import read_links
from fkge.errors import SettingsError
from fkge.federation import FederationSettings, Links, Member
from fkge.federation.recommended import recommended_federation
from fkge.graph import Policy, read_graph
from fkge.settings import Settings, read_toml

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_HOURS = re.compile(r"([0-9]{2}):([0-5][0-9])-([0-9]{2}):([0-5][0-9])")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kMG]?)(?:B/s)?")
_SLOWEST = 16e3  # bytes per second: with less, a single frame would take longer than peers wait for one
_PIN = re.compile(r"sha256:[0-9a-f]{64}")
_HOST = re.compile(r"[A-Za-z0-9._-]+")
MODES = ("none", "paper", "dp")
"""Privacy modes, from the least protection to the most."""


def _checked(check: Callable[[str], object]) -> AfterValidator:
    """Validate a text, unless it is None, with a function that raises an error with a sentence if it does not fit."""

    def checked(value: str | None) -> str | None:
        try:
            if value is not None:
                check(value)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return value

    return AfterValidator(checked)


def _minutes(hours: str) -> tuple[int, int]:
    """Parse HH:MM-HH:MM into minutes of the day."""
    found = _HOURS.fullmatch(hours)
    start, end = (0, 0) if found is None else (int(found[n]) * 60 + int(found[n + 1]) for n in (1, 3))
    if found is None or max(start, end) > 24 * 60:
        raise SettingsError("hours are HH:MM-HH:MM, such as 08:00-18:30")
    if start == end:
        raise SettingsError("hours must not end when they start: write 00:00-24:00 for always")
    return start, end


def _rate(text: str) -> float:
    found = _RATE.fullmatch(text)
    if found is None:
        raise SettingsError("a bandwidth is a number of bytes per second, such as 500k or 2M")
    rate = float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]]
    if 0 < rate < _SLOWEST:
        raise SettingsError("a bandwidth is 16k or more, or 0 for no limit: with less, the peer would time out")
    return rate


def _pin(text: str) -> None:
    if _PIN.fullmatch(text) is None:
        raise SettingsError("a fingerprint is sha256: and 64 hexadecimal digits, as `fkge cert show` prints it")


def _name(text: str) -> None:
    if _NAME.fullmatch(text) is None:
        raise SettingsError("a node's name has 1 to 63 small letters, digits and hyphens, as host names do")


def address(text: str) -> tuple[str, int]:
    """Split HOST:PORT, or [HOST]:PORT for IPv6; raise `SettingsError` if it is neither."""
    host, colon, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else ""
    try:
        sound = ip_address(bare).version == 6 if bare else not host or _HOST.fullmatch(host) is not None
    except ValueError:
        sound = False
    if not sound or not colon or not port.isascii() or not port.isdecimal() or int(port[:6]) > 65535:
        raise SettingsError(f"{text!r}: an address is HOST:PORT, or [HOST]:PORT for IPv6")
    return bare or host or "0.0.0.0", int(port)


_ADDRESS = _checked(address)


class PeerSettings(Settings):
    """Rules for one peer: a table ``[peers.NAME]`` of `peers.toml`."""

    address: Annotated[str | None, _ADDRESS] = Field(
        None, description="HOST:PORT where it listens; without one, it connects to this node"
    )
    founder: bool = Field(True, description="it takes part in agreeing on common initial rows, which waits for it")
    certificate: Annotated[str | None, _checked(_pin)] = Field(
        None, description="fingerprint of the only key it may use, sha256:…; without one, any of the consortium"
    )
    same: bool = Field(False, description="equal labels are the same thing, entities and relations alike")
    entities: str | None = Field(None, description="a file of links between entities: this owner's label, the peer's")
    relations: str | None = Field(None, description="a file of links between relations, in the same form")
    ask: bool = Field(True, description="it may ask this owner to translate for it; if not, this owner only receives")
    privacy: Literal["none", "paper", "dp"] = Field(
        "none", description="the least privacy mode under which anything is exchanged with it"
    )
    epsilon: float | None = Field(
        None, gt=0, description="ε at most: of the shared track in mode dp, of the votes for it in mode paper"
    )
    ratio: float = Field(
        1.0, gt=0, le=1, description="part of the common rows to use; the smaller of both sides' values applies"
    )
    hours: Annotated[str, _checked(_minutes)] = Field(
        "00:00-24:00", description="when it may be connected, UTC; 22:00-06:00 spans midnight"
    )
    bandwidth: Annotated[str, _checked(_rate)] = Field(
        "0", description="bytes per second at most, each way, such as 500k or 2M; 0 for no limit"
    )
    items: int = Field(1_000_000, ge=1, description="keys it may put into a private set intersection at most")

    @property
    def rate(self) -> float:
        """Bytes per second; 0 for no limit."""
        return _rate(self.bandwidth)

    def open_at(self, now: datetime) -> bool:
        """Return whether the peer may be connected at this time (aware, UTC)."""
        start, end = _minutes(self.hours)
        minute = now.hour * 60 + now.minute
        return start <= minute < end if start < end else minute >= start or minute < end

    def links(self, folder: Path, first: bool) -> Links:
        """Read the links between this owner's labels and the peer's, from files in the folder of `peers.toml`.

        `first`: this owner's labels come first in each pair; both sides must order pairs alike to intersect them.
        """

        def read(name: str | None) -> tuple[tuple[str, str], ...]:
            found = () if name is None else tuple(read_links(folder / name))
            return found if first else tuple((b, a) for a, b in found)

        return Links(read(self.entities), read(self.relations), self.same)


class NodeSettings(Settings):
    """The settings in `node.toml`. Paths are relative to the file."""

    name: Annotated[str, _checked(_name)] = Field(description="the owner's name, as in its certificate")
    graph: str = Field(description="its graph: a file or folder of triples")
    policy: str | None = Field(None, description="a sharing policy: which triples may influence what is sent")
    identity: str = Field(".", description="the folder of its key and certificate")
    state: str = Field("state", description="the folder of everything else that it stores")
    settings: str = Field("federation.toml", description="the federation settings, which all members agree on")
    peers: str = Field("peers.toml", description="what each peer may receive; only this owner decides that")
    listen: str = Field("0.0.0.0:7443", description="where peers connect to, HOST:PORT; empty if they never do")
    founder: bool = Field(True, description="this member takes part in agreeing on common initial rows")
    wait: float = Field(
        3600.0,
        gt=0,
        description="seconds without another founder connecting, after which this one starts with those connected, if "
        "they are more than half of all; the others join later",
    )
    seed: int = Field(0, ge=0, description="seed of initial vectors and of sampled pairs; public, the same for all")
    metrics: str = Field("127.0.0.1:9443", description="where health and Prometheus metrics are served; empty for none")
    grace: float = Field(60.0, gt=0, description="seconds after which a peer whose connection broke counts as lost")
    clock: float = Field(300.0, gt=0, description="seconds by which a peer's clock may differ")
    threads: int = Field(1, ge=1, description="CPU threads for training")
    rehearsal: bool = Field(
        False,
        description="derive every secret from the seed, as a simulation does, so that a run can be repeated; protects "
        "nothing: never with real data",
    )


class NodeConfig:
    """`node.toml` and the files that it names.

    Args:
        folder, node: of `node.toml`, and what it says.
        federation: settings; the path of the ledger is filled in.
        peers: rules by peer.
    """

    def __init__(
        self, folder: Path, node: NodeSettings, federation: FederationSettings, peers: Mapping[str, PeerSettings]
    ) -> None:
        self.folder, self.node, self.peers = folder, node, dict(peers)
        ledger = str(self.state / "ledger" if federation.privacy.ledger is None else folder / federation.privacy.ledger)
        privacy = federation.privacy.model_copy(update={"ledger": ledger})
        self.federation = federation.model_copy(update={"privacy": privacy})

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.folder / self.node.state

    def member(self) -> Member:
        """Read the owner's graph and sharing policy."""
        source = self.node.graph
        found = Member(read_graph(source if source.startswith("pykeen:") else str(self.folder / source)))
        return found if self.node.policy is None else found.keeping(Policy.load(self.folder / self.node.policy))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read `node.toml` and the files that it names.

        Raises:
            SettingsError: a file, a key or a value is wrong.
            GraphError: a file of links cannot be read.
        """
        node = NodeSettings.build(read_toml(path), str(path))
        folder = path.parent
        federation = recommended_federation(FederationSettings.load(folder / node.settings))
        if federation.decide == "strict":
            raise SettingsError(
                f'{folder / node.settings}: decide = "strict" needs to know what others hold, as a simulation does; '
                'a node decides by all of its validation triples (decide = "all")'
            )
        return cls(folder, node, federation, read_peers(folder / node.peers, node.name))


def read_peers(path: Path, own: str) -> dict[str, PeerSettings]:
    """Read `peers.toml` and check the files that it names; `SettingsError` for a wrong table, or one for `own`."""
    values = read_toml(path)
    tables: Any = values.pop("peers", {})
    if values or not isinstance(tables, dict):
        raise SettingsError(f"{path}: must hold a table [peers.NAME] for each peer, and nothing else")
    if own in tables:
        raise SettingsError(f"{path}: [peers.{own}] is this node itself; remove it")
    for name in tables:
        if _NAME.fullmatch(name) is None:
            raise SettingsError(f"{path}: {name!r} cannot be a node's name: small letters, digits and hyphens only")
    peers = {name: PeerSettings.build(table, f"{path}: [peers.{name}]") for name, table in tables.items()}
    for peer in peers.values():
        peer.links(path.parent, first=True)  # a mistake in a file of links shows now, not when the peer connects
    return peers

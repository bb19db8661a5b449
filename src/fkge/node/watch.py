"""Watch the files that an operator may change while a node runs: `peers.toml`, certificates, the revocation list."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fkge.errors import GraphError, IdentityError, SettingsError
from fkge.files import stamp
from fkge.node.connections import ConnectionManager
from fkge.node.events import Emit, Event, Notice
from fkge.node.settings import NodeConfig, PeerSettings, read_peers


class PeersChanged(Event):
    """`peers.toml` has changed. A file that cannot be used causes no such event, and the rules stay as they were."""

    peers: Mapping[str, PeerSettings]


class CertificateReloaded(Event):
    """There is a later revocation list, `number`, or this node has a new certificate (`replaced`)."""

    number: int
    replaced: bool


class Tick(Event):
    """The files were looked at, as they are every second, and changed ones were reported."""


class FileWatch:
    """Report changed files of a node, certificates of its `connections` included, to `emit`; looks every `seconds`."""

    def __init__(self, config: NodeConfig, connections: ConnectionManager, emit: Emit, seconds: float = 1.0) -> None:
        self._config, self._connections, self._emit, self._seconds = config, connections, emit, seconds
        self._peers_file = config.folder / config.node.peers
        self._seen = stamp(self._peers_file)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await asyncio.sleep(self._seconds)
            self._reload_certificates()
            self._reread_peers()
            self._emit(Tick())

    def _reload_certificates(self) -> None:
        before = self._connections.identity
        try:
            if self._connections.reload():
                now = self._connections.identity
                self._emit(CertificateReloaded(now.trust.revoked.number, now is not before))
        except IdentityError as error:
            self._emit(Notice({"reason": error.reason}, log="certificate", level="warning"))

    def _reread_peers(self) -> None:
        if (seen := stamp(self._peers_file)) == self._seen:
            return
        self._seen = seen
        try:
            peers = read_peers(self._peers_file, self._config.node.name)
        except (SettingsError, GraphError) as error:
            self._emit(Notice({"reason": "settings"}, log="peers", level="error"))
            self._emit(Notice({"changed": False, "sentence": str(error)}, audit="peers"))
        else:
            self._emit(PeersChanged(peers))

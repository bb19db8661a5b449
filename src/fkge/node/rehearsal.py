"""A node whose owner has a home already, as a simulation makes it, and one arm of it to go through.

Nobody intersects anything, since alignments are known; the rest is as in the field, but that all secrets follow from
the seed. The engine `fkge.engines.nodes` runs this as a program, once to prepare keys and certificates, then once for
each owner; what happens is told on standard output, a JSON object a line.
"""

from __future__ import annotations

import asyncio
import faulthandler
import hashlib
import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fkge.align import Common, Tokens
from fkge.errors import FkgeError
from fkge.federation import Arm, Home, Plan
from fkge.node import site
from fkge.node.authority import Authority
from fkge.node.node import Node
from fkge.node.peer import Peer
from fkge.node.requests import read_request
from fkge.node.settings import NodeConfig, NodeSettings, PeerSettings

_CONSORTIUM = "rehearsal"


def prepare(folder: Path, names: Sequence[str]) -> None:
    """An authority, and for each owner a site with a key and a certificate, under `folder`."""
    now = datetime.now(UTC)
    authority = Authority.create(folder / "authority", _CONSORTIUM, now)
    for name in names:
        at = folder / "sites" / name
        site.request(at, name, _CONSORTIUM)
        kit = authority.approve(read_request((at / "request.csr").read_bytes(), name), now)
        site.install(kit.read_bytes(), str(kit), at, now, lambda _: None)


class _Rehearsed(Node):
    """Such a node."""

    def __init__(self, config: NodeConfig, home: Home, arm: Arm, tape: Path | None) -> None:
        super().__init__(config, tape=tape)
        self._given, self._arm = home, arm
        self._began = time.monotonic()

    @property
    def _founds(self) -> bool:
        return True

    def _open_home(self) -> Home:
        for name in self.config.peers:
            pair = "\0".join([self._given.run, *sorted((self.name, name))])
            self._memory.pacts[name] = hashlib.blake2b(pair.encode(), digest_size=16).hexdigest()
            self._memory.bases[name] = self._given.run
        self._memory.begun = False
        return self._given

    def _basis(self, peer: Peer) -> str:
        return self._given.run

    def _check_ledger(self) -> None:
        pass  # it lies with the arm, and the checkpoint knows it

    def common_rows(self, peers: Collection[str]) -> tuple[Tokens, Mapping[str, Common]]:
        return super().common_rows(())  # that was settled when the run was made

    def settled(self, tokens: Tokens) -> None:
        self._task(self._begin(), "begin")

    def _note(self, event: str, **fields: Any) -> None:
        super()._note(event, **fields)
        if event != "held":
            about = {"arm": self._arm.name, "owner": self.name, "t": round(time.monotonic() - self._began, 3)}
            sys.stdout.write(json.dumps({"event": event, **about, **fields}) + "\n")  # one call: threads tell, too
            sys.stdout.flush()


def rehearse(about: Mapping[str, Any]) -> None:
    """Be the node of an owner in an arm, until stopped."""
    faulthandler.enable()
    home = Home.open(Path(about["home"]))
    arm = Arm(**{**about["arm"], "plan": Plan(**about["arm"]["plan"])})
    addresses = about["addresses"]
    own = {"name": home.name, "graph": "", "state": about["state"], "listen": addresses[home.name], "seed": home.seed}
    node = NodeSettings.build({**own, "rehearsal": True, "metrics": "", "grace": 10.0})
    known = [name for name in home.peers if arm.peers and name not in home.refuses]
    peers = {name: PeerSettings.build({"address": addresses[name]}) for name in known}
    config = NodeConfig(Path(about["site"]), node, home.settings, peers)
    tape = None if about["tape"] is None else Path(about["tape"])
    asyncio.run(_Rehearsed(config, home, arm, tape).run())


if __name__ == "__main__":
    try:
        if sys.argv[1] == "prepare":
            prepare(Path(sys.argv[2]), sys.argv[3:])
        else:
            rehearse(json.loads(sys.argv[2]))
    except FkgeError as error:
        sys.exit(str(error))

"""A small consortium for tests: an authority, sites and a file that describes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")


from fkge.errors import IdentityError
from fkge.pki.authority import Authority
from fkge.pki.certificates import REQUEST, read_request
from fkge.pki.kits import Consortium, Kit, Member
from fkge.pki.site import Identity, check_kit, request

NOW = datetime.now(UTC)


DAY = timedelta(days=1)


ADDRESSES = {"clinic": "clinic.example:7443", "genes": "genes.example:7443"}


PLAN = """\
name = "trial"
settings = "federation.toml"

[members.clinic]
address = "clinic.example:7443"

[members.genes]
address = "[2001:db8::7]:8443"

[members.drugs]
founder = false

[[links]]
between = ["clinic", "genes"]
entities = "links.tsv"

[[links]]
between = ["drugs", "clinic"]
same = true
"""


def reason(do: Callable[[], Any]) -> str:
    with pytest.raises(IdentityError) as raised:
        do()
    assert str(raised.value), "every refusal is a sentence"
    return raised.value.reason


def consortium(name: str = "trial") -> Consortium:
    return Consortium(name, {owner: Member.build({"address": address}) for owner, address in ADDRESSES.items()})


def agree(kit: Kit) -> None:
    """Somebody compared."""


def refuse(kit: Kit) -> None:
    raise IdentityError("forged", "the fingerprints differ")


def approved(authority: Authority, site: Path, now: datetime = NOW, **more: Any) -> Path:
    return authority.approve(read_request((site / REQUEST).read_bytes(), "request"), now, **more)


def put(kit: Path, site: Path, now: datetime = NOW) -> Identity:
    return check_kit(kit.read_bytes(), kit.name, site, now, agree).install()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def enrolled(authority: Authority, site: Path) -> Identity:
    """A new member of the authority, named as its folder."""
    request(site, site.name, "trial")
    return put(approved(authority, site, address=ADDRESSES[site.name]), site)


def write_plan(folder: Path) -> Path:
    """`PLAN` as a file, with the files that it names."""
    (folder / "links.tsv").write_text("heart\tHEART\nliver\tLIVER\n")
    (folder / "federation.toml").write_text("# ours\nexchanges = 8\n")
    (folder / "consortium.toml").write_text(PLAN)
    return folder / "consortium.toml"

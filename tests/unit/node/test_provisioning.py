"""The files a node starts from, and folders for a whole consortium."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")


from fkge.node.provisioning import install, provision
from fkge.node.settings import NodeSettings, read_peers
from fkge.pki.authority import Authority
from fkge.pki.certificates import CERTIFICATE, KEY, KIT, REQUEST, read_key, read_request
from fkge.pki.kits import Consortium
from fkge.pki.kits import signed as signed_kit
from fkge.pki.site import renew
from tests.unit.pki.sites import DAY, NOW, PLAN, agree, enrolled, mode, reason, refuse, write_plan


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write_plan(tmp_path)


@pytest.mark.parametrize(
    "edit",
    [
        {"links": {"../../evil": {"entities": "a\tb\n"}}},
        {"members": {"clinic": {}, "../evil": {}}},
        {"members": {"clinic": {"address": 'a:1"\nseed = 1 #'}}},
        {"consortium": "trial\nlisten = 1"},
        {"members": {"genes": {}}},
        {"name": "genes", "members": {"genes": {}}},
    ],
    ids=str,
)
def test_refuses_a_signed_kit_that_would_write_elsewhere_or_inject_settings(
    tmp_path: Path, edit: dict[str, Any]
) -> None:
    authority = Authority.create(tmp_path / "authority", "trial", NOW)
    clinic = enrolled(authority, tmp_path / "clinic")
    body, key = clinic.kit.model_dump(mode="json") | {"number": 99}, read_key(authority.folder / KEY)
    install(signed_kit(body, key), "kit", tmp_path / "clinic", NOW, agree)
    before = {path.name: path.read_bytes() for path in (tmp_path / "clinic").iterdir()}
    assert reason(lambda: install(signed_kit(body | edit, key), "kit", tmp_path / "clinic", NOW, agree)) in (
        "unreadable",
        "name",
    )
    assert {path.name: path.read_bytes() for path in (tmp_path / "clinic").iterdir()} == before


def test_provisioning_makes_folders_that_a_node_can_start_from(plan: Path, tmp_path: Path) -> None:
    made = provision(Consortium.read(plan), tmp_path / "out", NOW)
    assert set(made) == {"clinic", "genes", "drugs"}
    for name, done in made.items():
        site = tmp_path / "out" / "kits" / name
        done.identity.check(NOW)
        node = NodeSettings.build(tomllib.loads((site / "node.toml").read_text()))
        peers = read_peers(site / node.peers, node.name)
        assert node.name == name
        assert set(peers) == set(made) - {name}
        assert (site / node.settings).read_text() == "# ours\nexchanges = 8\n"
        assert [mode(p) for p in (site, site / KEY)] == [0o700, 0o600]
        if name == "genes":
            assert node.listen == "0.0.0.0:8443"
            assert peers["clinic"].links(site, first=True).entities == (("HEART", "heart"), ("LIVER", "liver"))
            assert (peers["clinic"].address, peers["drugs"].address) == ("clinic.example:7443", None)
            assert (peers["clinic"].founder, peers["drugs"].founder) == (True, False)
        if name == "clinic":
            assert peers["genes"].links(site, first=True).entities == (("heart", "HEART"), ("liver", "LIVER"))
            assert peers["drugs"].same
        if name == "drugs":
            assert (node.listen, node.founder) == ("", False)
    assert mode(tmp_path / "out" / "authority") == 0o700


def test_a_kit_holds_no_links_between_others(plan: Path, tmp_path: Path) -> None:
    provision(Consortium.read(plan), tmp_path / "out", NOW)
    assert "HEART" not in (tmp_path / "out" / "kits" / "drugs" / KIT).read_text()
    assert "HEART" in (tmp_path / "out" / "kits" / "genes" / KIT).read_text()


def test_provisioning_again_adds_members_and_keeps_keys_and_edited_files(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = provision(Consortium.read(plan), out, NOW)
    mine = out / "kits" / "clinic" / "peers.toml"
    mine.write_text(mine.read_text().replace("# ratio = 1.0", "ratio = 0.5"))
    plan.write_text(PLAN + '\n[members.labs]\naddress = "labs.example:7443"\n')
    after = provision(Consortium.read(plan), out, NOW)
    for name, done in before.items():
        assert after[name].identity.fingerprint == done.identity.fingerprint
        assert after[name].identity.serial == done.identity.serial
        assert "labs" in after[name].identity.kit.members
    assert "ratio = 0.5" in mine.read_text()
    assert "labs" in (mine.parent / "peers.toml.new").read_text()
    assert any("stays as it is" in note for note in after["clinic"].notes)
    assert "[peers.labs]" not in (out / "kits" / "genes" / "peers.toml").read_text(), "the owner's, also as it was made"
    assert "[peers.labs]" in (out / "kits" / "genes" / "peers.toml.new").read_text()
    late = provision(Consortium.read(plan), out, NOW + 350 * DAY)
    assert late["clinic"].identity.serial != after["clinic"].identity.serial
    assert late["clinic"].identity.fingerprint == after["clinic"].identity.fingerprint


def test_provisioning_again_only_rewrites_kits_of_members_whose_key_is_not_here(plan: Path, tmp_path: Path) -> None:
    """Handed over and deleted here, as people are told to; or renewed by the owner, and the old key revoked."""
    out, away = tmp_path / "out", tmp_path / "away"
    provision(Consortium.read(plan), out, NOW)
    (out / "kits" / "clinic").rename(away)
    authority = Authority.open(out / "authority")
    copy = shutil.copytree(out / "kits" / "genes", tmp_path / "genes")
    renew(copy)
    authority.approve(read_request((copy / REQUEST).read_bytes(), "request"), NOW)
    authority.revoke("genes", NOW, old=True)
    plan.write_text(PLAN + '\n[members.labs]\naddress = "labs.example:7443"\n')
    again = provision(Consortium.read(plan), out, NOW)
    assert set(again) == {"drugs", "labs"}
    for folder, name in ((away, "clinic"), (copy, "genes")):
        data = Authority.open(out / "authority").kit(name).read_bytes()
        done = install(data, "kit", folder, NOW, refuse)
        assert "labs" in done.identity.kit.members
        done.identity.trust.check((folder / CERTIFICATE).read_bytes(), NOW, name)


def test_provisioning_refuses_a_revoked_member_and_another_consortium(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    provision(Consortium.read(plan), out, NOW)
    Authority.open(out / "authority").revoke("genes", NOW)
    plan.write_text(PLAN + '\n[members.aaa]\naddress = "aaa.example:7443"\n')
    assert reason(lambda: provision(Consortium.read(plan), out, NOW)) == "revoked"
    assert not (out / "kits" / "aaa").exists(), "nothing was begun"
    shutil.rmtree(out / "kits" / "genes")  # as it says
    assert set(provision(Consortium.read(plan), out, NOW)) == {"clinic", "genes", "drugs", "aaa"}
    plan.write_text(PLAN.replace('"trial"', '"other"'))
    assert reason(lambda: provision(Consortium.read(plan), out, NOW)) == "stranger"


def test_never_overwrites_an_owners_links(plan: Path, tmp_path: Path) -> None:
    """A pair that it took out must not come back with the next kit."""
    out = tmp_path / "out"
    provision(Consortium.read(plan), out, NOW)
    mine = next((out / "kits" / "genes" / "links").iterdir())
    mine.write_text("")
    provision(Consortium.read(plan), out, NOW)
    assert (mine.read_text(), mine.with_name(mine.name + ".new").exists()) == ("", False)
    (plan.parent / "links.tsv").write_text("HEART\theart\nLUNG\tlung\n")
    done = provision(Consortium.read(plan), out, NOW)
    assert mine.read_text() == ""
    assert "LUNG" in mine.with_name(mine.name + ".new").read_text()
    assert any(f"links/{mine.name}.new" in note for note in done["genes"].notes)

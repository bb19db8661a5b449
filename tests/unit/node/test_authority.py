"""Authorities and sites: requests, kits, renewal, revocation, and all that must be refused."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from fkge.errors import FkgeError, GraphError, IdentityError, RunError, SettingsError
from fkge.node.authority import Authority
from fkge.node.consortium import Consortium
from fkge.node.describe import describe
from fkge.node.identity import AUTHORITY, CERTIFICATE, KEY, KIT, NEXT_KEY, REQUEST, REVOKED, Identity, new_key, read_key
from fkge.node.kits import Kit, signed
from fkge.node.requests import read_request, write_request
from fkge.node.settings import NodeSettings, read_peers
from fkge.node.site import install, provision, renew, request

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


def reason(do: Callable[[], Any]) -> str:
    with pytest.raises(IdentityError) as raised:
        do()
    return raised.value.reason


def agree(kit: Kit) -> None:
    """Somebody compared."""


def refuse(kit: Kit) -> None:
    raise IdentityError("forged", "the fingerprints differ")


def approved(authority: Authority, site: Path, now: datetime = NOW, **more: Any) -> Path:
    return authority.approve(read_request((site / REQUEST).read_bytes(), "request"), now, **more)


def put(kit: Path, site: Path, now: datetime = NOW) -> Identity:
    return install(kit.read_bytes(), kit.name, site, now, agree).identity


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "authority", "trial", NOW)


@pytest.fixture
def clinic(authority: Authority, tmp_path: Path) -> Identity:
    """A site of the authority, in ``clinic/``."""
    request(tmp_path / "clinic", "clinic", "trial")
    return put(approved(authority, tmp_path / "clinic", address="clinic.example:7443"), tmp_path / "clinic")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


# -- the way of a key that never leaves --------------------------------------------------------------


def test_a_site_asks_gets_its_kit_and_is_somebody(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    site = tmp_path / "clinic"
    assert (clinic.name, clinic.consortium) == ("clinic", "trial")
    assert clinic.trust.fingerprint == authority.fingerprint
    clinic.check(NOW)
    assert not (site / REQUEST).exists()
    assert [mode(p) for p in (site, site / KEY, authority.folder, authority.folder / KEY)] == [0o700, 0o600] * 2


def test_no_key_is_in_what_is_sent(authority: Authority, tmp_path: Path) -> None:
    site = tmp_path / "clinic"
    request(site, "clinic", "trial")
    secret = read_key(site / KEY).private_numbers().private_value
    lines = (site / KEY).read_text().splitlines()[1:-1]
    kit = approved(authority, site)
    for sent in ((site / "request.csr"), kit):
        text = sent.read_text()
        assert "PRIVATE" not in text
        assert not any(line in text for line in lines)
        assert f"{secret:x}" not in text
        assert secret.to_bytes(32, "big") not in sent.read_bytes()
    assert json.loads(kit.read_text())["kit"]["name"] == "clinic"


def test_a_kit_is_not_installed_unless_the_authority_was_compared(authority: Authority, tmp_path: Path) -> None:
    site = tmp_path / "clinic"
    request(site, "clinic", "trial")
    kit = approved(authority, site)
    before = sorted(path.name for path in site.iterdir())
    assert reason(lambda: install(kit.read_bytes(), "kit", site, NOW, refuse)) == "forged"
    assert sorted(path.name for path in site.iterdir()) == before
    put(kit, site)
    install(kit.read_bytes(), "kit", site, NOW, refuse)  # which is not asked again: the authority is known


@pytest.mark.parametrize("part", ["members", "certificate", "revoked", "settings", "number", "consortium", "name"])
def test_an_edited_kit_is_refused_and_changes_nothing(
    authority: Authority, clinic: Identity, tmp_path: Path, part: str
) -> None:
    whole = json.loads(authority.kit("clinic").read_text())
    edited = {
        "members": {"clinic": {"address": "mallory.example:1"}}, "certificate": whole["kit"]["authority"],
        "revoked": "", "settings": "exchanges = 1", "number": 99, "consortium": "other", "name": "genes",
    }  # fmt: skip
    whole["kit"][part] = edited[part]
    before = {path.name: path.read_bytes() for path in (tmp_path / "clinic").iterdir()}
    data = json.dumps(whole).encode()
    assert reason(lambda: install(data, "kit", tmp_path / "clinic", NOW, agree)) == "forged"
    assert {path.name: path.read_bytes() for path in (tmp_path / "clinic").iterdir()} == before


def test_a_kit_signed_by_another_authority_is_refused(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other", "trial", NOW)
    forged = clinic.kit.signed_by(read_key(other.folder / KEY))
    assert reason(lambda: install(forged, "kit", tmp_path / "clinic", NOW, agree)) == "forged"
    csr = write_request(read_key(tmp_path / "clinic" / KEY), "clinic", "trial")
    theirs = other.approve(read_request(csr, "request"), NOW)
    assert reason(lambda: put(theirs, tmp_path / "clinic")) == "stranger"


def test_a_kit_for_another_key_is_refused(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    request(tmp_path / "genes", "genes", "trial")
    with pytest.raises(IdentityError, match=r"is for clinic's key .* Install it where its request was made"):
        put(authority.kit("clinic"), tmp_path / "genes")
    assert not (tmp_path / "genes" / AUTHORITY).exists()


def test_a_kit_needs_a_site(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(IdentityError, match=r"is not a site's folder; it has no key.pem"):
            put(authority.kit("clinic"), folder)


def test_an_older_kit_does_not_come_back(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    first = authority.kit("clinic").read_bytes()
    approved_again = write_request(read_key(tmp_path / "clinic" / KEY), "clinic", "trial")
    authority.approve(read_request(approved_again, "request"), NOW)
    put(authority.kit("clinic"), tmp_path / "clinic")
    assert reason(lambda: install(first, "kit", tmp_path / "clinic", NOW, agree)) == "old"


def test_a_kit_that_does_not_hold_now_is_refused(authority: Authority, tmp_path: Path) -> None:
    site = tmp_path / "clinic"
    request(site, "clinic", "trial")
    kit = approved(authority, site, days=10)
    assert reason(lambda: put(kit, site, NOW + 11 * DAY)) == "expired"
    with pytest.raises(IdentityError, match="Set the clock right"):
        put(kit, site, NOW - 11 * DAY)
    put(kit, site, NOW + 9 * DAY)


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
def test_even_the_authority_cannot_write_elsewhere_or_speak_in_a_sites_settings(
    authority: Authority, clinic: Identity, tmp_path: Path, edit: dict[str, Any]
) -> None:
    body, key = clinic.kit.model_dump(mode="json") | {"number": 99}, read_key(authority.folder / KEY)
    install(signed(body, key), "kit", tmp_path / "clinic", NOW, agree)
    before = {path.name: path.read_bytes() for path in (tmp_path / "clinic").iterdir()}
    assert reason(lambda: install(signed(body | edit, key), "kit", tmp_path / "clinic", NOW, agree)) in (
        "unreadable",
        "name",
    )
    assert {path.name: path.read_bytes() for path in (tmp_path / "clinic").iterdir()} == before


# -- what an authority refuses -----------------------------------------------------------------------


def test_a_request_for_another_consortium_is_refused(authority: Authority, tmp_path: Path) -> None:
    request(tmp_path / "site", "clinic", "elsewhere")
    with pytest.raises(IdentityError, match=r"for elsewhere, and .* is the authority of trial"):
        approved(authority, tmp_path / "site")


def test_a_taken_name_is_refused_until_it_is_revoked(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    request(tmp_path / "mallory", "clinic", "trial")
    with pytest.raises(IdentityError, match=r"the name clinic is taken, .*fkge cert renew.*fkge cert revoke clinic"):
        approved(authority, tmp_path / "mallory")
    stranger = new_key()
    voucher = stranger.sign(b"anything", ec.ECDSA(SHA256()))
    csr = write_request(stranger, "clinic", "trial", voucher)
    with pytest.raises(IdentityError, match="the present key did not sign this one"):
        authority.approve(read_request(csr, "request"), NOW)
    authority.revoke("clinic", NOW)
    put(approved(authority, tmp_path / "mallory"), tmp_path / "mallory")


def test_a_voucher_is_for_one_key(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    renew(tmp_path / "clinic")
    voucher = read_request((tmp_path / "clinic" / REQUEST).read_bytes(), "request").voucher
    stolen = write_request(new_key(), "clinic", "trial", voucher)
    assert reason(lambda: authority.approve(read_request(stolen, "request"), NOW)) == "name"


def test_a_revoked_key_does_not_come_back(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    authority.revoke("clinic", NOW)
    again = write_request(read_key(tmp_path / "clinic" / KEY), "clinic", "trial")
    assert reason(lambda: authority.approve(read_request(again, "request"), NOW)) == "revoked"


def test_an_expired_authority_issues_nothing(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "authority", "trial", NOW, days=30)
    request(tmp_path / "clinic", "clinic", "trial")
    put(approved(authority, tmp_path / "clinic", days=365), tmp_path / "clinic")
    assert Identity.load(tmp_path / "clinic").expires == authority.expires, "no certificate outlives it"
    request(tmp_path / "genes", "genes", "trial")
    late = NOW + 31 * DAY
    assert reason(lambda: approved(authority, tmp_path / "genes", late)) == "expired"
    assert reason(lambda: authority.revoke("clinic", late)) == "expired"
    assert reason(lambda: authority.revoke("clinic", NOW - 31 * DAY)) == "early"


def test_a_request_with_a_changed_name_is_refused(tmp_path: Path) -> None:
    request(tmp_path / "site", "clinic", "trial")
    csr = x509.load_pem_x509_csr((tmp_path / "site" / REQUEST).read_bytes())
    der = csr.public_bytes(Encoding.DER).replace(b"clinic", b"clinik")
    armoured = (
        b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.encodebytes(der) + b"-----END CERTIFICATE REQUEST-----\n"
    )
    assert reason(lambda: read_request(armoured, "request")) == "forged"


def test_names_that_are_none_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    assert reason(lambda: request(tmp_path / "site", "The Clinic", "trial")) == "name"
    with pytest.raises(SettingsError, match="cannot be a consortium's name"):
        request(tmp_path / "site", "clinic", " ")
    with pytest.raises(SettingsError, match="cannot be a consortium's name"):
        Authority.create(tmp_path / "authority", "x" * 65, NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_not_written_over(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    key = (tmp_path / "clinic" / KEY).read_bytes()
    with pytest.raises(RunError, match="fkge cert renew"):
        request(tmp_path / "clinic", "clinic", "trial")
    with pytest.raises(RunError, match="is there already"):
        Authority.create(authority.folder, "trial", NOW)
    assert (tmp_path / "clinic" / KEY).read_bytes() == key


def test_a_wrong_folder_is_no_authority(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    assert reason(lambda: Authority.open(tmp_path / "clinic")) == "unreadable"
    with pytest.raises(IdentityError, match=r"did you mean .*authority"):
        Authority.open(tmp_path)
    (authority.folder / KEY).chmod(0o644)
    with pytest.raises(IdentityError, match="others on this machine can read it"):
        Authority.open(authority.folder)


# -- rotation ----------------------------------------------------------------------------------------


def test_a_renewed_key_and_the_old_one_both_hold_until_the_old_is_revoked(
    authority: Authority, clinic: Identity, tmp_path: Path
) -> None:
    site = tmp_path / "clinic"
    renew(site)
    assert Identity.load(site).fingerprint == clinic.fingerprint, "the present one is in use"
    new = put(approved(authority, site), site)
    assert new.fingerprint != clinic.fingerprint
    assert not (site / NEXT_KEY).exists()
    assert mode(site / KEY) == 0o600
    for certificate in (clinic.certificate_pem, new.certificate_pem):
        assert new.trust.check(certificate, NOW) == "clinic"
    assert [line.serial for line in authority.revoke("clinic", NOW, old=True)] == [clinic.serial]
    new.trust.take((authority.folder / REVOKED).read_bytes())
    assert reason(lambda: new.trust.check(clinic.certificate_pem, NOW)) == "revoked"
    assert new.trust.check(new.certificate_pem, NOW) == "clinic"
    assert "clinic" in authority.members
    with pytest.raises(IdentityError, match="one certificate only"):
        authority.revoke("clinic", NOW, old=True)


def test_an_installation_that_was_cut_short_holds_all_the_same(
    authority: Authority, clinic: Identity, tmp_path: Path
) -> None:
    site = tmp_path / "clinic"
    renew(site)
    (site / KIT).write_bytes(approved(authority, site).read_bytes())  # and then the power failed
    new = Identity.load(site)
    assert new.fingerprint != clinic.fingerprint
    new.check(NOW)
    renew(site)  # another one finishes it first
    assert Identity.load(site).fingerprint == new.fingerprint
    assert read_key(site / NEXT_KEY).public_key() != read_key(site / KEY).public_key()


def test_a_kit_for_the_present_key_leaves_a_renewal_under_way(
    authority: Authority, clinic: Identity, tmp_path: Path
) -> None:
    site = tmp_path / "clinic"
    renew(site)
    request(tmp_path / "genes", "genes", "trial")
    approved(authority, tmp_path / "genes")
    assert put(authority.kit("clinic"), site).fingerprint == clinic.fingerprint
    assert put(approved(authority, site), site).fingerprint != clinic.fingerprint


def test_one_renewal_at_a_time(clinic: Identity, tmp_path: Path) -> None:
    renew(tmp_path / "clinic")
    with pytest.raises(RunError, match="a renewal is under way"):
        renew(tmp_path / "clinic")


# -- revocation --------------------------------------------------------------------------------------


def test_who_is_revoked_is_no_member_and_has_no_kit(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    request(tmp_path / "genes", "genes", "trial")
    put(approved(authority, tmp_path / "genes"), tmp_path / "genes")
    authority.revoke("genes", NOW)
    assert set(authority.members) == {"clinic"}
    assert not authority.kit("genes").exists()
    fresh = put(authority.kit("clinic"), tmp_path / "clinic")
    assert set(fresh.members) == {"clinic"}
    certificate = Identity.load(tmp_path / "genes").certificate_pem
    assert reason(lambda: fresh.trust.check(certificate, NOW)) == "revoked", "the new kit has the new list in it"
    assert reason(lambda: clinic.trust.reload() and clinic.trust.check(certificate, NOW)) == "revoked", (
        "a node that runs"
    )


def test_a_serial_can_be_revoked_and_only_once(authority: Authority, clinic: Identity) -> None:
    number = authority.list_number
    assert [line.name for line in authority.revoke(clinic.serial.upper(), NOW)] == ["clinic"]
    assert authority.list_number == number + 1
    assert reason(lambda: authority.revoke(clinic.serial, NOW)) == "revoked"
    assert reason(lambda: authority.revoke("clinic", NOW)) == "revoked"
    with pytest.raises(IdentityError, match="issued nothing to 'clinix'; did you mean clinic"):
        authority.revoke("clinix", NOW)
    assert authority.list_number == number + 1


def test_a_later_list_is_not_lost_when_an_older_kit_is_installed(
    authority: Authority, clinic: Identity, tmp_path: Path
) -> None:
    request(tmp_path / "genes", "genes", "trial")
    genes = put(approved(authority, tmp_path / "genes"), tmp_path / "genes")
    kit = authority.kit("clinic").read_bytes()
    authority.revoke("genes", NOW)
    clinic.trust.take((authority.folder / REVOKED).read_bytes())
    after = install(kit, "kit", tmp_path / "clinic", NOW, agree).identity
    assert reason(lambda: after.trust.check(genes.certificate_pem, NOW)) == "revoked"


def test_two_people_at_one_authority_lose_nothing(authority: Authority, tmp_path: Path) -> None:
    """Each approves in a process of its own, from what both have read before."""
    for name in ("ant", "bee", "cat"):
        request(tmp_path / name, name, "trial")
    stale = Authority.open(authority.folder)
    script = (
        "import sys; from datetime import datetime, UTC; from pathlib import Path\n"
        "from fkge.node.authority import Authority; from fkge.node.requests import read_request\n"
        "a = Authority.open(Path(sys.argv[1])); print('ready', flush=True); sys.stdin.readline()\n"
        "a.approve(read_request(Path(sys.argv[2]).read_bytes(), 'r'), datetime.now(UTC))\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(authority.folder), str(tmp_path / name / REQUEST)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in ("ant", "bee")
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.communicate("go\n")
        assert process.returncode == 0
    approved(stale, tmp_path / "cat")
    assert set(Authority.open(authority.folder).members) == {"ant", "bee", "cat"}
    for name in ("ant", "bee", "cat"):
        put(authority.kit(name), tmp_path / name)


# -- a consortium in a file --------------------------------------------------------------------------

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


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "links.tsv").write_text("heart\tHEART\nliver\tLIVER\n")
    (tmp_path / "federation.toml").write_text("# ours\nexchanges = 8\n")
    (tmp_path / "consortium.toml").write_text(PLAN)
    return tmp_path / "consortium.toml"


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


def test_a_site_learns_nothing_of_links_between_others(plan: Path, tmp_path: Path) -> None:
    provision(Consortium.read(plan), tmp_path / "out", NOW)
    assert "HEART" not in (tmp_path / "out" / "kits" / "drugs" / KIT).read_text()
    assert "HEART" in (tmp_path / "out" / "kits" / "genes" / KIT).read_text()


def test_provisioning_again_adds_who_came_and_keeps_keys_and_what_was_changed(plan: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = provision(Consortium.read(plan), out, NOW)
    mine = out / "kits" / "clinic" / "peers.toml"
    mine.write_text(mine.read_text().replace("# ratio = 1.0", "ratio = 0.5"))
    plan.write_text(PLAN + '\n[members.labs]\naddress = "labs.example:7443"\n')
    after = provision(Consortium.read(plan), out, NOW)
    for name, done in before.items():
        assert after[name].identity.fingerprint == done.identity.fingerprint
        assert after[name].identity.serial == done.identity.serial
        assert "labs" in after[name].identity.members
    assert "ratio = 0.5" in mine.read_text()
    assert "labs" in (mine.parent / "peers.toml.new").read_text()
    assert any("stays as it is" in note for note in after["clinic"].notes)
    assert "[peers.labs]" not in (out / "kits" / "genes" / "peers.toml").read_text(), "the owner's, also as it was made"
    assert "[peers.labs]" in (out / "kits" / "genes" / "peers.toml.new").read_text()
    late = provision(Consortium.read(plan), out, NOW + 350 * DAY)
    assert late["clinic"].identity.serial != after["clinic"].identity.serial
    assert late["clinic"].identity.fingerprint == after["clinic"].identity.fingerprint


def test_provisioning_again_leaves_members_their_keys_that_are_elsewhere(plan: Path, tmp_path: Path) -> None:
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
        assert "labs" in done.identity.members
        done.identity.trust.check((folder / CERTIFICATE).read_bytes(), NOW, name)


def test_provisioning_does_not_bring_back_who_was_revoked_nor_take_another_consortium(
    plan: Path, tmp_path: Path
) -> None:
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


def test_links_are_the_owners_once_they_are_there(plan: Path, tmp_path: Path) -> None:
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


def test_there_is_never_half_an_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Authority, "_change", full)
    with pytest.raises(OSError, match="No space"):
        Authority.create(tmp_path / "authority", "trial", NOW)
    monkeypatch.undo()
    assert not (tmp_path / "authority").exists()
    made = Authority.create(tmp_path / "authority", "trial", NOW)
    assert Authority.open(tmp_path / "authority").fingerprint == made.fingerprint
    assert [path.name for path in tmp_path.iterdir()] == ["authority"]
    assert (tmp_path / "authority").stat().st_mode & 0o777 == 0o700


def full(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (("address =", "adress ="), SettingsError, r"\[members.clinic\]: unknown key 'adress'; did you mean address"),
        (("clinic.example:7443", "clinic.example"), SettingsError, "expected host:port"),
        (("clinic.example:7443", "clinic.example:0"), SettingsError, "expected host:port"),
        (("[members.clinic]", "[members.Clinic]"), SettingsError, "clinic would do"),
        (('"links.tsv"', '"nowhere.tsv"'), GraphError, "nowhere.tsv"),
        (('"federation.toml"', '"nowhere.toml"'), SettingsError, "nowhere.toml: no such file"),
        (('["drugs", "clinic"]', '["drugz", "clinic"]'), SettingsError, "no member 'drugz'; did you mean drugs"),
        (('["drugs", "clinic"]', '["clinic", "clinic"]'), SettingsError, "one owner, or linked above"),
        (('["drugs", "clinic"]', '["genes", "clinic"]'), SettingsError, "one owner, or linked above"),
        (("[2001:db8::7]:8443", "clinic.example:7443"), SettingsError, "two members have the address"),
        (('name = "trial"', ""), SettingsError, "name: Field required"),
        (('name = "trial"', 'name = ""'), SettingsError, "cannot be a consortium's name"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_mistakes_in_the_file_are_one_sentence(
    plan: Path, change: tuple[str, str], kind: type[FkgeError], says: str
) -> None:
    assert change[0] in PLAN
    plan.write_text(PLAN.replace(*change, 1) if "drugs" not in change[0] else PLAN.replace(*change))
    with pytest.raises(kind, match=says):
        Consortium.read(plan)


def test_wrong_settings_and_no_founder_show_before_anything_is_made(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text("exchange = 8\n")
    with pytest.raises(SettingsError, match="did you mean exchanges"):
        Consortium.read(plan)
    plan.write_text('name = "trial"\n[members.a]\nfounder = false\n')
    with pytest.raises(SettingsError, match="no member is a founder"):
        Consortium.read(plan)
    plan.write_text('name = "trial"\n[members]\n')
    with pytest.raises(SettingsError, match="names no members"):
        Consortium.read(plan)


# -- in words ----------------------------------------------------------------------------------------


def test_everything_can_be_shown(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    site = tmp_path / "clinic"
    renew(site)
    told = {
        path.name: describe(path, NOW)
        for path in (site, site / KIT, site / "certificate.pem", site / REVOKED, site / REQUEST, authority.folder,
                     authority.folder / AUTHORITY)
    }  # fmt: skip
    assert told["clinic"]["what"] == "a site's folder"
    assert told["clinic"]["renewal"].startswith("under way")
    assert told["clinic"]["holds"] == "yes"
    assert told[KIT]["days left"] == 364
    assert told[KIT]["authority"] == told["authority"]["key"] == told[AUTHORITY]["key"]
    assert told["certificate.pem"]["key"] == clinic.spoken
    assert told[REVOKED] | {"date": ""} == {
        "what": "a revocation list", "number": 1, "date": "", "signature": "holds", "revoked serials": [],
    }  # fmt: skip
    assert "vouched for" in told[REQUEST]
    assert describe(site, NOW + 400 * DAY)["holds"].startswith("no (expired)")
    (tmp_path / "alone.pem").write_bytes((site / REVOKED).read_bytes())
    assert describe(tmp_path / "alone.pem", NOW)["signature"].startswith("not checked")


def test_what_cannot_be_shown_says_why(clinic: Identity, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for path in (tmp_path / "clinic" / KEY, tmp_path / "text", tmp_path):
        assert reason(lambda path=path: describe(path, NOW)) == "unreadable"
    with pytest.raises(IdentityError, match="no site's folder"):
        describe(tmp_path, NOW)

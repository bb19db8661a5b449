"""What a site does for its identity: request, install, renew; and what it refuses."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")


from fkge.errors import IdentityError, RunError, SettingsError
from fkge.node.provisioning import provision
from fkge.pki.authority import Authority
from fkge.pki.certificates import AUTHORITY, KEY, KIT, NEXT_KEY, REQUEST, REVOKED, read_key, read_request, write_request
from fkge.pki.kits import signed
from fkge.pki.site import Identity, check_kit, renew, request
from tests.unit.pki.sites import ADDRESSES, DAY, NOW, agree, approved, consortium, mode, put, reason, refuse


def test_loads_an_identity(trial: Path) -> None:
    clinic = Identity.load(trial / "kits" / "clinic")
    assert (clinic.name, clinic.consortium) == ("clinic", "trial")
    assert {name: member.address for name, member in clinic.kit.members.items()} == ADDRESSES
    assert clinic.expires.tzinfo is not None
    assert timedelta(days=364) < clinic.expires - NOW < timedelta(days=366)
    assert clinic.authority_pem == (trial / "authority" / "authority.pem").read_bytes()
    clinic.check(NOW)
    assert "PRIVATE" not in repr(clinic)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_refuses_a_key_that_others_can_read(tmp_path: Path, mode: int) -> None:
    provision(consortium(), tmp_path, NOW)
    site = tmp_path / "kits" / "clinic"
    (site / KEY).chmod(mode)
    with pytest.raises(IdentityError, match="chmod 600"):
        Identity.load(site)
    (site / KEY).chmod(0o600)
    Identity.load(site)


@pytest.mark.parametrize("name", ["key.pem", "authority.pem", "consortium.json"])
def test_names_the_missing_file_and_the_way_out(tmp_path: Path, name: str) -> None:
    provision(consortium(), tmp_path, NOW)
    site = tmp_path / "kits" / "clinic"
    (site / name).unlink()
    with pytest.raises(IdentityError, match=f"no {name}.*fkge cert"):
        Identity.load(site)


def test_refuses_another_sites_key(tmp_path: Path) -> None:
    provision(consortium(), tmp_path, NOW)
    kits = tmp_path / "kits"
    (kits / "clinic" / KEY).write_bytes((kits / "genes" / KEY).read_bytes())
    assert reason(lambda: Identity.load(kits / "clinic")) == "name"


# -- installation ---------------------------------------------------------------------------------


def test_request_approve_and_install(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    site = tmp_path / "clinic"
    assert (clinic.name, clinic.consortium) == ("clinic", "trial")
    assert clinic.trust.fingerprint == authority.fingerprint
    clinic.check(NOW)
    assert not (site / REQUEST).exists()
    assert [mode(p) for p in (site, site / KEY, authority.folder, authority.folder / KEY)] == [0o700, 0o600] * 2


def test_sends_no_private_key(authority: Authority, tmp_path: Path) -> None:
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


def test_installs_no_kit_unless_the_authority_was_compared(authority: Authority, tmp_path: Path) -> None:
    site = tmp_path / "clinic"
    request(site, "clinic", "trial")
    kit = approved(authority, site)
    before = sorted(path.name for path in site.iterdir())
    assert reason(lambda: check_kit(kit.read_bytes(), "kit", site, NOW, refuse).install()) == "forged"
    assert sorted(path.name for path in site.iterdir()) == before
    put(kit, site)
    check_kit(kit.read_bytes(), "kit", site, NOW, refuse).install()  # which is not asked again: the authority is known


@pytest.mark.parametrize("part", ["members", "certificate", "revoked", "settings", "number", "consortium", "name"])
def test_refuses_an_edited_kit_and_changes_nothing(
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
    assert reason(lambda: check_kit(data, "kit", tmp_path / "clinic", NOW, agree).install()) == "forged"
    assert {path.name: path.read_bytes() for path in (tmp_path / "clinic").iterdir()} == before


def test_refuses_a_kit_of_another_authority(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "other", "trial", NOW)
    forged = signed(clinic.kit.model_dump(mode="json"), read_key(other.folder / KEY))
    assert reason(lambda: check_kit(forged, "kit", tmp_path / "clinic", NOW, agree).install()) == "forged"
    csr = write_request(read_key(tmp_path / "clinic" / KEY), "clinic", "trial")
    theirs = other.approve(read_request(csr, "request"), NOW)
    assert reason(lambda: put(theirs, tmp_path / "clinic")) == "stranger"


def test_refuses_a_kit_for_another_key(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    request(tmp_path / "genes", "genes", "trial")
    with pytest.raises(IdentityError, match=r"is for clinic's key .* Install it where its request was made"):
        put(authority.kit("clinic"), tmp_path / "genes")
    assert not (tmp_path / "genes" / AUTHORITY).exists()


def test_refuses_a_folder_without_a_key(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(IdentityError, match=r"is not a site's folder; it has no key.pem"):
            put(authority.kit("clinic"), folder)


def test_refuses_an_older_kit(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    first = authority.kit("clinic").read_bytes()
    approved_again = write_request(read_key(tmp_path / "clinic" / KEY), "clinic", "trial")
    authority.approve(read_request(approved_again, "request"), NOW)
    put(authority.kit("clinic"), tmp_path / "clinic")
    assert reason(lambda: check_kit(first, "kit", tmp_path / "clinic", NOW, agree).install()) == "old"


def test_refuses_a_kit_that_is_not_valid_now(authority: Authority, tmp_path: Path) -> None:
    site = tmp_path / "clinic"
    request(site, "clinic", "trial")
    kit = approved(authority, site, days=10)
    assert reason(lambda: put(kit, site, NOW + 11 * DAY)) == "expired"
    with pytest.raises(IdentityError, match="Set the clock right"):
        put(kit, site, NOW - 11 * DAY)
    put(kit, site, NOW + 9 * DAY)


def test_installing_an_older_kit_keeps_a_later_list(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    request(tmp_path / "genes", "genes", "trial")
    genes = put(approved(authority, tmp_path / "genes"), tmp_path / "genes")
    kit = authority.kit("clinic").read_bytes()
    authority.revoke("genes", NOW)
    clinic.trust.update((authority.folder / REVOKED).read_bytes())
    after = check_kit(kit, "kit", tmp_path / "clinic", NOW, agree).install()
    assert reason(lambda: after.trust.check(genes.certificate_pem, NOW)) == "revoked"


def test_refuses_wrong_names_before_anything_is_written(tmp_path: Path) -> None:
    assert reason(lambda: request(tmp_path / "site", "The Clinic", "trial")) == "name"
    with pytest.raises(SettingsError, match="cannot be a consortium's name"):
        request(tmp_path / "site", "clinic", " ")
    with pytest.raises(SettingsError, match="cannot be a consortium's name"):
        Authority.create(tmp_path / "authority", "x" * 65, NOW)
    assert list(tmp_path.iterdir()) == []


def test_does_not_overwrite_a_folder_in_use(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    key = (tmp_path / "clinic" / KEY).read_bytes()
    with pytest.raises(RunError, match="fkge cert renew"):
        request(tmp_path / "clinic", "clinic", "trial")
    with pytest.raises(RunError, match="exists already"):
        Authority.create(authority.folder, "trial", NOW)
    assert (tmp_path / "clinic" / KEY).read_bytes() == key


# -- renewal --------------------------------------------------------------------------------------


def test_old_and_renewed_keys_are_valid_until_the_old_is_revoked(
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
    new.trust.update((authority.folder / REVOKED).read_bytes())
    assert reason(lambda: new.trust.check(clinic.certificate_pem, NOW)) == "revoked"
    assert new.trust.check(new.certificate_pem, NOW) == "clinic"
    assert "clinic" in authority.book.members
    with pytest.raises(IdentityError, match="one certificate only"):
        authority.revoke("clinic", NOW, old=True)


def test_recovers_from_an_interrupted_installation(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    site = tmp_path / "clinic"
    renew(site)
    (site / KIT).write_bytes(approved(authority, site).read_bytes())  # and then the power failed
    new = Identity.load(site)
    assert new.fingerprint != clinic.fingerprint
    new.check(NOW)
    renew(site)  # another one finishes it first
    assert Identity.load(site).fingerprint == new.fingerprint
    assert read_key(site / NEXT_KEY).public_key() != read_key(site / KEY).public_key()


def test_a_kit_for_the_present_key_keeps_a_renewal(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    site = tmp_path / "clinic"
    renew(site)
    request(tmp_path / "genes", "genes", "trial")
    approved(authority, tmp_path / "genes")
    assert put(authority.kit("clinic"), site).fingerprint == clinic.fingerprint
    assert put(approved(authority, site), site).fingerprint != clinic.fingerprint


def test_refuses_a_second_renewal(clinic: Identity, tmp_path: Path) -> None:
    renew(tmp_path / "clinic")
    with pytest.raises(RunError, match="a renewal is under way"):
        renew(tmp_path / "clinic")

"""What an authority issues, revokes and refuses."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from fkge.errors import IdentityError
from fkge.pki.authority import Authority
from fkge.pki.certificates import KEY, REQUEST, new_key, read_key, read_request, write_request
from fkge.pki.site import Identity, renew, request
from tests.unit.pki.sites import DAY, NOW, approved, put, reason


def test_refuses_a_request_for_another_consortium(authority: Authority, tmp_path: Path) -> None:
    request(tmp_path / "site", "clinic", "elsewhere")
    with pytest.raises(IdentityError, match=r"for elsewhere, and .* is the authority of trial"):
        approved(authority, tmp_path / "site")


def test_refuses_a_taken_name_until_it_is_revoked(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
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


def test_refuses_a_voucher_for_another_key(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    renew(tmp_path / "clinic")
    voucher = read_request((tmp_path / "clinic" / REQUEST).read_bytes(), "request").voucher
    stolen = write_request(new_key(), "clinic", "trial", voucher)
    assert reason(lambda: authority.approve(read_request(stolen, "request"), NOW)) == "name"


def test_refuses_a_revoked_key(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    authority.revoke("clinic", NOW)
    again = write_request(read_key(tmp_path / "clinic" / KEY), "clinic", "trial")
    assert reason(lambda: authority.approve(read_request(again, "request"), NOW)) == "revoked"


def test_an_expired_authority_issues_and_revokes_nothing(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "authority", "trial", NOW, days=30)
    request(tmp_path / "clinic", "clinic", "trial")
    put(approved(authority, tmp_path / "clinic", days=365), tmp_path / "clinic")
    assert Identity.load(tmp_path / "clinic").expires == authority.expires, "no certificate outlives it"
    request(tmp_path / "genes", "genes", "trial")
    late = NOW + 31 * DAY
    assert reason(lambda: approved(authority, tmp_path / "genes", late)) == "expired"
    assert reason(lambda: authority.revoke("clinic", late)) == "expired"
    assert reason(lambda: authority.revoke("clinic", NOW - 31 * DAY)) == "early"


def test_refuses_a_folder_that_is_not_an_authoritys(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    assert reason(lambda: Authority.open(tmp_path / "clinic")) == "unreadable"
    with pytest.raises(IdentityError, match=r"did you mean .*authority"):
        Authority.open(tmp_path)
    (authority.folder / KEY).chmod(0o644)
    with pytest.raises(IdentityError, match="others on this machine can read it"):
        Authority.open(authority.folder)


def test_a_revoked_member_is_removed_with_its_kit(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
    request(tmp_path / "genes", "genes", "trial")
    put(approved(authority, tmp_path / "genes"), tmp_path / "genes")
    authority.revoke("genes", NOW)
    assert set(authority.book.members) == {"clinic"}
    assert not authority.kit("genes").exists()
    fresh = put(authority.kit("clinic"), tmp_path / "clinic")
    assert set(fresh.kit.members) == {"clinic"}
    certificate = Identity.load(tmp_path / "genes").certificate_pem
    assert reason(lambda: fresh.trust.check(certificate, NOW)) == "revoked", "the new kit has the new list in it"
    assert reason(lambda: clinic.trust.reload() and clinic.trust.check(certificate, NOW)) == "revoked", (
        "a node that runs"
    )


def test_revokes_a_serial_only_once(authority: Authority, clinic: Identity) -> None:
    number = authority.book.lists
    assert [line.name for line in authority.revoke(clinic.serial.upper(), NOW)] == ["clinic"]
    assert authority.book.lists == number + 1
    assert reason(lambda: authority.revoke(clinic.serial, NOW)) == "revoked"
    assert reason(lambda: authority.revoke("clinic", NOW)) == "revoked"
    with pytest.raises(IdentityError, match="issued nothing to 'clinix'; did you mean clinic"):
        authority.revoke("clinix", NOW)
    assert authority.book.lists == number + 1


def test_two_processes_at_one_authority_lose_nothing(authority: Authority, tmp_path: Path) -> None:
    """Each approves in a process of its own, from what both have read before."""
    for name in ("ant", "bee", "cat"):
        request(tmp_path / name, name, "trial")
    stale = Authority.open(authority.folder)
    script = (
        "import sys; from datetime import datetime, UTC; from pathlib import Path\n"
        "from fkge.pki.authority import Authority; from fkge.pki.certificates import read_request\n"
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
    assert set(Authority.open(authority.folder).book.members) == {"ant", "bee", "cat"}
    for name in ("ant", "bee", "cat"):
        put(authority.kit(name), tmp_path / name, datetime.now(UTC))  # the processes approved later than NOW


def test_an_interrupted_creation_leaves_no_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

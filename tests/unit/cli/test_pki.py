"""Certificates by commands: nothing is accepted that was not compared, and nothing is made by halves."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the extra node")

from fkge.cli.exit_codes import Misuse
from fkge.cli.pki import cert, commands
from fkge.errors import FkgeError, IdentityError
from fkge.pki.site import Identity
from tests.unit.cli.commands import answer, typed


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An authority, and a request that was not approved."""
    monkeypatch.chdir(tmp_path)
    typed(cert, "authority", "--name", "trial", "--out", "authority")
    typed(cert, "request", "--name", "clinic", "--consortium", "trial", "--out", "clinic")
    return tmp_path


def approve(*words: str) -> object:
    return answer(cert, "approve", "clinic/request.csr", "--authority", "authority", *words)


def test_which_consortium_must_be_told_and_only_once(tmp_path: Path) -> None:
    (tmp_path / "members.toml").write_text('name = "trial"\n[members.clinic]\n')
    with pytest.raises(Misuse, match="which consortium"):
        typed(cert, "authority", "--out", tmp_path / "authority")
    with pytest.raises(Misuse, match="leave --name out"):
        typed(
            cert,
            "authority",
            "--name",
            "other",
            "--members",
            tmp_path / "members.toml",
            "--out",
            tmp_path / "authority",
        )
    assert not (tmp_path / "authority").exists()
    made = answer(cert, "authority", "--members", tmp_path / "members.toml", "--out", tmp_path / "authority")
    assert made["consortium"] == "trial"
    again = typed(cert, "authority", "--members", tmp_path / "members.toml", "--out", tmp_path / "authority")
    assert "All kits were rewritten" in again.stdout


@pytest.mark.parametrize(
    "fingerprint", ["", "0000-0000-0000-0000-0000-0000-0000-0000", "sha256:" + "0" * 64, "nonsense"]
)
def test_a_request_with_another_fingerprint_is_not_approved(here: Path, fingerprint: str) -> None:
    with pytest.raises(IdentityError, match="Somebody may have replaced it in transit"):
        approve("--fingerprint", fingerprint)
    assert not list((here / "authority" / "kits").glob("clinic*"))


def test_without_a_person_to_ask_a_fingerprint_must_be_given(here: Path) -> None:
    with pytest.raises(Misuse, match="compare the fingerprint by telephone"):
        approve()
    assert not list((here / "authority" / "kits").glob("clinic*"))
    approve("--yes")


def test_a_kit_is_compared_when_the_authority_is_new_and_whenever_a_fingerprint_is_given(here: Path) -> None:
    made = approve("--yes")
    assert isinstance(made, dict)
    install = ("install", made["kit"], "--into", "clinic")
    with pytest.raises(Misuse, match="compare the fingerprint"):
        typed(cert, *install)
    assert not (here / "clinic" / "certificate.pem").exists()
    done = answer(cert, *install, "--fingerprint", made["authority"])
    assert (done["name"], done["fingerprint"]) == ("clinic", Identity.load(here / "clinic").fingerprint)
    typed(cert, *install)  # it knows its authority now
    with pytest.raises(IdentityError, match="and not 1111"):
        typed(cert, *install, "--fingerprint", "1111" * 16)


def test_a_member_without_an_address_is_told(here: Path) -> None:
    done = typed(cert, "approve", "clinic/request.csr", "--authority", "authority", "--yes")
    assert "No --address: clinic connects to others" in done.stdout


def test_a_second_key_is_not_made_over_the_first(here: Path) -> None:
    before = (here / "clinic" / "key.pem").read_bytes()
    with pytest.raises(FkgeError, match="has a key"):
        typed(cert, "request", "--name", "clinic", "--consortium", "trial", "--out", "clinic")
    assert (here / "clinic" / "key.pem").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "nothing"), "nothing: does not exist"),
        (("approve", "nothing", "--authority", "authority"), "nothing: does not exist"),
        (("install", "clinic", "--into", "clinic"), "clinic: is a folder. Name the file in it"),
        (("install", "authority/revoked.pem", "--into", "nowhere"), "nowhere"),
        (("revoke", "clinic", "--authority", "authority"), "clinic"),
        (("renew", "clinic"), "clinic"),
    ],
)
def test_what_is_not_there_is_told(here: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(FkgeError, match=message):
        typed(cert, *words)


def test_lists_are_shown_as_lists_and_empty_ones_as_none(here: Path) -> None:
    text = typed(cert, "show", "authority").stdout
    assert "members: none" in text
    assert answer(cert, "show", "authority")["members"] == []


def test_a_plan_is_provisioned_and_can_be_repeated(tmp_path: Path) -> None:
    plan, out = tmp_path / "plan.toml", tmp_path / "trial"
    plan.write_text('name = "trial"\n[members.clinic]\naddress = "clinic.example:7443"\n')
    first = answer(commands, "--out", out, plan)
    assert (list(first["sites"]), first["elsewhere"], first["left"]) == (["clinic"], {}, [])
    plan.write_text('name = "trial"\n[members.genes]\n')
    second = answer(commands, "--out", out, plan)
    assert (list(second["sites"]), second["left"]) == (["genes"], ["clinic"])
    assert second["authority"] == first["authority"]

"""A consortium's file, and kits that are damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")


from fkge.errors import FkgeError, GraphError, IdentityError, SettingsError
from fkge.pki.kits import Consortium, Kit
from fkge.pki.site import Identity
from tests.unit.pki.sites import PLAN, reason


@settings(deadline=None)
@given(st.data())
def test_refuses_a_kit_with_any_changed_byte(trial: Path, data: st.DataObject) -> None:
    clinic = Identity.load(trial / "kits" / "clinic")
    whole = (clinic.folder / "consortium.json").read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:place] + bytes([data.draw(st.integers(0, 255))]) + whole[place + 1 :]
    try:
        found = Kit.read(changed, "kit", clinic.authority_pem)
    except IdentityError:
        return
    assert found == clinic.kit, "a change that changes nothing, such as of blanks"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"kit": 1, "signature": ""}',
        b'{"kit": {}, "signature": 1}',
        b"[" * 100_000,
        b"\xff",
    ],
    ids=lambda data: str(data[:20]),
)
def test_refuses_what_is_not_a_kit(data: bytes) -> None:
    assert reason(lambda: Kit.read(data, "kit")) == "unreadable"


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
def test_reports_a_mistake_in_the_file_in_one_sentence(
    plan: Path, change: tuple[str, str], kind: type[FkgeError], says: str
) -> None:
    assert change[0] in PLAN
    plan.write_text(PLAN.replace(*change, 1) if "drugs" not in change[0] else PLAN.replace(*change))
    with pytest.raises(kind, match=says):
        Consortium.read(plan)


def test_refuses_wrong_settings_no_founder_and_no_members(plan: Path, tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text("exchange = 8\n")
    with pytest.raises(SettingsError, match="did you mean exchanges"):
        Consortium.read(plan)
    plan.write_text('name = "trial"\n[members.a]\nfounder = false\n')
    with pytest.raises(SettingsError, match="no member is a founder"):
        Consortium.read(plan)
    plan.write_text('name = "trial"\n[members]\n')
    with pytest.raises(SettingsError, match="names no members"):
        Consortium.read(plan)

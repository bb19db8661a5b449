"""Descriptions of the files and folders of a consortium."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")


from fkge.errors import IdentityError
from fkge.pki.authority import Authority
from fkge.pki.certificates import AUTHORITY, KEY, KIT, REQUEST, REVOKED
from fkge.pki.describe import describe
from fkge.pki.site import Identity, renew
from tests.unit.pki.sites import DAY, NOW, reason


def test_describes_everything(authority: Authority, clinic: Identity, tmp_path: Path) -> None:
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
    assert told["certificate.pem"]["key"] == clinic.short_fingerprint
    assert told[REVOKED] | {"date": ""} == {
        "what": "a revocation list", "number": 1, "date": "", "signature": "holds", "revoked serials": [],
    }  # fmt: skip
    assert "vouched for" in told[REQUEST]
    assert describe(site, NOW + 400 * DAY)["holds"].startswith("no (expired)")
    (tmp_path / "alone.pem").write_bytes((site / REVOKED).read_bytes())
    assert describe(tmp_path / "alone.pem", NOW)["signature"].startswith("not checked")


def test_refuses_to_describe_keys_and_other_files(clinic: Identity, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    for path in (tmp_path / "clinic" / KEY, tmp_path / "text", tmp_path):
        assert reason(lambda path=path: describe(path, NOW)) == "unreadable"
    with pytest.raises(IdentityError, match="no site's folder"):
        describe(tmp_path, NOW)

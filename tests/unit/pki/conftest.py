"""Fixtures of the tests of identities."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")


from fkge.node.provisioning import provision
from fkge.pki.authority import Authority
from fkge.pki.site import Identity
from tests.unit.pki.sites import NOW, consortium, enrolled, write_plan


@pytest.fixture(scope="session")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A consortium of two; tests that change something have one of their own."""
    folder = tmp_path_factory.mktemp("trial")
    provision(consortium(), folder, NOW)
    return folder


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.create(tmp_path / "authority", "trial", NOW)


@pytest.fixture
def clinic(authority: Authority, tmp_path: Path) -> Identity:
    """A site of the authority, in ``clinic/``."""
    return enrolled(authority, tmp_path / "clinic")


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return write_plan(tmp_path)

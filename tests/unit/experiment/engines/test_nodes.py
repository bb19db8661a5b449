"""Rehearsals: what is made for nodes before any of them starts. The contract of engines runs them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the extra node")

from fkge.errors import FkgeError
from fkge.experiment.engines import ENGINES
from fkge.experiment.engines.nodes import Nodes
from fkge.experiment.simulation import Simulation
from fkge.pki.site import Identity
from tests.conftest import EventLog, tiny_federation, tiny_settings


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create(
        tmp_path / "run", tiny_federation(("ant", "bee")), tiny_settings(), baselines=(), engine="nodes"
    )


def test_every_owner_has_a_certificate_of_one_authority(simulation: Simulation) -> None:
    with Nodes(simulation.owners, EventLog()):
        sites = simulation.folder / "nodes" / "sites"
        identities = [Identity.load(sites / owner.name) for owner in simulation.owners]
    assert [identity.name for identity in identities] == ["ant", "bee"]
    assert len({identity.trust.fingerprint for identity in identities}) == 1
    for identity, other in zip(identities, reversed(identities), strict=True):
        identity.check(datetime.now(UTC))
        assert identity.trust.check(other.certificate_pem, datetime.now(UTC)) == other.name


def test_a_resumed_rehearsal_keeps_its_certificates(simulation: Simulation) -> None:
    keys = []
    for _ in range(2):
        with Nodes(simulation.owners, EventLog()):
            keys.append((simulation.folder / "nodes" / "sites" / "ant" / "key.pem").read_bytes())
    assert keys[0] == keys[1]


def test_nobody_is_started_before_an_arm_is_run(simulation: Simulation) -> None:
    events = EventLog()
    with ENGINES["nodes"](simulation.owners, events):
        pass
    assert events == []
    assert not (simulation.folder / "nodes" / "arms").exists()


def test_an_owner_whose_name_fits_no_certificate_is_refused(tmp_path: Path) -> None:
    federation = tiny_federation(("ant", "Bee of Höhe"))
    made = Simulation.create(tmp_path / "run", federation, tiny_settings(), baselines=(), engine="nodes")
    with pytest.raises(FkgeError, match="Höhe"):
        Nodes(made.owners, EventLog()).__enter__()

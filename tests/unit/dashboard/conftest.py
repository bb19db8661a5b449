"""A finished simulation of owners one of whose labels are unkind, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fkge.experiment.simulation import Simulation
from fkge.federation import Federation, Links, Member
from fkge.graph import Graph, Policy, Vocabulary
from tests.conftest import arc, tiny_settings

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

UNKIND = "<img src=x onerror=alert(1)>&\"'"


@pytest.fixture
def unkind() -> str:
    """The label of an entity of ant's."""
    return UNKIND


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Owners ant, bee and <b>cat, ant with a policy; ant's first place has an unkind label."""
    folder = tmp_path_factory.mktemp("dashboard") / "run"
    owners = {name: arc(name, 20 * i) for i, name in enumerate(("ant", "bee", "<b>cat"))}
    first = owners["ant"]
    labels = [UNKIND, *first.entities[1:]]
    owners["ant"] = Graph(Vocabulary(labels, "entity"), first.relations, first.splits, name="ant")
    members = {name: Member(graph) for name, graph in owners.items()}
    members["ant"] = Member(owners["ant"], policy=Policy.everything())
    links = {(a, b): Links(same=True) for a in owners for b in owners if a < b}
    simulation = Simulation.create(folder, Federation("circle", members, links), tiny_settings(), engine="in-process")
    simulation.run()
    return folder


@pytest.fixture
def client(simulated: Path) -> Iterator[TestClient]:
    """A client that has shown the token."""
    from tests.unit.dashboard.clients import TOKEN, client_of

    with client_of(simulated) as client:
        assert client.get("/", params={"token": TOKEN}).status_code == 303
        yield client

"""Ray on several machines, two of which this one plays; and on none."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fkge.errors import EngineError
from fkge.experiment.engines import ENGINES
from fkge.experiment.engines.base import never
from fkge.experiment.simulation import Simulation
from tests.conftest import OWNERS, EventLog, only_ray, reported, tiny_federation, tiny_settings


def simulation(folder: Path) -> Simulation:
    return Simulation.create(folder, tiny_federation(), tiny_settings(), engine="ray")


def epochs(made: Simulation) -> dict[str, int]:
    return {member.name: (reported(member, "federated") or {}).get("epochs", 0) for member in made.owners}


class Machines:
    """Two machines of two CPUs each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        small = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
        self.cluster: Any = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
        self.second = self.cluster.add_node(**small)
        self.cluster.wait_for_nodes()

    def run(self, made: Simulation, log: EventLog, stop: Callable[[], bool] = never) -> tuple[set[str], set[str]]:
        """Run the federation; who sat on the second machine at first, and in the end."""
        before = signal.getsignal(signal.SIGTERM)
        with ENGINES["ray"](made.owners, log, address=self.cluster.address, cpus=0.5) as engine:
            assert signal.getsignal(signal.SIGTERM) is before  # Ray would take it
            first = self._there(engine)
            assert engine.run(made.arm("federated"), stop)
            return first, self._there(engine)

    def _there(self, engine: Any) -> set[str]:
        return {name for name, node in engine.machines.items() if node == self.second.node_id}


@pytest.fixture
def machines() -> Iterator[Machines]:
    with only_ray():
        import ray

        made = Machines()
        try:
            yield made
        finally:
            ray.shutdown()
            made.cluster.shutdown()


@pytest.mark.long
def test_owners_spread_over_machines_and_the_cluster_outlives_them(machines: Machines, tmp_path: Path) -> None:
    import ray

    made = simulation(tmp_path / "run")
    first, last = machines.run(made, EventLog())
    assert set() < first == last < set(OWNERS)
    assert epochs(made) == dict.fromkeys(OWNERS, 20)
    assert not ray.is_initialized()
    ray.init(machines.cluster.address, log_to_driver=False, logging_level="ERROR")  # they took leave, no more
    assert sum(node["Alive"] for node in ray.nodes()) == 2


@pytest.mark.long
def test_a_machine_that_is_gone_takes_nothing_with_it(machines: Machines, tmp_path: Path) -> None:
    made, log = simulation(tmp_path / "run"), EventLog()

    def gone() -> bool:
        """Take a machine away, with whoever sits there, once all have something to lose."""
        if len(machines.cluster.list_all_nodes()) == 2 and all(log.of("work", owner=name) for name in OWNERS):
            machines.cluster.remove_node(machines.second, allow_graceful=False)
        return False

    first, last = machines.run(made, log, gone)
    assert {n["owner"] for n in log.of("restarted")} == first != set()
    assert last == set()
    assert epochs(made) == dict.fromkeys(OWNERS, 20)


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'fkge[ray]'")
    made = simulation(tmp_path / "run")
    with pytest.raises(EngineError, match=r"no Ray at not-an-address.* Start one \(ray start --head\)"):
        ENGINES["ray"](made.owners, EventLog(), address="not-an-address").__enter__()

"""Ray on several machines, two of which this one plays; and on none."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import OWNERS, Notes, tiny_federation, tiny_settings

from fkge.engines import ENGINES
from fkge.errors import EngineError
from fkge.simulations import Simulation


def simulation(folder: Path) -> Simulation:
    return Simulation.create(folder, tiny_federation(), tiny_settings(), engine="ray")


def test_owners_spread_over_machines(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'fkge[ray]'")
    import ray
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 2, "object_store_memory": 100 * 2**20}
    theirs = signal.getsignal(signal.SIGTERM)
    cluster: Any = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    try:
        second = cluster.add_node(**small)
        before = signal.getsignal(signal.SIGTERM)
        cluster.wait_for_nodes()
        made, notes = simulation(tmp_path / "run"), Notes()
        with ENGINES["ray"](made.homes, notes, address=cluster.address) as running:
            assert signal.getsignal(signal.SIGTERM) is before  # Ray would take it
            machines: Mapping[str, str] = running.machines  # type: ignore[attr-defined]
            assert set(machines) == set(OWNERS)
            assert len(set(machines.values())) == 2
            away = [name for name, node in machines.items() if node == second.node_id]

            def gone() -> bool:
                """Take a machine away, with whoever sits there, once all have something to lose."""
                if len(cluster.list_all_nodes()) == 2 and all(notes.of("work", owner=name) for name in OWNERS):
                    cluster.remove_node(second, allow_graceful=False)
                return False

            assert running.run(made.arm("federated"), gone)
            assert {n["owner"] for n in notes.of("restarted")} == set(away) != set()
            assert second.node_id not in running.machines.values()  # type: ignore[attr-defined]
        assert not ray.is_initialized()
        assert {h.name: (h.result("federated") or {})["epochs"] for h in made.homes} == dict.fromkeys(OWNERS, 20)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")  # it took leave, no more
        assert [node["NodeID"] for node in ray.nodes() if node["Alive"]] == [cluster.head_node.node_id]
    finally:
        ray.shutdown()
        cluster.shutdown()
        signal.signal(signal.SIGTERM, theirs)


def test_a_cluster_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs Ray: pip install 'fkge[ray]'")
    made = simulation(tmp_path / "run")
    with pytest.raises(EngineError, match=r"no Ray at not-an-address.* Start one \(ray start --head\)"):
        ENGINES["ray"](made.homes, Notes(), address="not-an-address").__enter__()

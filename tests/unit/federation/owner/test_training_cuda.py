"""An owner whose vectors live on a GPU: the same exchanges, aggregation, turns and checkpoints as on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.conftest import random_graph
from tests.unit.federation.pairs import exchange, federation_settings, make_owners

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

GRAPHS = {"a": random_graph(seed=1), "b": random_graph(seed=2)}


@pytest.mark.parametrize("moments", ["average", "keep", "fresh"])
@pytest.mark.parametrize("aggregate", ["support", "average", "replace", "validation"])
def test_aggregation_is_that_of_the_cpu(aggregate: str, moments: str) -> None:
    rows = {}
    for device in ("cpu", "cuda"):
        settings = federation_settings(
            {"device": device, "kernels": False},
            start="together",
            translate="frame",
            aggregate=aggregate,
            moments=moments,
        )
        owners = make_owners(GRAPHS, settings, together=True)
        owners["a"].exchange.aggregate([exchange(owners["b"], owners["a"])], owners["a"].score)
        assert owners["a"].tables.device.type == device
        rows[device] = {kind: owners["a"].tables[kind].cpu() for kind in ("entity", "relation")}
    for kind, expected in rows["cpu"].items():
        torch.testing.assert_close(rows["cuda"][kind], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("translate", ["frame", "procrustes", "ppat", "ppat+refine"])
def test_rounds_run_on_a_gpu_beside_a_cpu(translate: str, tmp_path: Path) -> None:
    ways = {
        name: federation_settings({"device": device}, translate=translate, neighbours=translate != "frame", patience=1)
        for name, device in (("a", "cuda"), ("b", "cpu"))
    }
    owners = make_owners(GRAPHS, ways)
    for owner in owners.values():
        owner.improve(initial=True)
    for session in range(1, 4):
        updates = {host: exchange(owners[client], owners[host], session) for host, client in (("a", "b"), ("b", "a"))}
        for name, owner in owners.items():
            outcome = owner.improve([updates[name]])
            assert outcome.score is not None
            assert outcome.best is not None
            assert outcome.improved == (outcome.score == outcome.best) == (not outcome.backtracked)
            # Better, or back where it was best: scores of one table agree up to a rank that ties.
            assert owner.score() == pytest.approx(outcome.best, abs=1e-3)
            assert owner.tables.entities == 40
    owners["a"].save(tmp_path / "a")
    again = make_owners(GRAPHS, ways)["a"]
    again.load(tmp_path / "a")
    assert torch.equal(again.tables["entity"], owners["a"].tables["entity"])
    assert torch.equal(again.best()["entity"], owners["a"].best()["entity"])

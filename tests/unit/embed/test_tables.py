"""Tables of vectors: rows read and replaced, growth and shrinking, snapshots."""

from __future__ import annotations

import pytest
import torch

from fkge.embed import MODELS, Tables, Trainer, make_tables, model_class
from fkge.errors import SettingsError
from fkge.settings import TrainSettings
from tests.conftest import random_graph

GRAPH = random_graph()


def trained(model: str = "TransE", **changes: object) -> tuple[Tables, Trainer]:
    s = TrainSettings(model=model, dim=6, batch=50, negatives=4, device="cpu", **changes)  # type: ignore[arg-type]
    tables = make_tables(s, 40, 5)
    trainer = Trainer(tables, GRAPH.train, s)
    trainer.run_epoch()
    return tables, trainer


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def copy_of(tables: Tables) -> dict[str, torch.Tensor]:
    return {k: v.clone() for k, v in tables.export(state=True).items()}


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("kind", ["entity", "relation"])
def test_read_is_a_copy_and_replace_writes_it_back(model: str, kind: str) -> None:
    tables, _ = trained(model)
    ids = torch.tensor([4, 0, 2])
    rows = tables.read(kind, ids)  # type: ignore[arg-type]
    assert rows.shape == (3, tables.width(kind))  # type: ignore[arg-type]
    before = tables[kind].clone()
    rows += 1
    assert torch.equal(tables[kind], before)
    tables.replace(kind, ids, rows)  # type: ignore[arg-type]
    assert torch.equal(tables[kind][ids], rows)
    others = [i for i in range(tables.count(kind)) if i not in ids.tolist()]  # type: ignore[arg-type]
    assert torch.equal(tables[kind][others], before[others])


def test_replaced_rows_start_with_fresh_optimiser_state() -> None:
    tables, _ = trained()
    ids = torch.tensor([1, 3])
    assert tables.state("entity", "mean")[ids].abs().sum() > 0
    tables.replace("entity", ids, torch.zeros(2, 6))
    assert tables.state("entity", "mean")[ids].abs().sum() == 0
    assert tables.state("entity", "steps", columns=False)[ids].sum() == 0
    assert tables.state("entity", "mean")[2].abs().sum() > 0


def test_wrong_shapes_are_refused() -> None:
    tables, _ = trained()
    for vectors in (torch.zeros(2, 5), torch.zeros(3, 6)):
        with pytest.raises(SettingsError, match="shape"):
            tables.replace("entity", torch.tensor([0, 1]), vectors)
    with pytest.raises(SettingsError, match="shape"):
        tables.append("entity", torch.zeros(2, 7))


@pytest.mark.parametrize("model", list(MODELS))
def test_roll_back_restores_everything(model: str) -> None:
    tables, trainer = trained(model)
    before = copy_of(tables)
    snapshot = tables.snapshot()
    trainer.graft(
        torch.randn(2, tables.width("entity")), torch.randn(1, tables.width("relation")), torch.tensor([[40, 5, 41]])
    )
    trainer.run_epoch()
    trainer.ungraft()
    trainer.run_epoch()
    assert not same(copy_of(tables), before)
    tables.restore(snapshot)
    assert same(copy_of(tables), before)
    trainer.run_epoch()  # the snapshot is a copy: training does not reach it
    tables.restore(snapshot)
    assert same(copy_of(tables), before)


def test_a_snapshot_may_reuse_memory() -> None:
    tables, trainer = trained()
    old = tables.snapshot()
    address = old.tensors["entity", "entity"].data_ptr()
    trainer.run_epoch()
    new = tables.snapshot(into=old)
    assert new.tensors["entity", "entity"].data_ptr() == address
    before = copy_of(tables)
    trainer.run_epoch()
    tables.restore(new)
    assert same(copy_of(tables), before)


def test_truncate_needs_a_row_to_leave() -> None:
    tables, _ = trained()
    for rows in (0, 41):
        with pytest.raises(SettingsError):
            tables.truncate("entity", rows)


def test_owners_with_other_dimensions_live_side_by_side() -> None:
    small = make_tables(TrainSettings(dim=4, device="cpu"), 10, 2)
    large = make_tables(TrainSettings(model="TransR", dim=7, relation_dim=3, device="cpu"), 12, 2)
    assert (small.width("entity"), large.width("entity"), large.width("relation")) == (4, 7, 3)
    bridge = torch.linalg.qr(torch.randn(7, 4))[0]
    small.replace("entity", torch.arange(5), large.read("entity", torch.arange(5)) @ bridge)
    assert small["entity"].isfinite().all()


def test_large_tables_are_drawn_in_parts_but_as_one() -> None:
    spec = model_class("TransE")(3).tables()["entity"]
    drawn = spec.draw(9000, 0.5, torch.Generator().manual_seed(4), torch.float64)
    whole = torch.rand(9000, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    assert torch.equal(drawn, (2 * whole - 1) * 0.5)


def test_an_inverse_is_the_second_half_of_a_relation() -> None:
    """Peers see one vector; state, growth and shrinking go the same way."""
    tables, trainer = trained("ComplEx", reciprocal=True, optimizer="adagrad")
    assert tables.exchanged("entity") == ["entity"]
    assert tables.exchanged("relation") == ["relation", "inverse"]
    assert (tables.width("entity"), tables.width("relation")) == (12, 24)
    ids = torch.tensor([4, 0])
    both = torch.cat([tables["relation"], tables["inverse"]], dim=1)
    assert torch.equal(tables.vectors("relation"), both)
    assert tables.vectors("entity") is tables["entity"]
    assert torch.equal(tables.read("relation", ids), both[ids])

    sums = tables.read_state("relation", "sum", ids)
    assert torch.equal(sums[:, :12], tables.state("relation", "sum")[ids])
    assert torch.equal(sums[:, 12:], tables.state("inverse", "sum")[ids])
    assert sums.abs().sum() > 0
    new = torch.arange(48.0).reshape(2, 24)
    tables.replace("relation", ids, new, keep_state=True)
    assert torch.equal(tables.read("relation", ids), new)
    assert torch.equal(tables["inverse"][ids], new[:, 12:])
    assert torch.equal(tables.read_state("relation", "sum", ids), sums)
    tables.replace_state("relation", "sum", ids, new)
    assert torch.equal(tables.state("inverse", "sum")[ids], new[:, 12:])
    assert torch.equal(tables.vectors("relation")[[1, 2, 3]], both[[1, 2, 3]])
    tables.replace("relation", ids, new)
    assert tables.read_state("relation", "sum", ids).abs().sum() == 0

    before = copy_of(tables)
    trainer.graft(torch.randn(1, 12), torch.full((2, 24), 0.5), torch.tensor([[40, 5, 0], [1, 6, 40]]))
    assert torch.equal(tables.read("relation", torch.tensor([5, 6])), torch.full((2, 24), 0.5))
    trainer.ungraft()
    assert same(copy_of(tables), before)
    with pytest.raises(SettingsError, match=r"shape \(2, 24\)"):
        tables.replace("relation", ids, torch.zeros(2, 12))
    with pytest.raises(SettingsError, match="shape"):
        tables.append("relation", torch.zeros(2, 12))

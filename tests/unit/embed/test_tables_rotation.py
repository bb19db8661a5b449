"""A whole space turned: no score changes, in any model that claims so; the others refuse."""

from __future__ import annotations

import pytest
import torch

from fkge.embed import MODELS, Tables, Trainer, make_tables, model_class
from fkge.embed.models import TransE
from fkge.errors import SettingsError
from fkge.evaluation import score_triples
from fkge.settings import TrainSettings
from tests.conftest import random_graph

GRAPH = random_graph()
TURNING = [
    ("TransE", {"norm": 2}),
    ("TransE", {"norm": 2, "normalize": True}),
    ("TransH", {"norm": 2}),
    ("TransH", {"norm": 2, "normalize": True}),
    ("TransR", {"norm": 1}),
    ("TransR", {"norm": 2, "relation_dim": 4}),
    ("TransR", {"norm": 2, "relation_dim": 9, "normalize": True}),
    ("TransD", {"norm": 2}),
]
FIXED = [
    ("TransE", {"norm": 1}, "norm=2"),
    ("TransH", {"norm": 1}, "norm=2"),
    ("TransD", {"norm": 1}, "norm=2"),
    ("TransD", {"norm": 2, "relation_dim": 4}, "relation_dim=4"),
    ("DistMult", {}, "coordinate"),
    ("ComplEx", {}, "coordinate"),
    ("RotatE", {}, "coordinate"),
]


def rotation(dim: int, seed: int = 0) -> torch.Tensor:
    return torch.linalg.qr(torch.randn(dim, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)))[0]


def trained(name: str, optimizer: str = "adam", dtype: torch.dtype = torch.float64, **options: object) -> Tables:
    """Tables after an epoch: no identity matrices, and optimiser state that is not zero."""
    s = TrainSettings(model=name, dim=6, batch=50, negatives=4, device="cpu", optimizer=optimizer,
                      lr=0.05, kernels=dtype == torch.float32, **options)  # type: ignore[arg-type]  # fmt: skip
    tables = make_tables(s, 40, 5, dtype)
    Trainer(tables, GRAPH.train, s).run_epoch()
    return tables


def scores(tables: Tables) -> torch.Tensor:
    return score_triples(tables, GRAPH.facts)


@pytest.mark.parametrize(("name", "options"), TURNING)
def test_no_score_changes(name: str, options: dict[str, object]) -> None:
    tables = trained(name, **options)
    before, entities = scores(tables), tables["entity"].clone()
    w = rotation(6)
    assert tables.model.rotation_invariant
    tables.rotate(w)
    torch.testing.assert_close(scores(tables), before, rtol=0, atol=1e-12)
    torch.testing.assert_close(tables["entity"], entities @ w)
    assert (tables["entity"] - entities).abs().max() > 0.1
    tables.rotate(w.T)
    torch.testing.assert_close(tables["entity"], entities)


@pytest.mark.parametrize(("name", "options", "reason"), FIXED)
def test_others_refuse_and_stay_as_they_are(name: str, options: dict[str, object], reason: str) -> None:
    tables = trained(name, **options)
    before = {k: v.clone() for k, v in tables.export(state=True).items()}
    assert not tables.model.rotation_invariant
    with pytest.raises(SettingsError, match=f"{name} cannot be rotated: .*{reason}"):
        tables.rotate(rotation(tables.width("entity")))
    assert all(torch.equal(v, before[k]) for k, v in tables.export(state=True).items())


def test_every_model_is_in_the_lists() -> None:
    assert {case[0] for case in (*TURNING, *FIXED)} == set(MODELS)


def test_the_refusals_are_needed() -> None:
    """Turned by hand, the scores of a model that refuses do change."""
    for name, options, _ in FIXED:
        tables = trained(name, **options)
        before = scores(tables)
        for tensor in tables.export(state=False).values():
            tensor.copy_(tensor @ rotation(tensor.shape[1]))
        assert not torch.allclose(scores(tables), before), name


def test_what_is_made_of_a_model_does_not_inherit_the_claim() -> None:
    class Stretched(TransE):
        name = "Stretched"

        def project(self, entities, relations):  # type: ignore[no-untyped-def]
            return entities["entity"] * torch.arange(1, self.dim + 1)

    assert TransE(6, norm=2).rotation_invariant
    assert not Stretched(6, norm=2).rotation_invariant


@pytest.mark.parametrize("name", ["TransE", "TransR"])
@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_optimiser_state_follows_or_is_levelled(name: str, optimizer: str) -> None:
    tables = trained(name, optimizer, norm=2)
    before = {k: v.clone() for k, v in tables.export(state=True).items()}
    w = rotation(6)
    tables.rotate(w)
    after = tables.export(state=True)
    if optimizer == "adam":
        torch.testing.assert_close(after["entity/entity.mean"], before["entity/entity.mean"] @ w)
        assert torch.equal(after["entity/entity.steps"], before["entity/entity.steps"])
    slot = {"adam": "square", "adagrad": "sum"}.get(optimizer)
    if slot is not None:
        square, old = after[f"entity/entity.{slot}"], before[f"entity/entity.{slot}"]
        torch.testing.assert_close(square, old.mean(1, keepdim=True).expand_as(old))
        assert (square >= 0).all()
    if name == "TransR":  # relation vectors live elsewhere: nothing of theirs moves; matrices turn by columns
        assert all(torch.equal(v, before[k]) for k, v in after.items() if k.startswith("relation/relation"))
        if slot is not None:
            matrix, old = (x[f"relation/matrix.{slot}"].reshape(-1, 6, 6) for x in (after, before))
            torch.testing.assert_close(matrix, old.mean(1, keepdim=True).expand_as(old))


@pytest.mark.parametrize(("name", "options"), TURNING)
def test_gradients_turn_with_the_tables(name: str, options: dict[str, object]) -> None:
    """One plain gradient step commutes with the turn: what Adam's mean gathers turns as the rows do."""
    s = TrainSettings(model=name, dim=6, batch=400, negatives=4, device="cpu", optimizer="sgd", lr=0.05,
                      kernels=False, **options)  # type: ignore[arg-type]  # fmt: skip
    first, second = make_tables(s, 40, 5, torch.float64), make_tables(s, 40, 5, torch.float64)
    w = rotation(6)
    second.rotate(w)
    for tables in (first, second):
        Trainer(tables, GRAPH.train, s).run_epoch()
    first.rotate(w)
    for key, tensor in first.export(state=False).items():
        torch.testing.assert_close(second.export(state=False)[key], tensor, rtol=0, atol=1e-12)


def test_training_goes_on_with_kernels_and_virtual_rows() -> None:
    s = TrainSettings(dim=6, norm=2, batch=50, negatives=4, device="cpu")
    tables = make_tables(s, 40, 5)
    trainer = Trainer(tables, GRAPH.train, s)
    trainer.run_epoch()
    trainer.graft(torch.randn(2, 6), torch.zeros(0, 6), torch.tensor([[40, 0, 41]]))
    loss = trainer.run_epoch()
    rows = tables["entity"].clone()
    tables.rotate(rotation(6))
    torch.testing.assert_close(tables["entity"], rows @ rotation(6).float())
    trainer.ungraft()
    again = trainer.run_epoch()
    assert loss is not None
    assert again is not None
    assert again < 1.3 * loss


def test_wrong_matrices_are_refused() -> None:
    tables = Tables(model_class("TransE")(6, norm=2), 4, 2)
    for bad, reason in (
        (torch.eye(5), "shape"),
        (torch.eye(6) * 1.01, "orthogonal"),
        (torch.full((6, 6), torch.nan), "orthogonal"),
    ):
        with pytest.raises(SettingsError, match=reason):
            tables.rotate(bad)

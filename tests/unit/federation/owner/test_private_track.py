"""The private track: it begins with what is shared, is held near it, and owes it nothing where that is no good."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fkge.embed import Tables, Trainer, make_tables
from fkge.evaluation import Known, metrics, rank
from fkge.federation.owner.private_track import PrivateSettings, train_private
from fkge.settings import TrainSettings
from tests.conftest import arc

GRAPH = arc("ant", 0)
KNOWN = Known.of(GRAPH)
TRAIN = torch.from_numpy(GRAPH.train.astype(np.int64))
SIZES = {"entity": len(GRAPH.entities), "relation": len(GRAPH.relations)}
ROWS = {"entity": torch.arange(3, SIZES["entity"]), "relation": torch.arange(1, SIZES["relation"])}
SETTINGS = TrainSettings(dim=8, norm=2, margin=4.0, batch=32, negatives=4, lr=0.05, schedule="linear", device="cpu")


def shared(seed: int = 1, epochs: int = 0, **changes: Any) -> Tables:
    settings = SETTINGS.model_copy(update={"seed": seed, **changes})
    tables = make_tables(settings, len(ROWS["entity"]), len(ROWS["relation"]))
    trainer = Trainer(
        tables, TRAIN[((TRAIN[:, [0, 2]] >= 3).all(1)) & (TRAIN[:, 1] >= 1)] - torch.tensor([3, 1, 3]), settings
    )
    for _ in range(epochs):
        trainer.run_epoch()
    return tables


def score(tables: Tables) -> float:
    return metrics(rank(tables, GRAPH.valid, known=KNOWN))["mrr"]


def track(given: Tables, margin: float = 4.0, scorer: Any = score, stop: Any = None, **settings: Any) -> Any:
    private = PrivateSettings.build({"epochs": 6, "every": 1, "alone": False, **settings})
    return train_private(TRAIN, SIZES, given, ROWS, SETTINGS, private, margin, scorer, stop)  # type: ignore[arg-type]


def rising() -> Any:
    looks = iter(range(1000))
    return lambda _: float(next(looks))


def test_a_full_pull_leaves_the_shared_rows_as_they_are() -> None:
    given = shared(epochs=2)
    out = track(given, pull=[1.0], scorer=rising()).tables
    for kind in ("entity", "relation"):
        torch.testing.assert_close(out[kind][ROWS[kind]], given[kind])
    free = make_tables(SETTINGS, SIZES["entity"], SIZES["relation"])["entity"][:3]
    assert not torch.equal(out["entity"][:3], free)  # what is not shared has trained


def test_half_a_pull_ends_nearer_than_none_and_has_learned() -> None:
    given = shared(epochs=2)
    far = {}
    for pull in (0.1, 0.5, 0.9):
        out = track(given, pull=[pull], scorer=rising()).tables
        far[pull] = float((out["entity"][ROWS["entity"]] - given["entity"]).norm())
    assert far[0.1] > far[0.5] > far[0.9] > 0


def test_alone_is_a_lone_training() -> None:
    """Whatever was shared, and as if nothing had been."""
    lone = make_tables(SETTINGS, SIZES["entity"], SIZES["relation"])
    trainer = Trainer(lone, TRAIN, SETTINGS)
    for epoch in range(6):
        trainer.fall_linearly(epoch, 6)
        trainer.run_epoch()
    for seed in (1, 2):
        end = track(shared(seed), pull=[0.5], alone=True, scorer=rising())
        assert end.pull is None
        assert torch.equal(end.tables["entity"], lone["entity"])
        assert torch.equal(end.tables["relation"], lone["relation"])


def test_company_that_is_no_good_does_no_harm() -> None:
    noise = shared()
    for kind in ("entity", "relation"):
        noise[kind].normal_(0, 30.0, generator=torch.Generator().manual_seed(0))
    both = track(noise, pull=[0.5, 0.0], alone=True)
    assert both.pull is None
    assert both.score == score(both.tables) > both.shared
    assert track(noise, pull=[0.5]).score < both.score


def test_no_pull_is_a_plain_further_training() -> None:
    given = shared(epochs=2)
    out = track(given, pull=[0.0], scorer=rising()).tables
    assert not torch.equal(out["entity"][ROWS["entity"]], given["entity"])
    assert PrivateSettings.build({"epochs": 5, "pull": [0.5, 0.0]}).total == 15


def test_a_narrower_track_fills_the_first_columns() -> None:
    given = shared(dim=5)
    out = track(given, pull=[1.0], epochs=0, rest=0.5).tables
    fresh = make_tables(SETTINGS, SIZES["entity"], SIZES["relation"])
    torch.testing.assert_close(out["entity"][ROWS["entity"], :5], given["entity"])
    torch.testing.assert_close(out["entity"][:, 5:], fresh["entity"][:, 5:] * 0.5)
    torch.testing.assert_close(out["entity"][:3], fresh["entity"][:3] * 0.5)


def test_vectors_are_scaled_to_the_margin() -> None:
    given = shared()
    out = track(given, margin=1.0, pull=[1.0], scale=0.5, epochs=0).tables
    torch.testing.assert_close(out["entity"][ROWS["entity"]], given["entity"] * 2)


def test_relations_alone_may_be_followed() -> None:
    given = shared(epochs=1)
    out = track(given, pull=[1.0], follow="relations", scorer=rising()).tables
    torch.testing.assert_close(out["relation"][ROWS["relation"]], given["relation"])
    assert not (out["entity"][ROWS["entity"]] == given["entity"]).all(1).any()


def test_the_best_look_is_kept() -> None:
    looks = iter([0.3, 0.1, 0.9, 0.2, 0.4, 0.8, 0.1, 0.1, 0.1])
    found = track(shared(), pull=[0.5, 0.1], epochs=4, tests=4, scorer=lambda _: next(looks))
    assert (found.score, found.shared, found.pull, found.epoch) == (0.9, 0.3, 0.5, 2)


def test_it_can_be_left() -> None:
    done: list[int] = []

    def enough(epochs: int) -> bool:
        done.append(epochs)
        return epochs >= 4

    assert track(shared(), stop=enough) is None
    assert done == [1, 2, 3, 4]


@pytest.mark.parametrize("wrong", [{"pull": []}, {"every": 0}, {"epochs": -1}, {"follow": "entities"}])
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    from fkge.errors import SettingsError

    with pytest.raises(SettingsError):
        PrivateSettings.build(wrong)


PRODUCT = {"model": "ComplEx", "loss": "1vsall", "optimizer": "adagrad", "lr": 0.1, "margin": None}


def test_a_reciprocal_track_takes_over_inverse_rows_and_sums() -> None:
    given = shared(epochs=2, **PRODUCT, reciprocal=True)
    settings = SETTINGS.model_copy(update={**PRODUCT, "reciprocal": True})
    private = PrivateSettings.build({"epochs": 0, "alone": False, "pull": [1.0]})
    out = train_private(TRAIN, SIZES, given, ROWS, settings, private, 0.0, score)  # type: ignore[arg-type]
    assert out is not None
    for kind in ("entity", "relation"):
        for name in given.exchanged(kind):  # type: ignore[arg-type]
            rows = ROWS[kind]
            assert torch.equal(out.tables[name][rows], given[name])
            assert torch.equal(out.tables.state(name, "sum")[rows], given.state(name, "sum"))
            assert given.state(name, "sum").any()


def test_a_narrower_complex_track_fills_the_first_complex_numbers() -> None:
    given = shared(epochs=1, **{**PRODUCT, "dim": 3}, reciprocal=False)
    settings = SETTINGS.model_copy(update={**PRODUCT, "reciprocal": True})
    for epochs in (0, 1):
        private = PrivateSettings.build({"epochs": epochs, "alone": False, "pull": [1.0], "every": 1})
        out = train_private(TRAIN, SIZES, given, ROWS, settings, private, 0.0, rising())  # type: ignore[arg-type]
        assert out is not None
        for name in ("entity", "relation"):
            re, im = out.tables[name][ROWS[name]].chunk(2, dim=1)
            assert torch.equal(torch.cat([re[:, :3], im[:, :3]], dim=1), given[name])

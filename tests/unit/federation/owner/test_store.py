"""The store of an owner: what it holds, and what may not change under it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fkge.align.links import KINDS
from fkge.embed import make_model, make_tables
from fkge.errors import RunError, SettingsError
from fkge.federation.owner.store import OwnerStore, create_store, widths
from fkge.graph import Policy
from fkge.settings import TrainSettings
from tests.conftest import tiny_federation, tiny_settings

ANT = tiny_federation().members["ant"]


def test_a_created_store_opens_with_what_it_was_given(tmp_path: Path) -> None:
    made = create_store(tmp_path, "ant", ANT, tiny_settings(), seed=5, secret=1)
    store = OwnerStore.open(tmp_path / "owners" / "ant")
    assert (store.name, store.seed, store.run, store.settings) == ("ant", 5, made.run, tiny_settings())
    assert store.graph.fingerprint == store.shared.fingerprint == ANT.graph.fingerprint
    assert store.rows is None
    assert all(np.array_equal(store.tokens[kind], made.tokens[kind]) for kind in KINDS)
    assert store.protocol_config().train_alone  # it has no peers yet


def test_a_policy_makes_two_tracks(tmp_path: Path) -> None:
    member = replace(ANT, policy=Policy.everything())
    store = create_store(tmp_path, "ant", member, tiny_settings(), seed=0, secret=1)
    assert store.two_tracks
    assert store.rows is not None
    assert [store.graph.entities[i] for i in store.rows["entity"]] == list(store.shared.entities)


def test_names_what_has_changed_since_it_was_made(tmp_path: Path) -> None:
    store = create_store(tmp_path, "ant", ANT, tiny_settings(), seed=0, secret=1)
    assert store.changed(ANT, tiny_settings(), seed=0) == []
    bee = tiny_federation().members["bee"]
    changed = store.changed(bee, tiny_settings(train={"dim": 9}), seed=1)
    assert changed == ["its graph", "what it shares", "how it trains", "the seed"]


def test_refuses_folders_without_a_store_and_graphs_without_validation_triples(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not an owner's store"):
        OwnerStore.open(tmp_path)
    graph = replace(ANT.graph, splits={"train": ANT.graph.train})
    with pytest.raises(SettingsError, match="needs shareable training triples and validation triples"):
        create_store(tmp_path, "ant", replace(ANT, graph=graph), tiny_settings(), seed=0, secret=1)


def test_widths_count_inverse_rows_as_tables_do() -> None:
    for model in ("TransE", "DistMult", "ComplEx", "RotatE"):
        for reciprocal in (False, True):
            train = TrainSettings(model=model, dim=6, reciprocal=reciprocal, device="cpu")
            tables = make_tables(train, 3, 2)
            assert widths(make_model(train)) == {kind: tables.width(kind) for kind in KINDS}

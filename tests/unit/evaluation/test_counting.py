"""Counters of better and equal entities."""

from __future__ import annotations

import numpy as np
import pytest

from fkge.embed import Tables, model_class
from fkge.evaluation import Known, rank
from tests.unit.evaluation.rank_twin import assert_same


@pytest.mark.parametrize("width", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(("name", "norm"), [("TransE", 1), ("TransE", 2), ("DistMult", 1), ("RotatE", 1)])
def test_counters_agree_across_tiles(name, norm, width):
    """More candidates than a tile holds, and sizes that fill neither registers nor tiles."""
    rng = np.random.default_rng(width)
    entities = 2500
    tables = Tables(model_class(name)(width, norm=norm), entities, 3, seed=width, bound=1.0)
    triples = np.stack([rng.integers(entities, size=25), rng.integers(3, size=25), rng.integers(entities, size=25)], 1)
    known = Known(rng.integers((entities, 3, entities), size=(5000, 3)), entities, 3)
    fast, plain = (rank(tables, triples, known=known, kernels=kernels) for kernels in (True, False))
    assert_same(fast, plain)

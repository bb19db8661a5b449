"""Scores of single triples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fkge.embed import MODELS, Tables, model_class
from fkge.evaluation import score_triples


@pytest.mark.parametrize("name", MODELS)
def test_scores_of_triples(name):
    """Chunks and the order by relation do not show, and the scores are the model's own."""
    tables = Tables(model_class(name)(4), 9, 3, seed=1, bound=1.0, dtype=torch.float64)
    triples = np.random.default_rng(0).integers((9, 3, 9), size=(50, 3))
    got = score_triples(tables, triples)
    for memory in (1e-6, 1e-3):
        torch.testing.assert_close(score_triples(tables, triples, memory=memory), got)
    one_by_one = torch.cat([score_triples(tables, triple[None]) for triple in triples])
    torch.testing.assert_close(got, one_by_one)
    assert got.shape == (50,)
    assert got.unique().numel() > 30
    assert score_triples(tables, triples[:0]).shape == (0,)

"""Ranks do not depend on the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fkge.embed import MODELS, Tables, model_class
from fkge.evaluation import Known, rank, score_triples
from tests.unit.evaluation.rank_twin import ENTITIES, RELATIONS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize("precision", ["highest", "medium"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("norm", [1, 2])
def test_cuda_gives_the_same_ranks(facts, name, norm, precision):
    here, there = (
        Tables(model_class(name)(6, norm=norm), ENTITIES, RELATIONS, seed=5, bound=0.8, device=device)
        for device in ("cpu", "cuda")
    )
    for tables in (here, there):
        tables["entity"][ENTITIES // 2 :] = tables["entity"][: ENTITIES // 2]
    known = Known(facts, ENTITIES, RELATIONS)
    expected = rank(here, facts, known=known, kernels=False)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        for memory in (256.0, 1e-2):
            got = rank(there, facts, known=known, memory=memory)
            np.testing.assert_array_equal(got.optimistic, expected.optimistic)
            np.testing.assert_array_equal(got.pessimistic, expected.pessimistic)
    finally:
        torch.set_float32_matmul_precision(before)
    torch.testing.assert_close(score_triples(there, facts).cpu(), score_triples(here, facts))

"""The geometry of a model is its similarity."""

from __future__ import annotations

import pytest
import torch

from fkge.evaluation.geometry import geometry_of
from tests.unit.evaluation.rank_twin import CASES


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_geometry_is_the_models_similarity(make_tables, name, options):
    """`Geometry.exact` orders candidates as `Model.similarity` does, and `width` is the projected one."""
    tables = make_tables(name, **options)
    geometry = geometry_of(tables.model)
    generator = torch.Generator().manual_seed(0)
    query, candidates = torch.randn(2, 30, geometry.width, generator=generator, dtype=torch.float64)
    exact = geometry.exact(query[:1].expand_as(candidates), candidates)
    expected = tables.model.similarity(query[:1], candidates)[0]
    assert torch.equal(exact.argsort(), expected.argsort())

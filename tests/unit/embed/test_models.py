"""Scores against formulas written out by hand, in float64."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from fkge.embed import MODELS, Relations, Tables, model_class
from fkge.errors import FkgeError, SettingsError

N = 20


def tables_of(name: str, **options: object) -> Tables:
    model = model_class(name)(6, **options)  # type: ignore[arg-type]
    return Tables(model, 9, 4, seed=1, bound=0.7, dtype=torch.float64)


def scores(tables: Tables, triples: torch.Tensor) -> torch.Tensor:
    head, relation, tail = triples.unbind(1)
    order = torch.argsort(relation, stable=True)
    unique, index = torch.unique(relation[order], return_inverse=True)
    relations = Relations({n: tables[n][unique] for n in tables.names("relation")}, index[:, None])
    rows = [{n: tables[n][ids[order]][:, None] for n in tables.names("entity")} for ids in (head, tail)]
    out = torch.empty(len(triples), dtype=torch.float64)
    out[order] = tables.model.score(rows[0], relations, rows[1])
    return out


@pytest.fixture
def triples() -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    return torch.stack([torch.randint(k, (N,), generator=g) for k in (9, 4, 9)], 1)


def openke(name: str, t: Tables, h: int, r: int, tail: int, norm: int, flag: bool) -> float:
    """OpenKE's formulas, one triple at a time."""
    e, rel = t["entity"], t["relation"][r]
    if name == "TransE":
        a, b = e[h], e[tail]
    elif name == "TransH":
        w = F.normalize(t["normal"][r], dim=0)
        a, b = e[h] - (e[h] @ w) * w, e[tail] - (e[tail] @ w) * w
    elif name == "TransR":
        m = t["matrix"][r].reshape(t.model.dim, t.model.relation_dim)
        a, b = e[h] @ m, e[tail] @ m
    else:
        p, q = t["entity_transfer"], t["relation_transfer"][r]
        width = t.model.relation_dim

        def transfer(i: int) -> torch.Tensor:
            x = torch.zeros(width, dtype=torch.float64)
            x[: min(width, t.model.dim)] = e[i][:width]
            return F.normalize(x + (e[i] @ p[i]) * q, dim=0)

        a, b = transfer(h), transfer(tail)
    if flag:
        a, rel, b = (F.normalize(x, dim=0) for x in (a, rel, b))
    return -float(torch.linalg.vector_norm(a + rel - b, norm))


@pytest.mark.parametrize("flag", [False, True])
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("name", ["TransE", "TransH", "TransR", "TransD"])
def test_translations_are_openkes(name: str, norm: int, flag: bool, triples: torch.Tensor) -> None:
    t = tables_of(name, norm=norm, normalize=flag)
    if name == "TransR":  # the identity would hide a transposed matrix
        t["matrix"].add_(
            torch.randn(t["matrix"].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
        )
    expected = [openke(name, t, *row, norm, flag) for row in triples.tolist()]
    assert scores(t, triples).tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("relation_dim", [4, 9])
@pytest.mark.parametrize("name", ["TransR", "TransD"])
def test_relation_dim_may_differ(name: str, relation_dim: int, triples: torch.Tensor) -> None:
    t = tables_of(name, relation_dim=relation_dim)
    expected = [openke(name, t, *row, 1, False) for row in triples.tolist()]
    assert scores(t, triples).tolist() == pytest.approx(expected, abs=1e-12)


def as_complex(row: torch.Tensor) -> torch.Tensor:
    return torch.complex(*row.chunk(2))


def test_bilinear_and_rotation_formulas(triples: torch.Tensor) -> None:
    for name in ("DistMult", "ComplEx", "RotatE"):
        t = tables_of(name)
        expected = []
        for h, r, tail in triples.tolist():
            a, rel, b = t["entity"][h], t["relation"][r], t["entity"][tail]
            if name == "DistMult":
                expected.append(float((a * rel * b).sum()))
            elif name == "ComplEx":
                expected.append(float((as_complex(a) * as_complex(rel) * as_complex(b).conj()).sum().real))
            else:
                turned = as_complex(a) * torch.exp(1j * rel)
                expected.append(-float((turned - as_complex(b)).abs().sum()))
        assert scores(t, triples).tolist() == pytest.approx(expected, abs=1e-12), name


@pytest.mark.parametrize("name", list(MODELS))
def test_head_and_tail_queries_agree(name: str, triples: torch.Tensor) -> None:
    """score = similarity(tail_query(h), t) = similarity(head_query(t), h), which ranking relies on."""
    t = tables_of(name, norm=2)
    m = t.model
    for h, r, tail in triples.tolist():
        relations = Relations({n: t[n][r : r + 1] for n in t.names("relation")}, torch.zeros(1, 1, dtype=torch.int64))
        a, b = ({n: t[n][i : i + 1][None] for n in t.names("entity")} for i in (h, tail))
        a, b = m.project(a, relations), m.project(b, relations)
        forward = m.similarity(m.tail_query(a, relations), b)
        backward = m.similarity(m.head_query(b, relations), a)
        assert float(forward) == pytest.approx(float(backward), abs=1e-12)


def test_similarity_of_all_pairs_is_similarity_of_each() -> None:
    g = torch.Generator().manual_seed(0)
    for name in MODELS:
        for norm in (1, 2):
            m = model_class(name)(6, norm=norm)
            width = 12 if name in ("ComplEx", "RotatE") else 6
            q = torch.randn(3, 5, width, generator=g, dtype=torch.float64)
            c = torch.randn(3, 7, width, generator=g, dtype=torch.float64)
            each = torch.stack([m.similarity(q[:, i : i + 1], c)[:, 0] for i in range(5)], 1)
            torch.testing.assert_close(m.similarity(q, c), each)


def test_rotation_invariance_is_declared_truly() -> None:
    rotation = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))[0]
    triples = torch.tensor([[0, 0, 1], [2, 1, 3], [4, 3, 4]])
    for norm, invariant in ((1, False), (2, True)):
        t = tables_of("TransE", norm=norm)
        before = scores(t, triples)
        for name in ("entity", "relation"):
            t[name].copy_(t[name] @ rotation)
        assert t.model.rotation_invariant is invariant
        assert torch.allclose(scores(t, triples), before) is invariant


def test_phases_start_all_around() -> None:
    phases = tables_of("RotatE")["relation"]
    assert phases.abs().max() <= math.pi
    assert phases.min() < -1
    assert phases.max() > 1


def test_unknown_model_names_its_neighbours() -> None:
    with pytest.raises(FkgeError, match="did you mean TransE"):
        model_class("TranE")
    assert model_class("rotate").name == "RotatE"


@pytest.mark.parametrize(
    ("name", "options"), [("TransE", {"norm": 3}), ("TransE", {"relation_dim": 5}), ("TransR", {"relation_dim": 0})]
)
def test_impossible_shapes_are_refused(name: str, options: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        tables_of(name, **options)


@pytest.mark.parametrize("name", list(MODELS))
def test_relation_queries_are_scores(name: str, triples: torch.Tensor) -> None:
    """Where a model has one, its product with a relation's row is the triple's score."""
    t = tables_of(name)
    head, relation, tail = triples.unbind(1)
    query = t.model.relation_query(t["entity"][head], t["entity"][tail])
    if name not in ("DistMult", "ComplEx"):
        assert query is None
        return
    assert query is not None
    torch.testing.assert_close((query * t["relation"][relation]).sum(1), scores(t, triples))

from __future__ import annotations

import numpy as np
import pytest
import torch

from fkge.embed import Tables, model_class
from fkge.errors import SettingsError, UnknownLabelError
from fkge.evaluation import neighbors, predict
from fkge.graph.graph import Graph, Vocabulary

LABELS = ["ann", "bob", "cem", "dot", "eve"]


@pytest.fixture
def graph() -> Graph:
    splits = {"train": np.array([(0, 0, 1), (2, 1, 3)]), "test": np.array([(0, 0, 2)])}
    return Graph(Vocabulary(LABELS, "entity"), Vocabulary(["knows", "likes"], "relation"), splits)


@pytest.fixture
def line() -> Tables:
    """Entities at 0, 1, 2, 3, 4 on a line; ``knows`` moves by 1, ``likes`` by 2."""
    tables = Tables(model_class("TransE")(1), 5, 2)
    tables["entity"][:, 0] = torch.arange(5.0)
    tables["relation"][:, 0] = torch.tensor([1.0, 2.0])
    return tables


def test_tails(line, graph):
    got = predict(line, graph, head="ann", relation="knows", top=3, exclude_known=False)
    assert got == [("bob", 0.0, True), ("ann", -1.0, False), ("cem", -1.0, True)]
    assert predict(line, graph, head="ann", relation="knows", top=2) == [("ann", -1, False), ("dot", -2, False)]


def test_heads_and_relations(line, graph):
    heads = predict(line, graph, relation="likes", tail="dot", top=3, exclude_known=False)
    assert heads == [("bob", 0.0, False), ("ann", -1.0, False), ("cem", -1.0, True)]
    heads = predict(line, graph, relation="likes", tail="dot", top=3)
    assert [h.label for h in heads] == ["bob", "ann", "dot"]
    found = predict(line, graph, head="ann", tail="cem", exclude_known=False)
    assert found == [("likes", 0.0, False), ("knows", -1.0, True)]


def test_refuses_what_is_not_a_question(line, graph):
    with pytest.raises(SettingsError, match="two of"):
        predict(line, graph, head="ann")
    with pytest.raises(SettingsError, match="two of"):
        predict(line, graph, head="ann", relation="knows", tail="bob")
    with pytest.raises(UnknownLabelError, match="did you mean ann"):
        predict(line, graph, head="anna", relation="knows")
    with pytest.raises(UnknownLabelError, match="did you mean eve"):
        neighbors(line, graph, "evee")


def test_not_a_number_comes_last(line, graph):
    line["entity"][1] = float("nan")
    got = predict(line, graph, head="ann", relation="knows", exclude_known=False)
    assert got[-1].label == "bob"
    assert neighbors(line, graph, "eve")[-1].label == "bob"


def test_neighbors(graph):
    tables = Tables(model_class("TransE")(2), 5, 2)
    angle = torch.tensor([0.0, 0.1, 3.0, 1.0, -0.2])
    tables["entity"].copy_(torch.stack([angle.cos(), angle.sin()], 1) * torch.tensor([[1.0], [5], [1], [0.1], [2]]))
    tables.append("entity", tables["entity"][:1])  # a virtual row is nobody's neighbour
    got = neighbors(tables, graph, "ann", top=4)
    assert [n.label for n in got] == ["bob", "eve", "dot", "cem"]
    assert got[0].similarity == pytest.approx(np.cos(0.1), abs=1e-6)
    assert neighbors(tables, graph, "ann", top=4, memory=1e-6) == got
    assert len(neighbors(tables, graph, "ann", top=99)) == 4

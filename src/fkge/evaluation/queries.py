"""Questions to a trained model: the missing part of a triple, and entities near an entity."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from fkge.embed import Tables
from fkge.errors import SettingsError
from fkge.evaluation.scoring import MEMORY, score_triples
from fkge.graph.graph import Graph


class Prediction(NamedTuple):
    """One answer: higher scores are better; `known` if the graph states it already."""

    label: str
    score: float
    known: bool


class Neighbor(NamedTuple):
    """One near entity and the cosine between the two."""

    label: str
    similarity: float


@torch.no_grad()
def predict(
    tables: Tables,
    graph: Graph,
    *,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    exclude_known: bool = True,
    memory: float = MEMORY,
) -> list[Prediction]:
    """Return the best labels for the one part of a triple that is None, best first.

    Scores that are not numbers come last; equal scores come in the order of the vocabulary.

    Args:
        tables: the model.
        graph: its labels and facts.
        head, relation, tail: labels; None for the missing part.
        top: how many answers.
        exclude_known: leave out answers that the graph states.
        memory: MB to work in.

    Raises:
        SettingsError: not exactly one part is None.
        UnknownLabelError: the graph has no such label.
    """
    given = (head, relation, tail)
    if given.count(None) != 1:
        raise SettingsError("predict needs two of head, relation and tail, and finds the third")
    vocabularies = (graph.entities, graph.relations, graph.entities)
    missing = given.index(None)
    answers = vocabularies[missing]
    triples = np.empty((len(answers), 3), np.int64)
    for column, (label, vocabulary) in enumerate(zip(given, vocabularies, strict=True)):
        triples[:, column] = np.arange(len(answers)) if label is None else vocabulary.id(label)
    facts = graph.facts
    kept = [column for column in range(3) if column != missing]
    stated = facts[(facts[:, kept] == triples[0, kept]).all(axis=1), missing]
    known = np.zeros(len(answers), bool)
    known[stated] = True

    scores = score_triples(tables, triples, memory=memory).double().cpu().numpy()
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
    if exclude_known:
        order = order[~known[order]]
    return [Prediction(answers[i], float(scores[i]), bool(known[i])) for i in order[: max(top, 0)].tolist()]


@torch.no_grad()
def neighbors(tables: Tables, graph: Graph, entity: str, *, top: int = 10, memory: float = MEMORY) -> list[Neighbor]:
    """Return the entities whose vectors point most nearly the same way as `entity`'s, nearest first.

    Args:
        tables: the model.
        graph: its labels.
        entity: label.
        top: how many neighbours.
        memory: MB to work in.
    """
    self_id = graph.entities.id(entity)
    table = tables["entity"][: len(graph.entities)]
    own = F.normalize(table[self_id].double(), dim=0)
    step = max(1, int(memory * 1e6 / (24 * table.shape[1])))
    cosine = torch.cat([F.normalize(part.double(), dim=1) @ own for part in table.split(step)]).cpu().numpy()
    order = np.argsort(-np.nan_to_num(cosine, nan=-np.inf), kind="stable")
    order = order[order != self_id][: max(top, 0)]
    return [Neighbor(graph.entities[i], float(cosine[i])) for i in order.tolist()]

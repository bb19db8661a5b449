"""Triple classification: is a triple true? One threshold per relation, fitted on the validation split.

Every positive gets one negative: its head or its tail, with equal chance, gives way to an entity with which the
triple is not a known fact. A triple is called true if its score is *above* its relation's threshold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.embed import Tables
from fkge.embed.batches import Facts, generator_of
from fkge.errors import SettingsError
from fkge.evaluation.scoring import MEMORY, score_triples
from fkge.graph.graph import HEAD, RELATION, TAIL, Graph

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Classification:
    """Thresholds that separate facts from corrupted triples, and their accuracy.

    Attributes:
        accuracy: by split.
        thresholds: (relations,) float64; `fallback` for relations that have no validation triple.
        fallback: the best single threshold.
        per_relation: by split, (relations,) accuracy, NaN for a relation without triples there.
    """

    accuracy: dict[str, float]
    thresholds: Floats
    fallback: float
    per_relation: dict[str, Floats]


def classify(
    tables: Tables,
    graph: Graph,
    *,
    splits: Sequence[str] = ("valid", "test"),
    seed: int = 0,
    memory: float = MEMORY,
) -> Classification:
    """Fit thresholds on ``valid`` and measure accuracy on `splits`; splits without triples are left out.

    Args:
        tables: the model.
        graph: has the splits.
        splits: where accuracy is measured.
        seed: of the negatives.
        memory: MB to work in.

    Raises:
        SettingsError: there are no valid triples to fit thresholds on.
    """
    relations = len(graph.relations)
    negatives = Negatives(graph, seed)
    scored = {
        name: _scored(tables, graph, name, negatives, memory)
        for name in dict.fromkeys(("valid", *splits))
        if len(graph.splits[name])
    }
    if "valid" not in scored:
        raise SettingsError("triple classification fits its thresholds on valid triples, and there are none")
    thresholds, fallback = fit_thresholds(*scored["valid"], relations)
    accuracy, per_relation = {}, {}
    for name in (name for name in splits if name in scored):
        relation, score, label = scored[name]
        correct = (score > thresholds[relation]) == label
        accuracy[name] = float(correct.mean())
        total = np.bincount(relation, minlength=relations)
        right = np.bincount(relation, weights=correct, minlength=relations)
        per_relation[name] = np.where(total > 0, right / np.maximum(total, 1), np.nan)
    return Classification(accuracy, thresholds, fallback, per_relation)


class Negatives:
    """Draws corrupted triples; the same for a split and a seed, whichever other splits are drawn."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.seed = seed
        entities, relations = len(graph.entities), len(graph.relations)
        self.facts = Facts(torch.from_numpy(graph.facts.astype(np.int64)), entities, relations)
        self.names = sorted(graph.splits)

    def draw(self, triples: npt.NDArray[Any], split: str) -> npt.NDArray[np.int64]:
        """Return one negative for each of `triples` (n, 3); fewer where every entity makes a fact on both sides."""
        generator = generator_of("cpu", self.seed, self.names.index(split))
        positive = torch.from_numpy(np.asarray(triples, np.int64))
        tail = torch.rand(len(positive), generator=generator) < 0.5
        uniform = torch.rand(len(positive), 2, generator=generator, dtype=torch.float64)
        negative = self._corrupt(positive, tail, uniform[:, :1])
        full = self._are_facts(negative)
        if full.any():  # nothing is false on that side: try the other
            other = self._corrupt(positive, ~tail, uniform[:, 1:])
            negative = torch.where(full.unsqueeze(1), other, negative)
            negative = negative[~self._are_facts(negative)]
        return np.asarray(negative.numpy())

    def _are_facts(self, triples: Tensor) -> Tensor:
        head, relation, tail = triples.unbind(1)
        return self.facts.tails.contains(head * self.facts.relations + relation, tail)

    def _corrupt(self, positive: Tensor, tail: Tensor, uniform: Tensor) -> Tensor:
        fixed = torch.where(tail, positive[:, HEAD], positive[:, TAIL])
        drawn = self.facts.draw_outside(fixed, positive[:, RELATION], tail, uniform).squeeze(1)
        head = torch.where(tail, positive[:, HEAD], drawn)
        return torch.stack([head, positive[:, RELATION], torch.where(tail, drawn, positive[:, TAIL])], dim=1)


def _scored(
    tables: Tables, graph: Graph, split: str, negatives: Negatives, memory: float
) -> tuple[npt.NDArray[np.int64], Floats, npt.NDArray[np.bool_]]:
    """Return relation, score and truth of a split's positives and negatives, (n,) each."""
    positive = graph.splits[split].astype(np.int64)
    negative = negatives.draw(positive, split)
    triples = np.concatenate([positive, negative])
    score = score_triples(tables, triples, memory=memory).double().cpu().numpy()
    return triples[:, RELATION], _finite(score), np.arange(len(triples)) < len(positive)


def _finite(score: Floats) -> Floats:
    """Return scores that can be sorted; what is not a number is the worst there is."""
    worst = float(np.finfo(np.float32).min)
    return np.asarray(np.nan_to_num(score, nan=worst, neginf=worst, posinf=-worst))


def fit_thresholds(
    relation: npt.NDArray[np.int64], score: Floats, label: npt.NDArray[np.bool_], relations: int
) -> tuple[Floats, float]:
    """Return the most accurate threshold of each relation, and of all triples taken together.

    A threshold lies in the middle between two neighbouring scores, or 1 outside the outermost. Of equally
    accurate ones, the one with the widest gap around it wins, then the lowest. Those outside count as without
    a gap: they win only by accuracy.

    Args:
        relation, score, label: (n,) each, n ≥ 1.

    Returns:
        (relations,) thresholds, the second standing in for relations without a triple; and the second.
    """
    fallback = float(_fit(np.zeros(len(score), np.int64), score, label, 1)[0])
    thresholds = _fit(relation, score, label, relations)
    return np.where(np.isnan(thresholds), fallback, thresholds), fallback


def _fit(group: npt.NDArray[np.int64], score: Floats, label: npt.NDArray[np.bool_], groups: int) -> Floats:
    """Return the best threshold of each group, (groups,); NaN if it has no score."""
    order = np.lexsort((score, group))
    group, score, label = group[order], score[order], label[order]
    n = len(score)
    # A cut at i puts i and what follows in its group above the threshold; each group ends with a cut above all.
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    last = np.r_[first[1:], n]
    cut = np.r_[np.arange(n), last]
    owner = np.r_[group, group[first]]
    start = np.repeat(first, last - first)
    at_start, at_end = cut == np.r_[start, first], np.arange(len(cut)) >= n

    positives = np.r_[0, np.cumsum(label)]
    begin, end = np.r_[start, first], np.r_[np.repeat(last, last - first), last]
    negatives_below = (cut - begin) - (positives[cut] - positives[begin])
    correct = negatives_below + positives[end] - positives[cut]

    below, here = score[np.maximum(cut - 1, 0)], score[np.minimum(cut, n - 1)]
    inner = ~at_start & ~at_end
    gap = np.where(inner, here - below, 0.0)
    middle = below + gap / 2
    middle = np.where(middle < here, middle, below)  # neighbouring floats have nothing between them
    outside = np.where(at_end, below + 1, np.minimum(here - 1, np.nextafter(here, -np.inf)))
    threshold = np.where(inner, middle, outside)
    usable = ~inner | (here > below)  # equal scores cannot be separated

    owner, correct, gap, threshold = owner[usable], correct[usable], gap[usable], threshold[usable]
    best = np.lexsort((-threshold, gap, correct, owner))
    winner = best[np.r_[owner[best][1:] != owner[best][:-1], True]]
    out = np.full(groups, np.nan)
    out[owner[winner]] = threshold[winner]
    return out

"""Blend the federated model with one trained without peers, by validation, so that joining is never worse than staying
alone.

Where scores are dot products (DistMult, ComplEx), the weighted sum of two models' scores is the score of one model with
both vectors side by side, its relation rows scaled by the weights. So a blend is an ordinary model of twice the size,
with a weight of its own for each relation and direction. Of other models the better one is taken.

Where peers have harmed the first model, so that validation puts the lone one above it, the owner trains once more
alone, from another seed and for as long as it federated, and blends these two: that is what `control` does, too.

A lone model depends on nothing but the owner's graph and settings, so it is kept in the owner's store and trained once,
whatever restarts come between and however many arms a simulation has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fkge.embed import Tables, Trainer, TrainingLoop, load_tensors, make_tables, save_tensors
from fkge.embed.fit import is_due
from fkge.errors import RunError, SettingsError
from fkge.evaluation import Known, metrics, rank
from fkge.federation.owner.store import OwnerStore
from fkge.federation.owner.training import seed_of
from fkge.graph.graph import RELATION, Triples
from fkge.results import Blend
from fkge.settings import TrainSettings

WEIGHTS = (0.0, 0.25, 0.5, 0.65, 0.8, 0.9, 1.0)
"""Weights of the first model among which validation chooses; the second has the rest."""

_KEPT, _HEX = "fkge.lone.1", 16

_PRIOR = 20.0
"""How many validation triples of a relation count as much as all others together when its weight is chosen."""


def blend_with_lone(
    first: Tables,
    store: OwnerStore,
    decide: Triples,
    *,
    peers: bool,
    stop: Callable[[int], bool] | None = None,
) -> tuple[Tables, Blend] | None:
    """Blend an owner's model with one that it trains alone, on its whole graph, for `lone_epochs`.

    Args:
        first: what it has, such as its federated model.
        store: the owner's data. Lone models are kept in a folder of it.
        decide: (k, 3) validation triples that decide.
        peers: the first model is made with peers: another lone one replaces it if the lone one is better by validation.
        stop: called after every epoch with the number of epochs done; True stops.

    Returns:
        The blend and how it was chosen, or None if `stop` said so.
    """
    graph, own = store.graph, store.settings
    known, every = Known.of(graph), own.epochs * own.test_every
    done = 0

    def score(tables: Tables) -> float:
        return metrics(rank(tables, decide, known=known))["mrr"]

    def train(label: str, epochs: int) -> Tables | None:
        """A lone model at its best by validation, from the store if it is there."""
        nonlocal done
        settings = own.train.model_copy(update={"seed": seed_of(store.seed, store.name, label)})
        tables = make_tables(settings, len(graph.entities), len(graph.relations))
        about = (graph.fingerprint, settings.model_dump_json(), epochs, every)
        digest = hashlib.sha256(repr(about).encode() + np.ascontiguousarray(decide).tobytes()).hexdigest()[:_HEX]
        folder, name = store.folder / "lone", label.replace(" ", "-")
        kept = folder / f"{name}-{digest}.safetensors"
        if kept.exists():
            with suppress(RunError, SettingsError):  # a damaged one is trained anew
                tables.load(load_tensors(kept, _KEPT)[0])
                done += epochs
                return tables
        loop = TrainingLoop(Trainer(tables, graph.train, settings), phase=lambda _: (0, epochs))
        for epoch in range(1, epochs + 1):
            loop.run_epoch()
            done += 1
            if stop is not None and stop(done):
                return None
            if is_due(epoch, every, epochs):
                loop.record(score(tables))
        loop.best.restore()
        folder.mkdir(exist_ok=True)
        for older in folder.glob(f"{name}-{'[0-9a-f]' * _HEX}.safetensors"):
            older.unlink()  # of another graph or other settings
        save_tensors(kept, _KEPT, tables.export(state=False), {}, digest=True)
        return tables

    lone = train("lone", own.lone_epochs)
    if lone is None:
        return None
    scores = score(first), score(lone)
    harmed = peers and scores[0] < scores[1]
    if harmed:
        again = train("lone again", own.total_epochs)
        if again is None:
            return None
        first = again
    mixed = blend(first, lone, own.train, decide, known)
    report = Blend(
        epochs=done, score=mixed.score, first=scores[0], lone=scores[1], weight=0.0 if harmed else mixed.weight,
        relations=0 if harmed else sum(weight != mixed.weight for weight in mixed.weights),
    )  # fmt: skip
    return mixed.tables, report


@dataclass(frozen=True)
class Mixed:
    """A blend of two models.

    Attributes:
        tables: of the blend.
        score: its validation MRR.
        weight: of the first model, over all.
        weights: by relation, and by direction where a model has inverse rows.
        scores: validation MRR for each of `WEIGHTS`.
    """

    tables: Tables
    score: float
    weight: float
    weights: tuple[float, ...]
    scores: tuple[float, ...]


def blend(first: Tables, second: Tables, settings: TrainSettings, decide: Triples, known: Known) -> Mixed:
    """Blend two models of one owner as its validation triples say.

    Args:
        first, second: of the same model and graph.
        settings: of either; sizes may differ.
        decide: (k, 3) validation triples.
        known: facts that do not compete.
    """
    if first.model.comparison != "dot" or second.model.comparison != "dot":
        scores = tuple(metrics(rank(tables, decide, known=known))["mrr"] for tables in (second, first))
        best = int(scores[1] > scores[0])
        return Mixed((second, first)[best], scores[best], float(best), (float(best),), scores)
    both = side_by_side(first, second, settings)
    directions = len(both.exchanged("relation"))
    reciprocals = torch.zeros(len(WEIGHTS), directions, both.relations, dtype=torch.float64)
    counts = torch.zeros(directions, both.relations, dtype=torch.float64)
    relation = torch.from_numpy(decide[:, RELATION].astype(np.int64))
    for number, weight in enumerate(WEIGHTS):
        scale(both, first, second, [torch.full((both.relations,), weight)] * directions)
        ranks = rank(both, decide, known=known)
        by_side = torch.from_numpy(1 / ranks.of("realistic"))  # heads, tails
        # Rows of the relation itself answer for tails; the inverse ones, or else the same ones, for heads.
        columns = [by_side[:, [1]], by_side[:, [0]]] if directions == 2 else [by_side]
        for direction, column in enumerate(columns):
            reciprocals[number, direction].index_add_(0, relation, column.mean(1))
            if number == 0:
                counts[direction].index_add_(0, relation, torch.ones(len(relation), dtype=torch.float64))
    total = reciprocals.sum((1, 2)) / counts.sum()
    best = int(total.argmax())
    prior = _PRIOR * reciprocals.sum(2, keepdim=True) / counts.sum(1)[:, None]
    chosen = ((reciprocals + prior) / (counts + _PRIOR)).argmax(0)
    # Ties, as of relations that no validation triple has, go to what is best over all.
    chosen = torch.where(counts > 0, chosen, best)
    weights = torch.tensor(WEIGHTS, dtype=torch.float64)[chosen]
    if bool((weights == 0).all()) or bool((weights == 1).all()):
        mixed, score = second if bool((weights == 0).all()) else first, float(total[best])
    else:
        scale(both, first, second, list(weights))
        mixed, score = both, metrics(rank(both, decide, known=known))["mrr"]
    return Mixed(mixed, score, WEIGHTS[best], tuple(weights.flatten().tolist()), tuple(total.tolist()))


def side_by_side(first: Tables, second: Tables, settings: TrainSettings) -> Tables:
    """Tables with the vectors of both; of complex numbers all real parts come first."""
    dims = first.model.dim + second.model.dim
    wide = settings.model_copy(update={"dim": dims, "relation_dim": None, "device": str(first.device)})
    both = make_tables(wide, first.entities, first.relations, first.dtype)
    for kind in ("entity", "relation"):
        for name in both.names(kind):
            both[name].copy_(_join(first, second, name, (1.0, 1.0)))
    return both


def scale(both: Tables, first: Tables, second: Tables, weights: Sequence[Tensor]) -> None:
    """Write the relation rows, scaled by each relation's weight of the first model and the rest of the second."""
    for name, weight in zip(both.exchanged("relation"), weights, strict=True):
        w = weight.to(both.device, both.dtype).unsqueeze(1)
        both[name].copy_(_join(first, second, name, (w, 1 - w)))


def _join(first: Tables, second: Tables, name: str, scales: tuple[Tensor | float, Tensor | float]) -> Tensor:
    a, b = first[name] * scales[0], second[name] * scales[1]
    if not first.spec(name).complex:
        return torch.cat([a, b], dim=1)
    (a_re, a_im), (b_re, b_im) = a.chunk(2, dim=1), b.chunk(2, dim=1)
    return torch.cat([a_re, b_re, a_im, b_im], dim=1)

"""Query the owners' models: predictions and neighbours, of the owner alone and federated, side by side."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from fkge.dashboard.events import Json
from fkge.embed import Tables
from fkge.errors import FkgeError, RunError
from fkge.evaluation import neighbors, predict
from fkge.experiment.training_run import Run
from fkge.files import stamp
from fkge.graph import Graph, load_graph
from fkge.settings import TrainSettings

Kind = Literal["entity", "relation"]

MODELS, GRAPHS = 4, 2
"""Kept in memory: two arms of the last two owners that were queried."""

SUGGESTIONS = 12
DEEPEST = 1000
"""The lowest rank to which true answers are searched for."""

PATIENCE = 20.0
"""Seconds that a query waits for those before it."""

Asked = tuple[str | None, str | None, str | None]
_Labels = dict[Kind, list[str]]


@lru_cache(maxsize=GRAPHS)
def _load_graph(path: Path, version: object) -> tuple[Graph, _Labels]:
    """Return a graph, and its labels case-folded; `version` is part of the cache's key, as in `_load_model`."""
    graph = load_graph(path)
    return graph, {
        "entity": [label.casefold() for label in graph.entities],
        "relation": [label.casefold() for label in graph.relations],
    }


@lru_cache(maxsize=MODELS)
def _load_model(folder: Path, version: object, graph: Graph) -> Tables:
    """Return the vectors of an owner in an arm."""
    return Run(folder, graph, TrainSettings.load(folder / "settings.toml")).load("cpu")


class ModelQueries:
    """Queries to the models of the simulation in the folder `run`, one at a time.

    Names of owners and arms become part of paths: they must have been checked.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lock = threading.Lock()

    def labels(self, owner: str, kind: Kind, text: str) -> list[str]:
        """Return labels that contain `text`; those that begin with it, or whose last part does, come first."""
        with self._turn():
            graph, lowered = self._graph(owner)
        wanted = text.casefold()
        vocabulary = graph.entities if kind == "entity" else graph.relations
        found = [i for i, label in enumerate(lowered[kind]) if wanted in label]
        return [vocabulary[i] for i in sorted(found, key=lambda i: _distance(wanted, lowered[kind][i]))[:SUGGESTIONS]]

    def examples(self, owner: str, count: int = 4) -> list[dict[str, str]]:
        """Queries whose answers are in the owner's test set, the same ones each time."""
        with self._turn():
            graph, _ = self._graph(owner)
        chosen = np.random.default_rng(0).permutation(len(graph.test))[:count]
        return [{"head": graph.entities[h], "relation": graph.relations[r]} for h, r, _ in graph.test[chosen].tolist()]

    def predict(self, owner: str, arms: Sequence[str], asked: Asked, top: int, known: bool) -> dict[str, Json]:
        """Complete a triple of which two parts are given.

        Args:
            owner: whose models.
            arms: of which arms.
            asked: labels of head, relation and tail; one of them is None.
            top: number of answers.
            known: also answers that are facts of the training and validation sets.

        Returns:
            By arm, ``answers``: label, score, place, and the split that has that fact, if any; ``true``: places of test
            facts, at most `DEEPEST`; ``unseen``: number of test facts. Or ``missing``: why there are none.
        """

        def ask(tables: Tables, graph: Graph) -> Json:
            stated = _stated(graph, asked)
            hidden = set() if known else {label for label, split in stated.items() if not split.startswith("test")}
            head, relation, tail = asked
            depth = DEEPEST + len(hidden)
            found = predict(tables, graph, head=head, relation=relation, tail=tail, top=depth, exclude_known=False)
            shown = list(enumerate((a for a in found if a.label not in hidden), 1))[:DEEPEST]
            unseen = {label for label, split in stated.items() if split.startswith("test")}
            return {
                "answers": [
                    {"place": place, "label": a.label, "score": _finite(a.score), "split": stated.get(a.label)}
                    for place, a in shown[:top]
                ],
                "true": [{"place": place, "label": a.label} for place, a in shown if a.label in unseen][:top],
                "unseen": len(unseen),
            }

        return self._each(owner, arms, ask)

    def neighbors(self, owner: str, arms: Sequence[str], entity: str, top: int) -> dict[str, Json]:
        """Return the nearest entities to one by arm, with their cosine; or ``missing``, as in `predict`.

        Args:
            owner, arms: whose models, of which arms; entity: a label.
            top: number of answers.
        """

        def ask(tables: Tables, graph: Graph) -> Json:
            found = neighbors(tables, graph, entity, top=top)
            return {"answers": [{"label": near.label, "similarity": _finite(near.similarity)} for near in found]}

        return self._each(owner, arms, ask)

    def _each(self, owner: str, arms: Sequence[str], ask: Callable[[Tables, Graph], Json]) -> dict[str, Json]:
        with self._turn():
            graph, _ = self._graph(owner)
            out = {}
            for arm in arms:
                folder = self._run / "arms" / arm / owner
                model = folder / "model.safetensors"
                if model.exists() and (folder / "settings.toml").exists():
                    out[arm] = ask(_load_model(folder, stamp(model), graph), graph)
                else:
                    why = f"{owner} has no model in {arm} yet: it is written when that arm is finished"
                    out[arm] = {"missing": why}
            return out

    def _graph(self, owner: str) -> tuple[Graph, _Labels]:
        path = self._run / "owners" / owner / "graph.safetensors"
        try:
            return _load_graph(path, stamp(path))
        except FileNotFoundError:
            raise RunError(f"{owner}: its graph is not there yet; wait until the simulation is created") from None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=PATIENCE):
            raise FkgeError("other queries are running; try again in a moment")
        try:
            yield
        finally:
            self._lock.release()


def _distance(wanted: str, label: str) -> tuple[int, int]:
    """Return the distance of a label from the typed text: smaller is nearer."""
    if label.startswith(wanted):
        return 0, len(label)
    last = label.rstrip("/").replace("#", "/").rpartition("/")[2]
    return (1 if last.startswith(wanted) else 2 if f"_{wanted}" in last or f" {wanted}" in last else 3), len(label)


def _stated(graph: Graph, given: Asked) -> dict[str, str]:
    """Answers that are facts of the owner's graph, with their split: train, valid or test."""
    if given.count(None) != 1:
        return {}  # `predict` refuses it
    vocabularies = (graph.entities, graph.relations, graph.entities)
    missing = given.index(None)
    out: dict[str, str] = {}
    for split, facts in graph.splits.items():
        for column, label in enumerate(given):
            if label is not None:
                facts = facts[facts[:, column] == vocabularies[column].id(label)]
        for answer in facts[:, missing].tolist():
            out.setdefault(vocabularies[missing][answer], split)
    return out


def _finite(value: float) -> float | None:
    """Return a number that JSON can hold, or None: vectors that diverged have infinite scores."""
    return value if math.isfinite(value) else None

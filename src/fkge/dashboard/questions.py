"""Asking the owners' models: the same question before (alone) and after (federated), side by side."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from fkge.errors import FkgeError, RunError

if TYPE_CHECKING:
    from fkge.embed import Tables
    from fkge.graph import Graph

Kind = Literal["entity", "relation"]

MODELS, GRAPHS = 4, 2
"""Kept in memory: the last two owners that were asked, before and after."""

SUGGESTIONS = 12
DEEPEST = 1000
"""How far down the list the place of a true answer is looked for."""

PATIENCE = 20.0
"""Seconds that a question waits for those before it."""

_Made = TypeVar("_Made")


class _Kept(OrderedDict[Hashable, Any]):
    """The last `size` things that were made, each with what it was made from."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def get_or_make(self, key: Hashable, source: Path, make: Callable[[], _Made]) -> _Made:
        found = source.stat()
        version = found.st_ino, found.st_mtime_ns
        if key not in self or self[key][0] != version:
            self[key] = version, make()
        self.move_to_end(key)
        while len(self) > self._size:
            self.popitem(last=False)
        made: _Made = self[key][1]
        return made


class Questions:
    """To the simulation in the folder `run`; one is answered at a time. Names of owners and arms must be known ones."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._graphs = _Kept(GRAPHS)
        self._models = _Kept(MODELS)

    def labels(self, owner: str, kind: Kind, text: str) -> list[str]:
        """Labels that hold `text`, those that begin with it, or whose last part does, first."""
        with self._alone():
            graph, lowered = self._graph(owner)
        wanted = text.casefold()
        vocabulary = graph.entities if kind == "entity" else graph.relations
        found = [i for i, label in enumerate(lowered[kind]) if wanted in label]
        return [vocabulary[i] for i in sorted(found, key=lambda i: _distance(wanted, lowered[kind][i]))[:SUGGESTIONS]]

    def examples(self, owner: str, count: int = 4) -> list[dict[str, str]]:
        """Questions whose answers stand in the owner's test set, the same ones each time."""
        import numpy as np

        with self._alone():
            graph, _ = self._graph(owner)
        chosen = np.random.default_rng(0).permutation(len(graph.test))[:count]
        return [{"head": graph.entities[h], "relation": graph.relations[r]} for h, r, _ in graph.test[chosen].tolist()]

    def predict(
        self,
        owner: str,
        arms: Sequence[str],
        *,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        top: int = 10,
        known: bool = False,
    ) -> dict[str, dict[str, Any]]:
        """By arm: what completes a triple of which two parts are given.

        Returns:
            ``answers``: label, score, place, and the split whose fact that is, if any; without those of train and valid
            unless `known`. ``true``: the places of test facts, at most `DEEPEST`. Or ``missing``: why there are none.
        """

        def ask(tables: Tables, graph: Graph) -> dict[str, Any]:
            from fkge.evaluation import predict

            stated = _stated(graph, (head, relation, tail))
            hidden = set() if known else {label for label, split in stated.items() if not split.startswith("test")}
            found = predict(
                tables, graph, head=head, relation=relation, tail=tail, top=DEEPEST + len(hidden), exclude_known=False
            )
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

    def neighbors(self, owner: str, arms: Sequence[str], entity: str, top: int) -> dict[str, dict[str, Any]]:
        """By arm: the entities nearest to one."""

        def ask(tables: Tables, graph: Graph) -> dict[str, Any]:
            from fkge.evaluation import neighbors

            found = neighbors(tables, graph, entity, top=top)
            return {"answers": [{"label": near.label, "similarity": _finite(near.similarity)} for near in found]}

        return self._each(owner, arms, ask)

    def has_model(self, owner: str, arm: str) -> bool:
        folder = self._run / "arms" / arm / owner
        return (folder / "model.safetensors").exists() and (folder / "settings.toml").exists()

    # -- within a turn -------------------------------------------------------------------------------

    def _each(
        self, owner: str, arms: Sequence[str], ask: Callable[[Tables, Graph], dict[str, Any]]
    ) -> dict[str, dict[str, Any]]:
        with self._alone():
            graph, _ = self._graph(owner)
            out = {}
            for arm in arms:
                if self.has_model(owner, arm):
                    out[arm] = ask(self._model(owner, arm, graph), graph)
                else:
                    out[arm] = {"missing": f"{owner} has no model in {arm} yet: it is there when that arm is over"}
            return out

    def _graph(self, owner: str) -> tuple[Graph, dict[Kind, list[str]]]:
        """An owner's graph, and its labels as they are compared."""
        from fkge.graph import load_graph

        path = self._run / "owners" / owner / "graph.safetensors"

        def make() -> tuple[Graph, dict[Kind, list[str]]]:
            graph = load_graph(path)
            return graph, {
                "entity": [label.casefold() for label in graph.entities],
                "relation": [label.casefold() for label in graph.relations],
            }

        try:
            return self._graphs.get_or_make(owner, path, make)
        except FileNotFoundError:
            raise RunError(f"{owner}: its graph is not there yet; wait for the simulation to be made") from None

    def _model(self, owner: str, arm: str, graph: Graph) -> Tables:
        from fkge.runs import Run
        from fkge.settings import TrainSettings

        folder = self._run / "arms" / arm / owner

        def make() -> Tables:
            return Run(folder, graph, TrainSettings.load(folder / "settings.toml")).load("cpu")

        return self._models.get_or_make((owner, arm), folder / "model.safetensors", make)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=PATIENCE):
            raise FkgeError("other questions are being answered; ask again in a moment")
        try:
            yield
        finally:
            self._lock.release()


def _distance(wanted: str, label: str) -> tuple[int, int]:
    """How far a label is from what was typed: smaller is nearer."""
    if label.startswith(wanted):
        return 0, len(label)
    last = label.rstrip("/").replace("#", "/").rpartition("/")[2]
    return (1 if last.startswith(wanted) else 2 if f"_{wanted}" in last or f" {wanted}" in last else 3), len(label)


def _stated(graph: Graph, given: tuple[str | None, str | None, str | None]) -> dict[str, str]:
    """The answers that the owner's graph holds, each with its split: train, valid or test."""
    if given.count(None) != 1:
        return {}  # whoever is asked says so
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
    """A number that JSON can hold; vectors that grew without bound have scores that are none."""
    return value if math.isfinite(value) else None

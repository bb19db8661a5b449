"""One owner: a graph is trained, and the model is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from fkge import evaluation as ask
from fkge.api.work import Recipe, interrupted, merged, workplace
from fkge.bars import bars, interruptible
from fkge.embed import Tables
from fkge.errors import need
from fkge.evaluation import Neighbor, Prediction
from fkge.export import export
from fkge.export.files import Kind, frame_of, labels_of
from fkge.graph import Graph, read_graph
from fkge.runs import Run
from fkge.settings import TrainSettings
from fkge.trace import whole_or_nothing

if TYPE_CHECKING:
    import pandas as pd

AnyGraph = Graph | str | Path
T = TypeVar("T", Prediction, Neighbor)


def train(
    graph: AnyGraph,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    recipe: Recipe | None = None,
    progress: bool = True,
    **settings: Any,
) -> Trained:
    """Train a model on a graph and score it.

    Args:
        graph: a path or anything else that `fkge.read_graph` takes, or a graph.
        out: the folder to make; a temporary one if None.
        resume: go on with what `out` holds, if it holds a run of the same graph and settings.
        recipe: settings to begin with: a recipe's name, a TOML file or a dict.
        progress: draw how far it is.
        settings: of `fkge.TrainSettings`, such as ``model="RotatE"``, ``dim=64``, ``epochs=100``, ``seed=1``.

    Raises:
        KeyboardInterrupt: after Ctrl-C. Nothing is lost if there is an `out`.
    """
    wanted = merged(TrainSettings, recipe, settings)
    folder, keep = workplace(out)
    with bars(progress) as shown:
        read = graph if isinstance(graph, Graph) else read_graph(graph, progress=shown)
        if resume and (folder / "settings.toml").exists():
            run = Run.open(folder)
            run.check_same(read, wanted.model_dump())
        else:
            Run.check_free(folder)
            with whole_or_nothing(folder):
                run = Run.create(folder, read, wanted)
        with interruptible() as stop:
            found = run.train(progress=shown, stop=stop)
    if found is None:
        raise interrupted("fkge.train(…", out)
    return Trained(run, keep)


class Trained:
    """A trained model and the graph that it was trained on.

    Attributes:
        folder: where it is kept; every command of ``fkge`` takes it.
        graph: its graph.
        settings: how it was trained.
    """

    def __init__(self, run: Run, keep: object = None) -> None:
        self.folder = run.folder
        self.graph = run.graph
        self.settings = run.settings
        self._run = run
        self._keep = keep  # a temporary folder lives as long as someone has need of it

    def __repr__(self) -> str:
        return f"Trained({self.settings.model} on {self.graph!r})"

    @cached_property
    def tables(self) -> Tables:
        """The vectors, as the rooms below handle them."""
        return self._run.load()

    @property
    def entities(self) -> list[str]:
        """Labels, in the order of the vectors."""
        return labels_of(self.graph, "entity")

    @property
    def relations(self) -> list[str]:
        """Labels, in the order of the vectors."""
        return labels_of(self.graph, "relation")

    @property
    def result(self) -> dict[str, Any] | None:
        """What was found when it was trained, as in its result.json."""
        return self._run.result

    def evaluate(self, splits: str | Sequence[str] = ("valid", "test"), **options: Any) -> dict[str, Any]:
        """Metrics by split: mr, mrr, hits@1, hits@3, hits@10, accuracy. Options are those of
        `fkge.evaluation.evaluate`, such as ``type_constraint=True`` or ``categories=True``.
        """
        chosen = [splits] if isinstance(splits, str) else splits
        return ask.evaluate(self.tables, self.graph, chosen, **options)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        *,
        top: int = 10,
        exclude_known: bool = True,
    ) -> Answers[Prediction]:
        """The best labels for the one part of a triple that is missing, best first."""
        found = ask.predict(
            self.tables, self.graph, head=head, relation=relation, tail=tail, top=top, exclude_known=exclude_known
        )
        return Answers(found)

    def neighbors(self, entity: str, *, top: int = 10) -> Answers[Neighbor]:
        """The entities whose vectors are most like one entity's, by cosine, nearest first."""
        return Answers(ask.neighbors(self.tables, self.graph, entity, top=top))

    def score(self, triples: Iterable[Sequence[str]]) -> npt.NDArray[np.float32]:
        """Scores of triples of labels, (n,); higher is better."""
        entity, relation = self.graph.entities.id, self.graph.relations.id
        ids = [(entity(h), relation(r), entity(t)) for h, r, t in triples]
        scores: npt.NDArray[np.float32] = ask.score_triples(self.tables, np.array(ids, np.int64)).numpy(force=True)
        return scores

    def vectors(self, kind: Kind = "entity") -> npt.NDArray[np.float32]:
        """A copy of the vectors of all entities or relations, (n, width)."""
        labels_of(self.graph, kind)  # refuses what is neither
        rows: npt.NDArray[np.float32] = self.tables[kind].numpy(force=True).copy()
        return rows

    def frame(self, kind: Kind = "entity") -> pd.DataFrame:
        """The vectors as a DataFrame with labels as its index."""
        return frame_of(self.tables, self.graph, kind)

    def to_frame(self) -> pd.DataFrame:
        """What `evaluate` finds as a DataFrame: a row for each split, a column for each metric."""
        return need("pandas", "pandas", "a DataFrame").DataFrame(self.evaluate()).T.rename_axis("split")

    def export(self, to: str | Path, format: str) -> Path:
        """Write the vectors for other programs; see `fkge.export`."""
        return export(self.folder, Path(to), format)


class Answers(list[T]):
    """Answers of a model, best first: a list that pandas can have."""

    def to_frame(self) -> pd.DataFrame:
        """A row for each answer."""
        return need("pandas", "pandas", "a DataFrame").DataFrame([answer._asdict() for answer in self])

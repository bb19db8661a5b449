"""Train one graph and query the model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, Unpack

import numpy as np
import numpy.typing as npt

from fkge import evaluation
from fkge.api.folders import interrupted, working_folder
from fkge.api.overrides import EvaluationOptions, TrainOverrides, merge_settings
from fkge.embed import Tables
from fkge.embed.recommended import recommended
from fkge.errors import need
from fkge.evaluation import Metrics, Neighbor, Prediction
from fkge.experiment.training_run import Run
from fkge.export import export
from fkge.export.files import Kind, frame_of, labels_of, vectors_of
from fkge.files import JsonObject, whole_or_nothing
from fkge.graph import Graph, read_graph
from fkge.progress import interruptible, show_progress
from fkge.settings import TrainSettings

if TYPE_CHECKING:
    import pandas as pd

AnyGraph = Graph | str | Path
T = TypeVar("T", Prediction, Neighbor)


def train(
    graph: AnyGraph,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    settings: TrainSettings | TrainOverrides | str | Path | None = None,
    progress: bool = True,
    **overrides: Unpack[TrainOverrides],
) -> Trained:
    """Train a model on a graph and evaluate it.

    Args:
        graph: a graph, or a path or name that `fkge.read_graph` takes.
        out: the folder to create; a temporary one if None.
        resume: continue the run in `out`, if there is one, of the same graph and settings.
        settings: settings to start from: an object, a dict, a TOML file or the name of a recipe.
        progress: show a progress bar.
        overrides: keys of `fkge.TrainSettings`, such as ``model="RotatE"``, ``dim=64``, ``epochs=100``, ``seed=1``.

    Returns:
        The trained model, with the best tables by validation MRR.

    Raises:
        FkgeError: the graph cannot be read, a setting cannot work, or `out` holds something else.
        KeyboardInterrupt: after Ctrl-C. Nothing is lost if there is an `out`.
    """
    wanted = merge_settings(TrainSettings, settings, overrides)
    folder, keep = working_folder(out)
    with show_progress(progress) as shown:
        read = graph if isinstance(graph, Graph) else read_graph(graph, progress=shown)
        if resume and (folder / "settings.toml").exists():
            run = Run.open(folder)
            run.check_same(read, recommended(wanted, read).model_dump())
        else:
            Run.check_free(folder)
            with whole_or_nothing(folder):
                run = Run.create(folder, read, recommended(wanted, read))
        with interruptible() as stop:
            found = run.train(progress=shown, stop=stop)
    if found is None:
        raise interrupted("fkge.train(…", out)
    return Trained(run, keep)


class Trained:
    """A trained model and the graph that it was trained on.

    Attributes:
        folder: the run folder, which every command of ``fkge`` takes.
        graph: the graph.
        settings: the settings it was trained with.
    """

    def __init__(self, run: Run, keep: object = None) -> None:
        self.folder = run.folder
        self.graph = run.graph
        self.settings = run.settings
        self._run = run
        self._keep = keep  # a temporary folder is removed with the last object that refers to it

    def __repr__(self) -> str:
        return f"Trained({self.settings.model} on {self.graph!r})"

    @cached_property
    def tables(self) -> Tables:
        """The embedding tables."""
        return self._run.load()

    @property
    def entities(self) -> list[str]:
        """Entity labels, in the order of the vectors."""
        return labels_of(self.graph, "entity")

    @property
    def relations(self) -> list[str]:
        """Relation labels, in the order of the vectors."""
        return labels_of(self.graph, "relation")

    @property
    def result(self) -> JsonObject | None:
        """Content of the run's result.json: sizes, epochs, seconds and metrics; None before training has finished."""
        return None if (found := self._run.result) is None else found.to_json()

    def evaluate(
        self, splits: str | Sequence[str] = ("valid", "test"), **options: Unpack[EvaluationOptions]
    ) -> dict[str, Metrics]:
        """Compute link prediction and triple classification metrics.

        Args:
            splits: one or several of train, valid and test; those without triples are left out.
            options: those of `fkge.evaluation.evaluate`, such as ``type_constraint=True`` or ``categories=True``.

        Returns:
            By split: mr, mrr, hits@1, hits@3, hits@10, accuracy.
        """
        chosen = [splits] if isinstance(splits, str) else splits
        return evaluation.evaluate(self.tables, self.graph, chosen, **options)

    def predict(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        *,
        top: int = 10,
        exclude_known: bool = True,
    ) -> Answers[Prediction]:
        """Return the best labels for the missing part of a triple, best first.

        Args:
            head, relation, tail: labels; give two of the three.
            top: number of answers.
            exclude_known: leave out answers that are triples of the graph.
        """
        found = evaluation.predict(
            self.tables, self.graph, head=head, relation=relation, tail=tail, top=top, exclude_known=exclude_known
        )
        return Answers(found)

    def neighbors(self, entity: str, *, top: int = 10) -> Answers[Neighbor]:
        """Return the entities with the most similar vectors, by cosine, nearest first."""
        return Answers(evaluation.neighbors(self.tables, self.graph, entity, top=top))

    def score(self, triples: Iterable[Sequence[str]]) -> npt.NDArray[np.float32]:
        """Return the scores of triples of labels, (n,) float32; higher is more plausible."""
        entity, relation = self.graph.entities.id, self.graph.relations.id
        ids = [(entity(h), relation(r), entity(t)) for h, r, t in triples]
        return np.asarray(evaluation.score_triples(self.tables, np.array(ids, np.int64)).numpy(force=True))

    def vectors(self, kind: Kind = "entity") -> npt.NDArray[np.float32]:
        """Return a copy of the vectors of all entities or relations, (n, width) float32.

        Those of a relation and of its inverse stand side by side, if the model is reciprocal.
        """
        labels_of(self.graph, kind)  # raises if it is neither
        return vectors_of(self.tables, kind).copy()

    def vectors_frame(self, kind: Kind = "entity") -> pd.DataFrame:
        """Return the vectors as a DataFrame with labels as its index."""
        return frame_of(self.tables, self.graph, kind)

    def metrics_frame(self) -> pd.DataFrame:
        """Return what `evaluate` computes as a DataFrame: a row for each split, a column for each metric."""
        return frame(self.evaluate()).T.rename_axis("split")

    def export(self, to: str | Path, format: str) -> Path:
        """Write the vectors for other programs; see `fkge.export`."""
        return export(self.folder, Path(to), format)


class Answers(list[T]):
    """Answers to a query, best first: a list that converts to a DataFrame."""

    def to_frame(self) -> pd.DataFrame:
        """Return a DataFrame with a row for each answer."""
        return frame(answer._asdict() for answer in self)


def frame(rows: object) -> pd.DataFrame:
    """Return rows, or columns by name, as a DataFrame."""
    return need("pandas", "pandas", "a DataFrame").DataFrame(rows)

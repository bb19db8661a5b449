"""A run of `fkge train`: create, train, resume, open; one graph, one model, one folder that holds all of it.

RUN/
  settings.toml            every setting, explained
  graph.safetensors        labels and triples, so that the folder needs nothing else
  model.safetensors        the best tables by validation
  checkpoint.safetensors   the state of the training, until it is finished
  trace.jsonl              one line for each epoch and validation
  result.json              metrics, once finished (`fkge.results.TrainingResult`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fkge.embed import (
    FitState,
    Tables,
    Trainer,
    fit,
    load_checkpoint,
    load_model,
    make_tables,
    save_checkpoint,
    save_model,
)
from fkge.errors import RunError
from fkge.evaluation import Known, Metrics, evaluate, metrics, rank
from fkge.files import check_free, write_atomically
from fkge.graph import Graph, load_graph, sample_triples, save_graph
from fkge.progress import SILENT, Progress
from fkge.results import RESULT, Scores, TrainingResult
from fkge.settings import TrainSettings
from fkge.trace import Record, Trace


class Run:
    """A run folder. Make one with `create` or `open`.

    Args:
        folder, graph, settings: the folder, and what is in it.
    """

    def __init__(self, folder: Path, graph: Graph, settings: TrainSettings) -> None:
        self.folder = folder
        self.graph = graph
        self.settings = settings
        self.trace = Trace(folder / "trace.jsonl")

    # -- making and finding ------------------------------------------------------------------------

    @classmethod
    def create(cls, folder: Path, graph: Graph, settings: TrainSettings) -> Run:
        """Create a run in `folder`.

        Args:
            folder: must be empty or absent.
            graph: what to train on; kept in the folder.
            settings: how to train.

        Raises:
            RunError: the folder holds something, or the graph has no training triples.
        """
        cls.check_free(folder)
        if len(graph.train) == 0:
            raise RunError(f"{graph.name} has no training triples")
        make_tables(settings, 1, 1)  # a setting that cannot work shows before anything is written
        folder.mkdir(parents=True, exist_ok=True)
        run = cls(folder, graph, settings)
        save_graph(graph, folder / "graph.safetensors")
        # Written last: a folder with settings is a whole run.
        write_atomically(folder / "settings.toml", settings.to_toml().encode())
        return run

    @staticmethod
    def check_free(folder: Path) -> None:
        """Refuse a folder that holds something."""
        whole = (folder / "settings.toml").exists() and not (folder / "simulation.json").exists()
        check_free(folder, f"Resume it: fkge train --resume --out {folder}" if whole else None)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Return the run in `folder`.

        Raises:
            RunError: it is no run folder.
        """
        if not (folder / "settings.toml").exists():
            raise RunError(
                f"{folder}: is no run folder (no settings.toml). `fkge train GRAPH --out {folder}` makes one."
            )
        settings = TrainSettings.load(folder / "settings.toml")
        graph = folder / "graph.safetensors"
        if not graph.exists():  # an owner's folder in an arm of a simulation: its graph is in the owner's store
            store = folder.resolve().parents[2] / "owners" / folder.resolve().name / "graph.safetensors"
            graph = store if store.exists() else graph
        return cls(folder, load_graph(graph), settings)

    def check_same(self, graph: Graph | None, given: Mapping[str, object]) -> None:
        """Raise `RunError` for another graph than the run's, or for settings that contradict the run's."""
        if graph is not None and graph.fingerprint != self.graph.fingerprint:
            raise RunError(
                f"{self.folder}: was made from another graph ({self.graph!r}); use a new --out for {graph!r}"
            )
        for key, value in given.items():
            was = getattr(self.settings, key)
            if value != was and key not in ("device", "threads"):
                raise RunError(f"{self.folder}: was started with {key} = {was!r}, not {value!r}; use a new --out")

    @property
    def result(self) -> TrainingResult | None:
        """What the finished run found, or None."""
        return TrainingResult.load(self.folder)

    # -- training ----------------------------------------------------------------------------------

    def train(self, *, progress: Progress = SILENT, stop: Callable[[], bool] | None = None) -> TrainingResult | None:
        """Train from where the folder stands, then score. None if asked to stop before the end.

        The result does not depend on how often it was interrupted.
        """
        if (found := self.result) is not None:
            return found
        graph, settings = self.graph, self.settings
        torch.set_num_threads(settings.threads)
        tables = make_tables(settings, len(graph.entities), len(graph.relations))
        trainer = Trainer(tables, graph.train, settings)
        state, kept = None, list[Record]()
        checkpoint = self.folder / "checkpoint.safetensors"
        if checkpoint.exists():
            state = FitState(**load_checkpoint(checkpoint, trainer))
            kept = [r for r in self.trace.read() if _happened(r, trainer.epoch, state.validated)]
        self.trace.keep(kept)
        validate = self._validation(tables, progress)
        final = fit(trainer, _Folder(self), state=state, validate=validate, progress=progress, stop=stop)
        if final is None:
            return None
        best, _ = load_model(self.folder / "model.safetensors", settings.device)
        scores = {name: Scores.model_validate(m) for name, m in evaluate(best, graph, progress=progress).items()}
        result = TrainingResult(
            version=TrainingResult.VERSION, model=settings.model, graph=graph.name, entities=len(graph.entities),
            relations=len(graph.relations), triples=len(graph.train), seed=settings.seed, epochs=trainer.epoch,
            best_epoch=final.best_epoch, seconds=round(final.seconds, 2), **scores,
        )  # fmt: skip
        result.write(self.folder / RESULT)
        checkpoint.unlink(missing_ok=True)
        return result

    def _validation(self, tables: Tables, progress: Progress) -> Callable[[], float] | None:
        """Return a function that computes filtered MRR on valid triples, the same ones each time; None without any."""
        triples = self.graph.valid
        if len(triples) == 0 or self.settings.validate_every == 0:
            return None
        triples = sample_triples(triples, self.settings.validation_triples, self.settings.seed)
        known = Known.of(self.graph)
        return lambda: metrics(rank(tables, triples, known=known, progress=progress))["mrr"]

    # -- asking ------------------------------------------------------------------------------------

    def load(self, device: str = "auto") -> Tables:
        """Return the best tables so far.

        Raises:
            RunError: there is no model yet, or it belongs to another graph.
        """
        path = self.folder / "model.safetensors"
        if not path.exists():
            raise RunError(f"{self.folder}: has no model yet. Train it: fkge train --resume --out {self.folder}")
        tables, _ = load_model(path, device)
        if tables.entities != len(self.graph.entities) or tables.relations != len(self.graph.relations):
            raise RunError(f"{path}: belongs to another graph than {self.folder / 'graph.safetensors'}")
        return tables

    def evaluate(
        self, splits: Sequence[str] = ("valid", "test"), *, device: str = "auto", **options: Any
    ) -> dict[str, Metrics]:
        """Return metrics of the best tables; options are those of `fkge.evaluation.evaluate`."""
        torch.set_num_threads(self.settings.threads)
        return evaluate(self.load(device), self.graph, splits, **options)


class _Folder:
    """Keeps a fit's outcome in the run's folder."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def best(self, trainer: Trainer) -> None:
        save_model(self.run.folder / "model.safetensors", trainer.tables, self.run.settings)

    def checkpoint(self, trainer: Trainer, state: FitState) -> None:
        save_checkpoint(self.run.folder / "checkpoint.safetensors", trainer, asdict(state))

    def event(self, name: str, **fields: Any) -> None:
        self.run.trace.write(name, **fields)


def _happened(record: Record, epoch: int, validated: int) -> bool:
    """Return whether a trace record lies before a checkpoint; later ones will be written again."""
    return bool(record.get("epoch", 0) <= (validated if record.get("event") == "validated" else epoch))

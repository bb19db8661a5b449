"""A search in a folder: create it, run it until its budget is used up or it is stopped, continue it, sum it up."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

from fkge.embed import load_model
from fkge.errors import EngineError, RunError, SettingsError
from fkge.evaluation import evaluate
from fkge.experiment.engines.workers import sigint_blocked
from fkge.experiment.setup import check_valid, create_stores
from fkge.federation import Federation, FederationSettings
from fkge.files import FileLock, check_free, read_json, write_atomically
from fkge.graph import Graph, load_graph, save_graph
from fkge.progress import SILENT, Progress, Task
from fkge.report.formatting import duration
from fkge.settings import Settings, SettingValues
from fkge.tune.journal import Journal, best_of, require
from fkge.tune.objective import brief
from fkge.tune.proposal import Values, flat, nested
from fkge.tune.recipe import recipe_text, write_page
from fkge.tune.spec import Best, Phase, PhaseResult, Pruner, Spec, TrialRow, TuneResult
from fkge.tune.start import check_budget, check_privacy, check_trains, with_valid
from fkge.tune.worker import read_best, run_trials, work

SPEC, RESULT, PAGE, RECIPE = "tune.json", "result.json", "tune.html", "recipe.toml"
DEATHS = 3
"""Processes that may die before the search gives up."""

SECONDS_BETWEEN_DRAWINGS = 1.0


class Tuning:
    """A search's folder. Make one with `create` or `open`."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder, self.spec = folder, spec

    # -- creating and opening ------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        folder: Path,
        source: Graph | Federation,
        start: Settings,
        fixed: SettingValues,
        *,
        minutes: float,
        name: str = "",
        jobs: int = 1,
        seed: int = 0,
        pruner: Pruner = "median",
        progress: Progress = SILENT,
    ) -> Tuning:
        """Create a search.

        Args:
            folder: must not hold anything yet.
            source: what is tuned. A graph without validation triples gets some split off from its training triples.
            start: settings of the first trial; `start_of` gives them.
            fixed: settings by key that are not searched; `start` has them too.
            minutes: to spend.
            name: what the user calls the source.
            jobs: trials at a time.
            seed: of everything random.
            pruner: of Optuna.
            progress: of the alignment of a federation.

        Raises:
            RunError: the folder holds something.
            SettingsError, GraphError: these settings do not work here.
            MissingLibraryError: Optuna is not installed.
        """
        require()
        cls.check_free(folder)
        check_budget(minutes, jobs)
        folder.mkdir(parents=True, exist_ok=True)
        kind: Literal["graph", "federation"]
        if isinstance(source, Graph):
            kind, owners, split_off = "graph", [], len(source.valid) == 0
            if split_off:
                source = with_valid(source, seed)
            check_trains(source, start)
            save_graph(source, folder / "graph.safetensors")
        else:
            assert isinstance(start, FederationSettings)
            kind, owners, split_off = "federation", list(source.members), False
            check_privacy(start)
            check_valid(source)
            create_stores(folder, source, start, seed, progress)
        spec = Spec(
            fkge=version("fkge"), kind=kind, source=name or source.name, name=source.name, seed=seed, minutes=minutes,
            owners=owners, jobs=jobs, pruner=pruner, start=flat(start), fixed=dict(fixed), split_off=split_off,
        )  # fmt: skip
        spec.write(folder / SPEC)  # last: a folder with it is a whole search
        return cls(folder, spec)

    @staticmethod
    def check_free(folder: Path) -> None:
        """Refuse a folder that holds something."""
        check_free(folder, f"Continue it: fkge tune --resume {folder}" if (folder / SPEC).exists() else None)

    @classmethod
    def open(cls, folder: Path, *, minutes: float | None = None, jobs: int | None = None) -> Tuning:
        """Open the search in `folder`.

        Args:
            folder: of the search.
            minutes: a new budget, those spent already included; as before if None.
            jobs: trials at a time; as before if None.

        Raises:
            RunError: there is none, or it is damaged.
        """
        require()
        if not (folder / SPEC).exists():
            raise RunError(f"{folder}: holds no search. `fkge tune GRAPH --out {folder}` makes one.")
        spec = Spec.read(folder / SPEC, "Search again, with another --out.")
        changes = {key: value for key, value in (("minutes", minutes), ("jobs", jobs)) if value is not None}
        if changes:
            spec = spec.model_copy(update=changes)
            check_budget(spec.minutes, spec.jobs)
            spec.write(folder / SPEC)
        return cls(folder, spec)

    # -- running -------------------------------------------------------------------------------------

    def run(self, *, progress: Progress = SILENT, stop: Callable[[], bool] = lambda: False) -> TuneResult:
        """Search until the budget is used up or `stop` says so, then write recipe, page and result.

        Args:
            progress: one bar for each phase.
            stop: asked often; True ends the search early, and `run` again continues it.

        Raises:
            RunError: another process runs it.
            EngineError: processes that ran trials died, again and again.
            SettingsError: every trial failed.
        """
        busy = RunError(f"{self.folder}: is being searched by another process; wait for it, or stop it")
        with FileLock(self.folder / "lock", timeout=0.2, error=busy):
            with FileLock(self.folder / "workers.lock", timeout=60.0, error=busy):  # of a parent that was killed
                Journal.repair(self.folder)
            journal, spent = Journal(self.folder, self.spec), self.spent()
            for phase in self.spec.phases:
                begun = bool(journal.rows(phase))
                if stop() or (begun and spent.get(phase, 0.0) >= self._enough):
                    continue
                journal.start(phase, self._first(phase))
                journal.recover(phase)
                self._search(phase, spent, journal, progress, stop)
            return self._sum_up()

    @property
    def _enough(self) -> float:
        """Seconds after which a phase counts as finished: what is left is too little for a trial."""
        return self.spec.seconds * 0.999 - 0.05

    def spent(self) -> dict[str, float]:
        """Return seconds spent so far, by phase."""
        path = self.folder / "spent.json"
        found = read_json(path, "Remove it, and continue.") if path.exists() else {}
        return {phase: float(seconds) for phase, seconds in found.items()}

    def _first(self, phase: Phase) -> list[Values]:
        """Return the parameters of a phase's first trials; a federation's include the best of the lone owners."""
        proposal = self.spec.proposal(phase)
        first = proposal.first()
        if phase == "federated" and (lone := read_best(self.folder / "best" / "lone")) is not None:
            again = {key: value for key, value in lone.settings.items() if key.startswith("train.")}
            first.insert(1, proposal.parameters_of({**proposal.start, **again}))
        return [parameters for i, parameters in enumerate(first) if parameters not in first[:i]]

    def _search(
        self, phase: Phase, spent: dict[str, float], journal: Journal, progress: Progress, stop: Callable[[], bool]
    ) -> None:
        """Spend the rest of a phase's time."""
        origin = time.monotonic() - spent.get(phase, 0.0)
        name = {"train": "tuning", "lone": "tuning owners alone", "federated": "tuning the federation"}[phase]
        with progress.task(name, round(self.spec.seconds), "s") as task:
            shown = _Shown(self, phase, origin, spent, journal, task)
            shown.draw()

            def watched() -> bool:
                shown.draw()
                return stop()

            try:
                if self.spec.jobs == 1:
                    run_trials(self.folder, self.spec, phase, origin=origin, stop=watched, ended=shown.report)
                else:
                    self._in_processes(phase, origin, journal, watched, shown)
            finally:
                shown.save()
        if not stop():  # what is left is too little for a trial
            spent[phase] = max(spent[phase], self.spec.seconds)
            _write_spent(self.folder, spent)

    def _in_processes(
        self, phase: Phase, origin: float, journal: Journal, stop: Callable[[], bool], shown: _Shown
    ) -> None:
        """Run trials in processes of their own, and replace those that die, a few times."""
        context = multiprocessing.get_context("spawn")
        flag, count, deaths = context.Event(), 0, 0
        processes: dict[int, BaseProcess] = {}

        def begin() -> None:
            nonlocal count
            process = context.Process(target=work, args=(str(self.folder), phase, count, origin, flag), daemon=True)
            # Ctrl-C reaches all processes of a terminal, and what it means the parent decides: the child inherits this.
            with sigint_blocked():
                process.start()
            processes[count], count = process, count + 1

        try:
            for _ in range(self.spec.jobs):
                begin()
            while processes:
                if stop():
                    flag.set()
                shown.report()
                time.sleep(0.1)
                for number, process in list(processes.items()):
                    if process.is_alive():
                        continue
                    del processes[number]
                    if process.exitcode:
                        deaths += 1
                        journal.fail_running(phase, process.pid or 0)
                        if deaths > DEATHS:
                            raise EngineError(
                                f"{deaths} processes that ran trials died (the last one with exit code "
                                f"{process.exitcode}); is there enough memory? Continue with fewer: "
                                f"fkge tune --resume {self.folder} --jobs 1"
                            )
                        if not flag.is_set():
                            begin()
        finally:
            flag.set()
            for process in processes.values():
                process.join()

    # -- summing up ----------------------------------------------------------------------------------

    def result(self) -> TuneResult:
        """Return the result so far, by validation alone."""
        journal, spent, spec = Journal(self.folder, self.spec), self.spent(), self.spec
        phases = [self._phase(phase, journal, spent) for phase in spec.phases]
        finished = all(spent.get(phase, 0.0) >= self._enough for phase in spec.phases)
        return TuneResult(
            kind=spec.kind, name=spec.name, source=spec.source, seed=spec.seed, minutes=spec.minutes,
            finished=finished, phases=phases,
        )  # fmt: skip

    def _phase(self, phase: Phase, journal: Journal, spent: Mapping[str, float]) -> PhaseResult:
        kept = read_best(self.folder / "best" / phase)
        rows = [_completed(row, kept) for row in journal.rows(phase)]
        best = best_of(rows)
        return PhaseResult(
            phase=phase, seconds=round(spent.get(phase, 0.0), 1), trials=rows,
            best=None if best is None else best.number, importance=journal.importance(phase),
            hurried=best is not None and best.hurried(self.spec.seconds_of_trial),
        )  # fmt: skip

    def _sum_up(self) -> TuneResult:
        found, spec = self.result(), self.spec
        failed = [row for phase in found.phases for row in phase.trials if row.state == "failed"]
        if found.finished and failed and all(phase.winner is None for phase in found.phases):
            raise SettingsError(f"every trial failed; the last one: {failed[-1].why}. More --minutes may help")
        changes: dict[str, object] = {"page": str(self.folder / PAGE)}
        for phase in found.phases:
            kept = read_best(self.folder / "best" / phase.phase)
            if kept is None:
                continue
            file = self.folder / ("lone.toml" if phase.phase == "lone" else RECIPE)
            settings = spec.settings.build(nested(kept.settings))
            write_atomically(file, recipe_text(spec, phase, settings).encode())
            changes |= {"recipe": str(file)} if file.name == RECIPE else {}
        if found.finished and (scores := self._test(found)) is not None:
            changes["test"] = scores
        found = TuneResult.model_validate(found.model_dump(by_alias=True) | changes)
        found.write(self.folder / RESULT)
        recipe = self.folder / RECIPE
        write_page(self.folder / PAGE, spec, found, recipe.read_text(encoding="utf-8") if recipe.exists() else "")
        return found

    def _test(self, found: TuneResult) -> dict[str, float] | None:
        """Return test metrics of the best vectors of a graph: looked at once, when nothing is left to choose."""
        folder = self.folder / "best" / "train"
        if not (folder / "model.safetensors").exists():
            return None
        graph = load_graph(self.folder / "graph.safetensors")
        if len(graph.test) == 0:
            return None
        tables, _ = load_model(folder / "model.safetensors", "auto")
        scores = evaluate(tables, graph, ("test",), accuracy=False)["test"]
        return {key: float(value) for key, value in scores.items() if isinstance(value, int | float)}


class _Shown:
    """The progress of a phase as a user sees it, and the record of the seconds spent, which survives a crash."""

    def __init__(
        self, tuning: Tuning, phase: Phase, origin: float, spent: dict[str, float], journal: Journal, task: Task
    ) -> None:
        self._tuning, self._phase, self._origin, self._spent = tuning, phase, origin, spent
        self._journal, self._task = journal, task
        self._drawn = self._told = 0.0
        self._seconds = self._trials = 0
        self._figures: dict[str, float | str] = {}

    def draw(self) -> None:
        """Move the bar, and write the seconds spent, at most once a second."""
        moment = time.monotonic()
        if moment - self._drawn < SECONDS_BETWEEN_DRAWINGS:
            return
        self._drawn = moment
        seconds = min(int(moment - self._origin), round(self._tuning.spec.seconds))
        if seconds > self._seconds:
            self._task.advance(seconds - self._seconds, **self._figures)
            self._seconds = seconds
        self.save()

    def save(self) -> None:
        """Write how many seconds are spent."""
        self._spent[self._phase] = time.monotonic() - self._origin
        _write_spent(self._tuning.folder, self._spent)

    def report(self) -> None:
        """Say how many trials are done, and which is the best; at most once a second."""
        self.draw()
        if time.monotonic() - self._told < SECONDS_BETWEEN_DRAWINGS:
            return
        self._told = time.monotonic()
        rows = [row for row in self._journal.rows(self._phase) if row.state != "running"]
        if len(rows) == self._trials:
            return
        self._trials, before = len(rows), self._figures.get("best")
        self._figures["trials"] = str(len(rows))
        best = best_of(rows)
        if best is not None and best.score is not None:
            self._figures |= {"best": best.score, "with": brief(best.settings)}
        if self._figures.get("best") != before:  # a line in a log, too
            left = max(0.0, self._tuning.spec.seconds - (time.monotonic() - self._origin))
            self._task.advance(0, **self._figures, left=duration(left))


def _completed(row: TrialRow, kept: Best | None) -> TrialRow:
    """Return a row with the score that was kept of it, where its process died before it could write that down."""
    if kept is None or kept.number != row.number or row.score is not None:
        return row
    return row.model_copy(update={"score": kept.score, "best_epoch": kept.best_epoch})


def _write_spent(folder: Path, spent: Mapping[str, float]) -> None:
    rounded = {phase: round(seconds, 2) for phase, seconds in spent.items()}
    write_atomically(folder / "spent.json", json.dumps(rounded).encode())

"""Measure the cost of a private step against a plain one of the same batch and negatives: ``python -m benchmarks.dp``.

Every case runs in a process of its own: CPU milliseconds a step, drawing of batches and negatives included, and the
process's peak memory. Noise put off (lazy) is measured over a whole epoch, so that drawing what is left at its end is
in it. Ratios compare with plain training by the optimiser named: SGD with SGD; momentum with Adam, for plain training
has no momentum, and Adam keeps twice as much beside a row.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.child import Clock, call, peak_mb
from benchmarks.report import Options, Report, failure, machine

DIM, NEGATIVES = 100, 8
BATCHES = (1000, 10_000, 100_000, 0)
"""Triples in a step; 0 for all of them."""
KINDS = (
    ("plain", "sgd", False), ("plain", "adam", False), ("private", "sgd", False), ("private", "sgd", True),
    ("private", "momentum", False), ("private", "momentum", True), ("private", "adam", False),
)  # fmt: skip
SECONDS = 3.0


class _Count:
    """Counts what a trainer reports."""

    def __init__(self) -> None:
        self.triples = 0

    def advance(self, amount: int, **shown: float | str) -> None:
        self.triples += amount


def measure(kind: str, optimizer: str, lazy: bool, data: str, batch: int, seconds: float) -> dict[str, Any]:
    """CPU milliseconds of a step of `batch` triples, and peak memory in MB."""
    import torch

    from benchmarks.data import Data
    from fkge.embed import DpSettings, DpTrainer, Trainer, make_tables
    from fkge.settings import TrainSettings

    torch.set_num_threads(1)
    graph = Data.load(data)
    size = len(graph.train)
    batch = min(batch or size, size)
    settings = TrainSettings(
        model="TransE", dim=DIM, norm=1, negatives=NEGATIVES, batch=batch, filtered=False, share=1, device="cpu",
        optimizer="sgd" if optimizer == "sgd" else "adam",
    )  # fmt: skip
    tables = make_tables(settings, graph.entities, graph.relations)
    before, count = peak_mb(), _Count()
    if kind == "plain":
        _compile(lambda s, small: Trainer(small, graph.train[:64] % 16, s).run_epoch(), settings)
        trainer = Trainer(tables, graph.train, settings)
        clock = Clock()
        while not count.triples or clock.cpu < seconds:
            trainer.run_epoch(count, lambda: clock.cpu > seconds)
        return {"ms": clock.cpu * 1e3 * batch / count.triples, "peak_mb": peak_mb(), "before_mb": before}
    private = DpSettings(rate=batch / size, negatives=NEGATIVES, optimizer=optimizer, lazy=lazy)  # type: ignore[arg-type]
    part = private.model_copy(update={"rate": min(private.rate, 0.5)})
    _compile(lambda s, small: DpTrainer(small, graph.train[:64] % 16, s, part).run_epoch(), settings)
    private_trainer = DpTrainer(tables, graph.train, settings, private)
    clock = Clock()
    if lazy:
        private_trainer.run_epoch(count)
    else:
        private_trainer.stepper.begin(private.lr)
        number = 0
        while number == 0 or clock.cpu < seconds:
            private_trainer._step(number, count)
            number += 1
    return {"ms": clock.cpu * 1e3 * batch / count.triples, "peak_mb": peak_mb(), "before_mb": before}


def _compile(train: Any, settings: Any) -> None:
    """Train something tiny, so that the clock does not see the compiler."""
    from fkge.embed import make_tables

    tiny = settings.model_copy(update={"batch": 16})
    train(tiny, make_tables(tiny, 16, 16))


def run(options: Options, report: Report) -> None:
    """The table of ratios."""
    data = str(options.work / "geo.npz")
    about = call("data:make", options.environment, name="geo", folder="", path=data, quick=options.quick)
    batches = (1000, 10_000, 0) if options.quick else BATCHES
    figures: dict[tuple[int, str, str, bool], dict[str, Any]] = {}
    for batch in batches:
        for kind, optimizer, lazy in KINDS:
            if lazy and batch == 0:
                continue
            report.progress(f"dp: batch {batch or 'all'}, {kind} {optimizer}{' lazy' if lazy else ''}")
            answer = call(
                "dp:measure", options.environment, kind=kind, optimizer=optimizer, lazy=lazy, data=data, batch=batch,
                seconds=0.3 if options.quick else SECONDS,
            )  # fmt: skip
            if failed := failure(answer):
                report.note(f"{kind} {optimizer}, batch {batch}: {failed}")
                return
            figures[batch, kind, optimizer, lazy] = answer
    report.figures["dp"] = [
        {"batch": b, "kind": k, "optimizer": o, "lazy": lazy, **f} for (b, k, o, lazy), f in figures.items()
    ]
    rows = []
    for kind, optimizer, lazy in KINDS:
        cells = []
        for batch in batches:
            if lazy and batch == 0:
                cells.append("as eager")
                continue
            own = figures[batch, kind, optimizer, lazy]
            plain = figures[batch, "plain", "sgd" if optimizer == "sgd" else "adam", False]
            text = f"{own['ms']:,.1f} ms, {own['peak_mb']:,.0f} MB"
            if kind != "plain":
                text += f" ({own['ms'] / plain['ms']:.2f}×, {own['peak_mb'] / plain['peak_mb']:.2f}×)"
            cells.append(text)
        how = "" if kind == "plain" else ", lazy" if lazy else ", eager"
        rows.append([f"{kind} {optimizer}{how}", *cells])
    report.table(
        "A private step beside a plain one",
        ["", *(f"batch {batch:,}" if batch else "all triples" for batch in batches)],
        rows,
        f"{about.get('text')}. TransE L1, {DIM} dimensions, {NEGATIVES} negatives, one thread; CPU time of a step and "
        "peak memory of the process, in brackets their ratio to plain training (momentum: to plain Adam).",
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dp", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    arguments = parser.parse_args()
    report = Report()
    report.note(", ".join(f"{key} {value}" for key, value in machine().items()))
    with tempfile.TemporaryDirectory(prefix="fkge-benchmarks-") as work:
        run(Options(arguments.quick, Path(), 0, Path(work)), report)


if __name__ == "__main__":
    main()

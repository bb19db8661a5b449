"""Measure training: triples per second, memory, and quality after equally many epochs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.child import Clock, call, peak_mb
from benchmarks.report import Options, Report, failure

DIM = 100
EPOCHS = 20
SECONDS = 6.0
"""CPU seconds to measure an engine in, in three runs from fresh tables; each at most `EPOCHS` epochs."""
RUNS = 3
VALID, TEST = 2000, 5000
"""Triples ranked to choose a learning rate, and to report."""
STEP = 10**0.5
"""From one learning rate of the grid to the next."""

Row = dict[str, Any]

_LADDER = [100, 1000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000]
"""PyKEEN's batch sizes, all that the graph has triples for: its rate does not rise and fall just once."""
_TARGETS = {"fb": 10, "geo": 15}


# -- in the child ----------------------------------------------------------------------------------


def measure(engine: str, data: str, batch: int, epochs: int, seconds: float, speed: bool, quality: bool) -> Row:
    """Throughput and peak memory of an engine, then its quality."""
    clock = Clock()
    import torch

    from benchmarks.data import Data
    from benchmarks.engines import ENGINES

    torch.set_num_threads(1)
    make, graph = ENGINES[engine], Data.load(data)
    # The first step compiles, allocates and imports what is imported late.
    first = make(graph, DIM, batch, make.start)
    imported = clock.cpu
    first.run(1, 0.0)
    row: Row = {"engine": engine, "batch": batch, "start_s": imported, "first_call_s": clock.cpu - imported}
    del first
    if speed:
        row |= _speed(lambda: make(graph, DIM, batch, make.start), epochs, seconds)
        row["peak_mb"] = peak_mb()
    if quality:
        row |= _quality(lambda lr: make(graph, DIM, batch, lr), make.start, graph, epochs)
    return row


def _speed(make: Callable[[], Any], epochs: int, seconds: float) -> Row:
    runs = [make().run(epochs, seconds / RUNS) for _ in range(RUNS)]
    return {
        "triples_per_s": statistics.median(run.triples / run.cpu for run in runs),
        "triples_per_s_runs": [run.triples / run.cpu for run in runs],
        "triples_per_wall_s_runs": [run.triples / run.wall for run in runs],
    }


def _quality(make: Callable[[float], Any], start: float, data: Any, epochs: int) -> Row:
    """MRR on test for the learning rate with the best MRR on validation, climbing from `start` on the grid."""
    from fkge.errors import SettingsError
    from fkge.evaluation import Known, metrics, rank

    known = Known(_facts(data), data.entities, data.relations)
    tried: dict[int, Row] = {}

    def attempt(power: int) -> float:
        if power not in tried:
            lr = start * STEP**power
            engine = make(lr)
            try:
                cpu = engine.run(epochs, float("inf")).cpu
                tables = _as_tables(*engine.tables())
                valid = metrics(rank(tables, data.sample("valid", VALID), known=known))["mrr"]
            except SettingsError:  # diverged
                tried[power] = {"lr": lr, "cpu_s": None, "valid_mrr": 0.0}
            else:
                tried[power] = {"lr": lr, "cpu_s": cpu, "valid_mrr": valid, "tables": tables}
            for other in tried.values():  # only the best tables are needed any longer
                if other["valid_mrr"] < max(row["valid_mrr"] for row in tried.values()):
                    other.pop("tables", None)
        mrr: float = tried[power]["valid_mrr"]
        return mrr

    best = 0
    while (better := max((best - 1, best, best + 1), key=attempt)) != best:
        best = better
    tables = tried[best].pop("tables", None)
    test = metrics(rank(tables, data.sample("test", TEST), known=known)) if tables is not None else {}
    for row in tried.values():
        row.pop("tables", None)
    return {
        "mrr": test.get("mrr"),
        "hits@10": test.get("hits@10"),
        "cpu_s": tried[best]["cpu_s"],
        "lr": tried[best]["lr"],
        "tried": sorted(tried.values(), key=lambda row: float(row["lr"])),
    }


def _facts(data: Any) -> Any:
    import numpy as np

    return np.concatenate([data.train, data.valid, data.test])


def _as_tables(entity: Any, relation: Any) -> Any:
    """An engine's vectors, scored and ranked by this package's own code."""
    import torch

    from fkge.embed import Tables
    from fkge.embed.models import TransE

    tables = Tables(TransE(entity.shape[1], norm=1), len(entity), len(relation))
    tables["entity"].copy_(torch.from_numpy(entity))
    tables["relation"].copy_(torch.from_numpy(relation))
    return tables


# -- in the parent ---------------------------------------------------------------------------------


def run(options: Options, report: Report) -> None:
    """Measure the graphs, print a table for each."""
    report.figures["training"] = {}
    for name in options.graphs:
        path = str(options.work / f"{name}.npz")
        graph = call(
            "data:make", options.environment, name=name, folder=str(options.fb), path=path, quick=options.quick
        )
        if failed := failure(graph):
            report.note(f"training on {name}: {failed}")
            continue
        report.progress(graph["text"])
        rows = list(_rows(name, path, graph, options, report))
        best = _best(rows, "PyKEEN")
        for row in rows:
            if best and row.get("triples_per_s"):
                row["ratio"] = row["triples_per_s"] / best["triples_per_s"]
        report.figures["training"][name] = {"graph": graph["text"], "rows": rows}
        _print(name, graph["text"], rows, best, options, report)


def _rows(name: str, path: str, graph: Row, options: Options, report: Report) -> Iterator[Row]:
    epochs, seconds = (2, 0.3) if options.quick else (EPOCHS, SECONDS)
    fb = name == "fb"

    def one(engine: str, batch: int, quality: bool = False, speed: bool = True) -> Row:
        report.progress(f"  {engine}, batch {batch:,}{', quality' if quality else ''} …")
        row = call(
            "training:measure", options.environment, engine=engine, data=path, batch=batch, epochs=epochs,
            seconds=seconds, speed=speed, quality=quality,
        )  # fmt: skip
        row = {"engine": engine, "batch": batch, **row}
        report.progress(f"    {failure(row) or _summary(row)}")
        return row

    quick = options.quick
    if quick and not fb:
        yield one("fkge", 1)
        yield one("PyKEEN", 10_000)
        return
    some = (1000,) if quick else (100, 1000, 10_000)
    for batch in (1, *some):
        yield one("fkge", batch, quality=fb)
    for batch in some:
        yield one("fkge autograd", batch, quality=fb and batch == 1000)
    yield from _climb(one, graph["train"], [1000] if quick else _LADDER, quality=fb)
    for batch in some:
        yield (row := one("PyG", batch, quality=fb and batch in (1000, 10_000)))
        if "missing" in row:
            return
    if fb and not quick:
        yield one("PyG SparseAdam", 1000, quality=True)


def _climb(one: Callable[..., Row], triples: int, ladder: list[int], quality: bool) -> Iterator[Row]:
    """PyKEEN at growing batch sizes; the quality of the fastest is measured too."""
    rows: list[Row] = []
    for batch in ladder:
        if batch > triples:
            break
        rows.append(one("PyKEEN", batch, quality=quality and batch in (1000, 10_000)))
        if "missing" in rows[-1]:
            break
    best = _best(rows, "PyKEEN")
    if quality and best and "mrr" not in best:
        best |= one("PyKEEN", best["batch"], quality=True, speed=False)
    yield from rows


def _best(rows: list[Row], engine: str) -> Row | None:
    measured = [row for row in rows if row["engine"] == engine and row.get("triples_per_s")]
    return max(measured, key=lambda row: float(row["triples_per_s"]), default=None)


def _wall(row: Row) -> float:
    return statistics.median(row["triples_per_wall_s_runs"])


def _summary(row: Row) -> str:
    speed = f"{row['triples_per_s']:,.0f} triples/s, {row['peak_mb']:,.0f} MB" if "triples_per_s" in row else ""
    mrr = f" MRR {row['mrr']:.3f} in {row['cpu_s']:.1f} CPU s with lr {row['lr']:.2g}" if row.get("mrr") else ""
    return speed + mrr


def _print(name: str, text: str, rows: list[Row], best: Row | None, options: Options, report: Report) -> None:
    fb = name == "fb"
    columns = ["engine", "batch", "triples/s", "ratio", "peak MB", "first call s"]
    if fb:
        columns += [f"MRR, {2 if options.quick else EPOCHS} epochs", "CPU s", "lr per triple"]
    cells = []
    for row in rows:
        failed = failure(row)
        if failed:
            cells.append([row["engine"], f"{row['batch']:,}", failed, *[""] * (len(columns) - 3)])
            continue
        ratio = f"{row['ratio']:.3g}" if "ratio" in row else ""
        mark = " (best)" if row is best else ""
        line = [
            row["engine"], f"{row['batch']:,}", f"{row['triples_per_s']:,.0f}{mark}", ratio,
            f"{row['peak_mb']:,.0f}", f"{row['first_call_s']:.2f}",
        ]  # fmt: skip
        if fb:
            known = row.get("mrr") is not None
            line += [f"{row['mrr']:.3f}", f"{row['cpu_s']:.1f}", f"{row['lr']:.1e}"] if known else ["", "", ""]
        cells.append(line)
    caption = (
        f"TransE L1, {DIM} dimensions, one uniform negative, margin 1, SGD, one thread. Triples per CPU second, median "
        f"of {RUNS} runs from fresh tables after a warm-up; the first call, which compiles, is timed apart. Ratio: to "
        "PyKEEN at its best batch size."
    )
    if fb:
        caption += (
            " Filtered MRR of a test sample, by the same code for all; each engine's learning rate is the one with the"
            " best validation MRR on a half-decade grid, climbed from a start until both neighbours are worse."
            " Rows without MRR were not trained to the end."
        )
    report.table(f"Training on {text}", columns, cells, caption)
    own = _best(rows, "fkge")
    if own and best:
        ratio = own["triples_per_s"] / best["triples_per_s"]
        wall = _wall(own) / _wall(best)
        report.note(
            f"fkge's best (batch {own['batch']:,}) is {ratio:.1f} times PyKEEN's best (batch {best['batch']:,}); "
            f"the target is {_TARGETS[name]} times. By wall time, including other processes: {wall:.1f} times.\n"
        )

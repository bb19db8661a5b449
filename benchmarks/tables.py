"""Time the operations on a table between epochs: snapshot, roll back, replace, append and truncate rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

from benchmarks.child import Clock, call
from benchmarks.report import Options, Report, failure

ENTITIES, DIM, REPLACED, ADDED = 300_000, 100, 118_939, 10_000
REPEATS = 9


def measure(entities: int, replaced: int, added: int) -> dict[str, Any]:
    """Median milliseconds of each operation on a table with Adam's state beside it."""
    import torch

    from fkge.embed import make_tables, optimizers
    from fkge.settings import TrainSettings

    torch.set_num_threads(1)
    settings = TrainSettings(model="TransE", dim=DIM, optimizer="adam", device="cpu")
    tables = make_tables(settings, entities, 10)
    optimizers.register("adam", tables)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randperm(entities, generator=generator)[:replaced]
    vectors = torch.rand(replaced, DIM, generator=generator)
    virtual = torch.rand(added, DIM, generator=generator)
    kept = tables.snapshot()

    def median(operation: Callable[[], object], undo: Callable[[], object] = lambda: None) -> float:
        times = []
        for _ in range(REPEATS):
            clock = Clock()
            result = operation()
            times.append(clock.cpu * 1e3)
            del result
            undo()
        return statistics.median(times)

    return {
        "snapshot, new memory": median(tables.snapshot),
        "snapshot, into an older one": median(lambda: tables.snapshot(kept)),
        "roll back": median(lambda: tables.restore(kept)),
        f"replace {replaced:,} rows": median(lambda: tables.replace("entity", ids, vectors)),
        f"read {replaced:,} rows": median(lambda: tables.read("entity", ids)),
        f"append {added:,} rows": median(
            lambda: tables.append("entity", virtual), lambda: tables.truncate("entity", entities)
        ),
        f"truncate {added:,} rows": _truncate(tables, virtual, entities),
    }


def _truncate(tables: Any, virtual: Any, entities: int) -> float:
    times = []
    for _ in range(REPEATS):
        tables.append("entity", virtual)
        clock = Clock()
        tables.truncate("entity", entities)
        times.append(clock.cpu * 1e3)
    return statistics.median(times)


def run(options: Options, report: Report) -> None:
    """Measure one table, and print the results."""
    entities, replaced, added = (3000, 1000, 100) if options.quick else (ENTITIES, REPLACED, ADDED)
    report.progress("table operations")
    result = call("tables:measure", options.environment, entities=entities, replaced=replaced, added=added)
    report.figures["tables"] = result
    if failed := failure(result):
        report.note(f"table operations: {failed}")
        return
    report.table(
        f"Operations on a table of {entities:,} x {DIM} with Adam's state (3 such tables and a counter)",
        ["operation", "ms"],
        [[name, f"{ms:.1f}"] for name, ms in result.items()],
        f"Median of {REPEATS}, CPU milliseconds, one thread.",
    )

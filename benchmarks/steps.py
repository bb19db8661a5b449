"""Time a training step as the tables grow: its cost should depend on the rows it touches only."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

from benchmarks.child import Clock, call
from benchmarks.report import Options, Report, failure

DIM, BATCH = 100, 1000
ROWS = ((True, 1, True), (True, 64, True), (True, 64, False), (False, 1, True), (False, 64, True))
"""Kernels or autograd, negatives, ids from the whole table or from as many rows whatever its size."""
SIZES = (10_000, 100_000, 1_000_000)
SUBSET = 10_000
SECONDS = 4.0


def measure(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Every case in turn: arguments of `_measure`."""
    return {"results": [{**case, **_measure(**case)} for case in cases]}


def _measure(entities: int, subset: int, batch: int, negatives: int, kernels: bool, seconds: float) -> dict[str, Any]:
    """Median milliseconds of an Adam step whose entities are drawn from the first `subset` rows of `entities`."""
    import torch

    from fkge.embed import make_tables
    from fkge.embed.batches import Batcher
    from fkge.embed.steps import make_step
    from fkge.settings import TrainSettings

    torch.set_num_threads(1)
    relations = 10
    settings = TrainSettings(
        model="TransE", dim=DIM, norm=1, loss="sigmoid", negatives=negatives, optimizer="adam", batch=batch,
        device="cpu", kernels=kernels, share=1, filtered=False,
    )  # fmt: skip
    tables = make_tables(settings, entities, relations)
    step = make_step(tables, settings)
    generator = torch.Generator().manual_seed(0)
    head, tail = (torch.randint(subset, (50 * batch,), generator=generator) for _ in range(2))
    relation = torch.randint(relations, (50 * batch,), generator=generator)
    # The batcher believes that there are `subset` entities; the table has more.
    batcher = Batcher(torch.stack([head, relation, tail], dim=1), subset, relations, batch=batch, negatives=negatives)
    chunks = itertools.chain.from_iterable(batcher.epoch(epoch) for epoch in itertools.count())
    step(next(chunks), settings.lr)  # compiles
    times: list[float] = []
    touched: list[int] = []
    total = Clock()
    while not times or total.cpu < seconds:
        chunk = next(chunks)  # several steps, dealt before the clock starts
        clock = Clock()
        step(chunk, settings.lr)
        times.append(clock.cpu * 1e3 / (len(chunk.bounds) - 1))
        for one in chunk.steps():
            touched.append(len(torch.unique(torch.cat([one.head, one.tail, one.negative], dim=1))))
    return {"ms": statistics.median(times), "rows": round(statistics.mean(touched)), "steps": len(touched)}


def run(options: Options, report: Report) -> None:
    """Both paths, ids from everywhere or from as many rows whatever the table's size."""
    sizes = (1000, 10_000) if options.quick else SIZES
    subset = min(sizes[0], SUBSET)
    batch, seconds = (100, 0.3) if options.quick else (BATCH, SECONDS)
    cases = [
        {
            "entities": n, "subset": n if whole else subset, "batch": batch, "negatives": negatives,
            "kernels": kernels, "seconds": seconds,
        }
        for kernels, negatives, whole in ROWS
        for n in sizes
    ]  # fmt: skip
    report.progress(f"steps: {len(cases)} cases")
    answer = call("steps:measure", options.environment, cases=cases)
    report.figures["steps"] = answer
    if failed := failure(answer):
        report.note(f"step times: {failed}")
        return
    cells = []
    for i in range(0, len(cases), len(sizes)):
        row = answer["results"][i : i + len(sizes)]
        path = "kernel" if row[-1]["kernels"] else "autograd"
        path += f", negatives {row[-1]['negatives']}"
        ids = "the whole table" if row[-1]["subset"] == sizes[-1] else f"its first {subset:,} rows"
        cells.append([f"{path}, ids from {ids}", *(f"{x['ms']:.1f} ms, {x['rows']:,} rows" for x in row)])
    report.table(
        "Step time by number of entities",
        ["", *(f"{entities:,} entities" for entities in sizes)],
        cells,
        f"TransE L1, {DIM} dimensions, batch {batch:,}, Adam, one thread; median CPU "
        "milliseconds per step, and the different entity rows a step touches. With ids from the whole table a larger "
        "table means more different rows and more cache misses; with ids from the same few rows only the table grows.",
    )

"""Time of a training step as the tables grow: it should cost what its batch touches, and nothing else."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.child import Clock, call
from benchmarks.report import Options, Report, failure

DIM, BATCH, NEGATIVES = 100, 1000, 64
SIZES = (10_000, 100_000, 1_000_000)
SUBSET = 10_000
SECONDS = 4.0


def measure(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Every case in turn: arguments of `_measure`."""
    return {"results": [{**case, **_measure(**case)} for case in cases]}


def _measure(entities: int, subset: int, batch: int, kernels: bool, seconds: float) -> dict[str, Any]:
    """Median milliseconds of an Adam step whose entities are drawn from the first `subset` rows of `entities`."""
    import torch

    from fkge.embed import make_tables
    from fkge.embed.batches import Batch
    from fkge.embed.steps import make_step
    from fkge.settings import TrainSettings

    torch.set_num_threads(1)
    relations = 10
    settings = TrainSettings(
        model="TransE", dim=DIM, norm=1, loss="sigmoid", negatives=NEGATIVES, optimizer="adam", batch=batch,
        device="cpu", kernels=kernels,
    )  # fmt: skip
    tables = make_tables(settings, entities, relations)
    step = make_step(tables, settings)
    generator = torch.Generator().manual_seed(0)

    def draw() -> Batch:
        head, tail = (torch.randint(subset, (batch, 1), generator=generator) for _ in range(2))
        return Batch(
            head=head,
            relation=torch.randint(relations, (batch, 1), generator=generator),
            tail=tail,
            corrupt_tail=torch.rand(batch, 1, generator=generator) < 0.5,
            weight=torch.ones(batch, 1, dtype=torch.bool),
            negative=torch.randint(subset, (batch, NEGATIVES), generator=generator),
            bounds=[0, batch],
            positives=batch,
        )

    for _ in range(3):
        step(draw(), 1e-3)
    times, touched, total = [], [], Clock()
    while not times or total.cpu < seconds:
        drawn = draw()
        touched.append(len(torch.unique(torch.cat([drawn.head, drawn.tail, drawn.negative], dim=1))))
        clock = Clock()
        step(drawn, 1e-3)
        times.append(clock.cpu * 1e3)
    return {"ms": statistics.median(times), "rows": round(statistics.mean(touched)), "steps": len(times)}


def run(options: Options, report: Report) -> None:
    """Both paths, ids from everywhere or from as many rows whatever the table's size."""
    sizes = (1000, 10_000) if options.quick else SIZES
    subset = min(sizes[0], SUBSET)
    batch, seconds = (100, 0.3) if options.quick else (BATCH, SECONDS)
    cases = [
        {"entities": n, "subset": n if whole else subset, "batch": batch, "kernels": kernels, "seconds": seconds}
        for kernels in (True, False)
        for whole in (True, False)
        for n in sizes
    ]
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
        ids = "the whole table" if row[-1]["subset"] == sizes[-1] else f"its first {subset:,} rows"
        cells.append([f"{path}, ids from {ids}", *(f"{x['ms']:.1f} ms, {x['rows']:,} rows" for x in row)])
    report.table(
        "Step time by number of entities",
        ["", *(f"{entities:,} entities" for entities in sizes)],
        cells,
        f"TransE L1, {DIM} dimensions, batch {batch:,}, {NEGATIVES} negatives, Adam, one thread; median CPU "
        "milliseconds per step, and the different entity rows a step touches. With ids from the whole table a larger "
        "table means more different rows and more cache misses; with ids from the same few rows only the table grows.",
    )

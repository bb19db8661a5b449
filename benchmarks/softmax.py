"""Time an epoch of cross-entropy over all entities against PyKEEN's LCWA loop: ``python -m benchmarks.softmax``.

Both train ComplEx with inverse relations from the same initial values, with Adagrad, on one thread. PyKEEN's batch is
of questions, as with ``kvsall``, which is the same objective; with ``1vsall`` a step has as many questions on average.
MRR is the filtered one of a validation sample, by the same code. The floor of an epoch are its matrix products alone,
three for each step, of the same shapes and type, in the same process.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.child import Clock, call, peak_mb
from benchmarks.report import failure, machine

WAYS = (
    ("PyKEEN", "float32"), ("1vsall", "bfloat16"), ("1vsall", "float32"), ("kvsall", "bfloat16"), ("kvsall", "float32"),
)  # fmt: skip
VALID = 1000
"""Triples ranked for the MRR."""


def make(path: str, graph: str | None) -> dict[str, Any]:
    """Write the graph as arrays; a synthetic one in the shape of FB15k-237 if none is given."""
    from benchmarks.data import Data, synthetic

    if graph is None:
        data, text = synthetic(14_541, 237, 272_115, 17_535), "synthetic, in the shape of FB15k-237"
    else:
        from fkge.graph import read_graph

        read = read_graph(graph)
        data = Data(len(read.entities), len(read.relations), read.train, read.valid, read.test)
        text = graph
    data.save(Path(path))
    return {"text": f"{text}: {data.entities:,} entities, {data.relations:,} relations, {len(data.train):,} triples"}


def measure(
    way: str, precision: str, path: str, dim: int, batch: int, epochs: int, lr: float, regularization: float
) -> dict[str, Any]:
    """Seconds per epoch, MRR and the floor of the products of one way."""
    import numpy as np
    import torch

    from benchmarks.data import Data
    from fkge.embed import make_tables
    from fkge.embed.questions import QuestionBatcher
    from fkge.evaluation import Known, metrics, rank
    from fkge.settings import TrainSettings

    torch.set_num_threads(1)
    data = Data.load(path)
    triples = torch.from_numpy(data.train.astype(np.int64))
    questions = len(QuestionBatcher(triples, data.entities, data.relations, batch=1, per_question=True, seed=0)._sizes)
    answers = max(1, round(batch * 2 * len(triples) / questions))
    settings = TrainSettings(
        model="ComplEx", dim=dim, loss="kvsall" if way == "PyKEEN" else way, reciprocal=True, optimizer="adagrad",
        batch=answers if way == "1vsall" else batch, lr=lr, device="cpu", regularizer="n3",
        regularization=regularization, share=len(triples), precision=precision,  # type: ignore[arg-type]
    )  # fmt: skip
    tables = make_tables(settings, data.entities, data.relations)
    epoch = (_PyKeen if way == "PyKEEN" else _ours)(tables, triples, settings)
    seconds: list[float] = []
    walls: list[float] = []
    for _ in range(epochs):
        clock = Clock()
        epoch()
        seconds.append(clock.cpu)
        walls.append(clock.wall)
    if way == "PyKEEN":
        _take(epoch.model, tables)  # type: ignore[attr-defined]
    peak = peak_mb()
    known = Known(np.concatenate([data.train, data.valid, data.test]), data.entities, data.relations)
    mrr = metrics(rank(tables, data.sample("valid", VALID), known=known))["mrr"]
    steps = max(1, questions // batch)
    kind = torch.bfloat16 if precision == "bfloat16" else torch.float32
    flops = 6 * questions * data.entities * 2 * dim
    return {
        "s": statistics.median(seconds), "wall_s": statistics.median(walls), "mrr": mrr, "peak_mb": peak,
        "questions": questions, "steps": steps, "gflops": flops / statistics.median(seconds) / 1e9,
        "floor_s": steps * _floor(questions / steps, data.entities, 2 * dim, kind),
    }  # fmt: skip


def _floor(questions: float, entities: int, width: int, kind: Any) -> float:
    """CPU seconds of a step's three products, with results in memory that is there already."""
    import torch

    q, e = (torch.randn(n, width).to(kind) for n in (round(questions), entities))
    p = torch.rand(len(q), entities).to(kind)
    scores, dq, de = torch.empty_like(p), torch.empty_like(q), torch.empty_like(e)
    times = []
    for _ in range(7):
        clock = Clock()
        torch.mm(q, e.T, out=scores)
        torch.mm(p, e, out=dq)
        torch.mm(p.T, q, out=de)
        times.append(clock.cpu)
    return statistics.median(times)


def _ours(tables: Any, triples: Any, settings: Any) -> Any:
    from fkge.embed import Trainer

    return Trainer(tables, triples, settings).run_epoch


class _PyKeen:
    """PyKEEN's LCWA loop, one epoch for each call."""

    def __init__(self, tables: Any, triples: Any, settings: Any) -> None:
        import logging

        import torch
        from pykeen.losses import CrossEntropyLoss
        from pykeen.models import ComplEx
        from pykeen.regularizers import PowerSumRegularizer
        from pykeen.training import LCWATrainingLoop
        from pykeen.triples import CoreTriplesFactory

        logging.disable(logging.WARNING)
        self.factory = CoreTriplesFactory.create(
            triples, num_entities=tables.entities, num_relations=tables.relations, create_inverse_triples=True
        )
        regularizer = None
        if settings.regularization:
            regularizer = PowerSumRegularizer(weight=settings.regularization, p=3.0, normalize=False)
        self.model = ComplEx(
            triples_factory=self.factory, embedding_dim=settings.dim, loss=CrossEntropyLoss(), random_seed=0,
            entity_initializer="zeros_", relation_initializer="zeros_", regularizer=regularizer,
        )  # fmt: skip
        for rows, part in _parts(self.model, tables):
            with torch.no_grad():
                part.copy_(torch.stack(rows.chunk(2, dim=1), dim=-1).reshape(part.shape))
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=settings.lr)
        self.loop = LCWATrainingLoop(model=self.model, triples_factory=self.factory, optimizer=self.optimizer)
        self.batch, self.done = settings.batch, 0
        self.model.reset_parameters_ = lambda: self.model  # else the first epoch begins with other numbers

    def __call__(self) -> None:
        self.done += 1
        self.loop.train(
            self.factory, num_epochs=self.done, batch_size=self.batch, use_tqdm=False, use_tqdm_batch=False,
            continue_training=self.done > 1, num_workers=0,
        )  # fmt: skip


def _parts(model: Any, tables: Any) -> list[tuple[Any, Any]]:
    """Our tables beside the rows of PyKEEN's that are the same; an inverse stands after its relation there."""
    entity, relation = (x[0]._embeddings.weight for x in (model.entity_representations, model.relation_representations))
    return [(tables["entity"], entity), (tables["relation"], relation[0::2]), (tables["inverse"], relation[1::2])]


def _take(model: Any, tables: Any) -> None:
    for rows, part in _parts(model, tables):
        pairs = part.detach().reshape(len(rows), -1, 2)
        rows.copy_(pairs.permute(0, 2, 1).reshape(rows.shape))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.softmax", description=__doc__)
    parser.add_argument("graph", nargs="?", help="a folder; a synthetic graph in the shape of FB15k-237 if none")
    parser.add_argument("--dim", type=int, default=200, help="complex numbers of a row")
    parser.add_argument("--batch", type=int, default=500, help="questions per step")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--only", metavar="WAY", help="1vsall, kvsall or PyKEEN")
    parser.add_argument("--regularization", type=float, default=0.0, metavar="X", help="weight of N3")
    a = parser.parse_args()
    print(", ".join(f"{key} {value}" for key, value in machine().items()))
    with tempfile.TemporaryDirectory(prefix="fkge-benchmarks-") as work:
        path = str(Path(work, "graph.npz"))
        print(call("softmax:make", path=path, graph=a.graph)["text"])
        print(
            f"ComplEx, {a.dim} complex numbers, {a.batch} questions per step, {a.epochs} epochs, Adagrad, one thread\n"
        )
        print(
            "| | s per epoch | PyKEEN / it | MRR | peak MB | GFLOP/s | products alone, s | their share |\n"
            + "|---" * 8
            + "|"
        )
        rows = {}
        for way, precision in WAYS:
            if a.only not in (None, way):
                continue
            row = call(
                "softmax:measure", way=way, precision=precision, path=path, dim=a.dim, batch=a.batch, epochs=a.epochs,
                lr=a.lr, regularization=a.regularization,
            )  # fmt: skip
            if failed := failure(row):
                print(f"| {way}, {precision} | {failed} |" + " |" * 6, flush=True)
                continue
            rows[way, precision] = row
            base = rows.get(("PyKEEN", "float32"), {}).get("s")
            ratio = f"{base / row['s']:.2f}" if base else ""
            print(
                f"| {way}, {precision} | {row['s']:.2f} | {ratio} | {row['mrr']:.4f} | {row['peak_mb']:,.0f} | "
                f"{row['gflops']:.0f} | {row['floor_s']:.2f} | {row['floor_s'] / row['s']:.0%} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Compare filtered ranking with PyKEEN's, in one process on one thread, in triples per second of CPU time.

    python benchmarks/ranking.py [--data FOLDER] [--dim 100] [--oracle-triples 512]

Without the data folder (FB15k-237 in OpenKE's format) a random graph of the same shape stands in.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from fkge.embed import Tables, model_class
from fkge.evaluation import Known, Ranks, metrics, rank
from fkge.graph import Graph, Vocabulary, read_graph

CASES = [
    ("TransE", 1),
    ("TransE", 2),
    ("TransH", 1),
    ("TransR", 1),
    ("TransD", 1),
    ("DistMult", 1),
    ("ComplEx", 1),
    ("RotatE", 1),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parents[2] / "shared" / "data" / "fb15k237"
    parser.add_argument("--data", type=Path, default=default, help="folder in OpenKE's format")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--oracle-triples", type=int, default=512, help="PyKEEN ranks this many; 0: none")
    parser.add_argument("--repeats", type=int, default=3, help="the best of so many")
    args = parser.parse_args()
    torch.set_num_threads(1)
    graph = read_graph(args.data) if args.data.is_dir() else synthetic()
    started = time.process_time()
    known = Known.of(graph)
    indexed = time.process_time() - started
    print(f"{graph}\n{args.dim} dimensions, 1 thread, CPU time; known facts indexed in {indexed:.2f} s\n")
    print(f"{'model':<12}{'ours, triples/s':>18}{'PyKEEN, triples/s':>20}{'ratio':>8}   mean rank, ours and PyKEEN's")
    for name, norm in CASES:
        model = model_class(name)(args.dim, norm=norm)
        tables = Tables(model, len(graph.entities), len(graph.relations), seed=0)
        rank(tables, graph.test[:8], known=known)  # compile
        ours, ranks = best(lambda tables=tables: rank(tables, graph.test, known=known), args.repeats)
        ours = len(graph.test) / ours
        label = f"{name} L{norm}" if name.startswith("Trans") else name
        row = f"{label:<12}{ours:>18,.0f}"
        if name == "TransE" and args.oracle_triples:
            some = np.random.default_rng(0).choice(len(graph.test), args.oracle_triples, replace=False)
            theirs, their_rank = pykeen(tables, graph, some, norm)
            our_rank = metrics(ranks[some])["mr"]
            row += f"{theirs:>20,.0f}{ours / theirs:>7.0f}x   {our_rank:.2f} {their_rank:.2f}"
        print(row, flush=True)


def best(work: Callable[[], Ranks], repeats: int) -> tuple[float, Ranks]:
    """The least CPU seconds that `work` took, and its result."""
    seconds = []
    for _ in range(repeats):
        started = time.process_time()
        result = work()
        seconds.append(time.process_time() - started)
    return min(seconds), result


def pykeen(tables: Tables, graph: Graph, some: np.ndarray, norm: int) -> tuple[float, float]:
    """Triples/s of PyKEEN's evaluator at its best batch size, and its mean rank, on the same tables."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        from pykeen.evaluation import RankBasedEvaluator
        from pykeen.models import TransE
        from pykeen.triples import CoreTriplesFactory

        splits = {name: torch.from_numpy(t.astype(np.int64)) for name, t in graph.splits.items()}
        factory = CoreTriplesFactory(splits["train"], len(graph.entities), len(graph.relations))
        model = TransE(triples_factory=factory, embedding_dim=tables.model.dim, scoring_fct_norm=norm)
        with torch.no_grad():
            model.entity_representations[0]._embeddings.weight.copy_(tables["entity"])
            model.relation_representations[0]._embeddings.weight.copy_(tables["relation"])
        model.eval()
        rates = {}
        for batch in (16, 64, 256):
            evaluator = RankBasedEvaluator(filtered=True)
            started = time.process_time()
            results = evaluator.evaluate(
                model,
                splits["test"][some],
                additional_filter_triples=list(splits.values()),
                batch_size=batch,
                use_tqdm=False,
            )
            rates[batch] = len(some) / (time.process_time() - started)
    return max(rates.values()), results.get_metric("both.realistic.arithmetic_mean_rank")


def synthetic() -> Graph:
    """A random graph of FB15k-237's shape."""
    rng = np.random.default_rng(0)
    sizes = {"train": 272_115, "valid": 17_535, "test": 20_466}
    # Few entities and relations have most of the triples, as in the real one.
    entity, relation = (lambda n, k=k: (k * rng.random(n) ** 2.5).astype(np.int32) for k in (14_541, 237))
    splits = {name: np.stack([entity(n), relation(n), entity(n)], axis=1) for name, n in sizes.items()}
    names = (Vocabulary(map(str, range(n)), kind) for n, kind in ((14_541, "entity"), (237, "relation")))
    return Graph(*names, splits, name="random graph of FB15k-237's shape")


if __name__ == "__main__":
    main()

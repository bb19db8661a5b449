"""A dense pair of owners, made of FB15k-237.

    python -m benchmarks.dense FB15K237 OUT
    fkge simulate OUT/federation.toml --config dense --privacy dp --epsilon 8

The 40-core of the graph (every entity in at least 40 triples of it: about 1,300 entities, 56,000 triples) is dealt
triple by triple to a small *host* and a large *client*. Both know the same things under the same names and hold
different facts about them, many for each thing: where differential privacy has its best chance.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fkge.graph import Graph, read_graph
from fkge.graph.graph import HEAD, TAIL

CORE = 40
HOST = {"train": 2500, "valid": 1000, "test": 2500}
CLIENT = {"valid": 1000, "test": 2500}

FEDERATION = """name = "dense"

[owners.host]
graph = "host"
train = { margin = 1.0 }

[owners.client]
graph = "client"
train = { margin = 4.0 }

[[links]]
between = ["client", "host"]
same = true
"""
"""Each owner trains by the margin that suits it alone (tuned on its own validation triples)."""


def core(triples: npt.NDArray[np.int64], least: int) -> npt.NDArray[np.int64]:
    """What remains when entities in fewer than `least` triples are taken out again and again."""
    while True:
        degrees = np.bincount(triples[:, [HEAD, TAIL]].reshape(-1))
        keep = (degrees[triples[:, HEAD]] >= least) & (degrees[triples[:, TAIL]] >= least)
        if keep.all():
            return triples
        triples = triples[keep]


def deal(graph: Graph, out: Path, seed: int = 0) -> None:
    """Write the pair as a federation in the folder `out`."""
    rows = np.unique(np.concatenate([graph.train, graph.valid, graph.test]).astype(np.int64), axis=0)
    rows = np.random.default_rng(seed).permutation(core(rows, CORE))
    for owner, sizes in (("host", HOST), ("client", CLIENT | {"train": len(rows)})):
        (out / owner).mkdir(parents=True)
        for split in ("valid", "test", "train"):
            part, rows = rows[: sizes[split]], rows[sizes[split] :]
            lines = []
            for h, r, t in part.tolist():
                lines.append("\t".join((graph.entities[h], graph.relations[r], graph.entities[t])))
            (out / owner / f"{split}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "federation.toml").write_text(FEDERATION, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    deal(read_graph(given.source), given.out)

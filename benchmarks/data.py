"""The graphs to train on, as arrays of ids in a file that every engine reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Data:
    """A graph: `train`, `valid`, `test` are (n, 3) int32 head, relation, tail."""

    entities: int
    relations: int
    train: Ids
    valid: Ids
    test: Ids

    @classmethod
    def load(cls, path: str) -> Data:
        with np.load(path) as file:
            return cls(int(file["entities"]), int(file["relations"]), *(file[x] for x in ("train", "valid", "test")))

    def save(self, path: Path) -> None:
        np.savez(
            path, entities=self.entities, relations=self.relations, train=self.train, valid=self.valid, test=self.test
        )

    def sample(self, split: str, size: int) -> Ids:
        """At most `size` triples of a split, always the same ones."""
        triples: Ids = getattr(self, split)
        return np.random.default_rng(0).permutation(triples)[:size]


def synthetic(entities: int, relations: int, train: int, held_out: int, seed: int = 0) -> Data:
    """Random triples whose entities have degrees with a heavy tail (Zipf, exponent 0.8), hubs anywhere in the table."""
    rng = np.random.default_rng(seed)
    weight = np.arange(1, entities + 1, dtype=np.float64) ** -0.8
    cumulative = np.cumsum(weight / weight.sum())
    name = rng.permutation(entities)

    def draw(n: int) -> npt.NDArray[np.int64]:
        return name[np.minimum(np.searchsorted(cumulative, rng.random(n)), entities - 1)]

    n = train + 2 * held_out
    triples = np.stack([draw(n), rng.integers(relations, size=n), draw(n)], axis=1).astype(np.int32)
    return Data(entities, relations, triples[:train], triples[train : train + held_out], triples[train + held_out :])


def make(name: str, folder: str, path: str, quick: bool) -> dict[str, Any]:
    """Write graph `name`, ``fb`` or ``geo``, to `path`; returns a description.

    Args:
        folder: where FB15k-237 is, if it is.
    """
    if name == "fb" and not quick and Path(folder).is_dir():
        from fkge.graph import read_graph

        graph = read_graph(folder)
        data = Data(len(graph.entities), len(graph.relations), graph.train, graph.valid, graph.test)
        text = "FB15k-237"
    elif name == "fb":
        data = synthetic(2000, 20, 20_000, 500) if quick else synthetic(14_541, 237, 272_115, 20_000)
        text = "synthetic, small" if quick else "synthetic graph in the shape of FB15k-237 (the data set was not found)"
    else:
        data = synthetic(20_000, 6, 60_000, 500) if quick else synthetic(300_000, 6, 1_050_000, 5000)
        text = "geo, synthetic with heavy-tailed degrees"
    data.save(Path(path))
    shape = f"{data.entities:,} entities, {data.relations} relations, {len(data.train):,} training triples"
    return {"text": f"{text}: {shape}", "entities": data.entities, "train": len(data.train)}


def write_tsv(path: str) -> dict[str, Any]:
    """A small synthetic graph as a folder of tab-separated files."""
    data = synthetic(200, 5, 2000, 100)
    Path(path).mkdir()
    for split in ("train", "valid", "test"):
        lines = (f"{h}\tr{r}\t{t}\n" for h, r, t in getattr(data, split).tolist())
        Path(path, f"{split}.tsv").write_text("".join(lines))
    return {}

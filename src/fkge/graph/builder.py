"""From labelled rows to a `Graph`, without ever holding the text: readers append provisional ids to flat arrays;
`Builder.graph` renumbers by sorted label, so that ids do not depend on the order of the input.
"""

from __future__ import annotations

from array import array

import numpy as np
import numpy.typing as npt

from fkge.graph.graph import HEAD, TAIL, Graph, Triples, Vocabulary, renamed, seen, tidy
from fkge.graph.split import split_triples


class Ids(dict[str, int]):
    """Label → provisional id. A label not seen before gets the next one: to meet a known one is one look-up."""

    def __missing__(self, label: str) -> int:
        if not label or label.isspace():
            raise ValueError("empty label")
        self[label] = new = len(self)
        return new


class Builder:
    """A graph under construction.

    Attributes:
        entities, relations: provisional ids.
        same_as: pairs of labels stated to be the same thing, as they come.
        notes: what people should know about how the graph was read.
    """

    def __init__(self) -> None:
        self.entities = Ids()
        self.relations = Ids()
        self.same_as: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self._rows: dict[str, array[int]] = {}

    def rows(self, split: str) -> array[int]:
        """Return the flat array of head, relation, tail ids that a reader of `split` appends to."""
        return self._rows.setdefault(split, array("i"))

    def graph(self, name: str, *, seed: int, fractions: tuple[float, float, float], allow_unseen: bool) -> Graph:
        """Return the graph, and empty the builder.

        Args:
            name: for people.
            seed, fractions, allow_unseen: see `split_triples`, which splits ``train`` if there is neither ``valid`` nor
                ``test``.
        """
        same_as = self._same_as()
        entities, entity_ranks = _sort(self.entities)
        relations, relation_ranks = _sort(self.relations)
        splits: dict[str, Triples] = {}
        for split in list(self._rows):
            # Each flat array is freed before the next one is unfolded.
            raw = np.frombuffer(self._rows.pop(split), dtype=np.intc).reshape(-1, 3)
            triples = renamed(raw, entity_ranks, relation_ranks)
            del raw
            splits[split] = tidy(triples)
            if repeated := len(triples) - len(splits[split]):
                self.notes.append(f"{split}: {repeated:,} repeated triples are counted once.")
        ready_made = "valid" in splits or "test" in splits
        if ready_made:
            self._note_missing_and_unseen(splits, len(entities), len(relations))
        else:
            self._split(splits, seed, fractions, allow_unseen)
        idle = np.ones(len(entities), np.bool_)
        for triples in splits.values():
            idle[triples[:, [HEAD, TAIL]]] = False
        if idle.any():
            self.notes.append(f"{idle.sum():,} of {len(entities):,} entities occur in no triple; they are kept.")
        return Graph(
            entities=Vocabulary(entities, "entity"),
            relations=Vocabulary(relations, "relation"),
            splits=splits,
            same_as=same_as,
            name=name,
            notes=tuple(self.notes),
            split_seed=None if ready_made else seed,
        )

    def _same_as(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs with the label of this graph first; the statement itself has no direction."""
        pairs: set[tuple[str, str]] = set()
        foreign = 0
        for one, other in self.same_as:
            if one in self.entities:
                pairs.add((one, other))
            elif other in self.entities:
                pairs.add((other, one))
            else:
                foreign += 1
        self.same_as.clear()
        if foreign:
            self.notes.append(f"{foreign:,} owl:sameAs statements without an entity of this graph are left out.")
        return tuple(sorted(pairs))

    def _note_missing_and_unseen(self, splits: dict[str, Triples], entities: int, relations: int) -> None:
        for split in ("valid", "test"):
            if split not in splits:
                self.notes.append(f"There is no {split} split; it is empty.")
        for split, triples in splits.items():
            if unseen := len(triples) - int(seen(triples, splits["train"], entities, relations).sum()):
                self.notes.append(
                    f"{split}: {unseen:,} of {len(triples):,} triples hold an entity or a relation "
                    "that train does not have; they are kept."
                )

    def _split(
        self, splits: dict[str, Triples], seed: int, fractions: tuple[float, float, float], allow_unseen: bool
    ) -> None:
        everything = splits["train"]
        parts = split_triples(everything, seed=seed, fractions=fractions, allow_unseen=allow_unseen)
        splits.update(zip(("train", "valid", "test"), parts, strict=True))
        shares = " / ".join(f"{100 * fraction:g}" for fraction in fractions)
        sizes = " / ".join(f"{len(part):,}" for part in parts)
        self.notes.append(f"No ready-made splits: split {shares} % with seed {seed}, into {sizes} triples.")
        if len(parts[0]) > fractions[0] * len(everything) + 1:
            self.notes.append(
                "valid and test are smaller than asked: further triples would have left train without "
                "an entity or a relation."
            )


def _sort(ids: dict[str, int]) -> tuple[tuple[str, ...], npt.NDArray[np.int32]]:
    """Return the labels in order, and the place in it of each provisional id. Empties `ids`."""
    labels = sorted(ids)
    provisional = np.fromiter(map(ids.__getitem__, labels), np.int32, len(labels))
    ids.clear()
    ranks = np.empty(len(labels), np.int32)
    ranks[provisional] = np.arange(len(labels), dtype=np.int32)
    return tuple(labels), ranks

"""A graph under construction: labels get their final ids when it is built."""

from __future__ import annotations

from fkge.graph.builder import Builder


def test_ids_follow_the_order_of_labels_and_not_of_reading() -> None:
    builder = Builder()
    for split, facts in {"train": [("z", "r", "a"), ("a", "q", "m")], "valid": [("m", "r", "z")]}.items():
        for h, r, t in facts:
            builder.rows(split).extend((builder.entities[h], builder.relations[r], builder.entities[t]))
    graph = builder.graph("made", seed=0, fractions=(0.8, 0.1, 0.1), allow_unseen=False)
    assert (list(graph.entities), list(graph.relations)) == (["a", "m", "z"], ["q", "r"])
    assert graph.train.tolist() == [[0, 0, 1], [2, 1, 0]]
    assert graph.valid.tolist() == [[1, 1, 2]]
    assert graph.split_seed is None  # it has a valid split, so nothing is split at random


def test_a_single_split_is_split_at_random() -> None:
    builder = Builder()
    for i in range(40):
        builder.rows("train").extend((builder.entities[f"e{i % 5}"], builder.relations["r"], builder.entities[f"e{i}"]))
    graph = builder.graph("made", seed=3, fractions=(0.8, 0.1, 0.1), allow_unseen=True)
    assert graph.split_seed == 3
    assert [len(graph.splits[name]) for name in ("train", "valid", "test")] == [32, 4, 4]

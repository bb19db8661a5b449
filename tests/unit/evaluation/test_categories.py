from __future__ import annotations

import numpy as np

from fkge.evaluation import Ranks, metrics, metrics_by_category, relation_categories

ONE, FAN_OUT, FAN_IN, MANY, NEVER = range(5)
TRAIN = [
    (0, ONE, 1), (2, ONE, 3), (4, ONE, 5),
    (0, FAN_OUT, 1), (0, FAN_OUT, 2), (0, FAN_OUT, 3), (4, FAN_OUT, 5),
    (1, FAN_IN, 0), (2, FAN_IN, 0), (3, FAN_IN, 4),
    (0, MANY, 1), (0, MANY, 2), (3, MANY, 1), (3, MANY, 2),
]  # fmt: skip


def test_by_hand():
    got = relation_categories(np.array(TRAIN), 5)
    # FAN_IN has 3 facts for 2 tails: 1.5 heads per tail is many already.
    assert got.tolist() == ["1-1", "1-n", "n-1", "n-n", "unseen"]


def test_threshold_and_duplicates():
    assert relation_categories(np.array(TRAIN), 5, threshold=1.6).tolist()[FAN_IN] == "1-1"
    doubled = np.array(TRAIN + TRAIN)
    assert relation_categories(doubled, 5).tolist() == relation_categories(np.array(TRAIN), 5).tolist()


def test_metrics_by_category():
    triples = np.array([(0, ONE, 1), (0, FAN_OUT, 2), (1, FAN_OUT, 2), (0, NEVER, 1)])
    best = np.array([[1, 2], [3, 4], [5, 8], [2, 2]])
    ranks = Ranks(best, best + 2)
    got = metrics_by_category(ranks, triples, relation_categories(np.array(TRAIN), 5), "optimistic")
    assert list(got) == ["1-1", "1-n", "unseen"]
    assert got["1-n"]["triples"] == 2
    assert got["1-n"]["head"]["mr"] == 4
    assert got["1-n"]["tail"]["mr"] == 6
    assert got["1-n"]["both"]["mr"] == 5
    assert got["1-1"]["both"] == metrics(ranks[:1], "optimistic")

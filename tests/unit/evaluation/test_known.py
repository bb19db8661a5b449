"""Known triples, by hand."""

from __future__ import annotations

import numpy as np

from fkge.evaluation import Known


def test_known_by_hand():
    known = Known([(0, 1, 2), (0, 1, 3), (4, 1, 2), (0, 1, 2)], 5, 2)
    assert (0, 1, 3) in known
    assert (3, 1, 0) not in known
    first, last = known.spans("tail", np.array([0, 4, 1]), np.array([1, 1, 1]))
    lists = [known.values("tail")[a:b].tolist() for a, b in zip(first, last, strict=True)]
    assert lists == [[2, 3], [2], []]
    first, last = known.spans("head", np.array([2]), np.array([1]))
    assert known.values("head")[first[0] : last[0]].tolist() == [0, 4]
    assert not Known(np.empty((0, 3)), 5, 2).contains([(0, 1, 2)]).any()


def test_nothing_is_known_of_entities_and_relations_added_later():
    known = Known(np.array([[1, 0, 2]]), 3, 2)
    assert (1, 0, 2) in known
    assert known.contains(np.array([[0, 2, 2], [0, 1, 5], [1, 0, 2]])).tolist() == [False, False, True]

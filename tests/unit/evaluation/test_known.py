"""Known triples, by hand."""

from __future__ import annotations

import numpy as np
import torch

from fkge.evaluation import Known


def listed(known, side, fixed, relation):
    first, last = known.spans(side, torch.tensor(fixed), torch.tensor(relation))
    return [known.values(side)[a:b].tolist() for a, b in zip(first, last, strict=True)]


def test_known_by_hand():
    known = Known([(0, 1, 2), (0, 1, 3), (4, 1, 2), (0, 1, 2)], 5, 2)
    assert listed(known, "tail", [0, 4, 1], [1, 1, 1]) == [[2, 3], [2], []]
    assert listed(known, "head", [2], [1]) == [[0, 4]]
    assert listed(Known(np.empty((0, 3)), 5, 2), "tail", [0], [1]) == [[]]


def test_nothing_is_known_of_relations_added_later():
    known = Known(np.array([[1, 0, 2]]), 3, 2)  # the key of (0, 2) would be that of (1, 0)
    assert listed(known, "tail", [0, 1], [2, 0]) == [[], [2]]

"""Global ids for rows that are linked through any chain of owners.

Only a server that sees every alignment can compute them. The federation never does; its server-based baselines do.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fkge.errors import SettingsError

Ids = npt.NDArray[np.int64]


def clusters(sizes: Mapping[str, int], pairs: Mapping[tuple[str, str], tuple[Ids, Ids]]) -> tuple[dict[str, Ids], int]:
    """Number the things that a federation's rows stand for.

    Args:
        sizes: rows of each owner.
        pairs: by the names of two owners, (n,) ids at the first and (n,) at the second; position k is the same thing.

    Returns:
        For each owner (rows,) global ids, and how many there are. They count from 0 in the order in which owners
        and their rows first show a thing.
    """
    start, total = {}, 0
    for name, size in sizes.items():
        start[name], total = total, total + size
    parent = list(range(total))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]  # halve the path on the way up
            i = parent[i]
        return i

    for (a, b), sides in pairs.items():
        for name, ids in zip((a, b), sides, strict=True):
            if name not in sizes:
                raise SettingsError(f"pair {a}, {b}: there is no owner {name!r} among {', '.join(sizes)}")
            if len(ids) and not (ids.min() >= 0 and ids.max() < sizes[name]):
                raise SettingsError(f"pair {a}, {b}: an id is not among the {sizes[name]} rows of {name!r}")
        if len(sides[0]) != len(sides[1]):
            raise SettingsError(f"pair {a}, {b}: {len(sides[0])} ids on one side, {len(sides[1])} on the other")
        for i, j in zip((sides[0] + start[a]).tolist(), (sides[1] + start[b]).tolist(), strict=True):
            x, y = sorted((root(i), root(j)))
            parent[y] = x  # the smallest row is the root: ids count in the order of rows
    roots, ids = np.unique(np.array([root(i) for i in range(total)], np.int64), return_inverse=True)
    ids = ids.astype(np.int64)
    return {name: ids[start[name] : start[name] + size] for name, size in sizes.items()}, len(roots)

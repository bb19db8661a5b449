"""Global ids for rows that are linked through any chain of owners, for a simulation; owners see too few alignments."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from fkge.errors import SettingsError

Ids = npt.NDArray[np.int64]


def clusters(sizes: Mapping[str, int], pairs: Mapping[tuple[str, str], tuple[Ids, Ids]]) -> tuple[dict[str, Ids], int]:
    """Number the connected components of a federation's rows.

    Args:
        sizes: number of rows of each owner.
        pairs: by the names of two owners, (n,) ids at the first and (n,) at the second; position k is the same thing.

    Returns:
        For each owner (rows,) int64 global ids, and how many there are. They count from 0 in the order in which owners
        and their rows first show a component.

    Raises:
        SettingsError: a pair names an unknown owner or row, or its sides differ in length.
    """
    from scipy.sparse import coo_array  # comes with dp-accounting; slow to import
    from scipy.sparse.csgraph import connected_components

    ends = np.cumsum([0, *sizes.values()])
    start, total = dict(zip(sizes, ends.tolist(), strict=False)), int(ends[-1])
    links: tuple[list[Ids], list[Ids]] = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for (a, b), sides in pairs.items():
        for name, ids, linked in zip((a, b), sides, links, strict=True):
            if name not in sizes:
                raise SettingsError(f"pair {a}, {b}: there is no owner {name!r} among {', '.join(sizes)}")
            if len(ids) and not (ids.min() >= 0 and ids.max() < sizes[name]):
                raise SettingsError(f"pair {a}, {b}: an id is not among the {sizes[name]} rows of {name!r}")
            linked.append(ids + start[name])
        if len(sides[0]) != len(sides[1]):
            raise SettingsError(f"pair {a}, {b}: {len(sides[0])} ids on one side, {len(sides[1])} on the other")
    first, second = map(np.concatenate, links)
    graph = coo_array((np.ones(len(first), np.bool_), (first, second)), shape=(total, total))
    count, found = connected_components(graph, directed=False)
    found = found.astype(np.int64)
    return {name: found[start[name] : start[name] + size] for name, size in sizes.items()}, int(count)

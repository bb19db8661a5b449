"""Split one set of triples at random into train, valid and test: graphs without splits, and again under a policy."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fkge.errors import SettingsError
from fkge.graph.graph import HEAD, RELATION, TAIL, Triples, tidy


def split_triples(
    triples: npt.NDArray[np.integer],
    *,
    seed: int,
    fractions: tuple[float, float, float] = (0.9, 0.05, 0.05),
    allow_unseen: bool = False,
) -> tuple[Triples, Triples, Triples]:
    """Split at random into train, valid and test: disjoint, together all distinct triples, each sorted.

    The same set of triples and the same seed give the same splits, whatever order the triples come in.

    Args:
        triples: (n, 3) head, relation, tail. Duplicates count once.
        seed: of the permutation; not negative.
        fractions: shares of train, valid and test; they sum to 1.
        allow_unseen: if not, every entity and relation occurs in train: in permuted order, its first
            triple is pinned there. Where too few triples remain, valid and test shrink in proportion.
    """
    _check(seed, fractions)
    triples = tidy(triples)
    n = len(triples)
    if n == 0:
        return triples, triples.copy(), triples.copy()
    permuted = triples[np.random.default_rng(seed).permutation(n)]
    pinned = np.arange(n) == 0 if allow_unseen else _first_occurrences(permuted)  # train is never empty
    free = np.flatnonzero(~pinned)
    valid, test = _sizes(n, len(free), fractions)
    train = np.delete(permuted, free[: valid + test], axis=0)
    return tidy(train), tidy(permuted[free[:valid]]), tidy(permuted[free[valid : valid + test]])


def _check(seed: int, fractions: tuple[float, float, float]) -> None:
    if seed < 0:
        raise SettingsError(f"seed is {seed}; it must not be negative")
    if len(fractions) != 3 or not all(math.isfinite(f) and f >= 0 for f in fractions):
        raise SettingsError(f"fractions are {fractions}; they must be three numbers, none negative")
    if fractions[0] <= 0:
        raise SettingsError(f"fractions are {fractions}; train must get a share")
    if not math.isclose(sum(fractions), 1, abs_tol=1e-6):
        raise SettingsError(f"fractions are {fractions}; they must sum to 1, not {sum(fractions):g}")


def _first_occurrences(triples: Triples) -> npt.NDArray[np.bool_]:
    """Return which rows are the first to hold some entity or some relation, (n,) bool."""
    n = len(triples)
    pinned = np.zeros(n, np.bool_)
    backwards = np.arange(n - 1, -1, -1)
    for columns in ([HEAD, TAIL], [RELATION]):
        ids = triples[::-1, columns].reshape(-1)
        first = np.full(int(ids.max()) + 1, n)
        # Of several assignments to one place the last one stays; going backwards that is the first row.
        first[ids] = np.repeat(backwards, len(columns))
        pinned[first[first < n]] = True
    return pinned


def _sizes(n: int, free: int, fractions: tuple[float, float, float]) -> tuple[int, int]:
    """Return the sizes of valid and test for `n` triples, of which `free` need not be in train."""
    valid, test = (math.floor(fraction * n + 0.5) for fraction in fractions[1:])
    if valid + test > free:
        valid = math.floor(free * valid / (valid + test) + 0.5)
        test = free - valid
    return valid, test


def sample_triples(triples: Triples, most: int, seed: int) -> Triples:
    """Return a sample of the triples, in their order: the same ones for a seed.

    Args:
        triples: (n, 3).
        most: how many at most; 0 for all.
        seed: of the draw.
    """
    if not 0 < most < len(triples):
        return triples
    chosen = np.random.default_rng(seed).choice(len(triples), most, replace=False)
    return triples[np.sort(chosen)]

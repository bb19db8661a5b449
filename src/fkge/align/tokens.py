"""Common initial vectors: owners that align before training start aligned rows from the same values, without a server.

Every row gets a token, at first 64 random bits that its owner draws. Each pair of owners exchanges the tokens of its
common rows and both keep the smaller, until nothing changes. Then all rows that are linked, through any chain of
owners, carry one token, and a row's initial vector is a function of (seed, token).

What this tells a peer, beyond which rows it shares with the sender:

- A token that neither of the two drew says that some third owner has the thing too, and the round it came in says
  how many owners away. It does not say which: by itself a token names neither an owner nor a label. But one token
  seen from two sides is one thing, so owners that pool what they saw can follow it.
- Two common rows that come to carry one token are linked at another pair of owners.
- Nothing about labels: no dictionary fits random bits. Only the owner's seed leads from a token back to the
  number of a row (Philox is no cipher, but no way from its output to a key of 64 unknown bits is known). A simulation
  derives that seed from its own, so that a run repeats; there it is no secret.

Known weakness: a dishonest owner can send small tokens. Rows then start from vectors it chose, or all from one;
training removes the harm, and the owner learns nothing by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fkge.align.links import KINDS, Common, Kind, Pairs, random_bits
from fkge.errors import SettingsError
from fkge.graph.graph import Graph, mix_bits

TokenArray: TypeAlias = npt.NDArray[np.uint64]

_STREAM = int.from_bytes(b"tokens", "little") << 8
"""Separates tokens from other bits that are drawn under the same seed."""


class Tokens:
    """The tokens of one owner's rows.

    Args:
        tokens: (rows,) uint64 of each kind, as `__getitem__` gives them; `draw` makes new ones.
    """

    def __init__(self, tokens: Mapping[Kind, TokenArray]) -> None:
        self._tokens = {kind: np.array(tokens[kind], np.uint64) for kind in KINDS}

    @classmethod
    def draw(cls, rows: Graph | Mapping[Kind, int], seed: int) -> Tokens:
        """Draw new tokens. That of row i follows from (seed, kind, i) alone, so more rows leave the first unchanged.

        Args:
            rows: the owner's graph, or how many rows it has of each kind.
            seed: 64 random bits, the owner's secret, drawn once and stored. Owners with one seed would start with equal
                tokens row by row.

        Raises:
            SettingsError: the seed is not below 2⁶⁴.
        """
        if isinstance(rows, Graph):
            rows = {"entity": len(rows.entities), "relation": len(rows.relations)}
        return cls({kind: random_bits(seed, _STREAM + KINDS.index(kind), rows[kind]) for kind in KINDS})

    def __getitem__(self, kind: Kind) -> TokenArray:
        """Return the tokens of every row of a kind, (rows,) uint64, read-only."""
        view = self._tokens[kind].view()
        view.flags.writeable = False
        return view

    def of(self, common: Common) -> dict[Kind, TokenArray]:
        """Return what to send to the partner of `common`: the tokens of the common rows, (n,) uint64 of each kind."""
        return {kind: self._tokens[kind][common.ids(kind)] for kind in KINDS}

    def merge(self, common: Common, received: Mapping[Kind, TokenArray]) -> bool:
        """Keep the smaller of the own and the partner's token for each row of `common`.

        Returns:
            Whether a token of this owner changed; then its other partners need the new ones.

        Raises:
            SettingsError: the tokens received do not fit `common`; nothing changes.
        """
        for kind in KINDS:
            ids, got = common.ids(kind), received.get(kind)
            if got is None or got.dtype != np.uint64 or got.shape != ids.shape:
                what = "none" if got is None else f"{got.dtype} {got.shape}"
                raise SettingsError(f"{len(ids)} uint64 tokens of the common {kind} rows are due, got {what}")
        own = self.of(common)
        return self.adopt(common, {kind: np.minimum(own[kind], received[kind]) for kind in KINDS})

    def adopt(self, common: Common, received: Mapping[Kind, TokenArray]) -> bool:
        """Take over the tokens on which the partner of `common` agreed with others, even larger ones.

        Returns:
            Whether a token of this owner changed.
        """
        changed = False
        for kind in KINDS:
            changed |= bool((self._tokens[kind][common.ids(kind)] != received[kind]).any())
            self._tokens[kind][common.ids(kind)] = received[kind]
        return changed


def agree_on_tokens(tokens: Mapping[str, Tokens], pairs: Pairs) -> int:
    """Exchange tokens between all pairs, in one process, until nothing changes; return the number of rounds."""
    rounds, changed = 0, True
    while changed:
        changed, rounds = False, rounds + 1
        for (a, b), (common_a, common_b) in pairs.items():
            from_a, from_b = tokens[a].of(common_a), tokens[b].of(common_b)
            changed |= tokens[a].merge(common_a, from_b) | tokens[b].merge(common_b, from_a)
    return rounds


def initial_vectors(tokens: TokenArray, width: int, bound: float, seed: int) -> npt.NDArray[np.float32]:
    """Return initial vectors of rows, uniform in ±bound: row i depends on (seed, tokens[i]) alone, to the last bit.

    Args:
        tokens: (n,) uint64.
        width: numbers per row.
        bound: half-width of the distribution.
        seed: any integer ≥ 0 that the owners agreed on; take another for each table.

    Returns:
        (n, width) float32.

    Raises:
        SettingsError: an argument is out of its range.
    """
    if seed < 0 or width < 1 or not bound > 0:
        raise SettingsError(f"initial_vectors needs seed ≥ 0, width ≥ 1 and bound > 0, got {seed}, {width}, {bound}")
    salt = np.frombuffer(hashlib.blake2b(str(seed).encode(), digest_size=8).digest(), "<u8").astype(np.uint64)
    # A SplitMix64 stream for each row, by operations that every machine rounds alike.
    places = np.arange(1, width + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    out = np.empty((len(tokens), width), np.float32)
    rows = max(1, (1 << 16) // width)  # as many as fit a cache
    for i in range(0, len(tokens), rows):
        start = mix_bits(mix_bits(tokens[i : i + rows].astype(np.uint64)) + salt)
        unit = (mix_bits(start[:, None] + places) >> np.uint64(11)) * 2.0**-52  # 53 random bits: [0, 2)
        out[i : i + rows] = (unit - 1) * bound
    return out

"""Rows that two owners have in common through third owners only, found by tokens once all have agreed on these.

An owner's link files name what it shares with each partner. Where A links a thing to B, and B links it to C, all three
hold the same token for it (`fkge.align.tokens`), though A and C have no link of their own. So each sends its partner a
digest of the token of every row that it shares with others but not with this partner, and both find the rows that have
one token on either side. On five DBpedias this adds half as many rows again.

What this tells a partner: that the owner has the same thing too, where it has; and of the rest, how many rows the owner
shares with others but not with it. A digest goes one way, from one owner to one other: only an owner that knows the
token can make it, so it cannot be sent back as one's own, and two partners cannot compare what they received. Tokens
have 64 random bits, which nobody guesses. A third owner that holds the token knows it, but is not sent the digests.

Known weakness: an owner that is given tokens by a third one can claim those rows, and exchange vectors of things that
it does not have. It learns nothing that the third one could not pass on by itself. Nobody checks claims by labels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np

from fkge.align.links import KINDS, Common, Ids, Kind, Pairs
from fkge.align.tokens import TokenArray, Tokens

Digests = Mapping[Kind, TokenArray]
"""By kind, (n,) uint64, ascending."""

_PREFIX = b"fkge chains 1"


def candidates(tokens: Tokens, common: Common, commons: Iterable[Common]) -> dict[Kind, Ids]:
    """Return the rows that may be found through others, by kind: (n,) int64, by their tokens.

    Rows of one owner that share a token are left out: nobody could say which of them is meant.

    Args:
        tokens: the owner's, as agreed on.
        common: what it shares with the partner directly.
        commons: what it shares with each of its partners.
    """
    found: dict[Kind, Ids] = {}
    commons = list(commons)
    for kind in KINDS:
        _, first, count = np.unique(tokens[kind], return_index=True, return_counts=True)
        rows = first[count == 1]  # in the order of their tokens, which both sides know
        linked = np.zeros(len(tokens[kind]), np.bool_)
        for other in commons:
            linked[other.ids(kind)] = True
        linked[common.ids(kind)] = False
        found[kind] = rows[linked[rows]].astype(np.int64)
    return found


def digests(tokens: Tokens, rows: Mapping[Kind, Ids], sender: str, receiver: str) -> dict[Kind, TokenArray]:
    """Return what `sender` shows `receiver` of `rows`, which are the sender's: ascending, so that order tells nothing.

    Args:
        tokens: of the owner who computes this: the sender, or the receiver to compare.
        rows: ids of that owner's rows, by kind.
        sender, receiver: names of owners.
    """
    return {kind: np.sort(_digest(tokens[kind][rows[kind]], kind, sender, receiver)) for kind in KINDS}


def extend(
    common: Common, tokens: Tokens, rows: Mapping[Kind, Ids], received: Digests, owner: str, partner: str
) -> Common:
    """Return `common` and, after it, the rows whose digests the partner has sent; both sides come to the same order.

    Args:
        common: the owner's side of the direct alignment.
        tokens: the owner's.
        rows: its `candidates`.
        received: the partner's digests.
        owner, partner: their names.
    """
    more: dict[Kind, Ids] = {}
    for kind in KINDS:
        known = np.isin(_digest(tokens[kind][rows[kind]], kind, partner, owner), received[kind])
        more[kind] = rows[kind][known]
    return Common(
        np.concatenate([common.entities, more["entity"]]), np.concatenate([common.relations, more["relation"]])
    )


def extend_pairs(tokens: Mapping[str, Tokens], pairs: Pairs) -> dict[tuple[str, str], tuple[Common, Common]]:
    """Extend every alignment of a federation, in one process.

    Args:
        tokens: of each owner, agreed on.
        pairs: the direct alignments.
    """
    commons: dict[str, list[Common]] = {name: [] for name in tokens}
    for (a, b), (side_a, side_b) in pairs.items():
        commons[a].append(side_a)
        commons[b].append(side_b)
    out = {}
    for (a, b), (side_a, side_b) in pairs.items():
        rows_a, rows_b = candidates(tokens[a], side_a, commons[a]), candidates(tokens[b], side_b, commons[b])
        out[a, b] = (
            extend(side_a, tokens[a], rows_a, digests(tokens[b], rows_b, b, a), a, b),
            extend(side_b, tokens[b], rows_b, digests(tokens[a], rows_a, a, b), b, a),
        )
    return out


def _digest(tokens: TokenArray, kind: Kind, sender: str, receiver: str) -> TokenArray:
    """Return (n,) uint64 of (n,) tokens."""
    about = b"\0".join([_PREFIX, kind.encode(), sender.encode(), receiver.encode()])
    base = hashlib.blake2b(hashlib.blake2b(about).digest(), digest_size=8)
    out = bytearray()
    data = tokens.astype("<u8").tobytes()
    for start in range(0, len(data), 8):
        one = base.copy()
        one.update(data[start : start + 8])
        out += one.digest()
    return np.frombuffer(bytes(out), "<u8").astype(np.uint64)

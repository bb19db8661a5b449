"""Rows in common through third owners: exactly those that a chain of links joins, and nothing that can be sent back."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fkge.align import Common, Tokens, agree_on_tokens, clusters, extend_pairs
from fkge.align.chains import candidates, digests, extend
from fkge.align.links import KINDS, Kind, Pairs

NONE = np.empty(0, np.int64)
ROWS: dict[Kind, int] = {"entity": 9, "relation": 4}


def federation(names: str, links: dict[str, list[tuple[int, int]]]) -> tuple[dict[str, Tokens], Pairs]:
    """Owners, and for pairs such as ``ab`` the entities that are linked."""
    tokens = {name: Tokens.draw(ROWS, number) for number, name in enumerate(names)}
    pairs = {}
    for pair, rows in links.items():
        a, b = (np.array(side, np.int64) for side in zip(*rows, strict=True)) if rows else (NONE, NONE)
        pairs[pair[0], pair[1]] = Common(a, NONE), Common(b, NONE)
    agree_on_tokens(tokens, pairs)
    return tokens, pairs


def test_a_chain_of_links_makes_two_rows_common() -> None:
    tokens, pairs = federation("abc", {"ab": [(1, 2), (3, 3)], "bc": [(2, 5), (8, 8)], "ac": [(0, 0)]})
    more = extend_pairs(tokens, pairs)
    assert [side.entities.tolist() for side in more["a", "c"]] == [[0, 1], [0, 5]]
    assert more["a", "b"] == pairs["a", "b"]
    assert more["b", "c"] == pairs["b", "c"]


def test_owners_without_an_alignment_of_their_own_stay_apart() -> None:
    tokens, pairs = federation("abc", {"ab": [(1, 2)], "bc": [(2, 5)]})
    assert extend_pairs(tokens, pairs).keys() == pairs.keys()


def test_rows_that_nobody_can_tell_apart_are_left_out() -> None:
    tokens, pairs = federation("abcd", {"ab": [(1, 2)], "ad": [(4, 4)], "db": [(4, 2)], "bc": [(2, 5)], "ac": [(0, 0)]})
    assert tokens["a"]["entity"][1] == tokens["a"]["entity"][4]  # two rows of a's, one thing for b and c
    assert [side.entities.tolist() for side in extend_pairs(tokens, pairs)["a", "c"]] == [[0], [0]]


@st.composite
def links(draw: st.DrawFn) -> dict[str, list[tuple[int, int]]]:
    out = {}
    for pair in itertools.combinations("abcd", 2):
        size = draw(st.integers(0, 5))
        sides = [draw(st.permutations(range(ROWS["entity"])))[:size] for _ in pair]
        out["".join(pair)] = list(zip(*sides, strict=True))
    return out


@given(links())
def test_agrees_with_the_slow_twin(drawn: dict[str, list[tuple[int, int]]]) -> None:
    """Union-find knows which rows are one thing; of each owner at most one may be."""
    tokens, pairs = federation("abcd", drawn)
    sides = {names: (a.entities, b.entities) for names, (a, b) in pairs.items()}
    ids, _ = clusters(dict.fromkeys("abcd", ROWS["entity"]), sides)
    got = extend_pairs(tokens, pairs)
    for (a, b), direct in pairs.items():
        found = list(zip(*(side.entities.tolist() for side in got[a, b]), strict=True))
        already = list(zip(*(side.entities.tolist() for side in direct), strict=True))
        assert found[: len(already)] == already
        expected = set(already)
        for x, y in itertools.product(range(ROWS["entity"]), repeat=2):
            one = ids[a][x] == ids[b][y] >= 0
            alone = (ids[a] == ids[a][x]).sum() == (ids[b] == ids[b][y]).sum() == 1
            if one and alone and x not in direct[0].entities and y not in direct[1].entities:
                expected.add((x, y))
        assert set(found) == expected
        assert len(found) == len(expected)


def test_digests_go_one_way() -> None:
    """What a partner was sent is of no use to it: neither to be sent back, nor to be compared with what others got."""
    tokens, pairs = federation("abc", {"ab": [(1, 1)], "bc": [(2, 2)], "ac": [(0, 0)]})
    rows = candidates(tokens["a"], pairs["a", "c"][0], [pairs["a", "b"][0], pairs["a", "c"][0]])
    assert {kind: ids.tolist() for kind, ids in rows.items()} == {"entity": [1], "relation": []}
    sent = digests(tokens["a"], rows, "a", "c")
    echoed = extend(pairs["a", "c"][0], tokens["a"], rows, sent, "a", "c")
    assert echoed == pairs["a", "c"][0]
    assert not np.array_equal(sent["entity"], digests(tokens["a"], rows, "a", "b")["entity"])
    assert not np.isin(sent["entity"], tokens["a"]["entity"]).any()
    assert all(np.array_equal(sent[kind], np.sort(sent[kind])) for kind in KINDS)

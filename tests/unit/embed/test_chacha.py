"""The cipher's rounds: columns, then diagonals, each of which takes every word of the block once."""

from __future__ import annotations

from fkge.embed.chacha import COLUMNS, DIAGONALS, LANES

WORDS = 0xFFFFFFFF
CONSTANTS = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]


def quarter(state: list[int], a: int, b: int, c: int, d: int) -> None:
    """The quarter round of RFC 8439, section 2.1, in words of Python."""
    for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[x] = (state[x] + state[y]) & WORDS
        mixed = state[z] ^ state[x]
        state[z] = (mixed << turn | mixed >> (32 - turn)) & WORDS


def block(key: list[int], counter_and_nonce: list[int], rounds: int) -> list[int]:
    start = [*CONSTANTS, *key, *counter_and_nonce]
    state = list(start)
    for _ in range(rounds // 2):
        for where in (*COLUMNS, *DIAGONALS):
            quarter(state, *where)
    return [(a + b) & WORDS for a, b in zip(state, start, strict=True)]


def test_a_round_takes_every_word_once() -> None:
    for part in (COLUMNS, DIAGONALS):
        assert sorted(i for where in part for i in where) == list(range(16))
    assert [[i % 4 for i in where] for where in COLUMNS] == [[i] * 4 for i in range(4)]
    assert [[i // 4 for i in where] for where in DIAGONALS] == [list(range(4))] * 4


def test_they_make_the_block_of_the_standard() -> None:
    """RFC 8439, section 2.3.2; with 8 rounds, or with columns alone, it would be another."""
    key = [int.from_bytes(bytes(range(i, i + 4)), "little") for i in range(0, 32, 4)]
    found = block(key, [1, 0x09000000, 0x4A000000, 0], 20)
    assert [found[0], found[5], found[15]] == [0xE4E7F110, 0x0368C033, 0x4E3C50A2]
    assert block(key, [1, 0x09000000, 0x4A000000, 0], 8)[0] != found[0]


def test_a_group_fills_whole_vectors() -> None:
    assert LANES & (LANES - 1) == 0

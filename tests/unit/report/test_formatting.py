"""Figures read as people write them."""

from __future__ import annotations

import pytest

from fkge.report.formatting import (
    byte_size,
    count_word,
    duration,
    epsilon,
    interval,
    listing,
    p_value,
    score,
    signed,
)


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (score(0.2731), ".273"), (score(1.0), "1.000"), (score(None), ""), (score(-0.00001), ".000"),
        (signed(0.0653), "+.065"), (signed(-0.1), "−.100"), (signed(0.0), ".000"), (signed(0.0004), "+.0004"),
        (interval(-0.01, 0.02), "−.010 … +.020"), (p_value(0.0004), "<.001"), (p_value(0.03), ".030"),
        (epsilon(None), "∞"), (epsilon(7.999999), "8"), (epsilon(1313.4), "1,313"),
        (count_word(5), "five"), (count_word(40), "40"),
        (listing(["a"]), "a"), (listing(["a", "b"]), "a and b"), (listing(["a", "b", "c"]), "a, b and c"),
        (duration(0.84), "0.8 s"), (duration(59.7), "1 min"), (duration(576), "9 min 36 s"),
        (duration(12000), "3 h 20 min"), (byte_size(840), "840 B"), (byte_size(29294), "29 kB"),
        (byte_size(4.12e9), "4.1 GB"), (byte_size(999_600), "1.0 MB"),
    ],
)  # fmt: skip
def test_figures_read_as_people_write_them(made: str, read: str) -> None:
    assert made == read

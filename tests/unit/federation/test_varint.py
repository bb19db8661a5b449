"""Variable-length integers: one encoding for each number, and no other is accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.errors import PeerError
from fkge.federation.varint import decode_varint, encode_varint


@given(st.integers(0, 2**64 - 1), st.binary(max_size=3))
def test_numbers_read_back_where_they_stand(number: int, before: bytes) -> None:
    data = before + encode_varint(number)
    assert decode_varint(memoryview(data + b"\xff"), len(before)) == (number, len(data))


@pytest.mark.parametrize("number", [-1, 2**64])
def test_numbers_beyond_64_bits_are_refused(number: int) -> None:
    with pytest.raises(ValueError, match="no place in a message"):
        encode_varint(number)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x00", b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01"])
def test_other_encodings_are_refused(data: bytes) -> None:
    with pytest.raises(PeerError, match="cut short, beyond 64 bits, or longer"):
        decode_varint(memoryview(data), 0)

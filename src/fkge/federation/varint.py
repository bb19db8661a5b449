"""Protobuf's variable-length integers: seven bits in each byte, the lowest first, the top bit set on all but the last.

Hand-written because protobuf offers them only in its internal modules, and decodes some values that it would never
write. Here every number has exactly one encoding, so that equal messages are equal bytes.
"""

from __future__ import annotations

from fkge.errors import PeerError


def encode_varint(number: int) -> bytes:
    """Encode a number; raises ValueError unless 0 ≤ number < 2⁶⁴."""
    if not 0 <= number < 1 << 64:
        raise ValueError(f"{number} has no place in a message; its numbers go from 0 to 2**64 - 1")
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number that starts at `at`, and the position after it.

    Raises:
        PeerError: it is cut short, beyond 64 bits, or longer than it need be.
    """
    if at < len(data) and data[at] < 128:  # as most are
        return data[at], at + 1
    number = 0
    for place, byte in enumerate(data[at : at + 10]):  # ten bytes hold 64 bits
        number |= (byte & 127) << 7 * place
        if byte < 128:
            if number >> 64 or not byte:
                break
            return number, at + place + 1
    raise PeerError("a message has a number that is cut short, beyond 64 bits, or longer than it need be")

"""Changes to a protobuf message that leave most of its form alone, so that they get past the first length."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Leaf = Callable[[bytes], bytes]
"""Changes bytes that have no form."""

Field = tuple[int, int | bytes]
"""A tag, and a number or bytes."""

NUMBERS = (0, 1, 2, 3, 4, 63, 64, 65, 127, 128, 255, 256, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def split(data: bytes) -> list[Field] | None:
    """The fields of a message that has none but numbers and bytes; None if it is no such."""
    fields: list[Field] = []
    at = 0
    while at < len(data):
        tag, at = _number(data, at)
        number, at = _number(data, at)
        if tag & 7 == 0 and at <= len(data):
            fields.append((tag, number))
        elif tag & 7 == 2 and number <= len(data) - at:
            fields.append((tag, data[at : at + number]))
            at += number
        else:
            return None
    return fields


def join(fields: list[Field]) -> bytes:
    """The message of these fields, all lengths right."""
    out = b""
    for tag, value in fields:
        out += varint(tag) + (varint(value) if isinstance(value, int) else varint(len(value)) + value)
    return out


def varint(number: int, spare: int = 0) -> bytes:
    """A number as protobuf writes it, with `spare` bytes that it does not need."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes([number | 128] + [128] * (spare - 1) + [0] if spare else [number])


def _number(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data):
        number |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return number & (1 << 64) - 1, at
    return 0, len(data) + 1


def mutate(data: bytes, random: Random, leaf: Leaf) -> bytes:
    """The message with one thing changed, in itself or in a message within it; now and then without regard to form."""
    fields = split(data)
    if not fields or random.random() < 0.1:
        return leaf(data)
    i, j = random.randrange(len(fields)), random.randrange(len(fields))
    tag, value = fields[i]
    match random.randrange(12):
        case 0:
            del fields[i]
        case 1:
            fields.insert(j, fields[i])
        case 2:
            fields[i], fields[j] = fields[j], fields[i]
        case 3:
            fields[i] = (random.randrange(16) << 3 | tag & 7, value)
        case 4:
            fields[i] = (tag, fields[j][1])
        case 5:
            fields.insert(i, (random.randrange(16) << 3, random.choice(NUMBERS)))
        case 6:
            return join(fields[:i]) + varint(tag, random.randint(0, 3)) + join(fields[i:])[len(varint(tag)) :]
        case _ if isinstance(value, int):
            fields[i] = (tag, random.choice((*NUMBERS, value + 1, max(0, value - 1))))
        case _:
            fields[i] = (tag, mutate(value, random, leaf))
    return join(fields)

"""A decoder with a fault, to see that one is found."""

from __future__ import annotations

from tests.fuzz.mutations import mutate as mutate


def check(data: bytes) -> None:
    """Stumbles over one byte."""
    if b"\x03" in data:
        raise ValueError("three")


def seeds() -> list[bytes]:
    return [bytes([8, 1, 16, 2])]

"""Messages as bytes and back: a JSON header for names and small numbers, raw tensors after it. Nothing is unpickled.

The layout is that of safetensors, whose reader checks sizes and offsets before it trusts them. What may be decoded is
in `KINDS`; there is no way to name anything else, and no message for rows that the two owners do not share, but for the
neighbours that an owner may choose to send.
"""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from fkge.errors import PeerError
from fkge.federation.exchange import Offer, Structure, Thanks
from fkge.federation.gate import Released
from fkge.federation.protocol import Abort, Accept, Defer, Refuse, Request, Signal
from fkge.ppat import Candidate, Gradient, Received, Samples

KINDS: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Signal,
        Request,
        Accept,
        Defer,
        Refuse,
        Abort,
        Offer,
        Structure,
        Thanks,
        Samples,
        Gradient,
        Candidate,
        Received,
    )
}
"""Every message that may pass between owners."""

_LIMIT = 1 << 30
"""Bytes. More than any alignment met so far needs; a message beyond it is a fault."""

_MAGIC = b"fkge1"


def encode(released: Released, session: int = 0) -> bytes:
    """A released message as bytes. Control messages carry who they are about in themselves; others belong to a session.

    Nothing else has an encoder: a table, or a message that no gate has let go, is refused.
    """
    if type(released) is not Released or not released.sealed:
        raise TypeError(f"{type(released).__name__} was not released; nothing else leaves an owner")
    message = released.message
    kind = type(message).__name__
    if type(message) not in KINDS.values():  # a name is not enough: the protocol has a `Received` of its own
        raise TypeError(f"{kind} is nothing that may leave an owner")
    values = {f.name: getattr(message, f.name) for f in fields(message)}
    tensors = {k: v.contiguous() for k, v in values.items() if isinstance(v, Tensor)}
    plain = {k: v for k, v in values.items() if not isinstance(v, Tensor) and v is not None}
    header = json.dumps({"kind": kind, "session": session, "values": plain}).encode()
    return _MAGIC + len(header).to_bytes(4, "little") + header + (save(tensors) if tensors else b"")


def decode(data: bytes) -> tuple[Any, int]:
    """The message in `data`, and its session.

    Raises:
        PeerError: it is none.
    """
    if len(data) > _LIMIT:
        raise PeerError(f"a message of {len(data):,} bytes is too long; {_LIMIT:,} is the most")
    size = int.from_bytes(data[5:9], "little")
    if data[:5] != _MAGIC or len(data) < 9 + size:
        raise PeerError("a message is cut short, or not one of this program")
    try:
        header = json.loads(data[9 : 9 + size])
        kind = KINDS[header["kind"]]
        session = header["session"]
        values = dict(header["values"])
        rest = data[9 + size :]
        values |= load(rest) if rest else {}
        if type(session) is not int:
            raise TypeError("session")
        allowed = {f.name: str(f.type) for f in fields(kind)}
        for name, value in values.items():
            if not _fits(value, allowed[name]):
                raise TypeError(name)
        return kind(**values), session
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
        # RuntimeError: nesting deeper than Python's stack, or a shape beyond what a tensor can have
        raise PeerError(f"a message cannot be read: {type(error).__name__} {error}") from None


def _fits(value: object, annotation: str) -> bool:
    """Whether a value is of the plain type a field states. Annotations are texts here."""
    for name, kind in (("Tensor", Tensor), ("bool", bool), ("int", int), ("str", str), ("Peer", str)):
        if name in annotation.replace("|", " ").split():
            return type(value) is kind
    return False

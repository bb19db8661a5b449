"""The decoder of messages: it refuses with `PeerError` or reads, and what it reads has no other encoding."""

from __future__ import annotations

from dataclasses import fields

import torch

from fkge.errors import PeerError
from fkge.federation import FederationSettings
from fkge.federation.codec import KINDS, decode, encode
from fkge.federation.egress import Egress
from fkge.federation.exchange import Structure, Update
from fkge.federation.messages import Abort, Request, Signal
from fkge.ppat import Candidate, Samples
from tests.fuzz.mutations import mutate as mutate

_GATE = Egress(FederationSettings.build({}))


def check(data: bytes) -> None:
    """Raises if the decoder fails in a way it must not."""
    try:
        message, session = decode(data)
    except PeerError:
        return
    assert type(message) is KINDS[type(message).__name__]
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, torch.Tensor):
            assert value.is_contiguous()
            assert value.ndim <= 3
            assert value.dtype in (torch.float32, torch.float64, torch.int64)
            assert value.nbytes <= len(data)
            value.zero_()  # it is a copy: what is decoded next is the same
    again, number = decode(data)
    assert encode(_GATE.release(again, "peer"), session) == data
    assert number == session


def seeds() -> list[bytes]:
    """Messages of every shape that owners send."""
    rows, triples = torch.arange(6.0).reshape(3, 2), torch.tensor([[0, 1, 2]])
    moments = torch.stack([rows, rows])
    messages = [
        Signal("atlas", True, True), Request("atlas", 3), Abort("b", 2**40, True), Samples(300, rows),
        Candidate(1, rows.double(), rows), Structure(0, 3, triples), Update(0, "", rows, torch.zeros(0, 2)),
        Update(0, "é", rows, rows, rows[:, 0], rows[:, 1], moments, moments, rows, rows, triples),
    ]  # fmt: skip
    plain = [kind(*([1] if kind.__name__ in ("Ack", "Received") else ["a", 5])) for kind in KINDS.values()
             if kind.__name__ in ("Ack", "Received", "Accept", "Defer", "Refuse")]  # fmt: skip
    return [encode(_GATE.release(message, "peer"), session) for session, message in enumerate(messages + plain)]

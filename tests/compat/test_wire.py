"""Bytes of messages and frames as version 0.1.0 encoded them: they are read, mean the same, and are written alike.

``messages-0.1.0.json`` has, for each, its number in `wire.proto` or `frames.proto`, its fields by their numbers, and
its bytes in hexadecimal. Names are not in it: they may change, what is on the wire may not.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from fkge.federation import FederationSettings, wire_pb2
from fkge.federation.codec import decode, encode
from fkge.federation.egress import Egress

KEPT: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("messages-0.1.0.json").read_text())


def named(entry: dict[str, Any]) -> str:
    return f"{entry['number']}-{entry['bytes'][:16]}"


def plain(value: Any) -> Any:
    """A field's value as it stands in the file."""
    if isinstance(value, Tensor):
        kind = str(value.dtype).removeprefix("torch.")
        return {"type": kind, "shape": list(value.shape), "data": value.flatten().tolist()}
    return value


@pytest.mark.parametrize("entry", KEPT["federation"], ids=named)
def test_messages_between_owners(entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["bytes"])
    message, session = decode(data)
    form = wire_pb2.Message.DESCRIPTOR.fields_by_number[entry["number"]].message_type
    found = {number: plain(getattr(message, field.name)) for number, field in form.fields_by_number.items()}
    assert session == entry["session"]
    assert found == {int(number): value for number, value in entry["fields"].items()} | {
        number: None
        for number in found
        if str(number) not in entry["fields"]  # a field that came later
    }
    released = Egress(FederationSettings.build({"neighbours": True})).release(message, "peer")
    assert encode(released, session) == data


def test_every_kind_of_message_is_kept() -> None:
    assert Counter(entry["number"] for entry in KEPT["federation"]).keys() == set(range(2, 15))


def by_number(message: Any) -> dict[str, Any]:
    """The fields of a protobuf message that are there."""

    def one(value: Any) -> Any:
        return value.hex() if isinstance(value, bytes) else value

    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            found[str(field.number)] = dict(value)
        elif isinstance(value, str | bytes | int | float):
            found[str(field.number)] = one(value)
        else:
            found[str(field.number)] = [one(item) for item in value]
    return found


def frames() -> Any:
    """The module with a node's frames; it needs protobuf only, but what is above it needs gRPC."""
    pytest.importorskip("grpc", reason="needs gRPC: pip install 'fkge[node]'")
    from fkge.node import frames as module

    return module


@pytest.mark.parametrize("entry", KEPT["frames"], ids=named)
def test_frames_between_nodes(entry: dict[str, Any]) -> None:
    node, data = frames(), bytes.fromhex(entry["bytes"])
    frame = node.decode_frame(data)
    ((field, inner),) = frame.ListFields()
    assert field.number == entry["number"]
    assert by_number(inner) == entry["fields"]
    assert frame.SerializeToString(deterministic=True) == data
    if entry["number"] == 4:  # a last frame: its sentence is the name of its reason
        assert node.refusal(inner).reason == inner.sentence
        assert node.bye(inner.sentence, inner.sentence) == data


@pytest.mark.parametrize("entry", KEPT["meetings"], ids=named)
def test_messages_by_which_nodes_align(entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["bytes"])
    message = frames().decode_meeting(data)
    ((field, inner),) = message.ListFields()
    assert field.number == entry["number"]
    assert by_number(inner) == entry["fields"]
    assert message.SerializeToString(deterministic=True) == data

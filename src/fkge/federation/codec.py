"""Encode messages as bytes and decode them: protobuf (`wire.proto`), tensors as raw numbers. Nothing is unpickled.

Only the messages in `KINDS` can be decoded, and none of them is for rows that the two owners do not share, but for the
neighbours that an owner may choose to send.

Every message has one encoding, the one that protobuf's own library writes: fields in the order of their numbers, each
once, numbers as short as they can be, what is zero or empty left out. Anything else is refused. The library's parser
would keep fields that it does not know, take the last of several, and copy each tensor three times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import torch
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from torch import Tensor

from fkge.errors import PeerError, SettingsError
from fkge.federation import wire_pb2
from fkge.federation.egress import Released
from fkge.federation.exchange import Ack, Structure, Update
from fkge.federation.messages import HANDSHAKE
from fkge.federation.varint import decode_varint, encode_varint
from fkge.ppat import Candidate, Gradient, Received, Samples

KINDS: dict[str, type] = {
    kind.__name__: kind for kind in (*HANDSHAKE, Update, Structure, Ack, Samples, Gradient, Candidate, Received)
}
"""Every message that may pass between owners."""

LIMIT = 1 << 30
"""Bytes. More than any alignment met so far needs; a message beyond it is a fault."""

NAME = 64
"""Letters of the longest name, of an owner or of a frame."""

DIMENSIONS = 3
"""The most that a tensor may have."""


def encode(released: Released, session: int = 0) -> bytes:
    """Return a released message as bytes, with its session where it is a message of an exchange.

    Raises:
        TypeError: it was not released (`Egress.release`), or is none of `KINDS`; nothing else has an encoder.
    """
    if type(released) is not Released or not released.sealed:
        raise TypeError(f"{type(released).__name__} was not released; nothing else leaves an owner")
    message = released.message
    kind = type(message).__name__
    if KINDS.get(kind) is not type(message):  # a name is not enough: the protocol has a `Received` of its own
        raise TypeError(f"{kind} is nothing that may leave an owner")
    parts: list[_Bytes] = []
    if session:
        parts += _SESSION.head, encode_varint(session)
    field = _OF_KIND[kind]
    parts.append(field.head)
    field.write(parts, message)
    return b"".join(parts)


def decode(data: bytes, limit: int = LIMIT) -> tuple[Any, int]:
    """Return the message in `data`, and its session. Its tensors are copies, and may be written to.

    Args:
        data: the bytes.
        limit: the most bytes; a longer message is refused before it is read.

    Raises:
        PeerError: it is no valid message.
    """
    if len(data) > limit:
        raise PeerError(f"a message of {len(data):,} bytes is too long; {limit:,} is the most")
    values = _read(memoryview(data), _MESSAGE)
    messages = [message for name, message in values.items() if name != "session"]
    if len(messages) != 1:
        raise PeerError(f"a message is of {len(messages)} kinds; it must be of one")
    return messages[0], values.get("session", 0)


# -- the wire format ---------------------------------------------------------------------------------

_VARINT, _LENGTH = 0, 2
"""The wire types there are: a number, or a length and so many bytes."""

_Bytes: TypeAlias = bytes | memoryview
_Write: TypeAlias = Callable[[list[_Bytes], Any], int]
"""Adds a value that is not zero or empty to a list of bytes, and says how many they are."""
_Read: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True)
class _Field:
    """One field of a message of `wire.proto`; `head` is its tag as bytes."""

    name: str
    head: bytes
    write: _Write
    read: _Read


_Form: TypeAlias = Mapping[int, _Field]
"""The fields of a message by their tags (number and wire type in one), in the order of their numbers."""

_Values: TypeAlias = Mapping[str, Any]
"""What the fields of a message hold, by name; its `_Form` knows the type of each."""


def _write(parts: list[_Bytes], form: _Form, values: _Values) -> int:
    """Add the fields that `values` has to `parts`; return how many bytes they are."""
    size = 0
    for field in form.values():
        value = values.get(field.name)
        if value is None or (isinstance(value, int | str) and not value):
            continue
        parts.append(field.head)
        size += len(field.head) + field.write(parts, value)
    return size


def _read(data: memoryview, form: _Form) -> _Values:
    """Return the fields in `data`, each at most once and in order."""
    values = {}
    at, end, last = 0, len(data), 0
    while at < end:
        tag, at = decode_varint(data, at)
        field = form.get(tag)
        if field is None:
            raise PeerError(f"a message has a field {tag >> 3} of wire type {tag & 7}, which is unknown in that place")
        if tag <= last:
            raise PeerError(f"a message has its field {field.name} twice or out of order")
        last = tag
        number, at = decode_varint(data, at)
        if tag & 7 == _VARINT:
            values[field.name] = field.read(number)
        elif number <= end - at:
            values[field.name] = field.read(data[at : at + number])
            at += number
        else:
            raise PeerError(f"a message is cut short: of its field {field.name}, {end - at:,} of {number:,} bytes came")
    return values


def _write_bytes(parts: list[_Bytes], value: _Bytes) -> int:
    length = encode_varint(len(value))
    parts += length, value
    return len(length) + len(value)


# -- numbers and names -------------------------------------------------------------------------------


def _write_number(parts: list[_Bytes], value: int) -> int:
    parts.append(encode_varint(value))
    return len(parts[-1])


def _read_number(number: int) -> int:
    if number == 0:
        raise PeerError("a message has an explicit zero, which must be left out")
    return number


def _read_truth(number: int) -> bool:
    if number != 1:
        raise PeerError(f"a message has {number} for a truth; it may be 1, or left out")
    return True


def _write_name(parts: list[_Bytes], value: str) -> int:
    if len(value) > NAME:
        raise SettingsError(f"the name {value[:NAME]}… has {len(value)} letters; {NAME} is the most that peers accept")
    return _write_bytes(parts, value.encode())


def _read_name(data: memoryview) -> str:
    if not 0 < len(data) <= 4 * NAME:
        raise PeerError(f"a message has a name of {len(data):,} bytes; it may have {4 * NAME}, or be left out")
    try:
        name = str(data, "utf-8")
    except UnicodeDecodeError:
        raise PeerError("a message has a name that is not UTF-8") from None
    if len(name) > NAME:
        raise PeerError(f"a message has a name of {len(name)} letters; {NAME} is the most")
    return name


# -- tensors -----------------------------------------------------------------------------------------

_DESCRIBED = wire_pb2.DESCRIPTOR.message_types_by_name
_TYPES: dict[int, np.dtype[Any]] = {
    _DESCRIBED["Tensor"].enum_values_by_name[name].number: np.dtype(kind)
    for name, kind in (("FLOAT32", "<f4"), ("FLOAT64", "<f8"), ("INT64", "<i8"))
}
_CODES = {kind.newbyteorder("="): code for code, kind in _TYPES.items()}


def _write_tensor(parts: list[_Bytes], value: Tensor) -> int:
    # As few calls into torch as possible: each is slow on a node, whose caches are cold after waiting.
    numbers = (value if value.device.type == "cpu" and not value.requires_grad else value.detach().cpu()).numpy()
    head = _head(numbers.dtype, numbers.shape)
    parts.append(head)
    if numbers.size:
        parts.append(np.ascontiguousarray(numbers, numbers.dtype.newbyteorder("<")).data)
    return len(head) + numbers.nbytes


@lru_cache(256)
def _head(kind: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return a tensor's field between its tag and its numbers; the steps of one game have the same."""
    code = _CODES.get(kind)
    if code is None or len(shape) > DIMENSIONS:
        raise TypeError(f"a tensor of {len(shape)} dimensions of {kind} has no place in a message")
    parts: list[_Bytes] = []
    _write(parts, _TENSOR, {"type": code, "shape": shape or None})
    size = kind.itemsize * math.prod(shape)
    if size:
        parts += _DATA.head, encode_varint(size)
    fields = b"".join(parts)
    return encode_varint(len(fields) + size) + fields


_Head: TypeAlias = tuple[bytes, np.dtype[Any], tuple[int, ...]]
_SEEN: dict[int, _Head] = {}
"""Heads of valid tensors by the length of the field: another of that length with the same head is valid, too."""


def _read_tensor(data: memoryview) -> Tensor:
    seen = _SEEN.get(len(data))
    if seen is None or data[: len(seen[0])] != seen[0]:
        seen = _check_head(data)
        if len(_SEEN) >= 256:
            _SEEN.clear()
        _SEEN[len(data)] = seen
    head, kind, shape = seen
    numbers = np.frombuffer(bytearray(data[len(head) :]), kind).reshape(shape)
    return torch.from_numpy(numbers.astype(kind.newbyteorder("="), copy=False))


def _check_head(data: memoryview) -> _Head:
    """Validate the head of a tensor, all that precedes its numbers."""
    values = _read(data, _TENSOR)
    code, shape, numbers = values.get("type", 0), values.get("shape", ()), values.get("data", b"")
    if code not in _TYPES:
        raise PeerError(f"a message has a tensor of type {code}, which there is not")
    kind = _TYPES[code]
    if kind.itemsize * math.prod(shape) != len(numbers):
        raise PeerError(f"a message has a tensor of {len(numbers):,} bytes and of shape {shape}, which do not agree")
    if kind.itemsize * math.prod(max(side, 1) for side in shape) > LIMIT:
        raise PeerError(f"a message has a tensor of shape {shape}: empty, and too large for its strides")
    return bytes(data[: len(data) - len(numbers)]), kind, shape


def _write_shape(parts: list[_Bytes], value: tuple[int, ...]) -> int:
    return _write_bytes(parts, b"".join(map(encode_varint, value)))


def _read_shape(data: memoryview) -> tuple[int, ...]:
    shape: tuple[int, ...] = ()
    at = 0
    while at < len(data) and len(shape) < DIMENSIONS:
        side, at = decode_varint(data, at)
        shape += (side,)
    if at < len(data) or not shape:
        raise PeerError(f"a message has a tensor whose shape is not of one to {DIMENSIONS} dimensions")
    if max(shape) >> 32:
        raise PeerError(f"a message has a tensor of shape {shape}, beyond 32 bits")
    return shape


def _read_data(data: memoryview) -> memoryview:
    if not len(data):
        raise PeerError("a message has an explicit empty tensor, whose data must be left out")
    return data


# -- messages ----------------------------------------------------------------------------------------

_PLAIN: dict[int, tuple[int, _Write, _Read]] = {
    FieldDescriptor.TYPE_UINT64: (_VARINT, _write_number, _read_number),
    FieldDescriptor.TYPE_BOOL: (_VARINT, _write_number, _read_truth),
    FieldDescriptor.TYPE_STRING: (_LENGTH, _write_name, _read_name),
    FieldDescriptor.TYPE_ENUM: (_VARINT, _write_number, _read_number),
    FieldDescriptor.TYPE_UINT32: (_LENGTH, _write_shape, _read_shape),  # the only one is a list, and lists are packed
    FieldDescriptor.TYPE_BYTES: (_LENGTH, _write_bytes, _read_data),
}


def _form(descriptor: Descriptor) -> _Form:
    """Return the fields of a message, as `wire.proto` has them."""
    form = {}
    for field in sorted(descriptor.fields, key=lambda field: int(field.number)):
        wire, write, read = _PLAIN[field.type] if field.message_type is None else _message(field.message_type)
        tag = field.number << 3 | wire
        form[tag] = _Field(field.name, encode_varint(tag), write, read)
    return form


def _message(descriptor: Descriptor) -> tuple[int, _Write, _Read]:
    """Return the field number, writer and reader of a message within a message."""
    if descriptor.name == "Tensor":
        return _LENGTH, _write_tensor, _read_tensor
    kind, form = KINDS[descriptor.name], _form(descriptor)
    absent = {field.name: field.default_value for field in descriptor.fields if field.message_type is None}
    absent |= {field.name: field.default for field in fields(kind) if field.default is None}
    due = {field.name for field in fields(kind)} - set(absent)

    def write(parts: list[_Bytes], message: Any) -> int:
        place = len(parts)
        parts.append(b"")  # for the length, which is known once the fields are written
        size = _write(parts, form, vars(message))
        parts[place] = length = encode_varint(size)
        return len(length) + size

    def read(data: memoryview) -> Any:
        values = _read(data, form)
        if not due <= values.keys():
            raise PeerError(f"{kind.__name__} without its {', '.join(sorted(due - values.keys()))}")
        return kind(**{**absent, **values})

    return _LENGTH, write, read


_TENSOR = _form(_DESCRIBED["Tensor"])
_MESSAGE = _form(_DESCRIBED["Message"])
_DATA = next(field for field in _TENSOR.values() if field.name == "data")
_SESSION = next(field for field in _MESSAGE.values() if field.name == "session")
_OF_KIND = {kind: field for kind in KINDS for field in _MESSAGE.values() if field.name == kind.lower()}

"""Messages as bytes: what goes in comes out, what is no message is refused, and a table has no way out."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from torch import Tensor

from fkge.embed import make_tables
from fkge.errors import PeerError, PrivacyError
from fkge.federation import FederationSettings, Gate, Released, codec, protocol
from fkge.federation.codec import KINDS, decode, encode
from fkge.federation.exchange import Gift, Offer, Thanks
from fkge.settings import TrainSettings

WAY_OUT = Gate(FederationSettings.build({}))


def let_go(message: Any) -> Released:
    return WAY_OUT.release(message, "peer")


QUICK = settings(max_examples=60, deadline=None)
FLOATS = st.floats(width=32)  # NaN and infinities travel; the roles refuse them


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    kind = draw(st.sampled_from([torch.float32, torch.float64, torch.int64]))
    size = torch.Size(shape).numel()
    numbers = st.integers(-(2**63), 2**63 - 1) if kind == torch.int64 else FLOATS
    flat = torch.tensor(draw(st.lists(numbers, min_size=size, max_size=size)), dtype=kind)
    out = flat.reshape(shape)
    return out.T if out.ndim == 2 and draw(st.booleans()) else out  # memory in another order


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "Tensor": tensors(), "Tensor | None": st.none() | tensors(), "int": st.integers(-(2**70), 2**70),
    "bool": st.booleans(), "str": st.text(), "Peer": st.text(),
}  # fmt: skip


def messages(kind: type) -> st.SearchStrategy[Any]:
    """Any message of a kind; a field of a type that has no strategy here fails, so that nobody forgets it."""
    return st.builds(kind, **{f.name: PLAIN[str(f.type)] for f in fields(kind)})


ANY = st.sampled_from(sorted(KINDS)).flatmap(lambda name: messages(KINDS[name]))


def same(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.contiguous().numpy().tobytes() == b.numpy().tobytes()
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_comes_back_as_it_went(name: str) -> None:
    @QUICK
    @given(messages(KINDS[name]), st.integers(0, 2**40))
    def check(message: Any, session: int) -> None:
        back, number = decode(encode(let_go(message), session))
        assert type(back) is KINDS[name]
        assert number == session
        assert all(same(getattr(message, f.name), getattr(back, f.name)) for f in fields(message))

    check()


@settings(max_examples=400, deadline=None)
@given(ANY, st.data())
def test_a_message_that_was_tampered_with_is_refused_or_read_and_nothing_else(
    message: Any, data: st.DataObject
) -> None:
    good = encode(let_go(message), 7)
    mutated = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    try:
        back, _ = decode(bytes(mutated))
    except PeerError:
        return
    assert type(back) in KINDS.values()


@QUICK
@given(ANY, st.data())
def test_a_message_cut_short_or_with_a_tail_is_never_the_message(message: Any, data: st.DataObject) -> None:
    good = encode(let_go(message))
    cut = good[: data.draw(st.integers(0, len(good) - 1))]
    with_tail = good + data.draw(st.binary(min_size=1, max_size=20))
    for bad in (cut, with_tail):
        try:
            back, _ = decode(bad)
        except PeerError:
            continue
        # Only where all tensors are optional or empty can the header stand alone.
        assert not all(same(getattr(message, f.name), getattr(back, f.name)) for f in fields(message))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_no_message(data: bytes, framed: bool) -> None:
    with pytest.raises(PeerError):
        decode(b"fkge1" + len(data).to_bytes(4, "little") + data if framed else data)


def framed(header: Any, rest: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return b"fkge1" + len(text).to_bytes(4, "little") + text + rest


def raw_tensors(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


SIGNAL = {"peer": "a", "news": True, "last": False}
OFFER = {"step": 0, "frame": ""}


@pytest.mark.parametrize(
    ("what", "data"),
    [
        ("nothing", b""),
        ("another program's", b"fkge2\0\0\0\0"),
        ("a length that lies", b"fkge1\xff\xff\xff\xff{}"),
        ("an unknown kind", framed({"kind": "Tables", "session": 0, "values": {}})),
        ("a kind that is a list", framed({"kind": [], "session": 0, "values": {}})),
        ("no kind", framed({"session": 0, "values": {}})),
        ("no object", framed([1, 2])),
        ("a session that is a truth", framed({"kind": "Signal", "session": True, "values": SIGNAL})),
        ("a session that is a fraction", framed({"kind": "Signal", "session": 0.5, "values": SIGNAL})),
        ("an unknown field", framed({"kind": "Signal", "session": 0, "values": {**SIGNAL, "__class__": "x"}})),
        ("a field of another type", framed({"kind": "Signal", "session": 0, "values": {**SIGNAL, "news": 1}})),
        ("a field that is null", framed({"kind": "Signal", "session": 0, "values": {**SIGNAL, "peer": None}})),
        ("a field that is missing", framed({"kind": "Request", "session": 0, "values": {"peer": "a"}})),
        ("a number where rows are due", framed({"kind": "Offer", "session": 0, "values": {**OFFER, "entity": 1}})),
        ("rows where a number is due", framed({"kind": "Thanks", "session": 0, "values": {}},
                                              save({"step": torch.zeros(1)}))),
        ("values that are a number", framed({"kind": "Signal", "session": 0, "values": 3})),
        ("brackets without end", framed(b"[" * 200_000)),
        ("a number without end", framed(b"1" * 10_000)),
        ("a shape that no tensor has", framed(
            {"kind": "Offer", "session": 0, "values": OFFER},
            raw_tensors({"entity": {"dtype": "F32", "shape": [0, 2**63], "data_offsets": [0, 0]}}))),
        ("a shape whose strides overflow", framed(
            {"kind": "Offer", "session": 0, "values": OFFER},
            raw_tensors({"entity": {"dtype": "F32", "shape": [0, 2**62, 2**62], "data_offsets": [0, 0]}}))),
        ("a shape larger than the data", framed(
            {"kind": "Offer", "session": 0, "values": OFFER},
            raw_tensors({"entity": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 4]}}, b"abcd"))),
        ("a type that no tensor has", framed(
            {"kind": "Offer", "session": 0, "values": OFFER},
            raw_tensors({"entity": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [0, 3]}}, b"abc"))),
    ],
)  # fmt: skip
def test_hostile_bytes(what: str, data: bytes) -> None:
    with pytest.raises(PeerError):
        decode(data)


def test_too_long_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encode(let_go(Thanks(0)))
    monkeypatch.setattr(codec, "_LIMIT", len(data) - 1)
    with pytest.raises(PeerError, match="too long"):
        decode(data)


@dataclass(frozen=True)
class Impostor:
    """Has the name of a message, and a table in it."""

    table: Tensor


Impostor.__name__ = "Offer"


def test_what_is_no_message_has_no_encoder() -> None:
    tables = make_tables(TrainSettings(dim=4, device="cpu"), 3, 2)
    gift = Gift("a", {"entity": torch.zeros(2, 2), "relation": torch.zeros(0, 2)})
    event = protocol.Received("a", 1)  # an event of this owner; the message of that name is the game's
    things = [
        tables, tables["entity"], tables.export(state=True), tables.snapshot(), gift, event, Impostor(tables["entity"]),
        protocol.Begin(), protocol.Drop("a"), None, "text", [Thanks(0)],
    ]  # fmt: skip
    for thing in [*things, Thanks(0), Offer(0, "", torch.zeros(1, 1), torch.zeros(0, 1))]:
        with pytest.raises(TypeError, match="not released"):
            encode(thing)
    for thing in things:
        with pytest.raises(PrivacyError, match="does not leave"):
            let_go(thing)
    with pytest.raises(PrivacyError, match="only a gate"):
        Released(Thanks(0), "public", object())


class Larger(Offer):
    """Made of a message; it could carry more."""


def test_what_is_made_of_a_message_is_none() -> None:
    with pytest.raises(PrivacyError):
        let_go(Larger(0, "", torch.zeros(1, 1), torch.zeros(0, 1)))


def test_no_kind_holds_a_mapping_or_an_object() -> None:
    """Every field of every message is a number, a truth, a name or rows: there is no place for a whole table set."""
    assert {str(f.type) for kind in KINDS.values() for f in fields(kind)} <= set(PLAIN)

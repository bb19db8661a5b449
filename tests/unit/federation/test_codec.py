"""Messages as bytes: what goes in comes out, what is no message is refused, and a table has no way out."""

from __future__ import annotations

import random
import re
import tracemalloc
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fkge.embed import make_tables
from fkge.errors import PeerError, PrivacyError, SettingsError
from fkge.federation import FederationSettings, Released, protocol, wire_pb2
from fkge.federation.codec import KINDS, decode, encode
from fkge.federation.egress import Egress
from fkge.federation.exchange import Ack, ReceivedUpdate, Structure, Update
from fkge.federation.messages import Abort, Request, Signal
from fkge.ppat import Samples
from fkge.settings import TrainSettings
from tests.fuzz import codec as fuzzed
from tests.fuzz.mutations import join, mutate, split, varint

WAY_OUT = Egress(FederationSettings.build({}))


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


NUMBERS = st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(codec="utf-8"), max_size=64)
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "Tensor": tensors(), "Tensor | None": st.none() | tensors(), "int": NUMBERS,
    "bool": st.booleans(), "str": NAMES, "Peer": NAMES,
}  # fmt: skip


def messages(kind: type) -> st.SearchStrategy[Any]:
    """Any message of a kind; a field of a type that has no strategy here fails, so that nobody forgets it."""
    return st.builds(kind, **{f.name: PLAIN[str(f.type)] for f in fields(kind)})


ANY = st.sampled_from(sorted(KINDS)).flatmap(lambda name: messages(KINDS[name]))


def same(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.contiguous().numpy().tobytes() == b.numpy().tobytes()
    return type(a) is type(b) and a == b


def alike(a: Any, b: Any) -> bool:
    return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))


# -- what goes in comes out --------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_comes_back_as_it_went(name: str) -> None:
    @QUICK
    @given(messages(KINDS[name]), NUMBERS)
    def check(message: Any, session: int) -> None:
        back, number = decode(encode(let_go(message), session))
        assert type(back) is KINDS[name]
        assert number == session
        assert alike(message, back)

    check()


def test_tensors_that_came_belong_to_whoever_decoded_them() -> None:
    data = encode(let_go(Update(0, "odd", torch.arange(6.0).reshape(3, 2), torch.zeros(0, 2))))
    first, _ = decode(data)
    assert first.entity.data_ptr() % 16 == 0  # wherever the numbers stand in the message
    first.entity.zero_()
    second, _ = decode(data)
    assert second.entity.sum() == 15
    assert second.relation.shape == (0, 2)


def test_what_carries_a_gradient_leaves_without_it() -> None:
    rows = torch.ones(2, 2, requires_grad=True)
    back, _ = decode(encode(let_go(Samples(0, rows * 2))))
    assert not back.vectors.requires_grad
    assert back.vectors.tolist() == [[2.0, 2.0], [2.0, 2.0]]


# -- the same as protobuf's own ----------------------------------------------------------------------


def told_to_protobuf(message: Any, session: int) -> wire_pb2.Message:
    """The message as an object of protobuf's library."""
    documented = wire_pb2.Message(session=session)
    part = getattr(documented, type(message).__name__.lower())
    part.SetInParent()
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, Tensor):
            tensor = getattr(part, field.name)
            tensor.type = wire_pb2.Tensor.Type.Value(str(value.dtype).removeprefix("torch.").upper())
            tensor.shape.extend(value.shape)
            tensor.data = value.contiguous().numpy().tobytes()
        elif value is not None:
            setattr(part, field.name, value)
    return documented


@settings(max_examples=300, deadline=None)
@given(ANY, NUMBERS)
def test_protobuf_writes_the_same_bytes_and_reads_the_same_message(message: Any, session: int) -> None:
    data = encode(let_go(message), session)
    documented = told_to_protobuf(message, session)
    assert documented.SerializeToString() == data
    assert wire_pb2.Message.FromString(data) == documented


def test_every_field_has_a_number() -> None:
    """A field that `wire.proto` forgets would stay behind without a word."""
    described = wire_pb2.DESCRIPTOR.message_types_by_name
    assert set(described) == {*KINDS, "Message", "Tensor"}
    assert [f.name for f in described["Message"].fields] == ["session", *(name.lower() for name in KINDS)]
    for name, kind in KINDS.items():
        assert [f.name for f in described[name].fields] == [f.name for f in fields(kind)]


def test_generated_code_is_that_of_its_source(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    source = Path(wire_pb2.__file__).parents[2]
    arguments = [f"--proto_path={source}", f"--python_out={tmp_path}"]
    assert protoc.main(["protoc", *arguments, "fkge/federation/wire.proto"]) == 0
    for made in (tmp_path / "fkge" / "federation").iterdir():
        now = (source / "fkge" / "federation" / made.name).read_text(encoding="utf-8")
        assert made.read_text(encoding="utf-8") == now, f"{made.name} is out of date; run: make proto"


# -- the page about it -------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "wire.md").read_text(encoding="utf-8")


def test_the_bytes_on_the_page_are_the_messages_it_says() -> None:
    blocks = re.findall(r"^```wire\n(.*?)^```", PAGE, flags=re.M | re.S)
    lines = [re.findall(r"^ *((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: |$)", block, flags=re.M) for block in blocks]
    request, tiny = (bytes.fromhex("".join(of_one)) for of_one in lines)
    assert decode(request) == (Request("atlas", 300), 0)
    assert encode(let_go(Request("atlas", 300))) == request
    message, session = decode(tiny)
    assert alike(message, Samples(2, torch.tensor([[1.0, -0.5]])))
    assert session == 7


def test_the_numbers_on_the_page_are_those_of_the_fields() -> None:
    described = wire_pb2.DESCRIPTOR.message_types_by_name
    numbers: dict[str, int] = {}
    documented: dict[str, dict[str, int]] = {}
    for line in PAGE[PAGE.index("## Handshake") : PAGE.index("## Requirements for tensors")].splitlines():
        if line.startswith("| "):
            pairs = [(name, int(number)) for number, name in re.findall(r"(\d+) `(\w+)`", line)]
            if pairs and pairs[0][0] in KINDS:
                kind, number = pairs.pop(0)
                numbers[kind.lower()], documented[kind] = number, {}
            if pairs:
                documented[kind].update(pairs)
    assert numbers == {f.name: f.number for f in described["Message"].fields if f.name != "session"}
    assert documented == {name: {f.name: f.number for f in described[name].fields} for name in KINDS}


# -- one message, one encoding -----------------------------------------------------------------------


@settings(max_examples=400, deadline=None)
@given(ANY, st.data())
def test_a_message_that_was_tampered_with_is_refused_or_another_message(message: Any, data: st.DataObject) -> None:
    good = encode(let_go(message), 7)
    mutated = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        mutated[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    fuzzed.check(bytes(mutated))


@settings(max_examples=400, deadline=None)
@given(ANY, NUMBERS, st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_message_whose_fields_were_changed_is_refused_or_another_message(
    message: Any, session: int, pick: random.Random, times: int
) -> None:
    def leaf(data: bytes) -> bytes:
        place = pick.randrange(len(data) + 1)
        return data[:place] + pick.randbytes(pick.randrange(3)) + data[place + pick.randrange(3) :]

    data = encode(let_go(message), session)
    for _ in range(times):
        data = mutate(data, pick, leaf)
    fuzzed.check(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 15))
def test_random_bytes_are_refused_or_a_message(data: bytes, kind: int) -> None:
    fuzzed.check(data)
    fuzzed.check(varint(kind << 3 | 2) + varint(len(data)) + data)


def test_the_messages_that_the_fuzzer_starts_from_are_read() -> None:
    assert {type(decode(seed)[0]) for seed in fuzzed.seeds()} >= set(KINDS.values()) - {KINDS["Gradient"]}


@QUICK
@given(ANY, st.data())
def test_a_message_cut_short_or_with_a_tail_is_never_the_message(message: Any, data: st.DataObject) -> None:
    good = encode(let_go(message))
    cut = good[: data.draw(st.integers(0, len(good) - 1))]
    with_tail = good + data.draw(st.binary(min_size=1, max_size=20))
    for bad in (cut, with_tail):
        with pytest.raises(PeerError):
            decode(bad)


# -- what is refused ---------------------------------------------------------------------------------

ROWS = join([(1 << 3, 1), (2 << 3 | 2, bytes([1, 2])), (3 << 3 | 2, bytes(8))])
"""A tensor of one row of two zeros."""


def tensor(*changes: tuple[int, int | bytes | None]) -> bytes:
    """`ROWS` with fields of other values, or without."""
    parts = dict(split(ROWS) or []) | dict(changes)
    return join([(tag, value) for tag, value in parts.items() if value is not None])


def samples(rows: bytes) -> bytes:
    return join([(11 << 3 | 2, join([(1 << 3, 4), (2 << 3 | 2, rows)]))])


SIGNAL = join([(1 << 3 | 2, b"a"), (2 << 3, 1)])


def of_kind(number: int, body: bytes) -> bytes:
    return join([(number << 3 | 2, body)])


def test_the_hostile_bytes_below_would_be_read_without_what_is_wrong_with_them() -> None:
    assert decode(samples(ROWS))[0].vectors.shape == (1, 2)
    assert decode(samples(tensor((18, bytes([0, 2])), (26, None))))[0].vectors.shape == (0, 2)
    assert decode(of_kind(2, SIGNAL)) == (Signal("a", True, False), 0)
    assert decode(of_kind(3, join([(10, b"a"), (16, 5)]))) == (Request("a", 5), 0)
    assert decode(of_kind(3, b"")) == (Request("", 0), 0)
    assert decode(of_kind(10, b""))[0].step == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "0 kinds"),
        (bytes([8, 1]), "0 kinds"),
        (b"fkge1\0\0\0\0", "unknown in that place"),
        (of_kind(10, b"") + of_kind(14, b""), "2 kinds"),
        (of_kind(10, b"") * 2, "twice or out of order"),
        (of_kind(10, b"") + bytes([8, 1]), "twice or out of order"),
        (of_kind(15, b""), "field 15 of wire type 2"),
        (of_kind(0, b""), "field 0 "),
        (bytes([10 << 3 | 3, 10 << 3 | 4]), "wire type 3"),
        (bytes([10 << 3, 1]), "field 10 of wire type 0"),
        (bytes([10 << 3 | 5]) + bytes(4), "wire type 5"),
        (bytes([8, 0]) + of_kind(10, b""), "zero"),
        (bytes([8, 128, 0]) + of_kind(10, b""), "longer than it need be"),
        (bytes([8]) + bytes([255] * 9) + bytes([2]) + of_kind(10, b""), "beyond 64 bits"),
        (bytes([8]) + bytes([255] * 20), "beyond 64 bits"),
        (bytes([8]), "cut short"),
        (bytes([10 << 3 | 2]), "cut short"),
        (bytes([10 << 3 | 2, 1]), "cut short"),
        (bytes([10 << 3 | 2, 255, 255, 255, 255, 15]), "cut short"),
        (of_kind(2, SIGNAL + bytes([24, 2])), "2 for a truth"),
        (of_kind(2, SIGNAL + bytes([24, 0])), "0 for a truth"),
        (of_kind(2, SIGNAL + bytes([32, 1])), "field 4 "),
        (of_kind(2, bytes([10, 0])), "0 bytes"),
        (of_kind(2, bytes([10, 1, 255])), "not UTF-8"),
        (of_kind(2, bytes([10, 3, 0xED, 0xA0, 0x80])), "not UTF-8"),
        (of_kind(2, join([(10, b"a" * 65)])), "65 letters"),
        (of_kind(2, join([(10, b"a" * 257)])), "257 bytes"),
        (of_kind(11, b""), "Samples without its vectors"),
        (of_kind(8, join([(3 << 3 | 2, ROWS)])), "Update without its relation"),
        (samples(b""), "type 0"),
        (samples(tensor((8, None))), "type 0"),
        (samples(tensor((8, 4))), "type 4"),
        (samples(tensor((8, 2))), "do not agree"),
        (samples(tensor((26, bytes(7)))), "do not agree"),
        (samples(tensor((26, None))), "do not agree"),
        (samples(tensor((26, b""))), "explicit empty"),
        (samples(tensor((18, None))), "do not agree"),
        (samples(tensor((18, b""))), "one to 3 dimensions"),
        (samples(tensor((18, bytes([1, 1, 1, 2])))), "one to 3 dimensions"),
        (samples(tensor((18, bytes([1, 130, 0])))), "longer than it need be"),
        (samples(tensor((18, varint(2**32 + 2)))), "beyond 32 bits"),
        (samples(tensor((18, varint(2**31) * 2))), "do not agree"),
        (samples(tensor((18, b"\0" + varint(2**32 - 1) * 2), (26, None))), "strides"),
        (samples(tensor((18, b"\0" + varint(2**30)), (26, None))), "strides"),
        (samples(bytes([8, 1, 16, 1, 16, 2]) + join([(26, bytes(8))])), "field 2 of wire type 0"),
        (samples(tensor((32, 1))), "field 4 "),
    ],
)  # fmt: skip
def test_hostile_bytes(data: bytes, why: str) -> None:
    with pytest.raises(PeerError, match=why):
        decode(data)


def test_too_long_is_refused_before_it_is_read() -> None:
    data = encode(let_go(Ack(1)))
    assert decode(data, limit=len(data))[0].step == 1
    with pytest.raises(PeerError, match="too long"):
        decode(data, limit=len(data) - 1)
    with pytest.raises(PeerError, match="too long"):
        decode(b"\xff" * 10, limit=9)


@pytest.mark.parametrize(
    "data",
    [
        of_kind(10, b"") * 100_000,
        (of_kind(10, b"") + of_kind(14, b"")) * 50_000,
        of_kind(9, b"") + bytes([15 << 3, 1]) * 100_000,
        samples(tensor((18, bytes([1] * 200_000)))),
        samples(tensor((18, b"\0" + varint(2**28)), (26, None))),
        of_kind(2, join([(10, b"a" * 200_000)])),
        bytes([8]) + b"\xff" * 200_000,
        samples(tensor((18, varint(25_000) + bytes([2])), (26, bytes(200_000)))),
        of_kind(8, join([(n << 3 | 2, tensor((18, varint(2500) + b"\2"), (26, bytes(20_000)))) for n in range(3, 12)])),
    ],
)  # fmt: skip
def test_a_message_takes_no_more_memory_than_it_is_long(data: bytes) -> None:
    tracemalloc.start()
    try:
        decode(data)
    except PeerError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < len(data) + 10_000


# -- what has no way out -----------------------------------------------------------------------------


def test_a_name_that_no_peer_would_read_is_not_sent() -> None:
    assert decode(encode(let_go(Request("é" * 64, 1))))[0].peer == "é" * 64
    with pytest.raises(SettingsError, match="65 letters; 64 is the most"):
        encode(let_go(Request("é" * 65, 1)))


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_number_beyond_64_bits_is_not_sent(number: int) -> None:
    for it in (Ack(number), Structure(0, number, torch.zeros(0, 3)), Abort("a", number, False)):
        with pytest.raises(ValueError, match="no place in a message"):
            encode(let_go(it))
    with pytest.raises(ValueError, match="no place in a message"):
        encode(let_go(Ack(0)), number)


@pytest.mark.parametrize("rows", [torch.zeros(2, 2, dtype=torch.float16), torch.zeros(1, 1, 1, 1)])
def test_a_tensor_that_no_peer_would_read_is_not_sent(rows: Tensor) -> None:
    with pytest.raises(TypeError, match="no place in a message"):
        encode(let_go(Samples(0, rows)))


@dataclass(frozen=True)
class Impostor:
    """Has the name of a message, and a table in it."""

    table: Tensor


Impostor.__name__ = "Update"


def test_what_is_no_message_has_no_encoder() -> None:
    tables = make_tables(TrainSettings(dim=4, device="cpu"), 3, 2)
    update = ReceivedUpdate("a", {"entity": torch.zeros(2, 2), "relation": torch.zeros(0, 2)})
    event = protocol.Received("a", 1)  # an event of this owner; the message of that name is the game's
    things = [
        tables, tables["entity"], tables.export(state=True), tables.snapshot(), update, event,
        Impostor(tables["entity"]), protocol.Begin(), protocol.Drop("a"), None, "text", [Ack(0)],
    ]  # fmt: skip
    for thing in [*things, Ack(0), Update(0, "", torch.zeros(1, 1), torch.zeros(0, 1))]:
        with pytest.raises(TypeError, match="not released"):
            encode(thing)
    for thing in things:
        with pytest.raises(PrivacyError, match="does not leave"):
            let_go(thing)
    with pytest.raises(PrivacyError, match="only an egress"):
        Released(Ack(0), "public", object())


class Larger(Update):
    """Made of a message; it could carry more."""


def test_what_is_made_of_a_message_is_none() -> None:
    with pytest.raises(PrivacyError):
        let_go(Larger(0, "", torch.zeros(1, 1), torch.zeros(0, 1)))


def test_no_kind_holds_a_mapping_or_an_object() -> None:
    """Every field of every message is a number, a truth, a name or rows: there is no place for a whole table set."""
    assert {str(f.type) for kind in KINDS.values() for f in fields(kind)} <= set(PLAIN)

from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Message(_message.Message):
    __slots__ = ("session", "signal", "request", "accept", "defer", "refuse", "abort", "update", "structure", "ack", "samples", "gradient", "candidate", "received")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ACCEPT_FIELD_NUMBER: _ClassVar[int]
    DEFER_FIELD_NUMBER: _ClassVar[int]
    REFUSE_FIELD_NUMBER: _ClassVar[int]
    ABORT_FIELD_NUMBER: _ClassVar[int]
    UPDATE_FIELD_NUMBER: _ClassVar[int]
    STRUCTURE_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    session: int
    signal: Signal
    request: Request
    accept: Accept
    defer: Defer
    refuse: Refuse
    abort: Abort
    update: Update
    structure: Structure
    ack: Ack
    samples: Samples
    gradient: Gradient
    candidate: Candidate
    received: Received
    def __init__(self, session: _Optional[int] = ..., signal: _Optional[_Union[Signal, _Mapping]] = ..., request: _Optional[_Union[Request, _Mapping]] = ..., accept: _Optional[_Union[Accept, _Mapping]] = ..., defer: _Optional[_Union[Defer, _Mapping]] = ..., refuse: _Optional[_Union[Refuse, _Mapping]] = ..., abort: _Optional[_Union[Abort, _Mapping]] = ..., update: _Optional[_Union[Update, _Mapping]] = ..., structure: _Optional[_Union[Structure, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., samples: _Optional[_Union[Samples, _Mapping]] = ..., gradient: _Optional[_Union[Gradient, _Mapping]] = ..., candidate: _Optional[_Union[Candidate, _Mapping]] = ..., received: _Optional[_Union[Received, _Mapping]] = ...) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("type", "shape", "data")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[Tensor.Type]
        FLOAT32: _ClassVar[Tensor.Type]
        FLOAT64: _ClassVar[Tensor.Type]
        INT64: _ClassVar[Tensor.Type]
    NONE: Tensor.Type
    FLOAT32: Tensor.Type
    FLOAT64: Tensor.Type
    INT64: Tensor.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: Tensor.Type
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, type: _Optional[_Union[Tensor.Type, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...

class Signal(_message.Message):
    __slots__ = ("peer", "news", "last")
    PEER_FIELD_NUMBER: _ClassVar[int]
    NEWS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    peer: str
    news: bool
    last: bool
    def __init__(self, peer: _Optional[str] = ..., news: bool = ..., last: bool = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("peer", "session")
    PEER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    peer: str
    session: int
    def __init__(self, peer: _Optional[str] = ..., session: _Optional[int] = ...) -> None: ...

class Accept(_message.Message):
    __slots__ = ("peer", "session")
    PEER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    peer: str
    session: int
    def __init__(self, peer: _Optional[str] = ..., session: _Optional[int] = ...) -> None: ...

class Defer(_message.Message):
    __slots__ = ("peer", "session")
    PEER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    peer: str
    session: int
    def __init__(self, peer: _Optional[str] = ..., session: _Optional[int] = ...) -> None: ...

class Refuse(_message.Message):
    __slots__ = ("peer", "session")
    PEER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    peer: str
    session: int
    def __init__(self, peer: _Optional[str] = ..., session: _Optional[int] = ...) -> None: ...

class Abort(_message.Message):
    __slots__ = ("peer", "session", "host")
    PEER_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    peer: str
    session: int
    host: bool
    def __init__(self, peer: _Optional[str] = ..., session: _Optional[int] = ..., host: bool = ...) -> None: ...

class Update(_message.Message):
    __slots__ = ("step", "frame", "entity", "relation", "entity_weight", "relation_weight", "entity_moments", "relation_moments", "neighbours", "joining", "triples")
    STEP_FIELD_NUMBER: _ClassVar[int]
    FRAME_FIELD_NUMBER: _ClassVar[int]
    ENTITY_FIELD_NUMBER: _ClassVar[int]
    RELATION_FIELD_NUMBER: _ClassVar[int]
    ENTITY_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    RELATION_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ENTITY_MOMENTS_FIELD_NUMBER: _ClassVar[int]
    RELATION_MOMENTS_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    TRIPLES_FIELD_NUMBER: _ClassVar[int]
    step: int
    frame: str
    entity: Tensor
    relation: Tensor
    entity_weight: Tensor
    relation_weight: Tensor
    entity_moments: Tensor
    relation_moments: Tensor
    neighbours: Tensor
    joining: Tensor
    triples: Tensor
    def __init__(self, step: _Optional[int] = ..., frame: _Optional[str] = ..., entity: _Optional[_Union[Tensor, _Mapping]] = ..., relation: _Optional[_Union[Tensor, _Mapping]] = ..., entity_weight: _Optional[_Union[Tensor, _Mapping]] = ..., relation_weight: _Optional[_Union[Tensor, _Mapping]] = ..., entity_moments: _Optional[_Union[Tensor, _Mapping]] = ..., relation_moments: _Optional[_Union[Tensor, _Mapping]] = ..., neighbours: _Optional[_Union[Tensor, _Mapping]] = ..., joining: _Optional[_Union[Tensor, _Mapping]] = ..., triples: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Structure(_message.Message):
    __slots__ = ("step", "entities", "triples")
    STEP_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    TRIPLES_FIELD_NUMBER: _ClassVar[int]
    step: int
    entities: int
    triples: Tensor
    def __init__(self, step: _Optional[int] = ..., entities: _Optional[int] = ..., triples: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class Samples(_message.Message):
    __slots__ = ("step", "vectors")
    STEP_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    step: int
    vectors: Tensor
    def __init__(self, step: _Optional[int] = ..., vectors: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Gradient(_message.Message):
    __slots__ = ("step", "vectors")
    STEP_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    step: int
    vectors: Tensor
    def __init__(self, step: _Optional[int] = ..., vectors: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("step", "vectors", "neighbours")
    STEP_FIELD_NUMBER: _ClassVar[int]
    VECTORS_FIELD_NUMBER: _ClassVar[int]
    NEIGHBOURS_FIELD_NUMBER: _ClassVar[int]
    step: int
    vectors: Tensor
    neighbours: Tensor
    def __init__(self, step: _Optional[int] = ..., vectors: _Optional[_Union[Tensor, _Mapping]] = ..., neighbours: _Optional[_Union[Tensor, _Mapping]] = ...) -> None: ...

class Received(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNSPECIFIED: _ClassVar[Reason]
    LEAVING: _ClassVar[Reason]
    VERSION: _ClassVar[Reason]
    STRANGER: _ClassVar[Reason]
    EXPIRED: _ClassVar[Reason]
    REVOKED: _ClassVar[Reason]
    NAME: _ClassVar[Reason]
    CONSORTIUM: _ClassVar[Reason]
    TERMS: _ClassVar[Reason]
    HOURS: _ClassVar[Reason]
    PRIVACY: _ClassVar[Reason]
    BUDGET: _ClassVar[Reason]
    TOO_LARGE: _ClassVar[Reason]
    MALFORMED: _ClassVar[Reason]
    REPLAYED: _ClassVar[Reason]
    OUT_OF_ORDER: _ClassVar[Reason]
    TOO_MANY: _ClassVar[Reason]
    STALLED: _ClassVar[Reason]
    CLOCK: _ClassVar[Reason]
    REPLACED: _ClassVar[Reason]
    UNPROVEN: _ClassVar[Reason]
    FORGED: _ClassVar[Reason]
UNSPECIFIED: Reason
LEAVING: Reason
VERSION: Reason
STRANGER: Reason
EXPIRED: Reason
REVOKED: Reason
NAME: Reason
CONSORTIUM: Reason
TERMS: Reason
HOURS: Reason
PRIVACY: Reason
BUDGET: Reason
TOO_LARGE: Reason
MALFORMED: Reason
REPLAYED: Reason
OUT_OF_ORDER: Reason
TOO_MANY: Reason
STALLED: Reason
CLOCK: Reason
REPLACED: Reason
UNPROVEN: Reason
FORGED: Reason

class Frame(_message.Message):
    __slots__ = ("hello", "part", "heard", "bye")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    BYE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    part: Part
    heard: Heard
    bye: Bye
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., part: _Optional[_Union[Part, _Mapping]] = ..., heard: _Optional[_Union[Heard, _Mapping]] = ..., bye: _Optional[_Union[Bye, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("versions", "program", "consortium", "owner", "capabilities", "life", "your_life", "heard", "nonce", "certificate", "proof", "clock", "terms", "pact", "begun", "probe")
    class TermsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    CONSORTIUM_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    YOUR_LIFE_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    PACT_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    versions: _containers.RepeatedScalarFieldContainer[int]
    program: str
    consortium: str
    owner: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    life: bytes
    your_life: bytes
    heard: int
    nonce: bytes
    certificate: bytes
    proof: bytes
    clock: int
    terms: _containers.ScalarMap[str, str]
    pact: bytes
    begun: bool
    probe: bool
    def __init__(self, versions: _Optional[_Iterable[int]] = ..., program: _Optional[str] = ..., consortium: _Optional[str] = ..., owner: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., life: _Optional[bytes] = ..., your_life: _Optional[bytes] = ..., heard: _Optional[int] = ..., nonce: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., proof: _Optional[bytes] = ..., clock: _Optional[int] = ..., terms: _Optional[_Mapping[str, str]] = ..., pact: _Optional[bytes] = ..., begun: bool = ..., probe: bool = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("step", "heard", "channel", "more", "body")
    STEP_FIELD_NUMBER: _ClassVar[int]
    HEARD_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    step: int
    heard: int
    channel: int
    more: bool
    body: bytes
    def __init__(self, step: _Optional[int] = ..., heard: _Optional[int] = ..., channel: _Optional[int] = ..., more: bool = ..., body: _Optional[bytes] = ...) -> None: ...

class Heard(_message.Message):
    __slots__ = ("step",)
    STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    def __init__(self, step: _Optional[int] = ...) -> None: ...

class Bye(_message.Message):
    __slots__ = ("reason", "sentence")
    REASON_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    reason: Reason
    sentence: str
    def __init__(self, reason: _Optional[_Union[Reason, str]] = ..., sentence: _Optional[str] = ...) -> None: ...

class Meeting(_message.Message):
    __slots__ = ("keys", "intersect", "pact", "tokens")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    INTERSECT_FIELD_NUMBER: _ClassVar[int]
    PACT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    keys: Keys
    intersect: Intersect
    pact: Pact
    tokens: Tokens
    def __init__(self, keys: _Optional[_Union[Keys, _Mapping]] = ..., intersect: _Optional[_Union[Intersect, _Mapping]] = ..., pact: _Optional[_Union[Pact, _Mapping]] = ..., tokens: _Optional[_Union[Tokens, _Mapping]] = ...) -> None: ...

class Keys(_message.Message):
    __slots__ = ("entities", "relations", "ratio")
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    RELATIONS_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    entities: int
    relations: int
    ratio: float
    def __init__(self, entities: _Optional[int] = ..., relations: _Optional[int] = ..., ratio: _Optional[float] = ...) -> None: ...

class Intersect(_message.Message):
    __slots__ = ("frame",)
    FRAME_FIELD_NUMBER: _ClassVar[int]
    frame: bytes
    def __init__(self, frame: _Optional[bytes] = ...) -> None: ...

class Pact(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: bytes
    def __init__(self, name: _Optional[bytes] = ...) -> None: ...

class Tokens(_message.Message):
    __slots__ = ("generation", "round", "quiet", "entities", "relations", "settled", "other_entities", "other_relations")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    QUIET_FIELD_NUMBER: _ClassVar[int]
    ENTITIES_FIELD_NUMBER: _ClassVar[int]
    RELATIONS_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    OTHER_ENTITIES_FIELD_NUMBER: _ClassVar[int]
    OTHER_RELATIONS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    round: int
    quiet: int
    entities: bytes
    relations: bytes
    settled: bool
    other_entities: bytes
    other_relations: bytes
    def __init__(self, generation: _Optional[int] = ..., round: _Optional[int] = ..., quiet: _Optional[int] = ..., entities: _Optional[bytes] = ..., relations: _Optional[bytes] = ..., settled: bool = ..., other_entities: _Optional[bytes] = ..., other_relations: _Optional[bytes] = ...) -> None: ...

"""The messages of a translation game, and what both roles do with one.

    client                              host
    Samples(k)    (batch, d_host)   →
                                    ←   Gradient(k)   (batch, d_host)
    ...                                 ...
    Candidate(k)  (n, d_host), …    →
                                    ←   Received(k)

The gradient is that of the generator's loss with respect to the *samples*. One with respect to the mapping would need X
at the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor

from fkge.errors import PeerError

LIMIT = 1e6
"""The largest coordinate a message may have. Embeddings and their gradients are far smaller; a larger one is a fault or
an attempt to make the other side's arithmetic overflow."""


@dataclass(frozen=True, eq=False)
class Message:
    """A message; `step` adversarial steps were done before it."""

    step: int

    def same_as(self, other: Message | None) -> bool:
        """Return whether both are equal, to the bit."""
        if other is None or type(self) is not type(other):
            return False
        return all(_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))


def _equal(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a, b)
    return type(a) is type(b) and a == b


@dataclass(frozen=True, eq=False)
class Samples(Message):
    """Client to host: the translation of one batch, (batch, d_host)."""

    vectors: Tensor


@dataclass(frozen=True, eq=False)
class Candidate(Message):
    """Client to host: all aligned rows translated, (n, d_host), and their neighbours, (m, d_host), if there are any."""

    vectors: Tensor
    neighbours: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Gradient(Message):
    """Host to client: dL_G/dG(X) for the samples of the same step, (batch, d_host)."""

    vectors: Tensor


@dataclass(frozen=True, eq=False)
class Received(Message):
    """Host to client: the candidate of this step has arrived. It carries nothing else, on purpose."""


FromClient: TypeAlias = Samples | Candidate
FromHost: TypeAlias = Gradient | Received

In = TypeVar("In", bound=Message)
Out = TypeVar("Out", bound=Message | None)


class Role(ABC, Generic[In, Out]):
    """One side of the game: messages in, messages out.

    A message that is refused raises `PeerError` and changes nothing. A repeated message gets the answer it got the
    first time: after a lost reply the sender may send again, and no noise is drawn twice.
    """

    _takes: ClassVar[tuple[type[Message], ...]]
    """The messages of the other side."""
    _done = 0
    """Adversarial steps done."""
    _last: In | None = None
    _answer: Out

    def step(self, message: In) -> Out:
        """Process one message and return the answer to it. Raises `PeerError` for one that is malformed or not due."""
        if not isinstance(message, self._takes):
            raise self._unexpected(message)
        if type(message.step) is not int or message.step < 0:
            raise PeerError(f"{_name(message)}: step is {message.step!r}; expected a whole number from 0 up")
        self._check_vectors(message)
        if message.same_as(self._last):
            return self._answer
        if type(message) is not self._due or message.step != self._done:
            raise self._unexpected(message)
        self._answer = self._act(message)
        self._last = message
        return self._answer

    def _unexpected(self, message: object) -> PeerError:
        got = f"{_name(message)} of step {message.step}" if isinstance(message, Message) else _name(message)
        due = self._due if isinstance(self._due, str) else f"{self._due.__name__} of step {self._done}"
        return PeerError(f"got {got} where {due} was due; messages must come in order, each once or repeated unchanged")

    @property
    @abstractmethod
    def _due(self) -> type[Message] | str:
        """The message that is due now, or words for nothing."""

    @abstractmethod
    def _check_vectors(self, message: In) -> None:
        """Raise `PeerError` unless the message's tensors are as they must be."""

    @abstractmethod
    def _act(self, message: In) -> Out:
        """Return the answer to a message that is due."""


def check_vectors(message: Message, vectors: object, shape: tuple[int | None, int], dtype: torch.dtype) -> None:
    """Raise `PeerError` unless `vectors` is a dense CPU tensor of this shape and type with numbers within ±`LIMIT`.

    Args:
        message, vectors: a field of it, and the message for its name in the error.
        shape: (rows, width); rows None for any number of them.
        dtype: the type both sides use.
    """
    where = f"{_name(message)} of step {message.step}"
    rows, width = shape
    if not isinstance(vectors, Tensor) or vectors.layout != torch.strided or vectors.device.type != "cpu":
        raise PeerError(f"{where}: expected a dense tensor, got {type(vectors).__name__}")
    if vectors.ndim != 2 or vectors.shape[1] != width or (rows is not None and vectors.shape[0] != rows):
        wanted = f"({'any' if rows is None else rows}, {width})"
        raise PeerError(f"{where}: expected shape {wanted}, got {tuple(vectors.shape)}; do both sides use one setting?")
    if vectors.dtype != dtype:
        raise PeerError(f"{where}: expected {dtype}, got {vectors.dtype}; both sides must agree on the precision")
    if vectors.requires_grad:
        raise PeerError(f"{where}: the tensor carries a gradient graph; detach it before sending")
    # NaN fails the comparison too.
    if not bool((vectors.abs() <= LIMIT).all()):
        raise PeerError(f"{where}: a coordinate is NaN, infinite or beyond ±{LIMIT:g}; the sender's training diverged")


def _name(message: object) -> str:
    return type(message).__name__

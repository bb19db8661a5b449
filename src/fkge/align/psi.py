"""Private set intersection (PSI): two owners find the texts that both hold, and learn nothing about the others.

Each side hides its items behind a secret of its own: an item becomes a point of the curve P-256, raised to a secret
exponent. Raising commutes, so what both have raised is equal exactly where the items are, in either order, and without
an exponent a dictionary of all items matches nothing. Two roles, bytes in and bytes out, no I/O:

    client                                             host
      │  ASK     its items hidden: H(x)^c, sorted        │
      │ ───────────────────────────────────────────────► │
      │  ANSWER  its own, H(y)^h, sorted, and those of   │
      │          the client raised again: H(x)^(ch)      │
      │ ◄─────────────────────────────────────────────── │
      │  CLAIM   which of the host's, by their places,   │  the client strips c and compares: it knows
      │          and a proof                             │
      │ ───────────────────────────────────────────────► │  the host looks up its own items: now it knows
      │  AGREED  a proof                                 │
      │ ◄─────────────────────────────────────────────── │

What each learns: how many items the other holds, and which are common. The client's claim gives away no more than
that: it names places in the host's own list, which mean nothing to anybody else. A proof is a digest of *all* common
items together, under a secret that the two agree on with the same messages (Diffie-Hellman on the same curve), so
neither can claim a row that it cannot name: a client that claims places at random, or a host that answers so that
everything seems common, fails. Points are compared whole, so there are no false positives, as there are in the packed
forms of the library, whose own (Golomb) overflows at such sizes; should two ever be equal by chance, the proofs differ.

With a minimum overlap, a round comes before in which the host sorts what it raised, so that only the *number* of
common items shows (SIZE, SIZED). Below the minimum both stop (STOP), no item revealed; the number is.

A peer that follows the protocol learns nothing else. Known weaknesses against one that does not:

- It can put in items that it does not hold: a dictionary. This cannot be detected; hence caps on the number of items
  and of runs (`RateLimiter`). With a minimum it can add items known to be common, or lie about the number.
- It can withhold items, so that the other believes less to be common.
- A host that knows one of the client's items, and guesses its place, can make others seem common, and the claim's
  proof then lets it test a guess of all those together: in practice, of one more item in each run.
- A wrong claim is an answer to a guess, so it ends the host's run. Other bad messages change nothing, but they may cost
  the receiver as much work as good ones; the caller should disconnect a peer that sends them.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import Field

from fkge.align.links import KINDS, Kind
from fkge.errors import PeerError, SettingsError
from fkge.settings import Settings

Normalisation: TypeAlias = Literal["nfkc-1", "nfkc-fold-1"]
Point: TypeAlias = bytes
"""33 bytes: a point of P-256, compressed."""


class PsiSettings(Settings):
    """Settings of private set intersection."""

    max_items: int = Field(
        1_000_000, ge=1, lt=2**31, description="items at most on either side; what a dictionary can test in one run"
    )
    min_overlap: int = Field(
        0, ge=0, lt=2**31, description="common entities below which both stop before any is revealed; 0 asks no size"
    )
    runs: int = Field(
        4,
        ge=1,
        description="alignments that one peer may ask for within `period` (`RateLimiter`; a simulation aligns once)",
    )
    period: float = Field(86_400.0, gt=0, allow_inf_nan=False, description="seconds")
    normalisation: Normalisation = Field(
        "nfkc-1", description="how labels are made comparable; nfkc-fold-1 also ignores case. Both sides need the same"
    )


class OverlapError(PeerError):
    """Too few common items to continue. No item was revealed; the number was, to both.

    Args:
        kind, size, minimum: what the items stand for, how many are common, and how many must be.
    """

    def __init__(self, kind: Kind, size: int, minimum: int) -> None:
        self.size, self.minimum = size, minimum
        super().__init__(
            f"{size} {kind} keys in common, fewer than the {minimum} asked for: stopped before any was revealed. "
            "Both sides know this number now; a smaller min_overlap would let them continue"
        )


class Message(IntEnum):
    """The kind of a frame."""

    SIZE, SIZED, ASK, ANSWER, CLAIM, AGREED, STOP = range(1, 8)


MAGIC = b"PSI1"
FRAME = struct.Struct("<4sBB16s")  # magic, message, item kind, digest of all frames before
HELLO = struct.Struct("<III33s16s")  # items, minimum, number in common if known, public point, normalisation
REPLY = struct.Struct("<II33s")  # items, minimum, public point
_STOP = struct.Struct("<II")  # number in common, minimum
POINT, PROOF, _PLACE = 33, 32, 4
_UNKNOWN = 2**32 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""The order of the group of P-256, a prime: exponents count modulo it."""


class Secret:
    """A secret exponent, drawn by the library from the system's entropy, for one purpose in one run."""

    def __init__(self) -> None:
        import private_set_intersection.python as library

        self._library: Any = library
        self._hider = library.client.CreateWithNewKey(True)
        self._key = int.from_bytes(self._hider.GetPrivateKeyBytes(), "big")

    def hide(self, texts: Sequence[str]) -> list[Point]:
        """Return H(text)^key of each, in order."""
        return list(self._hider.CreateRequest(list(texts)).encrypted_elements)

    def again(self, points: Sequence[Point]) -> list[Point]:
        """Return point^key of each, in order; `PeerError` if one is no point of the curve."""
        return self._raised(points, self._key)

    def strip(self, points: Sequence[Point]) -> list[Point]:
        """Undo `again`: return point^(1/key) of each, in order."""
        return self._raised(points, pow(self._key, -1, _ORDER))

    def _raised(self, points: Sequence[Point], exponent: int) -> list[Point]:
        raiser = self._library.server.CreateFromKey(exponent.to_bytes(32, "big"), True)
        request = self._library.Request(reveal_intersection=True, encrypted_elements=points)
        try:
            return list(raiser.ProcessRequest(request).encrypted_elements)
        except RuntimeError:
            raise PeerError("a peer's message holds bytes that are not a point of the curve") from None


class _Role(ABC):
    """The base of client and host: items, a state of the protocol, and frames.

    Args:
        items: texts, each counted once.
        settings: this side's limits. With a minimum, a host answers only clients that ask for the number first.
        kind: what the items stand for; both sides must agree.

    Attributes:
        found: the common items, sorted, once both sides have proved that they know them; None before.
        refused: why the two stopped, if they did.
        state: where this side is in the protocol; its table says which messages it accepts there.
        transcript: a digest of all frames so far, which the next one has to name.

    Raises:
        SettingsError: there are too many items, or one is not valid text.
    """

    table: ClassVar[Mapping[str, tuple[Message, ...]]]
    """For each state, the messages that are accepted."""

    def __init__(self, items: Iterable[str], settings: PsiSettings, kind: Kind = "entity") -> None:
        self._items = sorted(set(items))
        if len(self._items) > settings.max_items:
            raise SettingsError(
                f"{len(self._items):,} {kind} keys to intersect, but max_items is {settings.max_items:,}; raise it "
                "here and at the peer"
            )
        for item in self._items:
            if not item.isascii() and any("\ud800" <= letter <= "\udfff" for letter in item):
                raise SettingsError(f"{kind} key {item!r} is not text that UTF-8 can carry; repair the label")
        self._settings, self._kind = settings, kind
        self.state = next(iter(self.table))
        self.transcript = bytes(16)
        self._agreement = Secret()
        self.found: list[str] | None = None
        self.refused: OverlapError | None = None

    def step(self, data: bytes) -> bytes | None:
        """Process a message and return the next one to send, or None at the end.

        Raises:
            PeerError: the message cannot be used; nothing changes, but a wrong claim ends the run.
        """
        message, body = self._open(data)
        answer = self._act(message, body, _extended(self.transcript, data))
        self.transcript = _extended(self.transcript, data)
        return None if answer is None else self._seal(*answer)

    @abstractmethod
    def _act(self, message: Message, body: bytes, transcript: bytes) -> tuple[Message, bytes] | None:
        """Return the answer to `message`, None at the end. `transcript` is a digest of everything up to it."""

    def _seal(self, message: Message, body: bytes) -> bytes:
        frame = FRAME.pack(MAGIC, message, KINDS.index(self._kind), self.transcript) + body
        self.transcript = _extended(self.transcript, frame)
        return frame

    def _open(self, data: bytes) -> tuple[Message, bytes]:
        if len(data) < FRAME.size or data[:4] != MAGIC:
            raise PeerError("a peer sent something that is not a message of an intersection")
        _, message, kind, transcript = FRAME.unpack_from(data)
        due = self.table[self.state]
        if message not in due:
            names = " or ".join(m.name for m in due) or "nothing more"
            raise PeerError(f"a peer sent message {message} of an intersection; due was {names}")
        if kind != KINDS.index(self._kind):
            raise PeerError(f"a peer sent a message about another kind of item; this is about {self._kind} keys")
        if transcript != self.transcript:
            raise PeerError("a peer sent a message that does not follow from those before: is it from another run?")
        return Message(message), data[FRAME.size :]

    def _points(self, body: bytes, *counts: int) -> list[list[Point]]:
        """Split all of `body` into lists of so many points each, none of which may repeat one."""
        if len(body) != POINT * sum(counts):
            raise PeerError(f"a peer sent {len(body):,} bytes where {sum(counts):,} points were due")
        points = (body[i : i + POINT] for i in range(0, len(body), POINT))
        out = [list(itertools.islice(points, count)) for count in counts]
        if any(len(set(part)) < len(part) for part in out):
            raise PeerError("a peer sent a point twice; each stands for a different item")
        return out

    def _cap(self, count: int) -> None:
        if count > self._settings.max_items:
            raise PeerError(f"a peer holds {count:,} {self._kind} keys; max_items is {self._settings.max_items:,} here")

    def _proof(self, secret: Point, transcript: bytes, who: bytes, items: Iterable[str]) -> bytes:
        """Return a digest of all `items` together, which nobody can make without knowing every one."""
        digest = hashlib.blake2b(digest_size=PROOF, key=secret + transcript, person=who)
        for text in map(str.encode, items):
            digest.update(len(text).to_bytes(4, "little") + text)
        return digest.digest()

    def _public(self) -> Point:
        return self._agreement.hide(["fkge"])[0]


class PsiClient(_Role):
    """The side that asks.

    The work of both sides together is 3 exponentiations per item of the client and 1 per item of the host, so the owner
    with fewer items should be the client.
    """

    table: ClassVar = {
        "new": (),
        "sizing": (Message.SIZED,),
        "asked": (Message.ANSWER,),
        "claimed": (Message.AGREED,),
        "over": (),
    }

    def start(self) -> bytes:
        """Return the first message."""
        if self.state != "new":
            raise RuntimeError("start() was called before")
        if self._settings.min_overlap:
            self.state = "sizing"
            return self._seal(Message.SIZE, self._hello())
        return self._seal(*self._ask())

    def _hello(self, size: int = _UNKNOWN) -> bytes:
        """Hide the items behind a new secret and sort them: a random order to anybody who does not know the secret."""
        self._secret = Secret()
        hidden = dict(zip(self._secret.hide(self._items), self._items, strict=True))
        points = sorted(hidden)
        self._asked = [hidden[point] for point in points]
        name = self._settings.normalisation.encode()
        hello = HELLO.pack(len(points), self._settings.min_overlap, size, self._public(), name)
        return hello + b"".join(points)

    def _ask(self, size: int = _UNKNOWN) -> tuple[Message, bytes]:
        hello = self._hello(size)
        self.state, self._size = "asked", size
        return Message.ASK, hello

    def _act(self, message: Message, body: bytes, transcript: bytes) -> tuple[Message, bytes] | None:
        if message == Message.AGREED:
            self._agreed(body)
            return None
        if len(body) < REPLY.size:
            raise PeerError("a peer's answer is cut short")
        count, minimum, public = REPLY.unpack_from(body)
        self._cap(count)
        theirs, raised = self._points(body[REPLY.size :], count, len(self._items))
        place = {point: i for i, point in enumerate(theirs)}
        stripped = self._secret.strip(raised)
        if message == Message.SIZED:
            size, minimum = sum(point in place for point in stripped), max(minimum, self._settings.min_overlap)
            if size >= minimum:
                return self._ask(size)
            self.state, self.refused = "over", OverlapError(self._kind, size, minimum)
            return Message.STOP, _STOP.pack(size, minimum)
        common = {place[point]: item for point, item in zip(stripped, self._asked, strict=True) if point in place}
        if self._size not in (_UNKNOWN, len(common)):
            raise PeerError(
                f"{len(common)} {self._kind} keys in common, {self._size} a moment ago: the peer changed its set"
            )
        shared = self._agreement.again([public])[0]
        self._common, self._shared, self.state = sorted(common.values()), shared, "claimed"
        places = struct.pack(f"<{len(common)}I", *sorted(common))
        return Message.CLAIM, places + self._proof(shared, transcript, b"client", self._common)

    def _agreed(self, body: bytes) -> None:
        if not hmac.compare_digest(body, self._proof(self._shared, self.transcript, b"host", self._common)):
            raise PeerError(
                f"the peer could not prove that it knows the {len(self._common)} {self._kind} keys it shares"
            )
        self.state, self.found = "over", self._common


class PsiHost(_Role):
    """The side that answers, once."""

    table: ClassVar = {
        "waiting": (Message.SIZE, Message.ASK),
        "sized": (Message.ASK, Message.STOP),
        "answered": (Message.CLAIM,),
        "over": (),
    }
    _peers, _least, _size = 0, 0, _UNKNOWN  # as the client stated: its items, the larger minimum, the number in common

    def _act(self, message: Message, body: bytes, transcript: bytes) -> tuple[Message, bytes] | None:
        if message == Message.CLAIM:
            return self._claimed(body, transcript)
        if message == Message.STOP:
            if len(body) != _STOP.size:
                raise PeerError("a peer's last message has the wrong length")
            self.state, self.refused = "over", OverlapError(self._kind, *_STOP.unpack(body))
            return None
        return self._asked(message, body)

    def _asked(self, message: Message, body: bytes) -> tuple[Message, bytes]:
        if len(body) < HELLO.size:
            raise PeerError("a peer's first message is cut short")
        count, minimum, size, public, name = HELLO.unpack_from(body)
        self._check(message, count, minimum, size, name.rstrip(b"\0"))
        (points,) = self._points(body[HELLO.size :], count)
        secret = Secret()
        raised, shared = secret.again(points), self._agreement.again([public])[0]
        hidden = dict(zip(secret.hide(self._items), self._items, strict=True))
        order = sorted(hidden)
        if message == Message.SIZE:
            raised.sort()  # or the client could tell which of its own are common
        self._offered, self._shared = [hidden[point] for point in order], shared
        self._peers, self._least, self._size = count, max(minimum, self._settings.min_overlap), size
        self.state = "sized" if message == Message.SIZE else "answered"
        reply = REPLY.pack(len(order), self._settings.min_overlap, self._public())
        return Message.SIZED if message == Message.SIZE else Message.ANSWER, reply + b"".join([*order, *raised])

    def _check(self, message: Message, count: int, minimum: int, size: int, name: bytes) -> None:
        self._cap(count)
        if name != self._settings.normalisation.encode():
            theirs = name.decode("ascii", "replace")
            raise PeerError(
                f"a peer normalises labels by {theirs!r}, this owner by {self._settings.normalisation!r}; both need "
                "the same (normalisation)"
            )
        if message == Message.ASK and self.state == "waiting":
            if self._settings.min_overlap or minimum:
                raise PeerError(
                    "a minimum is set, so the number in common comes first; the asking side must set min_overlap too"
                )
            if size != _UNKNOWN:
                raise PeerError("a peer states a number in common that was not counted")
        if message == Message.ASK and self.state == "sized":
            if count != self._peers:
                raise PeerError(f"a peer asks with {count:,} {self._kind} keys after {self._peers:,} were counted")
            if not max(minimum, self._least) <= size <= min(count, len(self._items)):
                raise PeerError(f"a peer continues with {size:,} in common; it should have stopped, or cannot be right")

    def _claimed(self, body: bytes, transcript: bytes) -> tuple[Message, bytes]:
        count, rest = divmod(len(body) - PROOF, _PLACE)
        if rest or not 0 <= count <= min(self._peers, len(self._offered)):
            raise PeerError(f"a peer's claim of {len(body):,} bytes does not fit the sets that were intersected")
        if self._size not in (_UNKNOWN, count):
            raise PeerError(f"a peer claims {count:,} {self._kind} keys after it had counted {self._size:,}")
        places = struct.unpack_from(f"<{count}I", body)
        if any(a >= b for a, b in itertools.pairwise(places)) or (count and places[-1] >= len(self._offered)):
            raise PeerError(f"a peer claims places that are not in this owner's list of {len(self._offered):,}")
        common = sorted(self._offered[i] for i in places)
        if not hmac.compare_digest(
            body[count * _PLACE :], self._proof(self._shared, self.transcript, b"client", common)
        ):
            self.state = "over"  # a second try would be another guess
            raise PeerError(f"the peer could not prove that it knows the {count:,} {self._kind} keys it claims")
        self.state, self.found = "over", common
        return Message.AGREED, self._proof(self._shared, transcript, b"host", common)


def _extended(transcript: bytes, frame: bytes) -> bytes:
    return hashlib.blake2b(frame, digest_size=16, key=transcript).digest()

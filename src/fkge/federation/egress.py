"""`Egress` releases every message of the protocol, control messages included: it decides what protects the message, and
records all but public ones in the privacy ledger. A node's alignment messages, which hold no vectors, leave through
`fkge.node.service`.

The codec encodes a `Released` message and nothing else, and only an `Egress` makes one. So every new message must state
here what protects it, if only that nothing does.

    privacy   what protects the rows of an update                      what protects the host's answers in a game
    none      nothing                                                  nothing
    paper     nothing: the client's vectors have no guarantee          noised votes, paid for by the handshake
    dp        DP-SGD: every step is paid for before it is made         (there is no game)

Check, write, save, send: a DP-SGD step is paid for before it is made, and the state it led to is saved before it leaves
for the first time. So no crash loses a payment or makes one twice.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fkge.errors import BudgetError, PrivacyError
from fkge.federation.exchange import Ack, Structure, Update
from fkge.federation.messages import Abort, Accept, Defer, Refuse, Request, Signal
from fkge.federation.settings import FederationSettings
from fkge.ppat import Candidate, Gradient, Received, Samples
from fkge.privacy import Budget, Head, Ledger, Tally, describe, fits
from fkge.privacy.events import ADD_OR_REMOVE, GAUSSIAN, LAPLACE_VOTES, REPLACE, Release, Unprotected
from fkge.results import PrivacyAccount

TRIPLE = "triple"
HOST_ROW = "row of the host's aligned vectors"

PUBLIC = "public"
"""The protection of messages that reveal nothing about an owner's triples but that, and when, it takes part."""

_FORM = (Request, Accept, Defer, Refuse, Abort, Ack, Received)
_UNPROTECTED: dict[type, str] = {
    Signal: "whether there is news",
    Update: "rows of the shared track",
    Structure: "triples around shared entities",
    Samples: "client's vectors: no guarantee",
    Candidate: "client's vectors: no guarantee",
    Gradient: "the host's answers",
}

_NOISY = ("step", "frame", "entity", "relation", "entity_moments", "relation_moments")
"""Fields of an update that are made of noisy sums, or of nothing private, under differential privacy."""

_SEAL = object()
_SECONDS_BETWEEN_TALLIES = 2.0


class Released:
    """A message that may be encoded, with what protects it. Only an `Egress` makes one; else a `PrivacyError`.

    Attributes:
        message: the message.
        protection: `PUBLIC`, an `Unprotected`, or the key of what was paid for.
    """

    __slots__ = ("_seal", "message", "protection")
    message: Any
    protection: str | Unprotected

    def __init__(self, message: Any, protection: str | Unprotected, seal: object) -> None:
        if seal is not _SEAL:
            raise PrivacyError(f"{type(message).__name__}: only an egress releases a message")
        for name, value in (("message", message), ("protection", protection), ("_seal", seal)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise PrivacyError("a released message cannot be changed")

    @property
    def sealed(self) -> bool:
        """Whether an `Egress` made it."""
        return getattr(self, "_seal", None) is _SEAL


def dp_sgd(noise: float, steps: int, sampling: float | None = None) -> Release:
    """Return the release of so many steps of DP-SGD, which `Egress.pay_for_epoch` pays for.

    Args:
        noise: standard deviation of the noise on every coordinate, in clips: the most that one triple moves the sum.
        steps: how many.
        sampling: rate of Poisson sampling; None for the full batch.
    """
    return Release(GAUSSIAN, TRIPLE, ADD_OR_REMOVE, 1.0, noise, steps, sampling)


class Egress:
    """The one way out for an owner's messages in one training: releases them, and pays for those that have a price.

    Args:
        settings: whose privacy mode applies.
        ledger: records payments and releases; without one, nothing can be paid for.
        prefix: of every key, so that trainings that share a ledger do not share keys.

    Attributes:
        save: saves the owner's state durably; the driver sets it.
        ledger: as given, until it is closed.
        caps: by peer, the ε that votes for it may cost at most, within the budget of all.
    """

    def __init__(self, settings: FederationSettings, ledger: Ledger | None = None, prefix: str = "") -> None:
        self._mode = settings.privacy.mode
        self._settings = settings
        self.ledger = ledger
        self._prefix = prefix
        self._last = PUBLIC
        self._pending: list[str] = []
        self._votes: dict[tuple[str, int], str] = {}
        self._tally: dict[tuple[str, str], Tally] = {}
        self._counting = threading.Lock()
        self._told = 0.0
        self._charged: float | None = None
        self._priced = 0.0
        self.save: Callable[[], None] = lambda: None
        self.caps: Mapping[str, float] = {}

    @classmethod
    def open(
        cls, folder: Path, owner: str, settings: FederationSettings, prefix: str = "", at_least: Head | None = None
    ) -> Egress:
        """Return the egress of an owner, with its ledger in `folder` or in that of the setting ``privacy.ledger``.

        A ledger belongs to an owner by name: triples that come or go do not open a new account.

        Args:
            folder: of the training.
            owner: its name.
            settings: how it federates.
            prefix: names the training, for keys in a ledger that others use too.
            at_least: how far the ledger had come before; one that is behind, or gone, is refused.
        """
        common = settings.privacy.ledger
        path = folder / "ledger.sqlite" if common is None else Path(common) / f"{owner}.sqlite"
        path.parent.mkdir(parents=True, exist_ok=True)
        ledger = Ledger.open(path, graph=owner, budgets=budgets(settings), at_least=at_least)
        return cls(settings, ledger, "" if common is None else prefix)

    @property
    def head(self) -> Head | None:
        """The head of the ledger, for checkpoints."""
        return None if self.ledger is None else self.ledger.head

    # -- paying --------------------------------------------------------------------------------------

    def pay_for_epoch(self, epoch: int, steps: Release) -> None:
        """Pay for the steps of one epoch of DP-SGD (`dp_sgd`), before the first of them is made.

        An epoch that was paid for and has not left costs nothing again. One that has left may be made again, from an
        older checkpoint for instance, but that is another release: it gets another key and is paid for.

        Raises:
            BudgetError: that exceeds the budget.
        """
        ledger, again = self._needed(), 0
        while ledger.state(key := self._epoch_key(epoch, again)) == "left":
            again += 1
        ledger.pay(key, steps, peer=None)
        self._last = key
        self._pending.append(key)

    def resume(self, epochs: int) -> None:
        """Resume after that many epochs, from a checkpoint: those that were paid for and have not left are pending.

        Raises:
            PrivacyError: the ledger has no payment for one of them.
        """
        if self._mode != "dp" or self.ledger is None:
            return
        self._pending.clear()
        for epoch in range(epochs):
            again = 0
            while self.ledger.state(self._epoch_key(epoch, again + 1)) != "unknown":
                again += 1
            self._last = self._epoch_key(epoch, again)
            if self.ledger.state(self._last) == "unknown":
                raise PrivacyError(f"the checkpoint holds epoch {epoch}, which this ledger never paid for")
            if self.ledger.state(self._last) == "paid":
                self._pending.append(self._last)

    def pay_for_votes(self, peer: str, session: int, queries: int, lam: float) -> None:
        """Pay for all votes that a game may ask for, before the first is given.

        Args:
            peer, session: the game.
            queries: how many votes.
            lam: the scale of their noise is 1 / `lam`.

        Raises:
            BudgetError: that exceeds the budget, or the peer's cap.
            PrivacyError: votes without noise have no price.
        """
        if self._mode != "paper" or queries == 0:
            return
        if lam == 0:
            raise PrivacyError("lam is 0: votes without noise have no price, and privacy=paper promises one")
        ledger, again = self._needed(), 0
        while ledger.state(key := f"{self._prefix}votes for {peer}, handshake {session}.{again}") != "unknown":
            again += 1
        release = Release(LAPLACE_VOTES, HOST_ROW, REPLACE, 2.0, 1 / lam, queries)
        if (cap := self.caps.get(peer)) is not None:
            paid = (e for e in ledger.entries() if e.kind == "paid" and e.peer == peer)
            before = [e.release for e in paid if e.release is not None]
            if not fits([*before, release], cap, self._settings.privacy.delta):
                raise BudgetError(
                    f"votes for {peer} would cost more than the ε {cap:g} that it may; raise epsilon for it"
                )
        ledger.pay(key, release, peer=peer)
        self._votes[peer, session] = key

    def _epoch_key(self, epoch: int, again: int) -> str:
        return f"{self._prefix}epoch {epoch}" + (f", again {again}" if again else "")

    def _needed(self) -> Ledger:
        if self.ledger is None:
            raise PrivacyError(f"privacy mode {self._mode!r} needs a ledger to pay from")
        return self.ledger

    # -- releasing ----------------------------------------------------------------------------------

    def release(self, message: Any, peer: str, session: int = 0) -> Released:
        """Decide what protects `message` and return it as `Released`; `leaves` records it.

        Args:
            message: a message of the protocol or of an exchange.
            peer, session: whom it is for, and in which exchange.

        Raises:
            PrivacyError: it contains something that nothing protects in this mode.
        """
        kind = type(message)
        if kind in _FORM or (kind is Signal and self._mode == "dp"):  # under DP there is news at fixed times
            return Released(message, PUBLIC, _SEAL)
        if self._mode != "none":
            self._needed()
        if kind is Gradient and self._mode == "paper":
            if (peer, session) not in self._votes:
                raise PrivacyError(f"votes for {peer}, handshake {session}, were not paid for")
            return Released(message, self._votes[peer, session], _SEAL)
        if kind is Update and self._mode == "dp":
            raw = [f.name for f in fields(message) if f.name not in _NOISY and getattr(message, f.name) is not None]
            if raw:
                raise PrivacyError(f"an update with {', '.join(raw)}: made of raw triples, which no noise covers")
            return Released(message, self._last, _SEAL)
        if kind not in _UNPROTECTED or self._mode == "dp":
            raise PrivacyError(f"{kind.__name__} has no protection in privacy mode {self._mode!r}; it does not leave")
        return Released(message, Unprotected(_UNPROTECTED[kind]), _SEAL)

    def leaves(self, released: Released, peer: str, nbytes: int) -> None:
        """Record in the ledger that the message is about to leave; saves the owner first where a payment leaves for the
        first time.

        Args:
            released: the message.
            peer: whom it is for.
            nbytes: its size.
        """
        if self.ledger is None or released.protection == PUBLIC:
            return
        if isinstance(released.protection, Unprotected):
            self._count(released.protection.what, peer, nbytes)
        elif isinstance(released.message, Update) and self._pending:
            self.save()  # once it has left, it must not be made again
            for key in self._pending:  # no other process may have released these epochs
                self.ledger.leave(key, peer, nbytes if key == released.protection else 0, first=True)
            self._pending.clear()
        else:
            if not isinstance(released.message, Update) and self.ledger.state(released.protection) == "paid":
                self.save()  # so that a checkpoint knows how far the ledger had come
            self.ledger.leave(released.protection, peer, nbytes)

    def _count(self, what: str, peer: str, nbytes: int) -> None:
        """Count an unprotected message. Counts are recorded within two seconds and at the end: they have no budget."""
        with self._counting:
            before = self._tally.get((what, peer), Tally())
            self._tally[what, peer] = Tally(before.notes + 1, before.nbytes + nbytes)
        if time.monotonic() - self._told > _SECONDS_BETWEEN_TALLIES:
            self.settle()

    def settle(self) -> None:
        """Record the counts of unprotected messages that were not recorded yet."""
        with self._counting:
            tallies, self._tally = self._tally, {}
            self._told = time.monotonic()
        if self.ledger is not None:
            for (what, peer), tally in tallies.items():
                self.ledger.note_unprotected(what, peer, tally.nbytes, tally.notes)

    def close(self) -> None:
        """Close the ledger."""
        self.settle()
        if self.ledger is not None:
            self.ledger.close()
            self.ledger = None

    # -- reporting -------------------------------------------------------------------------------------

    @property
    def charged(self) -> float | None:
        """ε of all that was paid for up to two seconds ago, for display; None where nothing has a price."""
        if self.ledger is None or not self.ledger.budgets:
            return None
        # To price sampled steps takes a tenth of a second, which is more than some steps take.
        if self._charged is None or time.monotonic() - self._priced > _SECONDS_BETWEEN_TALLIES:
            self._charged = max(self.ledger.charged(budget) for budget in self.ledger.budgets)
            self._priced = time.monotonic()
        return self._charged

    def account(self) -> PrivacyAccount | None:
        """Return what was spent and what was sent, for the owner's report; None without a ledger."""
        if self.ledger is None:
            return None
        self.settle()
        said = describe(self.ledger)
        return PrivacyAccount(
            mode=self._mode, budgets=said.budgets, unprotected=said.unprotected, uncovered=said.uncovered
        )


def budgets(settings: FederationSettings) -> list[Budget]:
    """Return the budgets that the settings allow, by unit."""
    privacy = settings.privacy
    limit = math.inf if privacy.epsilon is None else privacy.epsilon
    if privacy.mode == "paper":
        return [Budget(HOST_ROW, REPLACE, limit, privacy.delta)]
    return [Budget(TRIPLE, ADD_OR_REMOVE, limit, privacy.delta)] if privacy.mode == "dp" else []

"""The privacy ledger: what was released about an owner's graph, and how much more may be. One durable ledger per graph.

Check, write, then send:

    ledger.pay("round 7", release, peer="bee")      # refused if all together would exceed the budget; else written down
    noisy = …                                       # draw the noise, once
    ledger.leave("round 7", "bee", len(message))    # written down before the first byte goes
    send(message)

A crash anywhere leaves the ledger at or above what was really released, never below. A key that was paid for but has
not left may be used after a crash, for the same release, without paying twice. A key that has left may not: drawing its
noise again would be a second release. What has left may go to further peers as it is, free of charge.

The spend covers everything ever released about a unit, to any peer, since peers may pool what they saw.
`fkge.privacy.ledger_store` says how the ledger is protected, and what is not detected.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from fkge.errors import AlreadyLeft, BudgetError, LedgerError, PrivacyError
from fkge.privacy.accountants import fits, paper_price, price
from fkge.privacy.events import LAPLACE_VOTES, RELATIONS, Release, Unprotected
from fkge.privacy.ledger_store import Chain, Head, Row, Tally, has_content

FORMAT = 1


@dataclass(frozen=True)
class Budget:
    """The most that may ever be released about one kind of unit.

    Attributes:
        unit, relation: as in `Release`.
        epsilon: of all releases to all peers together; infinite: count, but never refuse.
        delta: the δ of that ε.

    Raises:
        PrivacyError: a field is out of its range.
    """

    unit: str
    relation: str
    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        if not self.unit or self.relation not in RELATIONS:
            raise PrivacyError(f"budget: needs a unit and one of the relations {', '.join(RELATIONS)}; got {self}")
        if not (self.epsilon >= 0 and 0 < self.delta < 1):
            raise PrivacyError(
                f"budget for {self.unit}: needs ε ≥ 0 and 0 < δ < 1, got {self.epsilon} and {self.delta}"
            )

    def to_json(self) -> tuple[str, str, float | None, float]:
        finite = self.epsilon < math.inf
        return self.unit, self.relation, float(self.epsilon) if finite else None, float(self.delta)


@dataclass(frozen=True)
class Spent:
    """The use of a budget: all that was paid for, whether it has left or not.

    Attributes:
        epsilon: what is charged: the exact ε where there is a closed form, else by PLD.
        pld, rdp: ε by each method.
        paper: ε by the paper's formula, for votes of one λ; None if there are none.
        count: number of steps and queries.
        left: the budget minus `epsilon`. ε does not add up, so a release of a larger ε may still fit.
    """

    epsilon: float
    pld: float
    rdp: float
    paper: float | None
    count: int
    left: float


@dataclass(frozen=True)
class Entry:
    """One entry of the ledger: "opened", "budgets", "paid", "left" or "anchor lost"; `time` in seconds since 1970."""

    number: int
    kind: str
    time: float
    key: str | None = None
    release: Release | None = None
    peer: str | None = None
    nbytes: int | None = None


class Ledger:
    """The open ledger of one graph (`Ledger.open`). Safe between threads and processes of one machine."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._paid: dict[str, Release] = {}
        self._left: dict[str, set[str]] = {}
        self._spend: dict[tuple[str, str], Counter[Release]] = {}
        self._entries: list[Entry] = []
        self._budgets: tuple[Budget, ...] = ()
        self.graph = ""

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        graph: str | None = None,
        budgets: Sequence[Budget] | None = None,
        anchor: Path | str | None = None,
        at_least: Head | None = None,
        accept_lost_anchor: bool = False,
    ) -> Ledger:
        """Open a ledger and verify it; create it if there is none and `graph` is given.

        Args:
            path: the database; LEDGER.key and LEDGER.anchor are next to it.
            graph: the name of the graph it must belong to; None: any.
            budgets: what the owner allows from now on, one per unit; a change is recorded. None: as before.
                Nothing may be released about a unit without a budget.
            anchor: where to keep the anchor, best on another disk; None: where it was put first, or next to the ledger.
            at_least: the `head` that a checkpoint carries: the ledger must have come by it.
            accept_lost_anchor: continue though the anchor is gone; that is recorded.

        Raises:
            LedgerError: it is missing, of another graph, altered or rolled back.
            PrivacyError: two budgets are for one unit.
        """
        units = [budget.unit for budget in budgets or ()]
        if len(set(units)) < len(units):
            # Two relations for one unit would be two budgets for one secret.
            raise PrivacyError(f"budgets: one for each unit, got {', '.join(units)}")
        if at_least is not None and at_least.rows and not has_content(Path(path)):
            raise LedgerError(f"{path}: gone, but a checkpoint has seen {at_least.rows} entries of it. Put it back")
        first = None if graph is None else {"format": FORMAT, "graph": graph, "time": time.time()}
        chain = Chain(
            Path(path),
            anchor=None if anchor is None else Path(anchor),
            create=first,
            at_least=at_least,
            accept_lost_anchor=accept_lost_anchor,
        )
        ledger = cls(chain)
        try:
            with ledger._transaction():
                if graph is not None and ledger.graph != graph:
                    raise LedgerError(
                        f"{path}: the ledger of {ledger.graph!r}, not of {graph!r}. Each graph has its own"
                    )
                wanted = ledger._budgets if budgets is None else tuple(sorted(budgets, key=lambda b: b.unit))
                if wanted != ledger._budgets:
                    chain.append("budgets", {"budgets": [b.to_json() for b in wanted], "time": time.time()})
        except BaseException:
            chain.close()
            raise
        return ledger

    def close(self) -> None:
        """Close the files. Everything is on disk already."""
        self._chain.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def pay(self, key: str, release: Release, *, peer: str | None) -> None:
        """Charge a release before it is made: check everything against the budget and record it, in one transaction.

        The same key and release again, as long as it has not left, is paid for already and changes nothing.

        Args:
            key: a name for this release and no other, the same after a crash: "shared track, steps 40 to 49".
            release: what is to be released.
            peer: the peer it is meant for, if for one.

        Raises:
            BudgetError: all together would exceed the budget, or there is none for this unit and relation.
            AlreadyLeft: the release has left before.
            LedgerError: the key was used for another release.
        """
        if not key or not isinstance(release, Release):
            raise PrivacyError(f"only a Release can be paid for, under a key; got {release!r} under {key!r}")
        with self._transaction():
            if key in self._left:
                raise AlreadyLeft(
                    f"{key!r} has left already, to {', '.join(sorted(self._left[key]))}. To draw its noise again would "
                    "be a second release: send what was made, or pay for a new one under a new key"
                )
            if key in self._paid:
                if self._paid[key] != release:
                    raise LedgerError(f"{key!r} was paid for {self._paid[key]}, not for {release}. Use another key")
                return
            budget = self._budget_for(release)
            before = self._sum(release.of)
            self._chain.crash_point("pay")
            if budget.epsilon == math.inf or fits([*before, release], budget.epsilon, budget.delta):
                self._chain.crash_point("checked")
                body = {"key": key, "release": release.to_json(), "peer": peer, "note": "", "time": time.time()}
                self._chain.append("paid", body)
                return
        raise _over_budget(release, budget, before)  # outside: to price what would fit takes a while

    def leave(self, key: str, peer: str, nbytes: int, *, first: bool = False) -> None:
        """Record, before the first byte goes, that what was paid for under `key` leaves to `peer`.

        Any number of peers may get it, since a copy tells nothing new. The same peer again changes nothing.

        Args:
            key: the name it was paid for under.
            peer: the peer that gets it.
            nbytes: its size.
            first: it was made just now, so it cannot have left.

        Raises:
            LedgerError: it was not paid for.
            AlreadyLeft: `first`, and it has left: another process of this owner made one under the same payment and
                was faster, so this one must not go.
        """
        with self._transaction():
            if key not in self._paid:
                raise LedgerError(f"{key!r} was never paid for: it must not leave. pay() comes first")
            if first and key in self._left:
                raise AlreadyLeft(f"{key!r} has left already: another process works on this owner; stop one of the two")
            if peer not in self._left.get(key, ()):
                self._chain.crash_point("leave")
                self._chain.append("left", {"key": key, "peer": peer, "nbytes": int(nbytes), "time": time.time()})

    def note_unprotected(self, what: str | Unprotected, peer: str, nbytes: int, times: int = 1) -> None:
        """Count what leaves without any guarantee, in a tally for each thing and peer.

        Args:
            what: the thing, as `Unprotected` names it; peer: the peer that gets it.
            nbytes: the size of all messages; `PrivacyError` if it is negative.
            times: the number of messages.
        """
        if nbytes < 0 or times < 1:
            raise PrivacyError(f"{what}: cannot be {nbytes} bytes long")
        with self._transaction():
            self._chain.crash_point("note")
            self._chain.note(what.what if isinstance(what, Unprotected) else what, peer, int(nbytes), times)

    def state(self, key: str) -> Literal["unknown", "paid", "left"]:
        """Return whether something was paid for under a key, and whether it has left."""
        with self._transaction():
            return "left" if key in self._left else "paid" if key in self._paid else "unknown"

    def charged(self, budget: Budget) -> float:
        """Return ε of all that was paid for so far about the budget's unit, as the budget is charged."""
        with self._transaction():
            return price(self._sum((budget.unit, budget.relation)), budget.delta, "tight")

    def spent(self, budget: Budget) -> Spent:
        """Return what was paid for so far about the budget's unit, at its δ, by every method."""
        with self._transaction():
            releases = self._sum((budget.unit, budget.relation))
        epsilon = price(releases, budget.delta, "tight")
        votes = [r for r in releases if r.mechanism == LAPLACE_VOTES]
        one_formula = votes and len({r.noise for r in votes}) == 1 and all(r.sensitivity == 2 for r in votes)
        return Spent(
            epsilon,
            price(releases, budget.delta, "pld"),
            price(releases, budget.delta, "rdp"),
            paper_price(votes, budget.delta) if one_formula else None,
            sum(r.count for r in releases),
            max(0.0, budget.epsilon - epsilon),
        )

    def entries(self) -> list[Entry]:
        """Return all entries, oldest first."""
        with self._transaction():
            return list(self._entries)

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The owner's budgets, sorted by unit."""
        with self._transaction():
            return self._budgets

    @property
    def unprotected(self) -> Mapping[tuple[str, str], Tally]:
        """The tallies of what left without a guarantee, by (what, peer)."""
        with self._transaction():
            return self._chain.tallies

    @property
    def head(self) -> Head:
        """The ledger's head, for a checkpoint to carry: `Ledger.open(…, at_least=head)`."""
        with self._transaction():
            return self._chain.head

    @property
    def path(self) -> Path:
        return self._chain.path

    def verify(self, at_least: Head | None = None) -> None:
        """Read and check everything again, also that it came by `at_least`. Raises `LedgerError`."""
        self._chain.verify(at_least)

    # -- within a transaction

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Hold the ledger, with what other processes have written taken in."""
        with self._chain.transaction():
            for row in self._chain.rows[len(self._entries) : self._chain.head.rows]:
                self._take(row)
            yield

    def _take(self, row: Row) -> None:
        kind, body, release = row.kind, row.body, None
        if kind == "opened":
            if body["format"] != FORMAT:
                raise LedgerError(f"{self.path}: of format {body['format']}; this version reads {FORMAT}. Update fkge")
            self.graph = body["graph"]
        elif kind == "budgets":
            self._budgets = tuple(
                Budget(unit, relation, math.inf if epsilon is None else epsilon, delta)
                for unit, relation, epsilon, delta in body["budgets"]
            )
        elif kind == "paid":
            release = self._paid[body["key"]] = Release.from_json(body["release"])
            self._spend.setdefault(release.of, Counter())[release.times(1)] += release.count
        elif kind == "left":
            self._left.setdefault(body["key"], set()).add(body["peer"])
        shown = {name: body[name] for name in ("key", "peer", "nbytes") if name in body}
        self._entries.append(Entry(row.number, kind, body["time"], release=release, **shown))

    def _sum(self, of: tuple[str, str]) -> list[Release]:
        return [event.times(count) for event, count in self._spend.get(of, Counter()).items()]

    def _budget_for(self, release: Release) -> Budget:
        found = {(budget.unit, budget.relation): budget for budget in self._budgets}
        if release.of in found:
            return found[release.of]
        allowed = "; ".join(f"{b.unit} ({b.relation})" for b in self._budgets) or "nothing"
        raise BudgetError(
            f"{self.path}: there is no budget for {release.unit} ({release.relation}): nothing about it may leave. "
            f"Budgets: {allowed}. The owner can open the ledger with one"
        )


def _over_budget(release: Release, budget: Budget, before: list[Release]) -> BudgetError:
    """Return the error that says what was asked, what is left, and what would fit."""

    def exceeds(count: int) -> bool:
        return not fits([*before, release.times(count)], budget.epsilon, budget.delta)

    fitting = bisect_left(range(1, release.count), True, key=exceeds)
    spent, asked = price(before, budget.delta, "tight"), price([*before, release], budget.delta, "tight")
    way_out = f"{fitting:,} of these would fit" if fitting else "Not even one of these fits; more noise may"
    return BudgetError(
        f"{release} would bring ε for one {budget.unit} ({budget.relation}, δ = {budget.delta:g}) to {asked:.4g}; the "
        f"budget is {budget.epsilon:g}, of which {spent:.4g} is spent and {max(0.0, budget.epsilon - spent):.4g} left. "
        f"{way_out}"
    )

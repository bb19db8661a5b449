"""Canaries: triples put into training by the toss of a coin, to see what of them comes out.

What `one_run` needs: canaries, each in or out independently with probability ½, and a score for each that is higher if
it looks included. Two kinds of canaries, two kinds of scores:

    random_canaries      random triples between entities that are there: what a peer could try on a real release
    dedicated_canaries   each on rows of its own, that occur in no other triple: directions that do not mix, the
                         strongest there are. The owner audits itself; the rows are dropped afterwards
    plausibility         of the last tables alone
    drift                of every state that was seen: the difference of two states is a noisy gradient, and a canary
                         pulls along a direction that the first of the two gives away

`drift` on dedicated canaries is a matched filter: under full-batch descent with noise on every step it gathers the
whole signal that the noise is there to cover. An ε that it cannot refute is not thereby proved.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from fkge.errors import SettingsError
from fkge.evaluation.attacks.membership import calibrated, translations
from fkge.evaluation.attacks.one_run import FRACTIONS, Audit, audit
from fkge.evaluation.attacks.result import Floats, Triples
from fkge.graph.graph import HEAD, RELATION, TAIL


class State(NamedTuple):
    """What was seen at one moment: entity (n, d) and relation (m, d) rows."""

    entity: npt.NDArray[np.floating]
    relation: npt.NDArray[np.floating]


Trajectory: TypeAlias = Sequence[State]
"""States in order; the first is that before the first step."""

CanaryScore: TypeAlias = Callable[[Trajectory, Triples], Floats]
"""(trajectory, canaries (k, 3)) to (k,) scores, higher for canaries that look included."""

Gradient: TypeAlias = Callable[[State, Triples], Floats]
"""(state, canaries (k, 3)) to the gradient of each canary's loss at that state, (k, 3, d): by head, relation, tail."""


# -- making them -----------------------------------------------------------------------------------


def random_canaries(facts: Triples, entities: int, relations: int, count: int, rng: np.random.Generator) -> Triples:
    """`count` distinct random triples without loops that are not among `facts`, (count, 3)."""
    room = entities * (entities - 1) * relations - len(facts)
    if count < 1 or count > room // 2:
        raise SettingsError(
            f"{count} canaries do not fit {entities} entities and {relations} relations: at most half of the {room} "
            "triples that are not facts can be canaries"
        )
    taken = {tuple(fact) for fact in np.asarray(facts, np.int64).reshape(-1, 3).tolist()}
    out: list[tuple[int, int, int]] = []
    while len(out) < count:
        heads, tails = rng.integers(entities, size=(2, count)).tolist()
        for triple in zip(heads, rng.integers(relations, size=count).tolist(), tails, strict=True):
            if triple[HEAD] != triple[TAIL] and triple not in taken:
                taken.add(triple)
                out.append(triple)
    return np.array(out[:count], np.int64)


def dedicated_canaries(entities: int, relations: int, count: int, *, own_relations: bool = True) -> Triples:
    """`count` triples on rows of their own: entities from `entities` on, two each, and relations from `relations` on.

    The tables under audit need `entities` + 2·count and `relations` + count rows, whatever the coins say: how many
    rows there are must not depend on them. Without `own_relations`, all canaries use relation 0, and their pulls on it
    mix; only their entities speak.
    """
    if count < 1:
        raise SettingsError(f"an audit needs canaries, got {count}")
    i = np.arange(count, dtype=np.int64)
    return np.stack([entities + 2 * i, relations + i if own_relations else 0 * i, entities + 2 * i + 1], axis=1)


def insert(triples: Triples, canaries: Triples, coin: npt.NDArray[np.bool_]) -> Triples:
    """The triples to train on: those given, then the canaries whose coin fell on True."""
    if coin.dtype != np.bool_ or coin.shape != (len(canaries),):
        raise SettingsError(
            f"{len(canaries)} canaries need as many coins, True or False; got {coin.dtype} {coin.shape}"
        )
    return np.concatenate([np.asarray(triples, np.int64).reshape(-1, 3), np.asarray(canaries, np.int64)[coin]])


# -- scoring them ----------------------------------------------------------------------------------


def plausibility(norm: int = 2, corruptions: int = 64, seed: int = 0) -> CanaryScore:
    """How well a canary stands out among its corruptions, in the last state alone."""

    def score(trajectory: Trajectory, canaries: Triples) -> Floats:
        last = trajectory[-1]
        among = np.unique(canaries[:, [HEAD, TAIL]])
        return calibrated(
            translations(last.entity, last.relation, norm=norm), canaries, among, np.random.default_rng(seed),
            corruptions=corruptions,
        )  # fmt: skip

    return score


def translation_gradient(norm: int = 2) -> Gradient:
    """Of ‖h + r − t‖, to length 1 over the three rows: where a training step pulls, whatever the loss."""

    def gradient(state: State, canaries: Triples) -> Floats:
        head, relation, tail = np.asarray(canaries, np.int64).T
        u = np.asarray(state.entity[head] + state.relation[relation] - state.entity[tail], np.float64)
        u = np.sign(u) if norm == 1 else u
        u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1e-12) * np.sqrt(3)
        return np.stack([u, u, -u], axis=1)

    return gradient


def drift(gradient: Gradient | None = None, *, rates: Sequence[float] | None = None, norm: int = 2) -> CanaryScore:
    """How much of all that moved, moved the way a canary would have pulled: −Σ ⟨change, gradient⟩ over the steps.

    Args:
        gradient: of a canary's loss at a state; that of the distance if None. A clipped gradient with its length
            weighs the steps rightly where it is not always of length one.
        rates: the learning rate of every step, where it varied: noise and pull are both proportional to it.
        norm: of the distance.
    """
    pull = gradient or translation_gradient(norm)

    def score(trajectory: Trajectory, canaries: Triples) -> Floats:
        steps = len(trajectory) - 1
        if steps < 1 or (rates is not None and len(rates) != steps):
            raise SettingsError(
                f"drift needs two or more states, and a rate for each step between them; got {len(trajectory)} states"
                + ("" if rates is None else f" and {len(rates)} rates")
            )
        ids = np.asarray(canaries, np.int64)
        out = np.zeros(len(ids))
        for i, (before, after) in enumerate(itertools.pairwise(trajectory)):
            entity, relation = (
                np.asarray(b, np.float64) - np.asarray(a, np.float64) for a, b in zip(before, after, strict=True)
            )
            moved = np.stack([entity[ids[:, HEAD]], relation[ids[:, RELATION]], entity[ids[:, TAIL]]], axis=1)
            out -= (moved * pull(before, ids)).sum(axis=(1, 2)) / (1.0 if rates is None else rates[i])
        return out

    return score


def audit_dp(
    train: Callable[[Triples], Trajectory],
    triples: Triples,
    canaries: Triples,
    delta: float,
    rng: np.random.Generator,
    *,
    score: CanaryScore | None = None,
    confidence: float = 0.95,
    fractions: Sequence[float] = FRACTIONS,
) -> Audit:
    """Toss the coins, train once, guess: a lower bound on the ε of `train`, add or remove one triple.

    Args:
        train: triples to all states an attacker sees; with the noise and the settings under audit. Its own randomness
            must not follow from `rng`.
        triples: (n, 3) trained on in any case.
        canaries: (m, 3); an ε above about ln(m / 3) cannot be shown.
        delta: of the claim.
        rng: of the coins.
        score: `drift()` if None.
        fractions: see `audit`.
    """
    coin = rng.random(len(canaries)) < 0.5
    trajectory = train(insert(triples, canaries, coin))
    scores = (score or drift())(trajectory, canaries)
    return audit(scores, coin, delta, confidence, fractions=fractions)

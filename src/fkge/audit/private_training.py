"""Canaries in private training: triples inserted by the toss of a coin, and what the trained states tell of the coins.

Canaries have rows of their own, which occur in no other triple: directions that do not mix, the strongest canaries
there are. The owner audits itself and drops the rows afterwards. Two scores say how much a canary looks included:

    drift            the difference of two states is a noisy gradient, and a canary pulls in a direction that follows
                     from the first of the two
    matched_filter   everything about `DpTrainer` is known but the noise and the coins. Which negatives an example has
                     follows from (seed, step, triple), so the auditor computes the clipped gradient that every canary
                     would have had, and reads the noisy sums off the states: under SGD the difference of two states,
                     under momentum that of two velocities

What is audited is code: that σ is added where it should be, once and to everything, that one triple moves a sum by at
most 1, that steps are counted. A bug in any of these shows as a lower bound above the claim. An ε that is not refuted
is not proved by that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.audit.findings import Floats, Triples
from fkge.audit.one_run import EpsilonBound, epsilon_bound
from fkge.embed import DpSettings, DpTrainer, Tables, make_tables
from fkge.embed.batches import Examples
from fkge.embed.dp_gradients import draw, make_gradients
from fkge.errors import SettingsError
from fkge.graph.graph import HEAD, RELATION, TAIL
from fkge.settings import TrainSettings


class State(NamedTuple):
    """The tables at one moment: entity (n, d) and relation (m, d) rows."""

    entity: npt.NDArray[np.floating]
    relation: npt.NDArray[np.floating]


Trajectory: TypeAlias = Sequence[State]
"""States in order; the first is the one before the first step."""

CanaryScore: TypeAlias = Callable[[Trajectory, Triples], Floats]
"""Maps (trajectory, canaries (k, 3)) to (k,) scores, higher for canaries that look included."""


# -- canaries --------------------------------------------------------------------------------------


def dedicated_canaries(entities: int, relations: int, count: int) -> Triples:
    """Return canary triples on new rows, (count, 3) int64.

    Args:
        entities, relations: how many rows there are. The tables under audit need 2·count and count rows more, whatever
            the coins are: the number of rows must not depend on them.
        count: how many canaries, at least 1 (`SettingsError`).
    """
    if count < 1:
        raise SettingsError(f"an audit needs canaries, got {count}")
    i = np.arange(count, dtype=np.int64)
    return np.stack([entities + 2 * i, relations + i, entities + 2 * i + 1], axis=1)


def insert(triples: Triples, canaries: Triples, coin: npt.NDArray[np.bool_]) -> Triples:
    """Return `triples` (k, 3) and the `canaries` (m, 3) whose `coin` is True; `SettingsError` if lengths differ."""
    if coin.dtype != np.bool_ or coin.shape != (len(canaries),):
        raise SettingsError(f"{len(canaries)} canaries need as many bool coins; got {coin.dtype} {coin.shape}")
    return np.concatenate([np.asarray(triples, np.int64).reshape(-1, 3), np.asarray(canaries, np.int64)[coin]])


def translation_gradient(state: State, canaries: Triples, norm: int = 2) -> Floats:
    """Return the gradients of ‖h + r − t‖ by head, relation and tail, (k, 3, d), of length 1 over the three rows.

    Their direction is that of any loss.
    """
    head, relation, tail = np.asarray(canaries, np.int64).T
    u = np.asarray(state.entity[head] + state.relation[relation] - state.entity[tail], np.float64)
    u = np.sign(u) if norm == 1 else u
    u /= np.maximum(np.linalg.norm(u, axis=1, keepdims=True), 1e-12) * np.sqrt(3)
    return np.stack([u, u, -u], axis=1)


def drift(norm: int = 2) -> CanaryScore:
    """Score canaries by how far the tables moved along their gradients: −Σ ⟨change, gradient⟩ over the steps.

    Args:
        norm: norm of the distance whose gradient is taken, 1 or 2.
    """

    def score(trajectory: Trajectory, canaries: Triples) -> Floats:
        if len(trajectory) < 2:
            raise SettingsError(f"drift needs two or more states; got {len(trajectory)}")
        ids = np.asarray(canaries, np.int64)
        out = np.zeros(len(ids))
        for before, after in itertools.pairwise(trajectory):
            entity, relation = (np.subtract(b, a, dtype=np.float64) for a, b in zip(before, after, strict=True))
            moved = np.stack([entity[ids[:, HEAD]], relation[ids[:, RELATION]], entity[ids[:, TAIL]]], axis=1)
            out -= (moved * translation_gradient(before, ids, norm)).sum(axis=(1, 2))
        return out

    return score


def audit_dp(
    train: Callable[[Triples], Trajectory],
    triples: Triples,
    canaries: Triples,
    delta: float,
    rng: np.random.Generator,
    *,
    score: CanaryScore,
    confidence: float = 0.95,
) -> EpsilonBound:
    """Toss the coins, train once and guess: a lower bound on the ε of `train`, add or remove one triple.

    Args:
        train: maps triples to all states an attacker sees, with the noise and the settings under audit. Its random
            numbers must not depend on `rng`.
        triples: (n, 3) trained on in any case.
        canaries: (m, 3); an ε above about ln(m / 3) cannot be shown.
        delta: δ of the claim.
        rng: generator of the coins.
        score: of the canaries.
        confidence: confidence of the bound.
    """
    coin = rng.random(len(canaries)) < 0.5
    return epsilon_bound(score(train(insert(triples, canaries, coin)), canaries), coin, delta, confidence)


# -- the trainer's own arithmetic -------------------------------------------------------------------


def private_trajectory(
    tables: Tables,
    triples: Triples,
    settings: TrainSettings,
    private: DpSettings,
    epochs: int,
    noise: torch.Generator | None = None,
) -> list[State]:
    """Train `tables` privately, at a constant rate; return the state before, and after every epoch.

    Args:
        tables, triples, settings, private, noise: see `DpTrainer`; epochs: how many.
    """
    trainer = DpTrainer(tables, triples, settings, private, noise)
    out = [_state(tables)]
    for _ in range(epochs):
        trainer.run_epoch()
        out.append(_state(tables))
    return out


def _state(tables: Tables) -> State:
    return State(tables["entity"].cpu().numpy().copy(), tables["relation"].cpu().numpy().copy())


def noisy_sums(trajectory: Trajectory, private: DpSettings, rates: tuple[float, float] = (1.0, 1.0)) -> list[State]:
    """Return what went into the optimiser at every step, in units of the clip: one for each two successive states.

    Args:
        trajectory: states of full-batch training at the constant rate of `private`.
        private: the settings under audit.
        rates: factors on the learning rate of the entity and the relation table.

    Raises:
        SettingsError: the sums cannot be read off the states.
    """
    if private.optimizer == "adam" or private.steps != 1:
        raise SettingsError("noisy sums can be read off full-batch training by sgd or momentum; score by drift()")
    keep = private.momentum if private.optimizer == "momentum" else 0.0
    before: Sequence[Floats | float] = (0.0, 0.0)
    out = []
    for old, new in itertools.pairwise(trajectory):
        velocity = [
            np.subtract(a, b, dtype=np.float64) / (private.lr * r) for a, b, r in zip(old, new, rates, strict=True)
        ]
        out.append(State(*(v - keep * w for v, w in zip(velocity, before, strict=True))))
        before = velocity
    return out


def matched_filter(settings: TrainSettings, private: DpSettings, triples: Triples) -> CanaryScore:
    """Score canaries of full-batch training by the best linear estimate of all coins at once.

    A noisy sum is the gradients of `triples`, those of the included canaries, and noise. The first are computed and
    subtracted. The rest, along a canary's own gradient, is its coin times the gradient's length, some of the other
    canaries (their negatives sometimes hit its rows), and noise. With G the gradients of all canaries and A the sum of
    G Gᵀ over the steps, (A + 4σ²)⁻¹ separates them: coins have variance ¼, noise σ².

    Args:
        settings, private: settings of the training under audit. `settings.seed` gives the negatives.
        triples: (n, 3) trained on in any case.
    """

    def score(trajectory: Trajectory, canaries: Triples) -> Floats:
        known = _Gradients(trajectory[0], settings, private)
        ids, base = (torch.from_numpy(np.asarray(t, np.int64).reshape(-1, 3)) for t in (canaries, triples))
        alike = np.zeros((len(ids), len(ids)))
        along = np.zeros(len(ids))
        for step, (state, seen) in enumerate(
            zip(trajectory, noisy_sums(trajectory, private, known.rates), strict=False)
        ):
            known.move_to(state)
            rest = np.concatenate([part.ravel() for part in seen][: known.tables_trained]) - known.total(base, step)
            each = known.each(ids, step)
            alike += (each @ each.T).toarray()
            along += each @ rest
        alike_and_noise = alike + max(4 * private.noise**2, 1e-9) * np.eye(len(ids))
        return np.asarray(np.linalg.solve(alike_and_noise, along - alike.sum(axis=1) / 2), np.float64)

    return score


class _Gradients:
    """The trainer's gradients of any triples at any state, as flat vectors: entities, then relations if learnt."""

    def __init__(self, like: State, settings: TrainSettings, private: DpSettings) -> None:
        learn = private.relations == "learn"
        on_cpu = settings.model_copy(update={"device": "cpu"})
        self._tables = make_tables(on_cpu, len(like.entity), len(like.relation))
        self._clipped = make_gradients(self._tables, settings, private.clip, learn=learn)
        self._sums = {name: torch.zeros_like(self._tables[name]) for name in ("entity", "relation")[: 1 + learn]}
        self._settings, self._private = settings, private
        self.tables_trained = len(self._sums)
        self.rates = (self._tables.spec("entity").rate, self._tables.spec("relation").rate)

    def move_to(self, state: State) -> None:
        for name, values in zip(("entity", "relation"), state, strict=True):
            self._tables[name].copy_(torch.from_numpy(np.asarray(values)))

    def total(self, ids: Tensor, step: int) -> Floats:
        """Return the sum over triples `ids` (n, 3)."""
        if len(ids):
            self._clipped.add(self._examples(ids, step), self._sums)
        out = torch.cat([part.flatten() for part in self._sums.values()]).double().numpy()
        for part in self._sums.values():
            part.zero_()
        return np.asarray(out)

    def each(self, ids: Tensor, step: int) -> Any:
        """Return the gradients of triples `ids` (n, 3) as a sparse (n, numbers) matrix."""
        from scipy.sparse import csr_array

        examples = self._examples(ids, step)
        columns, values, ends = [], [], [0]
        for i in range(len(ids)):
            one = Examples(*(getattr(examples, f.name)[i : i + 1] for f in fields(Examples)))
            self._clipped.add(one, self._sums)
            touched = {
                "entity": torch.cat([one.head, one.tail, one.negative.flatten()]).unique(),
                "relation": one.relation,
            }
            start = 0
            for name, part in self._sums.items():
                rows, width = touched[name], part.shape[1]
                values.append(part[rows].double().numpy().ravel())
                columns.append((start + rows.numpy()[:, None] * width + np.arange(width)).ravel())
                part[rows] = 0
                start += part.numel()
            ends.append(ends[-1] + sum(len(v) for v in values[-len(self._sums) :]))
        size = sum(part.numel() for part in self._sums.values())
        return csr_array((np.concatenate(values), np.concatenate(columns), ends), shape=(len(ids), size))

    def _examples(self, ids: Tensor, step: int) -> Examples:
        head, relation, tail = (ids[:, column].contiguous() for column in (HEAD, RELATION, TAIL))
        return draw(head, relation, tail, self._tables.entities, self._private.negatives, self._settings.seed, step)

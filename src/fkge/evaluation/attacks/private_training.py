"""The strongest audit of private training: everything about `DpTrainer` is known but the noise and the coins.

Which negatives an example has follows from (seed, step, triple), and none of it is secret. So the auditor computes the
clipped gradient that every canary would have had at every state, to the last digit, and takes the noisy sums that the
trainer must have seen off the states: under SGD the difference of two states, under momentum that of two velocities.
What of the one lies along the other is the best there is to tell a canary by, where its rows are its own.

What is audited is code: that σ is added where it should be, once and on everything, that one triple moves a sum by 1
and no more, that steps are counted. A bug in any of these shows as a lower bound above the claim.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.embed import DpSettings, DpTrainer, Tables, make_tables
from fkge.embed.dp_gradients import Examples, draw, make_gradients
from fkge.errors import SettingsError
from fkge.evaluation.attacks.canaries import CanaryScore, State, Trajectory, audit_dp, dedicated_canaries
from fkge.evaluation.attacks.one_run import FRACTIONS, Audit
from fkge.evaluation.attacks.result import Floats, Triples
from fkge.graph.graph import HEAD, RELATION, TAIL
from fkge.settings import TrainSettings


def private_trajectory(
    tables: Tables,
    triples: Triples,
    settings: TrainSettings,
    private: DpSettings,
    epochs: int,
    noise: torch.Generator | None = None,
) -> list[State]:
    """Train `tables` privately, at a constant rate; the state before, and after every epoch."""
    trainer = DpTrainer(tables, triples, settings, private, noise)
    out = [_state(tables)]
    for _ in range(epochs):
        trainer.run_epoch()
        out.append(_state(tables))
    return out


def _state(tables: Tables) -> State:
    return State(tables["entity"].cpu().numpy().copy(), tables["relation"].cpu().numpy().copy())


def noisy_sums(trajectory: Trajectory, private: DpSettings, rates: tuple[float, float] = (1.0, 1.0)) -> list[State]:
    """What went into the optimiser at every step, in clips: one for each two successive states.

    Args:
        trajectory: states of full-batch training at the constant rate of `private`.
        rates: the tables' own factors on the learning rate, entities' and relations'.
    """
    if private.optimizer == "adam" or private.steps != 1:
        raise SettingsError(
            "noisy sums can be read off the states of full-batch training by sgd or momentum; set rate: 1 and another "
            "optimizer than adam, or score by drift()"
        )
    keep = private.momentum if private.optimizer == "momentum" else 0.0
    before: list[npt.NDArray[Any]] | None = None
    out = []
    for old, new in itertools.pairwise(trajectory):
        velocity = [
            (np.asarray(a, np.float64) - np.asarray(b, np.float64)) / (private.lr * rate)
            for a, b, rate in zip(old, new, rates, strict=True)
        ]
        fresh = velocity if before is None else [v - keep * w for v, w in zip(velocity, before, strict=True)]
        out.append(State(*fresh))
        before = velocity
    return out


def matched_filter(settings: TrainSettings, private: DpSettings, triples: Triples) -> CanaryScore:
    """What the noisy sums say of each coin, for full-batch training: the best linear estimate of all coins at once.

    A noisy sum is the gradients of `triples`, those of the canaries that are in, and noise. The first are computed and
    taken off. What is left, along a canary's own gradient, is its coin times the gradient's length, some of the other
    canaries (their negatives fall on its rows now and then), and noise. With G the gradients of all canaries and A the
    sum of G Gᵀ over the steps, (A + 4σ²)⁻¹ untangles them: coins have variance ¼, noise σ².

    Args:
        settings, private: those of the training under audit. `settings.seed` gives the negatives.
        triples: (n, 3) that were trained on in any case.
    """

    def score(trajectory: Trajectory, canaries: Triples) -> Floats:
        known = _Gradients(trajectory[0], settings, private)
        ids, base = (torch.from_numpy(np.asarray(t, np.int64).reshape(-1, 3)) for t in (canaries, triples))
        alike = np.zeros((len(ids), len(ids)))
        along = np.zeros(len(ids))
        for step, (state, seen) in enumerate(
            zip(trajectory, noisy_sums(trajectory, private, known.rates), strict=False)
        ):  # fmt: skip
            known.move_to(state)
            rest = np.concatenate([part.ravel() for part in seen][: known.tables_trained]) - known.total(base, step)
            each = known.each(ids, step)
            alike += (each @ each.T).toarray()
            along += each @ rest
        alike_and_noise = alike + max(4 * private.noise**2, 1e-9) * np.eye(len(ids))
        return np.asarray(np.linalg.solve(alike_and_noise, along - alike.sum(axis=1) / 2), np.float64)

    return score


class _Gradients:
    """The trainer's own gradients, of any triples at any state, as flat vectors: entities, then relations if learnt."""

    def __init__(self, like: State, settings: TrainSettings, private: DpSettings) -> None:
        learn = private.relations == "learn"
        self._tables = make_tables(
            settings.model_copy(update={"device": "cpu"}), len(like.entity), len(like.relation)
        )  # fmt: skip
        self._clipped = make_gradients(self._tables, settings, private.clip, learn=learn)
        self._sums = {name: torch.zeros_like(self._tables[name]) for name in ("entity", "relation")[: 1 + learn]}
        self._settings, self._private = settings, private
        self.tables_trained = len(self._sums)
        self.rates = (self._tables.spec("entity").rate, self._tables.spec("relation").rate)

    def move_to(self, state: State) -> None:
        for name, values in zip(("entity", "relation"), state, strict=True):
            self._tables[name].copy_(torch.from_numpy(np.asarray(values)))

    def total(self, ids: Tensor, step: int) -> Floats:
        """Summed over triples `ids` (n, 3)."""
        for part in self._sums.values():
            part.zero_()
        if len(ids):
            self._clipped.add(self._examples(ids, step), self._sums)
        out = torch.cat([part.flatten() for part in self._sums.values()]).double().numpy()
        for part in self._sums.values():
            part.zero_()
        return np.asarray(out)

    def each(self, ids: Tensor, step: int) -> Any:
        """Of each of the triples `ids` (n, 3): a sparse (n, numbers) matrix."""
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
        return draw(
            head, relation, tail, self._tables.entities, self._private.negatives, self._settings.seed, step
        )  # fmt: skip


def audit_trainer(
    settings: TrainSettings,
    private: DpSettings,
    triples: Triples,
    entities: int,
    relations: int,
    *,
    epochs: int,
    delta: float,
    rng: np.random.Generator,
    canaries: int = 1000,
    noise: torch.Generator | None = None,
    confidence: float = 0.95,
    fractions: Sequence[float] = FRACTIONS,
) -> Audit:
    """A lower bound on the ε of `DpTrainer`, full batch, all states seen: canaries on rows of their own.

    Compare `epsilon_lower` with the price of `private.steps_in(epochs)` Gaussian steps of noise `private.noise`. More
    canaries show more (at most about ln(canaries / 3)); each costs a gradient per step.

    Args:
        settings, private: as an owner would train.
        triples: (n, 3) the owner's, with ids below `entities` and `relations`.
        epochs: steps, since the batch is full.
        rng: of the coins.
        noise: of the trainer's noise; the system's entropy if None.
    """

    def train(chosen: Triples) -> Trajectory:
        tables = make_tables(settings, entities + 2 * canaries, relations + canaries)
        return private_trajectory(tables, chosen, settings, private, epochs, noise)

    return audit_dp(
        train, triples, dedicated_canaries(entities, relations, canaries), delta, rng,
        score=matched_filter(settings, private, triples), confidence=confidence, fractions=fractions,
    )  # fmt: skip

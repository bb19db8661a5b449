"""Canaries: is the noise there that was paid for?

Under differential privacy of the shared track, triples on rows of their own are put into the victim's training by the
toss of a coin, and the auditor, who knows everything but noise and coins, guesses (`fkge.evaluation.attacks`). In the
paper's mode the same is done to the votes of the game: rows that sway one teacher, or do not. Either way one run gives
a lower bound on ε, which must not exceed the claim.

An audit that cannot fail says nothing, so the same is done with a tenth of the noise, and that must be found out. Where
the claimed ε is too large for that (guessing all of 400 coins right refutes no ε above 3.3), the noise is scaled up by
what separates the claim from ε = 2, and the same code is audited there.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from fkge.audits.subject import BROKEN, HOLDS, OPEN, Subject, finding
from fkge.embed import DpSettings, DpTrainer, make_tables
from fkge.embed.dp_noise import Noise, fresh_key
from fkge.evaluation.attacks import (
    Audit,
    State,
    audit,
    audit_dp,
    audit_trainer,
    dedicated_canaries,
    drift,
)
from fkge.evaluation.attacks.private_training import private_trajectory
from fkge.evaluation.attacks.result import Triples
from fkge.federation.gate import HOST_ROW
from fkge.graph.graph import HEAD, RELATION, TAIL
from fkge.ppat import host
from fkge.privacy import LAPLACE_VOTES, REPLACE, Release, noise_for, price, seeded_for_tests
from fkge.settings import TrainSettings

CONFIDENCE = 0.99
TENTH = 0.1
_CANARIES, _QUICK_CANARIES = 400, 200
_SAMPLED_CANARIES = 2000
"""By drift a canary costs no gradient of its own, so there may be more: they make up for what it misses."""
_NUMBERS = 1 << 26
"""In all states of a training that is kept to be looked at: a quarter of a gigabyte."""
_STEPS, _QUICK_STEPS = 60, 15
_TRIPLES = 300
"""Of the victim's own, trained on beside the canaries."""
_SHOWABLE, _SCALED = 2.5, 2.0
"""Above the first ε a tenth of the noise might go unseen with so few canaries; then the second is audited."""
_SGD_RATE = 0.02


def canaries(subject: Subject) -> dict[str, Any]:
    """A lower bound on the ε of what was noised, against the claim."""
    mode = subject.simulation.settings.privacy.mode
    if mode == "dp":
        return _private_training(subject)
    if mode == "paper":
        return _votes(subject)
    return finding(
        "privacy mode none: no noise, so no ε is claimed", OPEN, "nothing", "there is no noise to audit", mode=mode
    )


# -- DP-SGD ------------------------------------------------------------------------------------------


def _private_training(subject: Subject) -> dict[str, Any]:
    """The noise multiplier is read off the victim's own trainer, not computed again: what it does is what counts."""
    track, privacy = subject.track(subject.owner), subject.simulation.settings.privacy
    assert isinstance(track.trainer, DpTrainer)
    assert privacy.epsilon is not None
    claimed, delta = privacy.epsilon, privacy.delta
    private, epochs = track.trainer.private, track.plan.total
    sampled = private.rate < 1
    adam = private.optimizer == "adam"
    sgd = private.model_copy(update={"optimizer": "sgd", "lr": _SGD_RATE}) if adam else private
    scales = {claimed: 1.0}
    if claimed > _SHOWABLE:
        steps, rate = private.steps_in(epochs), private.rate if sampled else None
        scales[_SCALED] = noise_for(_SCALED, delta, steps, rate) / noise_for(claimed, delta, steps, rate)
    checks: list[tuple[float, dict[float, Audit]]] = []
    with subject.progress.task("auditing private training", len(scales) + 1, "trainings") as task:
        for claim, scale in scales.items():
            shares = (1.0, TENTH) if claim == min(scales) else (1.0,)
            bounds: dict[float, Audit] = {}
            for share in shares:
                noisy = sgd.model_copy(update={"noise": private.noise * scale * share})
                bounds[share] = _audit(subject, track.train_settings, noisy, epochs, delta)
                task.advance(1)
            checks.append((claim, bounds))
    broken = any(found[1.0].refutes(claim) for claim, found in checks)
    audited, last = checks[-1]
    caught = last[TENTH].refutes(audited)
    bound = checks[0][1][1.0]
    words = f"ε ≥ {bound.epsilon_lower:.2f} shown"
    if claimed > _SHOWABLE:
        words += f"; at ε = {_SCALED:g}, same code: ≥ {last[1.0].epsilon_lower:.2f}"
    words += f"; a tenth of the noise would have been caught: {'yes' if caught else 'no'}"
    if adam:
        words += "; by sgd, whose noisy sums are the same"
    return finding(
        f"DP-SGD of the shared track is ({claimed:g}, {delta:g})-DP, adding or removing one triple",
        BROKEN if broken else HOLDS,
        f"{subject.owner}'s private training, {bound.canaries} canaries",
        words,
        epsilon=claimed, delta=delta, noise=private.noise, rate=private.rate, optimizer=private.optimizer,
        audited_optimizer=sgd.optimizer, confidence=CONFIDENCE, tenth_caught=caught,
        audits=[
            {"claim": claim, "noise_share": share, **found.to_dict()}
            for claim, bounds in checks for share, found in bounds.items()
        ],
    )  # fmt: skip


def _audit(subject: Subject, settings: TrainSettings, private: DpSettings, epochs: int, delta: float) -> Audit:
    """One training with canaries; on the full batch by the matched filter, on samples by their drift.

    On the full batch, fewer steps serve as well: T steps of noise σ are one Gaussian mechanism of √T / σ, so so many
    fewer, with the noise scaled alike, are exactly as private. Samples have no such rule and take all their steps; the
    auditor sees the states between epochs, not who was drawn, so what it can show there is much less.
    """
    triples, entities, relations = _part(subject.victim.shared.train, subject.seed)
    settings = settings.model_copy(update={"device": "cpu"})
    rng, noise = np.random.default_rng([subject.seed, 1]), seeded_for_tests(subject.seed + 2)
    if private.rate == 1:
        count = _QUICK_CANARIES if subject.quick else _CANARIES
        steps = min(epochs, _QUICK_STEPS if subject.quick else _STEPS)
        scaled = private.model_copy(update={"noise": private.noise * math.sqrt(steps / epochs)})
        return audit_trainer(
            settings, scaled, triples, entities, relations, epochs=steps, delta=delta, rng=rng, canaries=count,
            noise=noise, confidence=CONFIDENCE,
        )  # fmt: skip

    count = min(_SAMPLED_CANARIES, max(_CANARIES, _NUMBERS // (3 * settings.dim * epochs)))

    def train(chosen: Triples) -> list[State]:
        tables = make_tables(settings, entities + 2 * count, relations + count)
        return private_trajectory(tables, chosen, settings, private, epochs, noise)

    return audit_dp(
        train, triples, dedicated_canaries(entities, relations, count), delta, rng,
        score=drift(norm=settings.norm), confidence=CONFIDENCE,
    )  # fmt: skip


def _part(train: Triples, seed: int) -> tuple[Triples, int, int]:
    """Some of the victim's triples under ids of their own, and how many entities and relations they name."""
    chosen = np.random.default_rng([seed, 0]).permutation(len(train))[:_TRIPLES]
    part = np.asarray(train[chosen], np.int64)
    entities, ends = np.unique(part[:, [HEAD, TAIL]], return_inverse=True)
    relations, middles = np.unique(part[:, RELATION], return_inverse=True)
    ends = ends.reshape(-1, 2)
    return np.stack([ends[:, 0], middles.reshape(-1), ends[:, 1]], axis=1), len(entities), len(relations)


# -- the game's votes --------------------------------------------------------------------------------


def _votes(subject: Subject) -> dict[str, Any]:
    """Rows of the host's, each of which sways one teacher's vote in queries of its own while the others are split.

    The client sees the noised labels themselves, which is more than the gradients of a student that learnt them. RUN's
    games ask far more queries than any audit could follow; so many are asked here as cost an ε that can be refuted.
    """
    settings = subject.simulation.settings
    game, delta = settings.ppat, settings.privacy.delta
    queries, claim = 1, 0.0
    while claim < _SCALED:
        queries *= 2
        claim = price([Release(LAPLACE_VOTES, HOST_ROW, REPLACE, 2.0, 1 / game.lam, queries)], delta, "tight")
    rows = 1000 if subject.quick else 4000
    bounds = {}
    with subject.progress.task("auditing votes", 2, "rounds") as task:
        for share in (1.0, TENTH):
            bounds[share] = _audit_votes(game.teachers, game.lam / share, rows, queries, delta, subject.seed)
            task.advance(1)
    honest, caught = bounds[1.0], bounds[TENTH].refutes(claim)
    common = len(subject.track(subject.owner).common(subject.peer))
    return finding(
        f"each host row: ({claim:.3g}, {delta:g})-DP over {queries} votes; the client's vectors: no guarantee",
        BROKEN if honest.refutes(claim) else HOLDS,
        f"the host's noised votes, {rows} rows",
        f"ε ≥ {honest.epsilon_lower:.2f} shown; a tenth of the noise would have been caught: "
        f"{'yes' if caught else 'no'}; one game of this run asks {game.queries(common):,} votes",
        epsilon=claim, delta=delta, queries=queries, queries_in_a_game=game.queries(common), confidence=CONFIDENCE,
        tenth_caught=caught,
        audits=[{"claim": claim, "noise_share": share, **found.to_dict()} for share, found in bounds.items()],
    )  # fmt: skip


def _audit_votes(teachers: int, lam: float, rows: int, queries: int, delta: float, seed: int) -> Audit:
    rng = np.random.default_rng([seed, 2])
    coin = rng.random(rows) < 0.5
    # The others are as evenly split as they can be: with an odd number of them, now one way and now the other.
    others = (teachers - 1 + np.arange(queries) % 2) // 2
    votes = torch.from_numpy(others[None, :] + coin[:, None].astype(np.int64))
    noise = Noise(fresh_key(seeded_for_tests(seed + 3)))  # as an owner's, but that it can be drawn again
    labels = host.noisy_labels(votes.reshape(-1), teachers, lam, noise)
    return audit(labels.reshape(rows, queries).sum(dim=1).double().numpy(), coin, delta, CONFIDENCE)

"""Attack on the noise: canaries show whether the noise that was paid for has been added.

Under differential privacy of the shared track, triples on rows of their own are included in the victim's training by
the toss of a coin, and the auditor, who knows everything but noise and coins, guesses (`fkge.audit.private_training`).
In the paper's mode the same is done to the votes of the game: rows that sway one teacher, or do not. Either way one run
gives a lower bound on ε (`fkge.audit.one_run`), which must not exceed the claim.

To show that the audit can fail, it is repeated with a tenth of the noise, which must be detected. Where the claimed ε
is too large for that (guessing all of 400 coins right refutes no ε above 3.3), the noise is scaled up by what separates
the claim from ε = 2, and the same code is audited there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np
import torch

from fkge.audit.findings import Finding, Triples, Verdict
from fkge.audit.one_run import EpsilonBound, epsilon_bound
from fkge.audit.private_training import State, audit_dp, dedicated_canaries, drift, matched_filter, private_trajectory
from fkge.audit.subject import Subject
from fkge.embed import DpSettings, DpTrainer, make_tables
from fkge.embed.dp_noise import Noise, fresh_key
from fkge.federation.egress import HOST_ROW
from fkge.graph.graph import HEAD, RELATION, TAIL
from fkge.ppat import host
from fkge.privacy import LAPLACE_VOTES, REPLACE, Release, noise_for, price
from fkge.settings import TrainSettings

CONFIDENCE = 0.99
TENTH = 0.1
_CANARIES, _QUICK_CANARIES = 400, 200
_SAMPLED_CANARIES = 2000
"""More, where they are scored by drift, which is weaker but costs no gradient for each canary."""
_NUMBERS = 1 << 26
"""Numbers in all states of a training that are kept: a quarter of a gigabyte."""
_STEPS, _QUICK_STEPS = 60, 15
_TRIPLES = 300
"""The victim's own triples that are trained on together with the canaries."""
_SHOWABLE, _SCALED = 2.5, 2.0
"""Above the first ε a tenth of the noise might not be detected with so few canaries; then the second is audited."""
_SGD_RATE = 0.02


def attack(subject: Subject) -> Finding:
    """Compare a lower bound on the ε of what was noised with the claim."""
    mode = subject.simulation.settings.privacy.mode
    if mode == "dp":
        return _private_training(subject)
    if mode == "paper":
        return _votes(subject)
    claim = "privacy mode none: no noise, so no ε is claimed"
    return Finding(claim, Verdict.OPEN, "nothing", "there is no noise to audit", {"mode": mode})


# -- DP-SGD ------------------------------------------------------------------------------------------


def _private_training(subject: Subject) -> Finding:
    """Audit the victim's trainer with its own noise multiplier, which is not computed again."""
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
    audited = min(scales)
    audits = [*((claim, 1.0) for claim in scales), (audited, TENTH)]
    bounds: dict[tuple[float, float], EpsilonBound] = {}
    with subject.progress.task("auditing private training", len(audits), "trainings") as task:
        for claim, share in audits:
            noisy = sgd.model_copy(update={"noise": private.noise * scales[claim] * share})
            bounds[claim, share] = _audit(subject, track.train_settings, noisy, epochs, delta)
            task.advance(1)
    broken = any(bounds[claim, 1.0].refutes(claim) for claim in scales)
    caught = bounds[audited, TENTH].refutes(audited)
    bound = bounds[claimed, 1.0]
    words = f"ε ≥ {bound.epsilon_lower:.2f} shown"
    if claimed > _SHOWABLE:
        words += f"; at ε = {_SCALED:g}, same code: ≥ {bounds[audited, 1.0].epsilon_lower:.2f}"
    words += f"; a tenth of the noise would have been caught: {'yes' if caught else 'no'}"
    if adam:
        words += "; by sgd, whose noisy sums are the same"
    return Finding(
        f"DP-SGD of the shared track is ({claimed:g}, {delta:g})-DP, adding or removing one triple",
        Verdict.BROKEN if broken else Verdict.HOLDS,
        f"{subject.owner}'s private training, {bound.canaries} canaries",
        words,
        {
            "epsilon": claimed, "delta": delta, "noise": private.noise, "rate": private.rate,
            "optimizer": private.optimizer, "audited_optimizer": sgd.optimizer, "confidence": CONFIDENCE,
            "tenth_caught": caught, "audits": _rows(bounds),
        },
    )  # fmt: skip


def _rows(bounds: Mapping[tuple[float, float], EpsilonBound]) -> list[dict[str, float]]:
    """Return the figures of audits by claim and share of the noise."""
    return [{"claim": claim, "noise_share": share, **asdict(bound)} for (claim, share), bound in bounds.items()]


def _audit(subject: Subject, settings: TrainSettings, private: DpSettings, epochs: int, delta: float) -> EpsilonBound:
    """Train once with canaries, scored on the full batch by the matched filter, on samples by their drift.

    On the full batch fewer steps are enough: T steps of noise σ are one Gaussian mechanism of √T / σ, so fewer steps
    with the noise scaled accordingly are exactly as private. Sampled batches have no such rule and take all their
    steps; the auditor sees the states between epochs, not the samples, so it can show much less.
    """
    triples, entities, relations = _part(subject.victim.shared.train, subject.seed)
    settings = settings.model_copy(update={"device": "cpu"})
    steps = epochs
    if private.rate == 1:
        count = _QUICK_CANARIES if subject.quick else _CANARIES
        steps = min(epochs, _QUICK_STEPS if subject.quick else _STEPS)
        private = private.model_copy(update={"noise": private.noise * math.sqrt(steps / epochs)})
    else:
        count = min(_SAMPLED_CANARIES, max(_CANARIES, _NUMBERS // (3 * settings.dim * epochs)))
    rng, noise = np.random.default_rng([subject.seed, 1]), torch.Generator().manual_seed(subject.seed + 2)

    def train(chosen: Triples) -> list[State]:
        tables = make_tables(settings, entities + 2 * count, relations + count)
        return private_trajectory(tables, chosen, settings, private, steps, noise)

    score = matched_filter(settings, private, triples) if private.rate == 1 else drift(settings.norm)
    canaries = dedicated_canaries(entities, relations, count)
    return audit_dp(train, triples, canaries, delta, rng, score=score, confidence=CONFIDENCE)


def _part(train: Triples, seed: int) -> tuple[Triples, int, int]:
    """Return some of the victim's triples with new ids, and the number of their entities and relations."""
    chosen = np.random.default_rng([seed, 0]).permutation(len(train))[:_TRIPLES]
    part = np.asarray(train[chosen], np.int64)
    entities, ends = np.unique(part[:, [HEAD, TAIL]], return_inverse=True)
    relations, middles = np.unique(part[:, RELATION], return_inverse=True)
    ends = ends.reshape(-1, 2)
    return np.stack([ends[:, 0], middles.reshape(-1), ends[:, 1]], axis=1), len(entities), len(relations)


# -- the game's votes --------------------------------------------------------------------------------


def _votes(subject: Subject) -> Finding:
    """Audit votes on rows of the host, each of which sways one teacher in its own queries while the others are split.

    The auditor sees the noised labels themselves, which is more than the gradients of a student that learnt them. Real
    games ask more queries than an audit can follow; it asks as many as cost an ε that can be refuted.
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
            bounds[claim, share] = _audit_votes(game.teachers, game.lam / share, rows, queries, delta, subject.seed)
            task.advance(1)
    honest, caught = bounds[claim, 1.0], bounds[claim, TENTH].refutes(claim)
    common = len(subject.track(subject.owner).exchange.common(subject.peer))
    return Finding(
        f"each host row: ({claim:.3g}, {delta:g})-DP over {queries} votes; the client's vectors: no guarantee",
        Verdict.BROKEN if honest.refutes(claim) else Verdict.HOLDS,
        f"the host's noised votes, {rows} rows",
        f"ε ≥ {honest.epsilon_lower:.2f} shown; a tenth of the noise would have been caught: "
        f"{'yes' if caught else 'no'}; one game of this run asks {game.queries(common):,} votes",
        {
            "epsilon": claim, "delta": delta, "queries": queries, "queries_in_a_game": game.queries(common),
            "confidence": CONFIDENCE, "tenth_caught": caught, "audits": _rows(bounds),
        },
    )  # fmt: skip


def _audit_votes(teachers: int, lam: float, rows: int, queries: int, delta: float, seed: int) -> EpsilonBound:
    rng = np.random.default_rng([seed, 2])
    coin = rng.random(rows) < 0.5
    # The other teachers are split as evenly as possible: an odd number of them leans either way in turn.
    others = (teachers - 1 + np.arange(queries) % 2) // 2
    votes = torch.from_numpy(others[None, :] + coin[:, None].astype(np.int64))
    noise = Noise(fresh_key(torch.Generator().manual_seed(seed + 3)))  # as an owner's, but seeded
    labels = host.noisy_labels(votes.reshape(-1), teachers, lam, noise)
    return epsilon_bound(labels.reshape(rows, queries).sum(dim=1).double().numpy(), coin, delta, CONFIDENCE)

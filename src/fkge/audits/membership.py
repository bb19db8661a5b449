"""Membership: from what a peer received, can it tell which triples the victim trained on?

The attacker is the peer the victim shares most with, and holds what that one was sent last: the victim's rows of all
they share. Targets are triples between such rows, in training or held out, none of them in a partner's training set (or
the partner's training would show, not the victim's).

Where nothing is claimed, the figure says how much rows without noise give away. Under (ε, δ)-DP, adding or removing one
triple, every threshold obeys TPR ≤ e^ε FPR + δ and 1 − FPR ≤ e^ε (1 − TPR) + δ; the area under that curve is at most
1 − (1 − δ)² / (1 + e^ε). The claim is broken where the lower end of an interval lies above.

Confidential triples are held to more: a track that never saw them treats those of the training set as those held out.
True triples look plausible even then, since other facts tell of them; so they must not be compared with random ones.
Splits of public graphs are not always random, though. Where the two do differ, a model that the auditor trains on
shareable triples alone, which certainly never saw either, says whether the split is to blame.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fkge.align import Common, held_by_partner, translation
from fkge.audits.subject import BROKEN, HOLDS, OPEN, UNTESTED, Subject, finding
from fkge.embed import DpTrainer, Tables, Trainer, make_tables
from fkge.evaluation.attacks import Attack, between, calibrated, shadow_scores, translations
from fkge.evaluation.attacks import membership as weigh
from fkge.evaluation.attacks.membership import Scorer
from fkge.evaluation.attacks.result import Floats, Triples
from fkge.evaluation.scoring import score_triples
from fkge.federation import Owner
from fkge.graph.graph import HEAD, RELATION, TAIL

LEVEL = 0.999
"""Of every interval. Triples that share rows are not independent, so 95% would cry wolf more often than it says."""
FEWEST = 20
"""Triples on either side, below which no attack is weighed."""
_MOST, _SHADOWS = 4000, 4
_VISITS = 3_000_000
"""Triples that one shadow may visit in training: half a minute."""


def membership(subject: Subject) -> dict[str, Any]:
    """Raw, calibrated and (unless quick) shadow attacks, on shareable triples and on confidential ones."""
    settings, track, peer = subject.simulation.settings, subject.track(subject.owner), subject.peer
    privacy, common = settings.privacy, track.common(peer)
    score = _scorer(track.tables, common, track)
    shareable = {part: _targets(subject, common, part, confidential=False) for part in ("train", "held out")}
    on = f"{subject.owner}'s shared track, as {peer} has it"
    figures: dict[str, Any] = {"peer": peer, "level": LEVEL, "privacy": privacy.model_dump()}
    dp = privacy.mode == "dp"
    claim = (
        f"({privacy.epsilon:g}, {privacy.delta:g})-DP for every triple: TPR ≤ e^ε FPR + δ"
        if dp else "shareable triples: no protection"
    ) + ("" if subject.member.policy is None else "; confidential triples: at chance")  # fmt: skip
    verdicts, words = [], []
    if min(map(len, shareable.values())) < FEWEST:
        sizes = " and ".join(f"{len(t)} {part}" for part, t in shareable.items())
        verdicts.append(UNTESTED)
        words.append(f"shareable: too few triples between shared rows ({sizes}; {FEWEST} are needed)")
    else:
        members, others = shareable.values()
        scores = _attacks(subject, score, members, others, common)
        figures["shareable"] = {name: weigh(*s, level=LEVEL).to_dict() for name, s in scores.items()}
        words += [f"{name} {_auc(figures['shareable'][name])}" for name in scores]
        verdicts.append(OPEN)
        if dp and privacy.epsilon is not None:
            limits = {name: _against_dp(*s, privacy.epsilon, privacy.delta) for name, s in scores.items()}
            figures["dp"] = limits
            verdicts[-1] = BROKEN if any(limit["exceeded"] for limit in limits.values()) else HOLDS
            words.append(f"AUC allowed {auc_limit(privacy.epsilon, privacy.delta):.4f}")
    if subject.member.policy is not None:
        verdict, attacks = _confidential(subject, score, common)
        figures["confidential"] = attacks
        verdicts.append(verdict)
        words.append("confidential: " + (_auc(attacks["raw"]) if "raw" in attacks else attacks["why"]))
        if "control" in attacks:
            words[-1] += f" (by a model that never saw either: {_auc(attacks['control']['raw'])})"
    order = (BROKEN, OPEN, HOLDS, UNTESTED)
    return finding(claim, min(verdicts, key=order.index), on, "; ".join(words), verdicts=verdicts, **figures)


def auc_limit(epsilon: float, delta: float) -> float:
    """The largest area under the curve of any test of one (ε, δ)-DP release: 1 − (1 − δ)² / (1 + e^ε)."""
    return 1 - (1 - delta) ** 2 / (1 + math.exp(min(epsilon, 700)))


def _auc(attack: dict[str, Any]) -> str:
    return f"AUC {attack['auc']:.3f} ({attack['low']:.3f} … {attack['high']:.3f}), TPR@1% {attack['tpr_at_1']:.3f}"


# -- who and what ------------------------------------------------------------------------------------


def _scorer(tables: Tables, common: Common, track: Owner) -> Scorer:
    """Plausibility by the victim's model, of triples given by their positions in what is shared.

    Under a secret rotation (or a game's mapping) the attacker has no coordinates, only distances. Of models with more
    tables than two it is granted the others.
    """
    settings = track.train_settings
    turned = track.settings.translate != "frame"
    if settings.model == "transe" and turned:
        rows = [tables[kind].cpu().numpy() for kind in ("entity", "relation")]
        plain = translations(*rows, norm=2)
        return lambda triples: plain(_ids(triples, common))
    return lambda triples: score_triples(tables, _ids(triples, common)).double().cpu().numpy()


def _ids(positions: Triples, common: Common) -> Triples:
    """Triples by position in an alignment → by one owner's ids."""
    ids = np.asarray(positions, np.int64).reshape(-1, 3)
    return np.stack([common.entities[ids[:, HEAD]], common.relations[ids[:, RELATION]],
                     common.entities[ids[:, TAIL]]], axis=1)  # fmt: skip


def _targets(subject: Subject, common: Common, part: str, *, confidential: bool) -> Triples:
    """(n, 3) positions in what is shared: triples of a part, shareable or not, that no partner trains on."""
    home, policy, graph = subject.victim, subject.member.policy, subject.victim.graph
    splits = ["train"] if part == "train" else [name for name in graph.splits if name != "train"]
    chosen = []
    for split in splits:
        triples = graph.splits[split]
        shared = np.ones(len(triples), bool) if policy is None else policy.mask(graph, split)
        chosen.append(triples[(shared != confidential) & ~_held(subject, triples)])
    found: Triples = np.concatenate(chosen).astype(np.int64)
    rows = home.whole.rows
    if rows is not None:  # ids of the whole graph → of the shareable one; triples that do not lie in it fall out
        found = between(found, rows["entity"], rows["relation"])
    found = between(found, common.entities, common.relations)
    if len(found) > _MOST:
        found = found[np.random.default_rng([subject.seed, 9]).permutation(len(found))[:_MOST]]
    return found


def _held(subject: Subject, triples: Triples) -> Any:
    """(n,) which of the victim's triples stand in a partner's training set."""
    federation, own = subject.federation, subject.victim.graph
    held = np.zeros(len(triples), bool)
    for names, sides in federation.pairs.items():
        if subject.owner in names:
            here = names.index(subject.owner)
            pair = sides[here], sides[1 - here]
            held |= held_by_partner(
                triples, translation(*pair, "entity", len(own.entities)),
                translation(*pair, "relation", len(own.relations)), federation.members[names[1 - here]].graph.train,
            )  # fmt: skip
    return held


# -- attacks -----------------------------------------------------------------------------------------


def _attacks(
    subject: Subject, score: Scorer, members: Triples, others: Triples, common: Common
) -> dict[str, tuple[Floats, Floats]]:
    """Scores of members and others by each attack."""
    n, targets = len(members), np.concatenate([members, others])
    rng = np.random.default_rng([subject.seed, 10])
    with subject.progress.task("membership", None, "attacks") as task:
        raw = score(targets)
        task.advance(1)
        eased = calibrated(score, targets, np.arange(len(common.entities)), rng)
        task.advance(1)
    out = {"raw": raw, "calibrated": eased}
    if not subject.quick:
        out["shadow"] = _shadow(subject, score, targets)
    return {name: (scores[:n], scores[n:]) for name, scores in out.items()}


def _shadow(subject: Subject, score: Scorer, targets: Triples) -> Floats:
    """Log-likelihood ratios by models that the peer trains on its own triples and on half the targets.

    All in positions of what the two share, and after them the peer's other things: so rows are many, yet only those
    that triples name are ever moved.
    """
    peer = subject.track(subject.peer)
    theirs = peer.common(subject.owner)
    place = {
        "entity": _placed(len(peer.graph.entities), theirs.entities),
        "relation": _placed(len(peer.graph.relations), theirs.relations),
    }
    own = peer.graph.train.astype(np.int64)
    background = np.stack(
        [place["entity"][own[:, HEAD]], place["relation"][own[:, RELATION]], place["entity"][own[:, TAIL]]], axis=1
    )
    size = max(0, len(subject.victim.shared.train) - len(targets) // 2)
    rng = np.random.default_rng([subject.seed, 11])
    background = background[rng.permutation(len(background))[:size]]
    wide = Common(np.arange(len(peer.graph.entities)), np.arange(len(peer.graph.relations)))
    epochs = subject.track(subject.owner).plan.total

    with subject.progress.task("training shadows", _SHADOWS, "models") as task:

        def train(triples: Triples, seed: int) -> Scorer:
            tables = _trained(peer, triples, len(wide.entities), len(wide.relations), epochs, seed)
            task.advance(1)
            return _scorer(tables, wide, peer)

        return shadow_scores(train, score, targets, background, shadows=_SHADOWS, seed=subject.seed + 12)


def _placed(rows: int, shared: Any) -> Any:
    """(rows,) a new number for each id: shared ones first, in the order agreed on, then the others."""
    out = np.full(rows, -1, np.int64)
    out[shared] = np.arange(len(shared))
    out[out < 0] = np.arange(len(shared), rows)
    return out


def _trained(like: Owner, triples: Triples, entities: int, relations: int, epochs: int, seed: int) -> Tables:
    """Fresh tables, trained on `triples` as `like` trains, for as long as it does if that is not too long."""
    settings = like.train_settings.model_copy(update={"seed": seed, "device": "cpu"})
    tables = make_tables(settings, entities, relations)
    trainer: Trainer | DpTrainer = (
        DpTrainer(tables, triples, settings, like.trainer.private)
        if isinstance(like.trainer, DpTrainer) else Trainer(tables, triples, settings)
    )  # fmt: skip
    epochs = max(1, min(epochs, _VISITS // max(1, len(triples))))
    for epoch in range(epochs):
        if settings.schedule == "linear":
            trainer.fall_linearly(epoch, epochs)
        trainer.run_epoch()
    return tables


# -- limits ------------------------------------------------------------------------------------------


def _against_dp(members: Floats, others: Floats, epsilon: float, delta: float) -> dict[str, Any]:
    """What (ε, δ) allows at 1% and 0.1% and over all thresholds, and whether more than that was surely found."""
    from scipy.stats import beta

    limit, attack = auc_limit(epsilon, delta), weigh(members, others, level=LEVEL)
    out: dict[str, Any] = {"auc_allowed": limit, "exceeded": attack.low > limit}
    for name, rate in (("1", 0.01), ("01", 0.001)):
        threshold = np.sort(others)[len(others) - 1 - int(rate * len(others))]
        found, accused = int((members > threshold).sum()), int((others > threshold).sum())
        low = float(beta.ppf((1 - LEVEL) / 2, found, len(members) - found + 1)) if found else 0.0
        high = float(beta.ppf((1 + LEVEL) / 2, accused + 1, max(1, len(others) - accused)))
        allowed = min(1.0, math.exp(min(epsilon, 700)) * high + delta)
        out[f"tpr_at_{name}"] = {"low": low, "allowed": allowed}
        out["exceeded"] = out["exceeded"] or low > allowed
    return out


def _confidential(subject: Subject, score: Scorer, common: Common) -> tuple[str, dict[str, Any]]:
    """Confidential training triples against confidential held-out ones: neither was ever seen by what left."""
    members, others = (_targets(subject, common, part, confidential=True) for part in ("train", "held out"))
    if min(len(members), len(others)) < FEWEST:
        return UNTESTED, {"why": f"too few between shared rows ({len(members)} and {len(others)})"}

    def attacks(by: Callable[[Triples], Floats]) -> dict[str, Attack]:
        rng, ids = np.random.default_rng([subject.seed, 13]), np.arange(len(common.entities))
        eased = [calibrated(by, triples, ids, rng) for triples in (members, others)]
        raw = weigh(by(members), by(others), level=LEVEL)
        return {"raw": raw, "calibrated": weigh(*eased, level=LEVEL)}

    found = attacks(score)
    out = {name: attack.to_dict() for name, attack in found.items()}
    if not any(attack.succeeds for attack in found.values()):
        return HOLDS, out
    control = attacks(_never_saw(subject, common))
    out["control"] = {name: attack.to_dict() for name, attack in control.items()}
    worse = any(found[name].low > control[name].high for name in found)
    return (BROKEN if worse else HOLDS), out


def _never_saw(subject: Subject, common: Common) -> Scorer:
    """A model of the auditor's own, on what the policy shares and nothing else; scores positions as `_scorer` does."""
    policy, graph, rows = subject.member.policy, subject.victim.graph, subject.victim.whole.rows
    track = subject.track(subject.owner)
    assert policy is not None
    assert rows is not None
    with subject.progress.task("training a control", None):
        triples = graph.train[policy.mask(graph, "train")].astype(np.int64)
        tables = _trained(track, triples, len(graph.entities), len(graph.relations), track.plan.total, subject.seed)
    return _scorer(tables, Common(rows["entity"][common.entities], rows["relation"][common.relations]), track)

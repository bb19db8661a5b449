"""Attack on training triples, membership inference: tell from what a peer received which triples the victim trained on.

The attacker is the peer the victim shares most with, and has the victim's rows of all they share, as sent last. Targets
are triples between such rows, in training or held out, none of them in a partner's training set (or the partner's
training would show, not the victim's). Training pulls triples together, so a small ‖h + r − t‖ speaks for a member.
Three attacks, of which the third is the best where the attacker can train models like the victim's:

    translations     the distance as it is: easy facts look like members
    calibrated       the distance against that of corrupted triples: "near to everything" no longer counts
    shadow_scores    against models that the attacker trains, with and without the triple (LiRA, Carlini et al. 2022)

A score is higher for what looks like a member, and does not depend on the frame: a rotation hides nothing. Members and
others must be of the same distribution, or the attack tells distributions apart and says nothing about training.

Where nothing is claimed, the figures say how much rows without noise disclose. Under (ε, δ)-DP, adding or removing one
triple, every threshold obeys TPR ≤ e^ε FPR + δ and 1 − FPR ≤ e^ε (1 − TPR) + δ; the area under that curve is at most
1 − (1 − δ)² / (1 + e^ε). The claim is broken where the lower end of an interval lies above.

Confidential triples are held to more: a track that never saw them treats those of the training set as those held out.
Splits of public graphs are not always random, though. Where the two do differ, a model that the auditor trains on
shareable triples alone, which saw neither, shows whether the split is to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fkge.align import Common, held_by_partner, translation
from fkge.audit.findings import Finding, Floats, Triples, Verdict
from fkge.audit.roc import LEVEL, Attack, against_dp, auc_limit, measure
from fkge.audit.subject import Subject
from fkge.embed import DpTrainer, Tables, Trainer, make_tables
from fkge.errors import SettingsError
from fkge.evaluation.scoring import score_triples
from fkge.federation import Owner
from fkge.graph.graph import HEAD, TAIL

Scorer: TypeAlias = Callable[[Triples], Floats]
"""Maps triples (n, 3) to (n,) scores, higher for what looks like a training triple."""

FEWEST = 20
"""Triples on either side, below which no attack is measured."""
_MOST, _SHADOWS = 4000, 4
_VISITS = 3_000_000
"""Triples that one shadow model may visit in training: half a minute."""
_CHUNK = 1 << 14


def attack(subject: Subject) -> Finding:
    """Run raw, calibrated and (unless quick) shadow attacks, on shareable triples and on confidential ones."""
    settings, track, peer = subject.simulation.settings, subject.track(subject.owner), subject.peer
    privacy, common = settings.privacy, track.exchange.common(peer)
    score = scorer(track.tables, common, track)
    shareable = {part: _targets(subject, common, part, confidential=False) for part in ("train", "held out")}
    figures: dict[str, object] = {"peer": peer, "level": LEVEL, "privacy": privacy.model_dump()}
    claim = "shareable triples: no protection"
    if privacy.mode == "dp":
        claim = f"({privacy.epsilon:g}, {privacy.delta:g})-DP for every triple: TPR ≤ e^ε FPR + δ"
    verdicts, words = [Verdict.OPEN], []
    if min(map(len, shareable.values())) < FEWEST:
        sizes = " and ".join(f"{len(t)} {part}" for part, t in shareable.items())
        verdicts = [Verdict.UNTESTED]
        words.append(f"shareable: too few triples between shared rows ({sizes}; {FEWEST} are needed)")
    else:
        scores = _attacks(subject, score, shareable["train"], shareable["held out"], common)
        measured = figures["shareable"] = {name: measure(*s, level=LEVEL) for name, s in scores.items()}
        words += [f"{name} {found}" for name, found in measured.items()]
        if privacy.mode == "dp" and privacy.epsilon is not None:
            limits = {name: against_dp(*s, privacy.epsilon, privacy.delta) for name, s in scores.items()}
            figures["dp"] = limits
            verdicts = [Verdict.BROKEN if any(limit.exceeded for limit in limits.values()) else Verdict.HOLDS]
            words.append(f"AUC allowed {auc_limit(privacy.epsilon, privacy.delta):.4f}")
    if subject.member.policy is not None:
        claim += "; confidential triples: at chance"
        verdict, figures["confidential"], text = _confidential(subject, score, common)
        verdicts.append(verdict)
        words.append(f"confidential: {text}")
    order = (Verdict.BROKEN, Verdict.OPEN, Verdict.HOLDS, Verdict.UNTESTED)
    figures["verdicts"] = verdicts
    on = f"{subject.owner}'s shared track, as {peer} has it"
    return Finding(claim, min(verdicts, key=order.index), on, "; ".join(words), figures)


# -- targets -----------------------------------------------------------------------------------------


def scorer(tables: Tables, common: Common, track: Owner) -> Scorer:
    """Score triples, given by their positions in what is shared, by the victim's model.

    The score is the model's own, inverse rows included. Under a secret rotation (or a game's mapping) the attacker has
    no coordinates, only distances, which are all that TransE's score needs; of other models it gets the coordinates
    nevertheless, and of models with more than two tables the others too.
    """
    settings = track.train_settings
    turned = track.settings.translate != "frame"
    if settings.model.lower() == "transe" and not settings.reciprocal and turned:
        rows = [tables[kind].cpu().numpy() for kind in ("entity", "relation")]
        plain = translations(*rows, norm=2)
        return lambda triples: plain(_ids(triples, common))
    return lambda triples: score_triples(tables, _ids(triples, common)).double().cpu().numpy()


def _ids(positions: Triples, common: Common) -> Triples:
    """Convert triples (n, 3) from positions in an alignment to one owner's ids."""
    return renamed(np.asarray(positions, np.int64).reshape(-1, 3), common.entities, common.relations)


def _targets(subject: Subject, common: Common, part: str, *, confidential: bool) -> Triples:
    """Return triples (n, 3) of a part, shareable or not, that no partner trains on, as positions in what is shared."""
    policy, graph = subject.member.policy, subject.victim.graph
    splits = ["train"] if part == "train" else [name for name in graph.splits if name != "train"]
    chosen = []
    for split in splits:
        triples = graph.splits[split]
        shared = np.ones(len(triples), bool) if policy is None else policy.mask(graph, split)
        chosen.append(triples[(shared != confidential) & ~_held(subject, triples)])
    found: Triples = np.concatenate(chosen).astype(np.int64)
    rows = subject.victim.rows
    if rows is not None:  # from ids of the whole graph to those of the shareable one, without triples outside of it
        found = between(found, rows["entity"], rows["relation"])
    found = between(found, common.entities, common.relations)
    if len(found) > _MOST:
        found = found[np.random.default_rng([subject.seed, 9]).permutation(len(found))[:_MOST]]
    return found


def _held(subject: Subject, triples: Triples) -> npt.NDArray[np.bool_]:
    """Return (n,) bool: which of the victim's triples are in a partner's training set."""
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
    """Return the scores of members and of others by each attack."""
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
    """Return log-likelihood ratios by models that the peer trains on its own triples and on half the targets.

    All ids are positions in what the two share, followed by the peer's other rows.
    """
    peer = subject.track(subject.peer)
    theirs = peer.exchange.common(subject.owner)
    entities, relations = len(peer.graph.entities), len(peer.graph.relations)
    own = peer.graph.train.astype(np.int64)
    background = renamed(own, _placed(entities, theirs.entities), _placed(relations, theirs.relations))
    size = max(0, len(subject.victim.shared.train) - len(targets) // 2)
    rng = np.random.default_rng([subject.seed, 11])
    background = background[rng.permutation(len(background))[:size]]
    wide = Common(np.arange(entities), np.arange(relations))
    epochs = subject.track(subject.owner).plan.total

    with subject.progress.task("training shadows", _SHADOWS, "models") as task:

        def train(triples: Triples, seed: int) -> Scorer:
            tables = _trained(peer, triples, entities, relations, epochs, seed)
            task.advance(1)
            return scorer(tables, wide, peer)

        return shadow_scores(train, score, targets, background, shadows=_SHADOWS, seed=subject.seed + 12)


def _placed(rows: int, shared: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return (rows,) a new number for each id: shared ones first, in the order agreed on, then the others."""
    out = _places(rows, shared)
    out[out < 0] = np.arange(len(shared), rows)
    return out


def _trained(like: Owner, triples: Triples, entities: int, relations: int, epochs: int, seed: int) -> Tables:
    """Return new tables, trained on `triples` as `like` trains, for at most as many epochs."""
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


def _confidential(subject: Subject, score: Scorer, common: Common) -> tuple[Verdict, dict[str, object], str]:
    """Attack confidential training triples against confidential held-out ones: no track that is sent saw either."""
    members, others = (_targets(subject, common, part, confidential=True) for part in ("train", "held out"))
    if min(len(members), len(others)) < FEWEST:
        why = f"too few between shared rows ({len(members)} and {len(others)})"
        return Verdict.UNTESTED, {"why": why}, why

    def attacks(by: Scorer) -> dict[str, Attack]:
        rng, ids = np.random.default_rng([subject.seed, 13]), np.arange(len(common.entities))
        eased = [calibrated(by, triples, ids, rng) for triples in (members, others)]
        return {"raw": measure(by(members), by(others), level=LEVEL), "calibrated": measure(*eased, level=LEVEL)}

    found = attacks(score)
    if not any(attack.succeeds for attack in found.values()):
        return Verdict.HOLDS, {**found}, str(found["raw"])
    control = attacks(_never_saw(subject, common))
    worse = any(found[name].low > control[name].high for name in found)
    text = f"{found['raw']} (by a model that saw neither: {control['raw']})"
    return (Verdict.BROKEN if worse else Verdict.HOLDS), {**found, "control": control}, text


def _never_saw(subject: Subject, common: Common) -> Scorer:
    """Train a model on what the policy shares and nothing else; return its scorer of positions."""
    policy, graph, rows = subject.member.policy, subject.victim.graph, subject.victim.rows
    track = subject.track(subject.owner)
    assert policy is not None
    assert rows is not None
    with subject.progress.task("training a control", None):
        triples = graph.train[policy.mask(graph, "train")].astype(np.int64)
        tables = _trained(track, triples, len(graph.entities), len(graph.relations), track.plan.total, subject.seed)
    return scorer(tables, Common(rows["entity"][common.entities], rows["relation"][common.relations]), track)


# -- scores ----------------------------------------------------------------------------------------


def translations(entity: npt.ArrayLike, relation: npt.ArrayLike, *, norm: int = 2) -> Scorer:
    """Return the scorer −‖h + r − t‖ of triples by position.

    Args:
        entity: (n, d) rows that the attacker has.
        relation: (m, d) rows that the attacker has.
        norm: 1 or 2.
    """
    e, r = np.asarray(entity, np.float64), np.asarray(relation, np.float64)

    def score(triples: Triples) -> Floats:
        ids = np.asarray(triples, np.int64).reshape(-1, 3)
        chunks = [ids[i : i + _CHUNK].T for i in range(0, len(ids), _CHUNK)]
        parts = [-np.linalg.norm(e[head] + r[middle] - e[tail], norm, axis=1) for head, middle, tail in chunks]
        return np.concatenate([np.zeros(0), *parts])

    return score


def corrupted(triples: Triples, candidates: npt.NDArray[Any], count: int, rng: np.random.Generator) -> Triples:
    """Return each triple with its tail, in every second copy its head, replaced by a candidate: (n, count, 3).

    Args:
        triples: (n, 3).
        candidates: ids of entities.
        count, rng: copies of each triple, and the generator that draws candidates.
    """
    ids = np.asarray(triples, np.int64).reshape(-1, 3)
    out = np.repeat(ids[:, None], count, axis=1)
    drawn = np.asarray(candidates, np.int64)[rng.integers(len(candidates), size=out.shape[:2])]
    out[:, 0::2, TAIL] = drawn[:, 0::2]
    out[:, 1::2, HEAD] = drawn[:, 1::2]
    return out


def calibrated(
    score: Scorer, triples: Triples, candidates: npt.NDArray[Any], rng: np.random.Generator, *, corruptions: int = 32
) -> Floats:
    """Return scores minus the mean score of corruptions, (n,): hubs and loose relations no longer look like members.

    Args:
        score: scorer of any triples.
        triples: (n, 3).
        candidates: ids of the entities whose rows the attacker has.
        rng: generator of the corruptions.
        corruptions: number for each triple, half of them of the tail and half of the head.

    Raises:
        SettingsError: there are fewer than two candidates or corruptions.
    """
    if len(candidates) < 2 or corruptions < 2:
        raise SettingsError(f"needs two or more candidates and corruptions, got {len(candidates)}, {corruptions}")
    around = score(corrupted(triples, candidates, corruptions, rng).reshape(-1, 3)).reshape(-1, corruptions)
    out: Floats = score(triples) - around.mean(axis=1)
    return out


def shadow_scores(
    train: Callable[[Triples, int], Scorer],
    victim: Scorer,
    targets: Triples,
    background: Triples,
    *,
    shadows: int = 8,
    seed: int = 0,
) -> Floats:
    """Return the log-likelihood ratio of "the victim trained on it" for each target, (n,), by shadow models.

    Shadows come in pairs. Either model of a pair trains on the background and on one half of the targets, so every
    target is in one of the two. Its score under a model that saw it, and under one that did not, is taken to be normal
    about its own mean, with one variance for all targets (few shadows cannot tell them apart).

    Args:
        train: maps (triples, seed) to a scorer; as similar to the victim's training as possible.
        victim: the scorer over what the victim sent.
        targets: (n, 3) the triples in question.
        background: (m, 3) triples the attacker trains on in any case. Half the targets and the background should be
            about as many as the victim has.
        shadows: number of models; even.
        seed: seed of the halves; model i is trained with seed + i.

    Raises:
        SettingsError: `shadows` is odd, or there are too few targets.
    """
    if shadows < 2 or shadows % 2 or len(targets) < 2:
        raise SettingsError(f"shadows come in pairs, for two or more targets; got {shadows} for {len(targets)} targets")
    ids = np.asarray(targets, np.int64).reshape(-1, 3)
    rng = np.random.default_rng(seed)
    seen, unseen = np.empty((2, shadows // 2, len(ids)))
    for pair in range(shadows // 2):
        half = rng.permutation(len(ids)) < len(ids) // 2
        for side, chosen in enumerate((half, ~half)):
            model = train(np.concatenate([np.asarray(background, np.int64), ids[chosen]]), seed + 2 * pair + side)
            scores = model(ids)
            seen[pair, chosen] = scores[chosen]
            unseen[pair, ~chosen] = scores[~chosen]
    measured = victim(ids)
    return _log_density(measured, seen) - _log_density(measured, unseen)


def _log_density(scores: Floats, shadows: Floats) -> Floats:
    """Return the log-density of (n,) scores under a normal law about the column means of (models, n) shadows."""
    models = len(shadows)
    centre = shadows.mean(axis=0)
    if models > 1:
        # The mean has itself 1/models of the variance.
        variance = float(((shadows - centre) ** 2).sum() / ((models - 1) * shadows.shape[1])) * (1 + 1 / models)
    else:
        variance = float(shadows.var())
    variance = max(variance, 1e-12)
    out: Floats = -((scores - centre) ** 2) / (2 * variance) - 0.5 * np.log(variance)
    return out


def between(triples: Triples, entities: npt.NDArray[Any], relations: npt.NDArray[Any]) -> Triples:
    """Return those of `triples` whose rows the attacker has, as positions in what it has.

    Args:
        triples: (n, 3) in the victim's ids.
        entities, relations: the victim's ids of the rows sent, in the order they were sent.
    """
    rows = 1 + int(max(np.max(ids, initial=0) for ids in (triples, entities, relations)))
    out = renamed(triples, _places(rows, entities), _places(rows, relations))
    return out[(out >= 0).all(axis=1)]


def renamed(triples: Triples, entities: npt.NDArray[Any], relations: npt.NDArray[Any]) -> Triples:
    """Return triples (n, 3) with the new ids that `entities` and `relations` have for the old ones."""
    return np.stack([names[triples[:, i]] for i, names in enumerate((entities, relations, entities))], axis=1)


def _places(rows: int, held: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return (rows,) the place of each id among those `held`, or -1."""
    out = np.full(rows, -1, np.int64)
    out[np.asarray(held, np.int64)] = np.arange(len(held))
    return out

"""Membership inference: was this triple in the victim's training set?

The attacker is a peer. It has rows of the entities and relations it shares with the victim, perhaps from several
exchanges, and a triple between them. Training pulls the triples it saw together, so a small ‖h + r − t‖ speaks for a
member. Three attacks; try all, for which of the first two is better depends on the graph, and the third is the best
where the attacker can train models like the victim's:

    triple_scores    the distance as it is: easy facts look like members
    calibrated       the distance against that of corrupted triples: "near to everything" no longer counts
    shadow_scores    against models that the attacker trains itself, with and without the triple (LiRA, Carlini et
                     al. 2022): how a model of this kind treats *this* triple when it has seen it, and when not

A score is higher for what looks like a member. All of them are free of the frame: a rotation of the space hides
nothing. Members are training triples; the others must be of the same distribution (held-out triples of the same
graph), or the attack wins by telling distributions apart and says nothing about training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fkge.errors import SettingsError
from fkge.evaluation.attacks.result import Floats, Result, Triples
from fkge.graph.graph import HEAD, RELATION, TAIL

Scorer: TypeAlias = Callable[[Triples], Floats]
"""Triples (n, 3) to (n,) scores, higher for what looks like a training triple."""

_CHUNK = 1 << 14


@dataclass(frozen=True)
class Attack(Result):
    """How well an attack tells members from others.

    Attributes:
        auc: chance that a member scores above another triple; ties count half. 0.5 is guessing.
        low, high: where the AUC lies with confidence `level`, over the draw of the triples. Triples that share
            entities are not quite independent, so the interval is a little too narrow.
        level: of the interval.
        tpr_at_1, tpr_at_01: members found while at most 1% (0.1%) of the others are taken for members. With fewer
            than 100 (1000) others, none may be.
        advantage: the largest difference between the share of members found and that of others accused.
        members, others: how many triples were compared.
    """

    auc: float
    low: float
    high: float
    level: float
    tpr_at_1: float
    tpr_at_01: float
    advantage: float
    members: int
    others: int

    @property
    def succeeds(self) -> bool:
        """Whether the interval lies above guessing."""
        return self.low > 0.5


def membership(
    members: npt.ArrayLike, others: npt.ArrayLike, *, samples: int = 1000, seed: int = 0, level: float = 0.95
) -> Attack:
    """Weigh an attack by its scores.

    Args:
        members: (n,) scores of triples the victim trained on.
        others: (m,) scores of triples of the same distribution that it did not.
        samples: of the bootstrap, which draws members and others again, each among themselves.
        seed: of the bootstrap.
        level: of the interval.
    """
    x, y = (np.asarray(s, np.float64).reshape(-1) for s in (members, others))
    if len(x) < 2 or len(y) < 2 or not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise SettingsError(
            f"an attack is weighed by two or more finite scores of either kind; got {len(x)} of members and "
            f"{len(y)} of others, {int((~np.isfinite(x)).sum() + (~np.isfinite(y)).sum())} of them not finite"
        )
    if not 0 < level < 1 or samples < 1:
        raise SettingsError(f"level must be between 0 and 1 and samples at least 1, got {level} and {samples}")
    values = np.unique(np.concatenate([x, y]))
    places = [np.searchsorted(values, s) for s in (x, y)]
    counts = [np.bincount(p, minlength=len(values)) for p in places]
    rng = np.random.default_rng(seed)
    drawn = np.empty(samples)
    for i in range(samples):
        again = [np.bincount(p[rng.integers(len(p), size=len(p))], minlength=len(values)) for p in places]
        drawn[i] = _auc(*again)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]).tolist()
    above = [np.cumsum(c[::-1])[::-1] / len(s) for c, s in zip(counts, (x, y), strict=True)]
    return Attack(
        _auc(*counts), low, high, level, _found(x, y, 0.01), _found(x, y, 0.001),
        max(0.0, float((above[0] - above[1]).max())), len(x), len(y),
    )  # fmt: skip


def _auc(members: npt.NDArray[np.int64], others: npt.NDArray[np.int64]) -> float:
    """Mann and Whitney's statistic from how often each value, ascending, occurs on either side."""
    below = np.cumsum(others) - others / 2
    return float((members * below).sum() / (members.sum() * others.sum()))


def _found(members: Floats, others: Floats, rate: float) -> float:
    """The share of members above the lowest threshold that at most `rate` of the others pass."""
    spared = int(rate * len(others))
    threshold = np.sort(others)[len(others) - 1 - spared]
    return float((members > threshold).mean())


# -- scores ----------------------------------------------------------------------------------------


def triple_scores(entity: npt.ArrayLike, relation: npt.ArrayLike, triples: Triples, *, norm: int = 2) -> Floats:
    """−‖h + r − t‖ of triples (k, 3), (k,); of a trajectory its mean over the states.

    Args:
        entity: (n, d) rows that the attacker has, or (states, n, d), one table for each exchange.
        relation: (m, d) or (states, m, d).
        triples: (k, 3) positions in these tables.
        norm: 1 or 2.
    """
    e, r = (np.asarray(table, np.float64) for table in (entity, relation))
    e, r = (table[None] if table.ndim == 2 else table for table in (e, r))
    if e.ndim != 3 or r.ndim != 3 or len(e) != len(r) or e.shape[2] != r.shape[2] or norm not in (1, 2):
        raise SettingsError(
            f"a translation is scored on tables (states, rows, d) of one width, by norm 1 or 2; got entities "
            f"{e.shape}, relations {r.shape}, norm {norm}"
        )
    ids = np.asarray(triples, np.int64).reshape(-1, 3)
    out = np.empty(len(ids))
    for i in range(0, len(ids), _CHUNK):
        head, middle, tail = ids[i : i + _CHUNK].T
        parts = [np.linalg.norm(es[head] + rs[middle] - es[tail], norm, axis=1) for es, rs in zip(e, r, strict=True)]
        out[i : i + _CHUNK] = -np.mean(parts, axis=0)
    return out


def translations(entity: npt.ArrayLike, relation: npt.ArrayLike, *, norm: int = 2) -> Scorer:
    """`triple_scores` of given tables, as a function of triples."""

    def score(triples: Triples) -> Floats:
        return triple_scores(entity, relation, triples, norm=norm)

    return score


def corrupted(triples: Triples, candidates: npt.NDArray[Any], count: int, rng: np.random.Generator) -> Triples:
    """(n, count, 3): each triple with its tail, for every second copy its head, replaced by some candidate."""
    ids = np.asarray(triples, np.int64).reshape(-1, 3)
    out = np.repeat(ids[:, None], count, axis=1)
    drawn = np.asarray(candidates, np.int64)[rng.integers(len(candidates), size=out.shape[:2])]
    out[:, 0::2, TAIL] = drawn[:, 0::2]
    out[:, 1::2, HEAD] = drawn[:, 1::2]
    return out


def calibrated(
    score: Scorer,
    triples: Triples,
    candidates: npt.NDArray[Any],
    rng: np.random.Generator,
    *,
    corruptions: int = 32,
) -> Floats:
    """Scores against their own difficulty: how far a triple stands out among corruptions of it, (n,).

    A hub is near to everything, a loose relation fits everywhere: the score minus the mean over corruptions takes
    that away.

    Args:
        score: of any triples.
        triples: (n, 3).
        candidates: ids of the entities whose rows the attacker has.
        rng: of the corruptions.
        corruptions: of each triple, half of them of the tail and half of the head.
    """
    if len(candidates) < 2 or corruptions < 2:
        raise SettingsError(
            f"calibration needs two or more candidates and corruptions, got {len(candidates)} and {corruptions}"
        )
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
    """Log-likelihood ratio of "the victim trained on it" for each target, (n,), by models of the attacker's own.

    Shadows come in pairs. Of each pair, either model trains on the background and on one half of the targets, drawn
    anew: so every target is in one of the two. Its score under a model that saw it, and under one that did not, is
    taken to be normal about its own mean, with one variance for all targets (few shadows cannot tell them apart).

    Args:
        train: (triples, seed) to a scorer; as near to the victim's own training as the attacker can come.
        victim: the scorer over what the victim sent.
        targets: (n, 3) the triples in question.
        background: (m, 3) triples the attacker trains on in any case: its own, those it shares with the victim. Half
            the targets and the background should be about as many as the victim has.
        shadows: models trained; even.
        seed: of the halves; model i is trained with seed + i.
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
    """Of (n,) scores under a normal law about the column means of (models, n) shadows' scores."""
    models = len(shadows)
    centre = shadows.mean(axis=0)
    if models > 1:
        # The mean is itself uncertain by a share 1/models of the variance.
        variance = float(((shadows - centre) ** 2).sum() / ((models - 1) * shadows.shape[1])) * (1 + 1 / models)
    else:
        variance = float(shadows.var())
    variance = max(variance, 1e-12)
    out: Floats = -((scores - centre) ** 2) / (2 * variance) - 0.5 * np.log(variance)
    return out


def between(triples: Triples, entities: npt.NDArray[Any], relations: npt.NDArray[Any]) -> Triples:
    """Those of `triples` whose rows the attacker has, renumbered by their position in what it has.

    Args:
        triples: (n, 3) in the victim's ids.
        entities, relations: the victim's ids of the rows sent, in the order they were sent.
    """
    places = []
    for column, held in ((HEAD, entities), (RELATION, relations), (TAIL, entities)):
        place = np.full(int(max(triples[:, column].max(initial=0), np.max(held, initial=0))) + 1, -1, np.int64)
        place[np.asarray(held, np.int64)] = np.arange(len(held))
        places.append(place[triples[:, column]])
    out = np.stack(places, axis=1)
    return out[(out >= 0).all(axis=1)]

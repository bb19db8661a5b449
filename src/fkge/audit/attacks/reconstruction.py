"""Reconstruction: what a host learns from G(X) = XW, rows that a client sent under a mapping it kept secret.

No rule of the game is broken: the host only looks at what it receives. Nothing is claimed to protect these rows; the
attack shows how little does. By what the host has, there are three ways:

    Replay           all samples and gradients of a game: the host repeats the client's arithmetic, so it knows the
                     mapping at every step, and X up to the rotation W started as. It starts as the identity wherever
                     the widths agree: then X itself
    from_anchors     true rows of a few entities (public ones, or a colluder's): W, hence all rows
    nothing at all   where W is a rotation, G(X) G(X)ᵀ *is* X Xᵀ: no attack is needed to see which rows are near

Noise on the host's votes has no effect: it protects the other side. `remains` measures what is left when the rows
themselves were rotated, noised, or both.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt
import torch

from fkge.align import random_rotation
from fkge.audit.findings import Finding, Floats, Verdict
from fkge.audit.subject import Subject
from fkge.errors import SettingsError
from fkge.federation import Owner
from fkge.ppat import Candidate, Gradient, PpatClient, PpatHost, PpatSettings, Samples
from fkge.ppat.messages import FromClient

_STEPS, _QUICK_STEPS = 60, 12
_ROWS = 1500
_PAIRS = 200_000
"""Pairs of rows on which `remains` compares distances, at most."""

_CLAIMS = {
    "frame": "rows are sent as they are",
    "procrustes": "rows are sent under a secret rotation, which hides no distance: no guarantee",
    "ppat": "client's vectors: no guarantee",
    "ppat+refine": "client's vectors: no guarantee",
}


@dataclass(frozen=True)
class Recovery:
    """Distance of guessed rows from the true ones.

    Attributes:
        error: ‖guess − truth‖ / ‖truth‖, Frobenius; 0 is exact, 1 is the error of guessing zero.
        cosine: mean cosine between the rows of guess and truth.
        identified: share of guesses whose nearest true row, by cosine, is the right one.
    """

    error: float
    cosine: float
    identified: float
    rows: int


@dataclass(frozen=True)
class Remains:
    """The information about true rows that is left in released ones.

    Attributes:
        gram_error: ‖R Rᵀ − X Xᵀ‖ / ‖X Xᵀ‖ without any help; 0 discloses X up to a rotation.
        distances: correlation of the distances between rows, released against true; 1 discloses which rows are near.
        from_anchors: the other rows, recovered with the help of the anchors.
    """

    gram_error: float
    distances: float
    from_anchors: Recovery
    anchors: int


def attack(subject: Subject) -> Finding:
    """Reconstruct the victim's rows from a replayed game, from a rotation with anchors, and without any help."""
    settings = subject.simulation.settings
    client, host = subject.track(subject.owner), subject.track(subject.peer)
    x, y = _rows(client, subject.peer), _rows(host, subject.owner)
    chosen = torch.from_numpy(np.random.default_rng([subject.seed, 5]).permutation(len(x))[:_ROWS])
    x, y = x[chosen], y[chosen]
    truth = x.double().numpy()
    figures: dict[str, object] = {"translate": settings.translate, "frame": {"error": 0.0, "identified": 1.0}}
    steps = min(max(1, settings.ppat.steps), _QUICK_STEPS if subject.quick else _STEPS)
    changes = {"steps": steps, "candidates": 1, "teachers": min(settings.ppat.teachers, len(x))}
    rules = settings.ppat.model_copy(update=changes)
    guess, last = _game(x, y, rules, subject)
    error = relative_error(gram(truth), gram(guess))
    game = {
        "steps": steps, "gram_error": error, "rows": len(x),
        "without_replay": relative_error(gram(truth), gram(last)),
    }  # fmt: skip
    words = [f"Gram matrix from the game: error {error:.1e}"]
    if x.shape[1] == y.shape[1]:
        rows = recovery(truth, guess)
        game |= asdict(rows)
        words = [f"game replayed: error {rows.error:.1e}"]
    figures["ppat"] = game
    known = min(2 * x.shape[1], len(x) // 2)  # anchors: twice as many as dimensions, where there are that many rows
    if known >= 1 and len(x) - known >= 2:
        anchors = np.random.default_rng([subject.seed, 6]).permutation(len(x))[:known]
        turned = (x @ random_rotation(x.shape[1], torch.Generator().manual_seed(subject.seed)).to(x.dtype)).double()
        left = figures["procrustes"] = remains(truth, turned.numpy(), anchors)
        words.append(f"rotated: Gram error {left.gram_error:.1e}, {known} anchors: {left.from_anchors.error:.1e}")
    covered = "" if settings.privacy.mode != "dp" else "; DP-SGD protects single triples, rows need not be hidden"
    return Finding(
        _CLAIMS[settings.translate] + covered, Verdict.OPEN,
        f"{len(x):,} rows of {subject.owner} that {subject.peer} gets ({settings.translate})", "; ".join(words),
        figures,
    )  # fmt: skip


def _rows(owner: Owner, peer: str) -> torch.Tensor:
    return owner.tables.read("entity", torch.from_numpy(owner.exchange.common(peer).entities.copy())).cpu().float()


def _game(x: torch.Tensor, y: torch.Tensor, rules: PpatSettings, subject: Subject) -> tuple[Floats, Floats]:
    """Play a game; return the rows as the host computes them from its transcript, and as it received them last."""
    seeds = [torch.Generator().manual_seed(subject.seed + i) for i in (7, 8)]
    client, host = PpatClient(x, y.shape[1], rules, seeds[0]), PpatHost(y, rules, seeds[1])
    attacker = Replay(y.shape[1], lr=rules.lr, momentum=rules.momentum, beta=rules.beta)
    last: Floats | None = None
    with subject.progress.task("replaying a game", rules.steps, "steps") as task:
        message: FromClient | None = client.start()
        while message is not None:
            answer = host.step(message)
            if isinstance(message, Samples) and isinstance(answer, Gradient):
                attacker.step(message.vectors.double().numpy(), answer.vectors.double().numpy())
                task.advance(1)
            elif isinstance(message, Candidate):
                last = message.vectors.double().numpy()
            message = client.step(answer)
    assert last is not None
    return attacker.rows(last), last


# -- the arithmetic of the host ------------------------------------------------------------------------


def relative_error(truth: npt.ArrayLike, guess: npt.ArrayLike) -> float:
    """Return ‖guess − truth‖ / ‖truth‖, Frobenius; raise `SettingsError` if shapes differ."""
    t, g = np.asarray(truth, np.float64), np.asarray(guess, np.float64)
    if t.shape != g.shape or not t.any():
        raise SettingsError(f"a guess of shape {g.shape} cannot be compared with {t.shape}, or all of that is zero")
    return float(np.linalg.norm(g - t) / np.linalg.norm(t))


def gram(rows: npt.ArrayLike) -> Floats:
    """Return the inner products of rows (n, d), (n, n) float64: the rows up to a rotation."""
    x = np.asarray(rows, np.float64)
    return np.asarray(x @ x.T)


def recovery(truth: npt.ArrayLike, guess: npt.ArrayLike) -> Recovery:
    """Compare guessed rows (n, d) with the true ones."""
    t, g = np.asarray(truth, np.float64), np.asarray(guess, np.float64)
    error = relative_error(t, g)
    unit_t, unit_g = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300) for x in (t, g))
    right = 0
    for i in range(0, len(t), 1024):
        nearest = (unit_g[i : i + 1024] @ unit_t.T).argmax(axis=1)
        right += int((nearest == np.arange(i, i + len(nearest))).sum())
    return Recovery(error, float((unit_t * unit_g).sum(axis=1).mean()), right / len(t), len(t))


class Replay:
    """A host that repeats the client's arithmetic.

    Let W = Q M with M the identity at first: Q is what W started as, the identity where both widths agree and else
    unknown. With X′ = X Q, samples are X′ M, and the client's step W ← W − lr (momentum V + Xᵀ g), then
    W ← (1+β) W − β W Wᵀ W, is the same step of M with X′ in place of X. M is known at every moment, so are the batch's
    rows X′ = samples M⁻¹, and with them the next M. Holds for d_client ≤ d_host; a client of larger width loses
    directions in the first step, and the host sees nothing of those.

    Args:
        dim: d_host.
        lr, momentum, beta: settings of the game, which both sides know.
    """

    def __init__(self, dim: int, *, lr: float, momentum: float = 0.0, beta: float = 0.0) -> None:
        self._lr, self._momentum, self._beta = lr, momentum, beta
        self.mapping: Floats = np.eye(dim)
        self._velocity: Floats = np.zeros((dim, dim))

    def rows(self, translated: npt.ArrayLike) -> Floats:
        """Return the client's rows as they started, from what it sends now: (n, d_host) to (n, d_host)."""
        seen = np.asarray(translated, np.float64)
        return np.asarray(np.linalg.solve(self.mapping.T, seen.T).T, np.float64)

    def step(self, samples: npt.ArrayLike, gradient: npt.ArrayLike) -> None:
        """Repeat one adversarial step: samples received (b, d_host), gradient sent (b, d_host)."""
        batch = self.rows(samples)
        self._velocity = self._momentum * self._velocity + batch.T @ np.asarray(gradient, np.float64)
        m = self.mapping - self._lr * self._velocity
        self.mapping = (1 + self._beta) * m - self._beta * m @ (m.T @ m)


def from_anchors(
    seen: npt.ArrayLike, anchors: npt.NDArray[np.integer], rows: npt.ArrayLike, *, rotation: bool = False
) -> Floats:
    """Return all rows (n, d), given the true ones of a few.

    Args:
        seen: G(X), (n, d_host).
        anchors: (a,) positions of the known rows.
        rows: (a, d) known rows.
        rotation: W is known to be orthogonal (square): by Procrustes, d anchors suffice where they are exact and
            fewer do better than by least squares. Otherwise by least squares, of smallest norm if a < d_host.

    Raises:
        SettingsError: there are no anchors, or shapes do not fit.
    """
    g, known = np.asarray(seen, np.float64), np.asarray(rows, np.float64)
    ids = np.asarray(anchors, np.int64)
    if len(ids) == 0 or len(ids) != len(known) or (rotation and g.shape[1] != known.shape[1]):
        raise SettingsError(f"anchors are rows of those seen; got {len(ids)}, rows {known.shape}, seen {g.shape}")
    if rotation:
        u, _, vt = np.linalg.svd(g[ids].T @ known)
        back = u @ vt
    else:
        back = np.linalg.lstsq(g[ids], known, rcond=None)[0]
    return np.asarray(g @ back, np.float64)


def remains(truth: npt.ArrayLike, released: npt.ArrayLike, anchors: npt.NDArray[np.integer]) -> Remains:
    """Measure what a release discloses, with and without anchors.

    Args:
        truth: X, (n, d).
        released: (n, d), rotated, noised, or both.
        anchors: positions of rows the attacker knows; it is scored on the others, by the better of least squares and
            Procrustes.

    Raises:
        SettingsError: fewer than two rows are left, or shapes differ.
    """
    x, r = np.asarray(truth, np.float64), np.asarray(released, np.float64)
    others = np.setdiff1d(np.arange(len(x)), anchors)
    if x.shape != r.shape or len(others) < 2:
        raise SettingsError(f"two or more rows must be left without the anchors, of one shape: {x.shape}, {r.shape}")
    guesses = [from_anchors(r, anchors, x[anchors], rotation=rotation) for rotation in (False, True)]
    best = min((recovery(x[others], guess[others]) for guess in guesses), key=lambda found: found.error)
    i, j = np.triu_indices(len(others), 1)
    if len(i) > _PAIRS:
        chosen = np.random.default_rng(0).choice(len(i), _PAIRS, replace=False)
        i, j = i[chosen], j[chosen]
    true, seen = (np.linalg.norm(m[others][i] - m[others][j], axis=1) for m in (x, r))
    level = float(true.std() * seen.std())
    correlation = float(((true - true.mean()) * (seen - seen.mean())).mean() / level) if level > 0 else 0.0
    return Remains(relative_error(gram(x), gram(r)), correlation, best, len(anchors))

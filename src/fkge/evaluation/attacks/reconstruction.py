"""Reconstruction: what a host makes of G(X) = XW, rows that a client sent under a mapping it kept to itself.

Nothing of this breaks a rule of the game: the host only looks at what comes. Four ways in, by what the host has:

    gram_from_repeat   one batch under two successive mappings, and the gradient between: X Xᵀ, by one division
    replay             all samples and gradients of a game: the host repeats the client's arithmetic, and with the
                       mapping's course knows X up to the rotation W began as. It begins as the identity wherever the
                       widths agree: then X itself
    from_anchors       true rows of a few entities (public ones, or a colluder's): W, hence all rows
    nothing at all     where W is a rotation, G(X) G(X)ᵀ *is* X Xᵀ: who is near to whom needs no attack

Noise on the host's votes does not enter anywhere: it protects the other side. `remains` says what is left when the
rows themselves were rotated, noised, or both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fkge.errors import SettingsError
from fkge.evaluation.attacks.result import Floats, Result

_PAIRS = 200_000
"""Pairs of rows on which `remains` compares distances, at most."""


@dataclass(frozen=True)
class Recovery(Result):
    """How near guessed rows are to the true ones.

    Attributes:
        error: ‖guess − truth‖ / ‖truth‖, Frobenius; 0 is exact, and 1 is what guessing zero scores.
        cosine: mean over rows between guess and truth.
        identified: share of guesses whose nearest true row, by cosine, is the right one.
        rows: how many were compared.
    """

    error: float
    cosine: float
    identified: float
    rows: int


@dataclass(frozen=True)
class Remains(Result):
    """What released rows still tell about the true ones.

    Attributes:
        gram_error: ‖R Rᵀ − X Xᵀ‖ / ‖X Xᵀ‖ without any help; 0 gives X away up to a rotation.
        distances: correlation of the distances between rows, released against true; 1 tells who is near to whom.
        from_anchors: the other rows, recovered with the help of the anchors.
        anchors: how many.
    """

    gram_error: float
    distances: float
    from_anchors: Recovery
    anchors: int


def relative_error(truth: npt.ArrayLike, guess: npt.ArrayLike) -> float:
    """‖guess − truth‖ / ‖truth‖, Frobenius."""
    t, g = np.asarray(truth, np.float64), np.asarray(guess, np.float64)
    if t.shape != g.shape or not t.any():
        raise SettingsError(f"a guess of shape {g.shape} cannot be held against {t.shape}, or all of that is zero")
    return float(np.linalg.norm(g - t) / np.linalg.norm(t))


def gram(rows: npt.ArrayLike) -> Floats:
    """Inner products of all rows, (n, n): rows (n, d) up to a rotation."""
    x = np.asarray(rows, np.float64)
    out: Floats = x @ x.T
    return out


def recovery(truth: npt.ArrayLike, guess: npt.ArrayLike) -> Recovery:
    """Hold guessed rows (n, d) against the true ones."""
    t, g = np.asarray(truth, np.float64), np.asarray(guess, np.float64)
    error = relative_error(t, g)
    unit_t, unit_g = (x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300) for x in (t, g))
    right = 0
    for i in range(0, len(t), 1024):
        nearest = (unit_g[i : i + 1024] @ unit_t.T).argmax(axis=1)
        right += int((nearest == np.arange(i, i + len(nearest))).sum())
    return Recovery(error, float((unit_t * unit_g).sum(axis=1).mean()), right / len(t), len(t))


def gram_from_repeat(first: npt.ArrayLike, second: npt.ArrayLike, gradient: npt.ArrayLike, lr: float) -> Floats:
    """X Xᵀ of a batch that was seen before and after one step of descent.

    The client did W′ = W − lr Xᵀ g, so XW′ − XW = −lr (X Xᵀ) g, and the host sent g. Exact where g has as many
    independent rows as the batch has (a host that wants to know sends such a g); otherwise X Xᵀ as far as g tells it
    apart. Momentum and the pull towards orthogonality are left out: `replay` reckons with both.

    Args:
        first: XW, (b, d).
        second: XW′, (b, d).
        gradient: g, (b, d).
        lr: the rate agreed on.
    """
    a, b, g = (np.asarray(x, np.float64) for x in (first, second, gradient))
    if not a.shape == b.shape == g.shape or lr <= 0:
        raise SettingsError(
            f"two views of a batch and their gradient have one shape, and lr > 0; got {a.shape}, {b.shape}, {g.shape}, "
            f"{lr:g}"
        )
    out: Floats = -((b - a) @ np.linalg.pinv(g)) / lr
    return (out + out.T) / 2


class Replay:
    """A host that repeats the client's arithmetic beside it.

    Say W = Q M with M the identity at first: Q is what W began as, the identity where both widths agree and else
    unknown. With X′ = X Q, samples are X′ M, and the client's step W ← W − lr (momentum V + Xᵀ g), then
    W ← (1+β) W − β W Wᵀ W, is the same step of M with X′ in place of X. M is known at every moment, so are the batch's
    rows X′ = samples M⁻¹, and with them the next M. Holds for d_client ≤ d_host; a client of larger width loses
    directions in the first step, and the host sees nothing of those.

    Args:
        dim: d_host.
        lr, momentum, beta: the rules of the game, which both sides know.
    """

    def __init__(self, dim: int, *, lr: float, momentum: float = 0.0, beta: float = 0.0) -> None:
        self._lr, self._momentum, self._beta = lr, momentum, beta
        self.mapping: Floats = np.eye(dim)
        self._velocity: Floats = np.zeros((dim, dim))

    def rows(self, translated: npt.ArrayLike) -> Floats:
        """The client's rows, as they began, of what it sends now: (n, d_host) to (n, d_host)."""
        seen = np.asarray(translated, np.float64)
        return np.asarray(np.linalg.solve(self.mapping.T, seen.T).T, np.float64)

    def step(self, samples: npt.ArrayLike, gradient: npt.ArrayLike) -> None:
        """One adversarial step: what came, (b, d_host), and what was answered, (b, d_host)."""
        batch = self.rows(samples)
        self._velocity = self._momentum * self._velocity + batch.T @ np.asarray(gradient, np.float64)
        m = self.mapping - self._lr * self._velocity
        self.mapping = (1 + self._beta) * m - self._beta * m @ (m.T @ m)


def replay(
    samples: Sequence[npt.ArrayLike],
    gradients: Sequence[npt.ArrayLike],
    translated: npt.ArrayLike,
    *,
    lr: float,
    momentum: float = 0.0,
    beta: float = 0.0,
) -> Floats:
    """The client's rows (n, d_host), up to the rotation W began as, out of one game's transcript.

    Args:
        samples: (b, d_host) each, in order.
        gradients: the host's answers.
        translated: (n, d_host) all rows, as sent after the last of these steps.
    """
    if len(samples) != len(gradients):
        raise SettingsError(f"every batch has its answer; got {len(samples)} and {len(gradients)}")
    host = Replay(np.asarray(translated).shape[1], lr=lr, momentum=momentum, beta=beta)
    for batch, answer in zip(samples, gradients, strict=True):
        host.step(batch, answer)
    return host.rows(translated)


def from_anchors(
    seen: npt.ArrayLike, anchors: npt.NDArray[np.integer], rows: npt.ArrayLike, *, rotation: bool = False
) -> Floats:
    """All rows (n, d), given the true ones of a few.

    Args:
        seen: G(X), (n, d_host).
        anchors: (a,) positions of the rows that are known.
        rows: (a, d) those rows.
        rotation: W is known to be orthogonal (square): by Procrustes, d anchors suffice where they are exact and
            fewer tell more than least squares would. Otherwise by least squares, of smallest norm if a < d_host.
    """
    g, known = np.asarray(seen, np.float64), np.asarray(rows, np.float64)
    ids = np.asarray(anchors, np.int64)
    if len(ids) == 0 or len(ids) != len(known) or (rotation and g.shape[1] != known.shape[1]):
        raise SettingsError(
            f"anchors are one or more rows that belong to rows seen, of the same width if W is a rotation; got "
            f"{len(ids)} positions, rows {known.shape}, seen {g.shape}"
        )
    if rotation:
        u, _, vt = np.linalg.svd(g[ids].T @ known)
        back = u @ vt
    else:
        back = np.linalg.lstsq(g[ids], known, rcond=None)[0]
    return np.asarray(g @ back, np.float64)


def remains(
    truth: npt.ArrayLike, released: npt.ArrayLike, anchors: npt.NDArray[np.integer], *, seed: int = 0
) -> Remains:
    """What a release gives away, with and without help.

    Args:
        truth: X, (n, d).
        released: (n, d): rotated, noised, or whatever was done to it.
        anchors: positions of rows the attacker knows; it is scored on the others. The better of least squares and
            Procrustes counts.
        seed: of the pairs compared, where there are too many.
    """
    x, r = np.asarray(truth, np.float64), np.asarray(released, np.float64)
    others = np.setdiff1d(np.arange(len(x)), anchors)
    if x.shape != r.shape or len(others) < 2:
        raise SettingsError(f"two or more rows must be left beside the anchors, of one shape: {x.shape}, {r.shape}")
    guesses = [from_anchors(r, anchors, x[anchors], rotation=rotation) for rotation in (False, True)]
    best = min((recovery(x[others], guess[others]) for guess in guesses), key=lambda found: found.error)
    i, j = np.triu_indices(len(others), 1)
    if len(i) > _PAIRS:
        chosen = np.random.default_rng(seed).choice(len(i), _PAIRS, replace=False)
        i, j = i[chosen], j[chosen]
    true, seen = (np.linalg.norm(m[others][i] - m[others][j], axis=1) for m in (x, r))
    level = float(true.std() * seen.std())
    correlation = float(((true - true.mean()) * (seen - seen.mean())).mean() / level) if level > 0 else 0.0
    return Remains(relative_error(gram(x), gram(r)), correlation, best, len(anchors))

"""A client's rows, out of what a host is given. Nothing is claimed to protect them; this says how little does.

Three ways in, on the victim's own vectors: a real game between it and the peer it shares most with, replayed by the
host; a few rows known from elsewhere (twice as many as there are dimensions, where there are that many); and none, for
under a rotation inner products are what they were.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fkge.align import random_rotation
from fkge.audits.subject import OPEN, Subject, finding
from fkge.evaluation.attacks import gram, recovery, relative_error, remains, replay
from fkge.federation import Owner
from fkge.ppat import Candidate, Gradient, PpatClient, PpatHost, Samples
from fkge.ppat.messages import FromClient

_STEPS, _QUICK_STEPS = 60, 12
_ROWS = 1500

_CLAIMS = {
    "frame": "rows are sent as they are",
    "procrustes": "rows are sent under a secret rotation, which hides no distance: no guarantee",
    "ppat": "client's vectors: no guarantee",
    "ppat+refine": "client's vectors: no guarantee",
}


def reconstruction(subject: Subject) -> dict[str, Any]:
    """How near a host comes to the victim's rows, by every way of sending them that there is."""
    settings = subject.simulation.settings
    client, host = subject.track(subject.owner), subject.track(subject.peer)
    x, y = _rows(client, subject.peer), _rows(host, subject.owner)
    chosen = torch.from_numpy(np.random.default_rng([subject.seed, 5]).permutation(len(x))[:_ROWS])
    x, y = x[chosen], y[chosen]
    truth = x.double().numpy()
    figures: dict[str, Any] = {"frame": {"error": 0.0, "identified": 1.0}}
    known = min(2 * x.shape[1], len(x) // 2)
    if known >= 1 and len(x) - known >= 2:
        anchors = np.random.default_rng([subject.seed, 6]).permutation(len(x))[:known]
        turned = (x @ random_rotation(x.shape[1], torch.Generator().manual_seed(subject.seed)).to(x.dtype)).double()
        figures["procrustes"] = remains(truth, turned.numpy(), anchors).to_dict()
    steps = min(max(1, settings.ppat.steps), _QUICK_STEPS if subject.quick else _STEPS)
    rules = settings.ppat.model_copy(
        update={"steps": steps, "candidates": 1, "teachers": min(settings.ppat.teachers, len(x))}
    )
    guess, last = _game(x, y, rules, subject)
    same = x.shape[1] == y.shape[1]
    figures["ppat"] = {
        "steps": steps, "gram_error": relative_error(gram(truth), gram(guess)),
        "rows": len(x), "without_replay": relative_error(gram(truth), gram(last)),
        **(recovery(truth, guess).to_dict() if same else {}),
    }  # fmt: skip
    game = figures["ppat"]
    words = [f"game replayed: error {game['error']:.1e}" if same else f"game's Gram: error {game['gram_error']:.1e}"]
    if "procrustes" in figures:
        p = figures["procrustes"]
        words.append(f"rotated: Gram error {p['gram_error']:.1e}, {known} anchors: {p['from_anchors']['error']:.1e}")
    covered = "" if settings.privacy.mode != "dp" else "; single triples are covered by DP-SGD, rows need not be hidden"
    return finding(
        _CLAIMS[settings.translate] + covered, OPEN,
        f"{len(x):,} rows of {subject.owner} that {subject.peer} gets ({settings.translate})", "; ".join(words),
        translate=settings.translate, **figures,
    )  # fmt: skip


def _rows(owner: Owner, peer: str) -> torch.Tensor:
    return owner.tables.read("entity", torch.from_numpy(owner.common(peer).entities.copy())).cpu().float()


def _game(x: torch.Tensor, y: torch.Tensor, rules: Any, subject: Subject) -> tuple[Any, Any]:
    """A real game; the rows as the host works them out of its transcript, and as it got them last."""
    seeds = [torch.Generator().manual_seed(subject.seed + i) for i in (7, 8)]
    client, host = PpatClient(x, y.shape[1], rules, seeds[0]), PpatHost(y, rules, seeds[1])
    samples, gradients, last = [], [], None
    with subject.progress.task("replaying a game", rules.steps, "steps") as task:
        message: FromClient | None = client.start()
        while message is not None:
            answer = host.step(message)
            if isinstance(message, Samples) and isinstance(answer, Gradient):
                samples.append(message.vectors.double().numpy())
                gradients.append(answer.vectors.double().numpy())
                task.advance(1)
            elif isinstance(message, Candidate):
                last = message.vectors.double().numpy()
            message = client.step(answer)
    assert last is not None
    guess = replay(samples, gradients, last, lr=rules.lr, momentum=rules.momentum, beta=rules.beta)
    return guess, last

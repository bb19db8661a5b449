"""The alignment under a dictionary: what does what passed between two owners say about labels they do not share?

The attacker holds the best dictionary there is, the victim's own labels. Against hashed labels that is all it takes;
against private set intersection, and the tokens by which rows begin alike, it must find nothing. As a check that the
attack can see, it also tries the curve points of labels under the exponent 1, which an intersection whose secret were
known would send.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fkge.align import PsiClient, PsiHost
from fkge.align.links import KINDS
from fkge.audits.subject import BROKEN, HOLDS, Subject, finding
from fkge.evaluation.attacks import dictionary as look_up
from fkge.evaluation.attacks import usual_hashes, windows
from fkge.evaluation.attacks.dictionary import Hash

_ITEMS, _QUICK_ITEMS = 2000, 300
_WIDTH = 32
"""Bytes of a SHA-256, and of a coordinate on the curve."""
_SALTS = (b"fkge", b"PSI1", b"tokens", b"nfkc-1")
"""Words that occur in the protocol, in case one was used for a salt."""


def dictionary(subject: Subject) -> dict[str, Any]:
    """Labels recovered: from hashes (all, as ever), from an intersection of the same owners, from their tokens."""
    victim, peer = subject.victim, subject.peer
    some = _QUICK_ITEMS if subject.quick else _ITEMS
    rng = np.random.default_rng([subject.seed, 4])
    labels = _some(list(victim.shared.entities), some, rng)
    started = time.monotonic()
    hashed = look_up((hashlib.sha256(label.encode()).digest() for label in labels), labels, usual_hashes())
    seconds = time.monotonic() - started
    with subject.progress.task("a dictionary against the alignment", 2, "transcripts") as task:
        transcript, keys = _transcript(subject, some, rng)
        task.advance(1)
        words = [*labels, *keys]
        # Only this owner's own part of what passed is at stake: but the attacker is given both.
        psi = look_up(windows(transcript, _WIDTH), words, usual_hashes(_SALTS) | {"no exponent": _points(words)})
        task.advance(1)
    tokens = [bytes(token.astype("<u8").tobytes()) for kind in KINDS for token in victim.tokens[kind]]
    every = [*victim.shared.entities, *victim.shared.relations]
    told = look_up(tokens, every, usual_hashes(_SALTS))
    broken = bool(psi.labels or told.labels)
    share = len(hashed.labels) / max(1, len(labels))
    return finding(
        "no label can be told from an intersection or from tokens (from hashed labels, every one can)",
        BROKEN if broken else HOLDS,
        f"the alignment of {subject.owner} and {peer}",
        f"hashes: {share:.0%} of {len(labels):,} in {seconds:.2f} s; PSI: {len(psi.labels)}, "
        f"tokens: {len(told.labels)}",
        hashed={"recovered": share, "labels": len(labels), "seconds": round(seconds, 4), "hash": hashed.hash},
        psi=_brief(psi.to_dict(), len(words)), tokens=_brief(told.to_dict(), len(every)),
    )  # fmt: skip


def _brief(found: dict[str, Any], tried: int) -> dict[str, Any]:
    return {
        "recovered": len(found["labels"]), "dictionary": tried, "looked_at": found["tokens"],
        "by_chance": found["by_chance"], "hash": found["hash"],
    }  # fmt: skip


def _some(items: Sequence[str], most: int, rng: np.random.Generator) -> list[str]:
    if len(items) <= most:
        return list(items)
    return [items[i] for i in np.sort(rng.permutation(len(items))[:most])]


def _transcript(subject: Subject, most: int, rng: np.random.Generator) -> tuple[list[bytes], list[str]]:
    """Every message of an intersection of the two owners' entity keys, some of them; and those keys."""
    links = subject.federation.links
    pair = next(names for names in links if {subject.owner, subject.peer} == set(names))
    one, other = (subject.homes[name].shared for name in pair)
    rule = subject.simulation.settings.psi.normalisation
    keys = links[pair].keys(one, 0, KINDS, rule).entities, links[pair].keys(other, 1, KINDS, rule).entities
    side = {name: _some(sorted(own), most, rng) for name, own in zip(pair, keys, strict=True)}
    settings = subject.simulation.settings.psi.model_copy(update={"min_overlap": 0})
    client, host = PsiClient(side[subject.peer], settings), PsiHost(side[subject.owner], settings)
    said: list[bytes] = []
    message: bytes | None = client.start()
    while message is not None:
        said.append(message)
        message = (host if len(said) % 2 else client).step(message)
    return said, sorted({*side[subject.owner], *side[subject.peer]})


def _points(words: Sequence[str]) -> Hash:
    """The x coordinate of each word's point on the curve, as an intersection with the exponent 1 would send it."""
    import private_set_intersection.python as library

    hider = library.client.CreateFromKey((1).to_bytes(32, "big"), True)
    points = dict(zip(words, hider.CreateRequest(list(words)).encrypted_elements, strict=True))
    return lambda word: bytes(points[word][1:])

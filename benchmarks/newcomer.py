"""What an owner gains that joins late, where the model is tied to its axes: by how it takes what the others send.

    python -m benchmarks.newcomer FEDERATION --late el --how adopt --device cuda

trains three owners in step and one of them `--delay` epochs behind, and prints validation MRR as JSON. How:

    adopt        as `fkge.federation.owner.exchange` does it: the others' rows replace its own, the rest begins afresh
    kept         the same, but the rest stays as it was
    procrustes   rows of another frame are aligned by Procrustes, by everybody, as 0.1.0 did it
    alone        it exchanges with nobody
    together     it is not late
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fkge.align import Common, Tokens, agree_on_tokens
from fkge.embed import make_model
from fkge.federation import FederationSettings, Owner, PeerProfile
from fkge.federation.exchange import ReceivedUpdate
from fkge.federation.owner import seed_of, training
from fkge.federation.owner.exchange import Exchange
from fkge.federation.owner.store import widths
from fkge.federation.source import read_federation
from fkge.graph import Graph

_PRODUCTS = {
    "loss": "1vsall", "reciprocal": True, "optimizer": "adagrad", "lr": 0.1, "regularization": 0.05, "batch": 1000,
    "decay": 0.1,
}  # fmt: skip
_DISTANCES = {"negatives": 64, "share": 16, "batch": 256, "lr": 0.01, "decay": 0.05}
MODELS: dict[str, dict[str, Any]] = {
    "ComplEx": {"dim": 64, "regularizer": "n3", **_PRODUCTS},
    "DistMult": {"dim": 128, "regularizer": "n3", **_PRODUCTS},
    "RotatE": {"dim": 64, "margin": 6.0, **_DISTANCES},
    "TransE": {"dim": 64, "norm": 1, "margin": 5.0, "init": 0.2, **_DISTANCES},
}
_SLICE = 3  # epochs between exchanges


class _Kept(Exchange):
    def _redraw(self, updates: Sequence[ReceivedUpdate]) -> None:
        """Leave all rows as they are."""


class _Procrustes(Exchange):
    def agree_on_frame(self, updates: Sequence[ReceivedUpdate]) -> bool:
        return False

    def _can_bring(self, update: ReceivedUpdate) -> bool:
        return True


HOW: dict[str, type[Exchange]] = {
    "adopt": Exchange, "kept": _Kept, "procrustes": _Procrustes, "alone": Exchange, "together": Exchange
}  # fmt: skip


def make_owners(
    graphs: dict[str, Graph], pairs: dict[tuple[str, str], tuple[Common, Common]], settings: FederationSettings,
    late: str, how: str, seed: int,
) -> dict[str, Owner]:  # fmt: skip
    """Owners before their first training; without peers if `how` is ``alone``."""
    tokens = {name: Tokens.draw(graph, seed_of(seed, name)) for name, graph in graphs.items()}
    agree_on_tokens(tokens, pairs)
    wide, model = widths(make_model(settings.train)), settings.train.model
    peers: dict[str, dict[str, PeerProfile]] = {name: {} for name in graphs}
    for (a, b), (mine, theirs) in pairs.items() if how != "alone" else ():
        peers[a][b], peers[b][a] = PeerProfile(mine, model, wide), PeerProfile(theirs, model, wide)
    training.Exchange = HOW[how]  # type: ignore[misc]
    return {
        name: Owner(name, graph, settings, peers[name], seed=seed, secret=5,
                    tokens=None if name == late and how != "together" else tokens[name])
        for name, graph in graphs.items()
    }  # fmt: skip


def exchange(client: Owner, host: Owner, session: int) -> ReceivedUpdate:
    """What `host` gets from `client`."""
    sends, takes = client.client(host.name, session), host.host(client.name, session)
    message = sends.start()
    while (answer := sends.step(takes.step(message))) is not None:
        message = answer
    assert takes.update is not None
    return takes.update


def run(owners: dict[str, Owner], late: str, delay: int, tell: Callable[[str, int, float], None]) -> None:
    """Train all owners in step, `late` behind by `delay` rounds; tell every round's score."""
    for turn in itertools.count():
        here = {name: owner for name, owner in owners.items() if name != late or turn >= delay}
        trained = {name for name, owner in here.items() if owner.trainer.epoch}
        updates = {
            host: [exchange(owners[client], here[host], turn + 1) for client in trained if client in here[host].peers]
            for host in trained
            if not here[host].spent
        }
        for name, owner in here.items():
            if not owner.spent:
                owner.improve(updates.get(name, []), initial=owner.trainer.epoch == 0)
                tell(name, owner.trainer.epoch, owner.score())
        if all(owner.spent for owner in owners.values()):
            return


def main(argv: Sequence[str] | None = None) -> None:
    """Parse the command line, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("federation", type=Path)
    parser.add_argument("--owners", default="el,es,ja")
    parser.add_argument("--late", default="el")
    parser.add_argument("--how", choices=HOW, default="adopt")
    parser.add_argument("--model", choices=MODELS, default="ComplEx")
    parser.add_argument("--epochs", type=int, default=90)
    parser.add_argument("--delay", type=int, default=9, help="epochs")
    parser.add_argument("--ratio", type=float, default=1.0, help="part of the aligned pairs that is used")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    given = parser.parse_args(argv)
    train = {"model": given.model, "schedule": "linear", "validation_triples": 1000, "device": given.device}
    settings = FederationSettings.build({
        "initial_epochs": _SLICE, "epochs": _SLICE, "exchanges": given.epochs // _SLICE - 1, "test_every": 1_000_000,
        "train": train | MODELS[given.model],
    })  # fmt: skip
    names = given.owners.split(",")
    federation = read_federation(given.federation)
    pairs = {
        pair: (sides[0].sample(given.ratio, given.seed), sides[1].sample(given.ratio, given.seed))
        for pair, sides in federation.pairs.items()
        if set(pair) <= set(names)
    }
    graphs = {name: federation.members[name].graph for name in names}
    owners = make_owners(graphs, pairs, settings, given.late, given.how, given.seed)
    scores: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    run(owners, given.late, given.delay // _SLICE, lambda name, epoch, score: scores[name].append((epoch, score)))
    best = {name: round(max(score for _, score in told), 4) for name, told in scores.items()}
    print(json.dumps({
        "model": given.model, "late": given.late, "how": given.how, "ratio": given.ratio, "seed": given.seed,
        "best": best, "first": [round(score, 4) for _, score in scores[given.late][:4]],
    }))  # fmt: skip


if __name__ == "__main__":
    main()

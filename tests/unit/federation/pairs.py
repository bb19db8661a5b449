"""Small owners that know each other, and functions that carry messages between them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fkge.align import Tokens, agree_on_tokens, find_common, same_labels
from fkge.embed import make_tables
from fkge.federation.exchange import ClientRole, HostRole, ReceivedUpdate
from fkge.federation.owner import Owner, PeerProfile, Plan, seed_of
from fkge.federation.settings import FederationSettings
from fkge.graph import Graph
from tests.conftest import random_graph

TRAIN: dict[str, Any] = {"dim": 8, "negatives": 4, "batch": 64, "device": "cpu", "lr": 0.02, "norm": 2}
NO_TRAINING = Plan(initial=0, total=0, alone=False)
TWO = {"a": random_graph(seed=1), "b": random_graph(30, 4, seed=2)}
THREE = {name: random_graph(seed=seed) for seed, name in enumerate("abc")}
PPAT: dict[str, Any] = {"steps": 12, "candidates": 2, "hidden": 8, "batch": 8, "teachers": 2}


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def federation_settings(train: Mapping[str, Any] | None = None, **values: Any) -> FederationSettings:
    """Small and quick, unless said otherwise."""
    values = {"start": "alone", "initial_epochs": 3, "exchanges": 4, "epochs": 2, "test_every": 1, **values}
    return FederationSettings.build({**values, "train": {**TRAIN, **(train or {})}, "ppat": PPAT})


def make_owners(
    graphs: Mapping[str, Graph],
    settings: FederationSettings | Mapping[str, FederationSettings],
    *,
    plan: Plan | None = None,
    seed: int = 0,
    together: bool = False,
) -> dict[str, Owner]:
    """Owners of these graphs, aligned by equal labels."""
    ways = settings if isinstance(settings, Mapping) else dict.fromkeys(graphs, settings)
    pairs = {(a, b): find_common(graphs[a], graphs[b], *same_labels(graphs[a], graphs[b]))
             for a, b in itertools.combinations(graphs, 2)}  # fmt: skip
    tokens = {name: Tokens.draw(graph, seed_of("tests", name)) for name, graph in graphs.items()}
    agree_on_tokens(tokens, pairs)
    forms = {name: make_tables(ways[name].train, 2, 2) for name in graphs}
    peers: dict[str, dict[str, PeerProfile]] = {name: {} for name in graphs}
    for names, sides in pairs.items():
        for (me, other), common in zip((names, names[::-1]), sides, strict=True):
            form = forms[other]
            widths = {"entity": form.width("entity"), "relation": form.width("relation")}
            peers[me][other] = PeerProfile(common, ways[other].train.model, widths)  # type: ignore[arg-type]
    return {
        name: Owner(name, graph, ways[name], peers[name], plan=plan, seed=seed, secret=5,
                    tokens=tokens[name] if together else None)
        for name, graph in graphs.items()
    }  # fmt: skip


def play(client: ClientRole, host: HostRole) -> ReceivedUpdate:
    """Carry messages until the client has no more to say."""
    message = client.start()
    while True:
        answer = client.step(host.step(message))
        if answer is None:
            break
        message = answer
    assert host.update is not None
    return host.update


def exchange(client: Owner, host: Owner, session: int = 1) -> ReceivedUpdate:
    """What `host` gets from `client`."""
    return play(client.client(host.name, session), host.host(client.name, session))


def numbers(owner: Owner) -> dict[str, Tensor]:
    """Every table and the state of its optimizer."""
    return {name: t.clone() for name, t in owner.tables.export(state=True).items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)

"""Shared by the tests of exchanges and owners: small owners that know each other, and somebody to carry messages."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch

from fkge.align import Tokens, find_common, same_labels, settle
from fkge.embed import make_tables
from fkge.federation.exchange import ClientRole, Gift, HostRole
from fkge.federation.owner import Acquaintance, Owner, Plan, seed_of
from fkge.federation.settings import FederationSettings
from fkge.graph import Graph

TRAIN: dict[str, Any] = {"dim": 8, "negatives": 4, "batch": 64, "device": "cpu", "lr": 0.02, "norm": 2}
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
    settle(tokens, pairs)
    forms = {name: make_tables(ways[name].train, 2, 2) for name in graphs}
    peers: dict[str, dict[str, Acquaintance]] = {name: {} for name in graphs}
    for names, sides in pairs.items():
        for (me, other), common in zip((names, names[::-1]), sides, strict=True):
            form = forms[other]
            widths = {"entity": form.width("entity"), "relation": form.width("relation")}
            peers[me][other] = Acquaintance(common, ways[other].train.model, widths)  # type: ignore[arg-type]
    return {
        name: Owner(name, graph, ways[name], peers[name], plan=plan, seed=seed, secret=5,
                    tokens=tokens[name] if together else None)
        for name, graph in graphs.items()
    }  # fmt: skip


def play(client: ClientRole, host: HostRole) -> Gift:
    """Carry messages until the client has no more to say."""
    message = client.start()
    while True:
        answer = client.step(host.step(message))
        if answer is None:
            break
        message = answer
    assert host.gift is not None
    return host.gift


def exchange(client: Owner, host: Owner, session: int = 1) -> Gift:
    """What `host` gets from `client`."""
    return play(client.client(host.name, session), host.host(client.name, session))

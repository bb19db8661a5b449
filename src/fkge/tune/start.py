"""The start of a search: the settings of its first trial, and checks of its arguments."""

from __future__ import annotations

import os
from dataclasses import replace

from fkge.embed import Trainer, make_tables
from fkge.errors import GraphError, RunError, SettingsError
from fkge.federation import FederationSettings
from fkge.graph import Graph, split_triples
from fkge.settings import Settings, SettingValues, TrainSettings
from fkge.tune import space
from fkge.tune.proposal import Values, nested

VALID_SHARE = 0.05


def start_of(kind: type[Settings], given: SettingValues, *, triples: int, seed: int, config: bool) -> Settings:
    """Return the settings of the first trial.

    Args:
        kind: `TrainSettings` or `FederationSettings`.
        given: settings by key, from a file and from the command line.
        triples: of the graph, or of the largest one of a federation.
        seed: of everything random.
        config: `given` is a whole recipe, so nothing is added to it but the seed.

    Raises:
        SettingsError: they do not go together.
    """
    graph = kind is TrainSettings
    values: Values = {}
    if not config:
        prefix = "" if graph else "train."
        values = {prefix + key: value for key, value in _start_with(given.get(prefix + "model"), triples).items()}
        if graph:
            values["validate_every"] = next((every for most, every in space.VALIDATE_EVERY if triples > most), 5)
        else:
            values |= space.START_FEDERATED
    values |= given
    if graph:
        values["seed"] = seed
    return kind.build(nested(values))


def _start_with(model: str | None, triples: int) -> SettingValues:
    """Return the first settings, of a model if one is fixed."""
    start = space.start(triples)
    if model is None:
        return start
    like = "TransE" if model.lower() in map(str.lower, space.PROJECTING) else model
    variants = [found for found in space.VARIANTS if found["model"].lower() == like.lower()]
    return {**start, **(variants[0] if variants and like.lower() != "complex" else {}), "model": model}


def check_budget(minutes: float, jobs: int) -> None:
    """Raise `SettingsError` for a budget or a number of processes that cannot work."""
    if not minutes > 0:
        raise SettingsError(f"minutes is {minutes:g}; give the search some time, such as --minutes 10")
    if jobs < 1:
        raise SettingsError(f"jobs is {jobs}; at least one process is needed")
    if jobs > 4 * (os.cpu_count() or 1):
        raise SettingsError(f"jobs is {jobs}, and this machine has {os.cpu_count()} processors; choose fewer")


def with_valid(graph: Graph, seed: int) -> Graph:
    """Return the graph with validation triples that are split off from its training triples.

    Raises:
        GraphError: there are too few to split any off.
    """
    train, valid, _ = split_triples(graph.train, seed=seed, fractions=(1 - VALID_SHARE, VALID_SHARE, 0.0))
    if len(valid) == 0:
        raise GraphError(
            graph.name, "has no validation triples, and too few training triples to split any off",
            "Add a valid file next to train.",
        )  # fmt: skip
    return replace(graph, splits={**graph.splits, "train": train, "valid": valid})


def check_trains(graph: Graph, start: Settings) -> None:
    """Raise the error that the first trial would end with."""
    assert isinstance(start, TrainSettings)
    if len(graph.train) == 0:
        raise RunError(f"{graph.name} has no training triples")
    small = start.model_copy(update={"dim": 2, "relation_dim": None, "device": "cpu"})
    Trainer(make_tables(small, len(graph.entities), len(graph.relations)), graph.train[:1], small)


def check_privacy(start: FederationSettings) -> None:
    """Raise `SettingsError` for a privacy mode: each trial would be a release."""
    if start.privacy.mode != "none":
        raise SettingsError(
            f"privacy.mode is {start.privacy.mode!r}: every trial would release vectors, and pay for them; tune "
            "without noise, on data that may be used for it, and set the privacy mode in `fkge simulate`"
        )

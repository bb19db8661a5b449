"""Keyword arguments of `fkge.train` and `Federation.simulate`, typed so that editors and type checkers see them.

Each class has the keys of one settings model, where defaults, ranges and meanings are; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

from fkge.align import PsiSettings
from fkge.align.psi import Normalisation
from fkge.embed import DpSettings
from fkge.evaluation.ranking import Ties
from fkge.federation.settings import PrivacySettings, PrivateSettings, Translate
from fkge.ppat import PpatSettings
from fkge.recipes import find
from fkge.settings import Settings, TrainSettings, read_toml

S = TypeVar("S", bound=Settings)


class EngineOptions(TypedDict, total=False):
    """Options of the engine ``"ray"``: the cluster's address, and CPUs and GPUs for each owner."""

    address: str
    cpus: float
    gpus: float


class EvaluationOptions(TypedDict, total=False):
    """Options of `fkge.evaluation.evaluate`."""

    ties: Ties
    raw: bool
    type_constraint: bool
    categories: bool
    accuracy: bool
    seed: int
    memory: float
    kernels: bool


class TrainOverrides(TypedDict, total=False):
    """Keys of `fkge.TrainSettings`."""

    model: str
    dim: int
    relation_dim: int | None
    norm: Literal[1, 2]
    normalize: bool
    reciprocal: bool
    init: float | None
    loss: str
    smoothing: float
    margin: float | None
    temperature: float
    regularization: float
    regularizer: Literal["l3", "n3", "f2"]
    regularization_scale: Literal["fixed", "sparsity"]
    dropout: float
    relation_weight: float
    negatives: int
    share: int
    corruption: Literal["uniform", "bernoulli"]
    filtered: bool
    optimizer: Literal["sgd", "adagrad", "adam"]
    lr: float
    schedule: Literal["plateau", "linear"]
    decay: float
    batch: int
    epochs: int
    validate_every: int
    patience: int
    validation_triples: int
    seed: int
    device: str
    threads: int
    kernels: bool
    precision: Literal["auto", "float32", "bfloat16"]


class PpatOverrides(TypedDict, total=False):
    """Keys of the section ``ppat``."""

    batch: int
    steps: int
    candidates: int
    teachers: int
    hidden: int
    lr: float
    momentum: float
    beta: float
    lam: float
    delta: float
    csls_k: int
    csls_rows: int


class PrivateOverrides(TypedDict, total=False):
    """Keys of the section ``private``."""

    epochs: int
    pull: tuple[float, ...]
    alone: bool
    follow: Literal["rows", "relations"]
    scale: float
    rest: float
    every: int
    tests: int


class PrivacyOverrides(TypedDict, total=False):
    """Keys of the section ``privacy``."""

    mode: Literal["none", "paper", "dp"]
    epsilon: float | None
    delta: float
    ledger: str | None


class DpOverrides(TypedDict, total=False):
    """Keys of the section ``dp``."""

    noise: float
    rate: float
    clip: float
    negatives: int
    relations: Literal["learn", "public"]
    optimizer: Literal["adam", "momentum", "sgd"]
    momentum: float
    lr: float
    average: float
    lazy: bool
    gather: int
    dim: int | None
    margin: float | None
    init: float | None
    norm: Literal[1, 2] | None
    decay: float
    travel: float | None


class PsiOverrides(TypedDict, total=False):
    """Keys of the section ``psi``."""

    max_items: int
    min_overlap: int
    runs: int
    period: float
    normalisation: Normalisation


class FederationOverrides(TypedDict, total=False):
    """Keys of `fkge.FederationSettings`; of a section given as a dict, only the keys in it change."""

    start: Literal["together", "alone"]
    translate: Translate
    share: Literal["both", "entities", "relations"]
    ratio: float
    chains: bool
    aggregate: Literal["support", "average", "replace", "validation"]
    moments: Literal["average", "keep", "fresh"]
    limit: float
    neighbours: bool
    initial_epochs: int
    exchanges: int
    epochs: int
    test_every: int
    regularization_factor: float
    validate_means: bool
    lone_epochs: int
    patience: int
    decide: Literal["all", "strict"]
    gather: bool
    window: float
    train_alone: bool
    period: float
    answer: float
    train: TrainOverrides | TrainSettings
    ppat: PpatOverrides | PpatSettings
    private: PrivateOverrides | PrivateSettings
    privacy: PrivacyOverrides | PrivacySettings
    dp: DpOverrides | DpSettings
    psi: PsiOverrides | PsiSettings


def merge_settings(
    kind: type[S], base: S | Mapping[str, object] | str | Path | None, overrides: Mapping[str, object]
) -> S:
    """Return `base` with `overrides` applied; of a section given as a dict, only the keys in it change.

    Args:
        kind: the settings model.
        base: settings, a dict of them, a TOML file or the name of a recipe; the defaults if None.
        overrides: values by key.

    Raises:
        SettingsError: a key is unknown or a value is out of range.
    """
    values: dict[str, Any] = {}
    if isinstance(base, Settings):
        values = base.model_dump()
    elif isinstance(base, Mapping):
        values = dict(base)
    elif base is not None:
        values = read_toml(find(base))
    for key, value in overrides.items():
        in_section = key in kind.sections() and isinstance(value, Mapping)
        values[key] = {**dict(values.get(key, {})), **value} if in_section else value  # type: ignore[dict-item]
    return kind.build(values)

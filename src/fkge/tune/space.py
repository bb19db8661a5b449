"""The search space: settings, their values, and the settings under which each of them matters. This module is data.

`TRAIN` is for every training and `FEDERATED` for a federation; `start` is where a search starts, and `VARIANTS` are
tried after it, before the sampler proposes anything. `fkge.tune.proposal` turns them into settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fkge.embed.losses import LOSSES
from fkge.embed.recommended import recommended_settings
from fkge.federation.recommended import SCHEDULE
from fkge.settings import SettingValues

Condition = Mapping[str, tuple[Any, ...]]
"""The values that other settings must have."""


@dataclass(frozen=True)
class Choice:
    """One of some values; where there is one only, nothing is searched."""

    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """A number between two, on a logarithmic scale if `log`; a whole number if both ends are."""

    low: float
    high: float
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether only whole numbers count."""
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Parameter:
    """A setting that is searched.

    Attributes:
        when: settings under which it matters; under others it has its `NEUTRAL` value.
        name: of the parameter in the study, where a setting has different values for different models.
        lone: it matters to owners that train alone too.
        default: what a setting of None amounts to.
    """

    key: str
    domain: Choice | Range
    when: Condition = field(default_factory=dict)
    name: str = ""
    lone: bool = True
    default: Any = None

    @property
    def label(self) -> str:
        """The name in the study and on the page."""
        return self.name or self.key


PRODUCT = ("ComplEx", "DistMult")
DISTANCE = ("RotatE", "TransE")
PROJECTING = ("TransH", "TransR", "TransD")
ALL_ENTITIES = tuple(name for name, loss in LOSSES.items() if loss.all_entities)
NEGATIVES = tuple(name for name, loss in LOSSES.items() if not loss.all_entities)

TRAIN: tuple[Parameter, ...] = (
    Parameter("model", Choice((*PRODUCT, *DISTANCE))),
    Parameter("loss", Choice((*ALL_ENTITIES, "sampled", "sigmoid")), {"model": PRODUCT}, "loss of ComplEx, DistMult"),
    Parameter("loss", Choice(("sampled", "sigmoid")), {"model": ("TransE", *PROJECTING)}, "loss of TransE"),
    Parameter("loss", Choice(("sigmoid",)), {"model": ("RotatE",)}, "loss of RotatE"),  # the one with a kernel
    Parameter("norm", Choice((1, 2)), {"model": ("TransE", *PROJECTING)}),
    Parameter(
        "margin", Range(1.0, 15.0), {"model": (*DISTANCE, *PROJECTING), "loss": ("sigmoid", "margin")}, default=6.0
    ),
    Parameter("reciprocal", Choice((True, False)), {"model": (*PRODUCT, *DISTANCE)}),
    Parameter("dim", Range(32, 400, log=True)),
    Parameter("optimizer", Choice(("adagrad", "adam"))),
    Parameter("lr", Range(0.02, 0.5, log=True), {"optimizer": ("adagrad",)}, "lr of adagrad"),
    Parameter("lr", Range(3e-4, 0.03, log=True), {"optimizer": ("adam",)}, "lr of adam"),
    Parameter("lr", Range(0.01, 1.0, log=True), {"optimizer": ("sgd",)}, "lr of sgd"),
    Parameter("batch", Range(100, 2000, log=True)),
    Parameter("regularizer", Choice(("n3", "f2")), {"model": PRODUCT}),
    Parameter("regularization", Range(1e-3, 0.5, log=True), {"model": PRODUCT}),
    Parameter("dropout", Range(0.0, 0.5), {"loss": ALL_ENTITIES}),
    Parameter("smoothing", Range(0.0, 0.3), {"loss": ALL_ENTITIES}),
    Parameter("relation_weight", Range(0.0, 1.0), {"model": PRODUCT, "loss": ALL_ENTITIES}),
    Parameter("share", Range(1, 64, log=True), {"loss": ("1vsall",)}),
    Parameter("negatives", Range(16, 256, log=True), {"loss": NEGATIVES}),
    Parameter("temperature", Range(0.5, 2.0), {"loss": ("sigmoid",)}),
)
"""Of every training; a setting comes after those it depends on."""

FEDERATED: tuple[Parameter, ...] = (
    Parameter("exchanges", Range(10, 60, log=True)),
    Parameter("epochs", Range(1, 8), name="epochs between exchanges"),
    Parameter("test_every", Range(1, 6), name="exchanges between tests"),
    Parameter("aggregate", Choice(("support", "average")), lone=False),
    Parameter("moments", Choice(("average", "keep")), lone=False),
)
"""Of a federation. Owners that train alone have no exchanges, but as many epochs and tests."""

FOLLOWS: tuple[tuple[str, Any, Condition], ...] = (("share", 8, {"loss": NEGATIVES}),)
"""Settings that follow from others where they are not searched, unless the start has the same ones of those others:
negatives are shared, which is many times as fast."""

NEUTRAL: SettingValues = {
    "norm": 1, "margin": None, "reciprocal": False, "regularizer": "l3", "regularization": 0.0, "dropout": 0.0,
    "smoothing": 0.0, "relation_weight": 0.0, "negatives": 64, "temperature": 1.0, "share": 1,
}  # fmt: skip
"""Values where a setting does not matter."""

OF_MODEL = ("init", "relation_dim", "normalize")
"""Settings that are not searched and mean something for one model only: another model has their defaults."""


def start(triples: int) -> SettingValues:
    """Return the settings of the first trial where none are given: those recommended for so many triples."""
    return {**recommended_settings(triples), "schedule": "plateau"}


START_FEDERATED: SettingValues = {**SCHEDULE, "exchanges": 30, "test_every": 3}
"""Those of a federation, in addition. Trials are compared before owners blend their models (`lone_epochs`)."""

VARIANTS: tuple[SettingValues, ...] = (
    {"model": "ComplEx", "loss": "1vsall", "relation_weight": 0.25, "dropout": 0.2},
    {"model": "DistMult", "loss": "kvsall", "dropout": 0.2, "smoothing": 0.1},
    {"model": "TransE", "loss": "sigmoid", "margin": 5.0, "norm": 1, "optimizer": "adam", "lr": 0.003, "batch": 512,
     "negatives": 64, "reciprocal": False},
    {"model": "RotatE", "loss": "sigmoid", "margin": 6.0, "optimizer": "adam", "lr": 0.001, "batch": 512,
     "negatives": 128, "reciprocal": False},
)  # fmt: skip
"""What the next trials change of the first one. Those of a model or loss other than the fixed one are left out."""

VALIDATE_EVERY: tuple[tuple[int, int], ...] = ((100_000, 1), (20_000, 2))
"""Epochs between validations: (more than so many training triples, epochs); 5 otherwise."""

"""Keyword arguments of the Python interface are those of the settings."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import fkge
from fkge.api import overrides
from fkge.api.overrides import merge_settings
from fkge.evaluation import evaluate
from fkge.experiment.engines import OPTIONS
from fkge.federation.settings import PrivacySettings
from fkge.graph import Graph
from fkge.settings import Settings
from tests.conftest import tiny_settings


def test_keyword_arguments_are_typed_as_the_settings_are() -> None:
    """What editors complete and type checkers check is what the settings models validate."""
    kinds: dict[type[Settings], Any] = {
        fkge.TrainSettings: overrides.TrainOverrides,
        fkge.FederationSettings: overrides.FederationOverrides,
    }
    for name, section in fkge.FederationSettings.sections().items():
        hints = get_args(get_type_hints(overrides.FederationOverrides)[name])
        assert hints[1] is section
        kinds[section] = hints[0]
    assert len(kinds) == 7
    for model, typed in kinds.items():
        hints = {key: hint for key, hint in get_type_hints(typed).items() if key not in model.sections()}
        fields = {key: f.annotation for key, f in model.model_fields.items() if key not in model.sections()}
        assert hints == fields, typed
        assert set(get_type_hints(typed)) == set(model.model_fields)
    options = inspect.signature(evaluate).parameters
    assert set(get_type_hints(overrides.EvaluationOptions)) < set(options)
    assert OPTIONS["ray"] == set(get_type_hints(overrides.EngineOptions))


def test_settings_objects_are_a_start_too(ring: Graph) -> None:
    base = fkge.TrainSettings(model="DistMult", dim=5, epochs=1, device="cpu")
    settings = fkge.train(ring, settings=base, dim=4, progress=False).settings
    assert settings == base.model_copy(update={"dim": 4})
    federation = merge_settings(
        fkge.FederationSettings, tiny_settings(), {"train": {"dim": 3}, "privacy": PrivacySettings(mode="none")}
    )
    assert federation.train == tiny_settings().train.model_copy(update={"dim": 3})


def test_type_checkers_see_the_same_names() -> None:
    """What is imported for type checkers only is what `__getattr__` finds."""
    source = Path(fkge.__file__).read_text(encoding="utf-8")
    imported = {name: module for module, name in re.findall(r"^    from (\S+) import (\w+) as \2$", source, flags=re.M)}
    assert imported.keys() == {*fkge.__all__, "open"}
    for name, module in imported.items():
        assert getattr(import_module(module), name) is getattr(fkge, name)


def test_a_section_changes_only_what_it_names() -> None:
    recipe = {"exchanges": 7, "train": {"dim": 9, "lr": 0.5}}
    settings = merge_settings(fkge.FederationSettings, recipe, {"train": {"dim": 4}, "epochs": 2})
    assert (settings.exchanges, settings.epochs, settings.train.dim, settings.train.lr) == (7, 2, 4, 0.5)
    assert recipe == {"exchanges": 7, "train": {"dim": 9, "lr": 0.5}}

"""Turn the data of `fkge.tune.space` into settings: those of a first trial, and those that a sampler proposes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fkge.federation import FederationSettings
from fkge.settings import Settings, SettingValues, TrainSettings
from fkge.tune import space
from fkge.tune.space import Choice, Condition, Parameter, Range

if TYPE_CHECKING:
    import optuna

Values = dict[str, Any]
"""Settings by key; those of a section as ``section.key``."""

SECTION = "train."
DIGITS = 4
"""Digits of proposed numbers, so that a recipe can be read; trials train with the rounded numbers."""


@dataclass(frozen=True)
class Proposal:
    """The settings that are searched, around a start, and those that are fixed.

    Attributes:
        start: every setting of the first trial.
        fixed: the settings that are never changed; `start` has them too.
        parameters: what is searched, wide enough to have the start in it.
    """

    kind: type[Settings]
    start: SettingValues
    fixed: SettingValues
    parameters: tuple[Parameter, ...]

    @classmethod
    def around(cls, start: Settings, fixed: SettingValues, *, lone: bool = False) -> Proposal:
        """Return the proposal around a start.

        Args:
            start: of the first trial, the fixed ones included.
            fixed: settings by key.
            lone: leave out what only a federation has.
        """
        federated = isinstance(start, FederationSettings)
        parameters = [_prefixed(p) for p in space.TRAIN] if federated else list(space.TRAIN)
        parameters += [p for p in space.FEDERATED if p.lone or not lone] if federated else []
        found = cls(type(start), flat(start), dict(fixed), ())
        wide = tuple(_widened(p, found.start) for p in parameters if p.key not in fixed)
        return replace(found, parameters=wide)

    @property
    def _section(self) -> str:
        """The beginning of the keys of a training's settings."""
        return SECTION if issubclass(self.kind, FederationSettings) else ""

    def suggest(self, trial: optuna.Trial) -> Values:
        """Let a trial propose a value for everything that matters, and return all settings."""
        return self._walk(lambda parameter: _suggest(trial, parameter))

    def settings(self, values: SettingValues) -> Any:
        """Return the settings of these values.

        Raises:
            SettingsError: they cannot work.
        """
        return self.kind.build(nested(values))

    def first(self) -> list[Values]:
        """Return the parameters of the first trials: of the start, then of the variants that what is fixed allows."""
        section, found = self._section, [self.parameters_of(self.start)]
        for variant in space.VARIANTS:
            changes = {section + key: value for key, value in variant.items()}
            named = {key: changes[key] for key in (section + "model", section + "loss")}
            if any(_lower(self.fixed.get(key, value)) != _lower(value) for key, value in named.items()):
                continue
            parameters = self.parameters_of({**self.start, **changes, **self.fixed})
            if parameters not in found:
                found.append(parameters)
        return found

    def parameters_of(self, values: SettingValues) -> Values:
        """Return the parameters, by label, by which a trial has these values."""
        found: Values = {}

        def take(parameter: Parameter) -> Any:
            value = values[parameter.key]
            value = _within(parameter.domain, parameter.default if value is None else value)
            if not _is_single(parameter.domain):
                found[parameter.label] = value
            return value

        self._walk(take)
        return found

    def _walk(self, value_of: Any) -> Values:
        """Return all settings, where `value_of` says the value of each parameter that matters."""
        values, section = dict(self.start), self._section
        taken: set[str] = set(self.fixed)
        for parameter in self.parameters:
            if parameter.key in taken:
                continue
            if holds(parameter.when, values):
                values[parameter.key] = value_of(parameter)
                taken.add(parameter.key)
            elif parameter.key.removeprefix(section) in space.NEUTRAL and not self._as_at_the_start(parameter, values):
                values[parameter.key] = space.NEUTRAL[parameter.key.removeprefix(section)]
        for key, value, when in space.FOLLOWS:
            condition = {section + name: allowed for name, allowed in when.items()}
            at_the_start = all(values[name] == self.start[name] for name in condition)
            if section + key not in taken and holds(condition, values) and not at_the_start:
                values[section + key] = value
        if values[section + "model"] != self.start[section + "model"]:
            for key in space.OF_MODEL:
                if section + key not in self.fixed:
                    values[section + key] = TrainSettings.model_fields[key].default
        return values

    def _as_at_the_start(self, parameter: Parameter, values: SettingValues) -> bool:
        """Return whether all that a parameter depends on is as at the start, so that its value there applies."""
        return all(_lower(values[key]) == _lower(self.start[key]) for key in parameter.when)


def holds(when: Condition, values: SettingValues) -> bool:
    """Return whether the values fulfil a condition; the names of models may be written in any case."""
    return all(_lower(values[key]) in map(_lower, allowed) for key, allowed in when.items())


def flat(settings: Settings) -> Values:
    """Return all settings by key, those of a section as ``section.key``."""
    return _flat(settings, lambda one: type(one).model_fields)


def given(settings: Settings) -> Values:
    """Return the settings, by key, that were given and are not defaults by themselves."""
    return _flat(settings, lambda one: one.model_fields_set)


def _flat(settings: Settings, keys: Callable[[Settings], Iterable[str]], prefix: str = "") -> Values:
    found: Values = {}
    for key in keys(settings):
        value = getattr(settings, key)
        found |= _flat(value, keys, f"{prefix}{key}.") if isinstance(value, Settings) else {prefix + key: value}
    return found


def nested(values: SettingValues) -> Values:
    """Return the reverse of `flat`, for `Settings.build`."""
    found: Values = {}
    for key, value in values.items():
        section, dot, name = key.rpartition(".")
        (found.setdefault(section, {}) if dot else found)[name] = value
    return found


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _prefixed(parameter: Parameter) -> Parameter:
    when = {SECTION + key: allowed for key, allowed in parameter.when.items()}
    return replace(parameter, key=SECTION + parameter.key, when=when, name=parameter.label)


def _widened(parameter: Parameter, start: SettingValues) -> Parameter:
    """Return the parameter with the start's value among its own, if it matters there."""
    value, domain = start[parameter.key], parameter.domain
    if value is None or not holds(parameter.when, start):
        return parameter
    if isinstance(domain, Choice):
        same = any(_lower(value) == _lower(known) for known in domain.values)
        return parameter if same else replace(parameter, domain=Choice((*domain.values, value)))
    if domain.log and value <= 0:
        domain = replace(domain, low=type(domain.low)(0), log=False)
    return replace(parameter, domain=replace(domain, low=min(domain.low, value), high=max(domain.high, value)))


def _within(domain: Choice | Range, value: Any) -> Any:
    """Return the value of the domain that is nearest to `value`."""
    if isinstance(domain, Choice):
        return next((known for known in domain.values if _lower(known) == _lower(value)), domain.values[0])
    if value is None:
        value = (domain.low + domain.high) / 2
    value = min(max(value, domain.low), domain.high)
    return round(value) if domain.whole else float(value)


def _is_single(domain: Choice | Range) -> bool:
    return isinstance(domain, Choice) and len(domain.values) == 1


def _suggest(trial: optuna.Trial, parameter: Parameter) -> Any:
    domain = parameter.domain
    if isinstance(domain, Choice):
        if _is_single(domain):
            return domain.values[0]
        return trial.suggest_categorical(parameter.label, domain.values)
    if domain.whole:
        return trial.suggest_int(parameter.label, int(domain.low), int(domain.high), log=domain.log)
    return float(f"{trial.suggest_float(parameter.label, domain.low, domain.high, log=domain.log):.{DIGITS}g}")

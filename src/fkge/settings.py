"""The base class of all settings, and the training settings: frozen, documented at each field, strict about names.

They come from a TOML file, then from ``key=value`` pairs, each overriding what was there before.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fkge import recipes
from fkge.errors import SettingsError, did_you_mean

SettingValues: TypeAlias = Mapping[str, Any]
"""Values of settings by key, before they are checked; of a section under its key, or as ``section.key``."""


class Settings(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @classmethod
    def sections(cls) -> dict[str, type[Settings]]:
        """Return the fields that are settings of their own: a ``[table]`` in TOML, ``table.key=value`` in a text."""
        kinds = {key: field.annotation for key, field in cls.model_fields.items()}
        return {key: kind for key, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Settings)}

    @classmethod
    def build(cls, values: SettingValues, source: str = "settings") -> Self:
        """Return validated settings.

        Args:
            values: by key.
            source: where they come from, for messages.

        Raises:
            SettingsError: a key or value is wrong; names the key and its nearest neighbours.
        """
        values = dict(values)
        for key in values:
            if key not in cls.model_fields:
                raise SettingsError(f"{source}: unknown key {key!r}{cls._near(key)}")
        for key, section in cls.sections().items():
            if isinstance(values.get(key), Mapping):
                values[key] = section.build(values[key], f"{source}: [{key}]")
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"])
            problem = first["msg"].removeprefix("Value error, ")
            got = f" (got {first['input']!r})" if key else ""
            meaning = f". {key}: {cls.model_fields[key].description}" if key in cls.model_fields else ""
            raise SettingsError(f"{source}: {key + ': ' if key else ''}{problem}{got}{meaning}") from None

    @classmethod
    def _near(cls, key: str) -> str:
        """Return a hint at what an unknown key may mean: the same key in a section, or a similar one."""
        within = [f"{name}.{key}" for name, section in cls.sections().items() if key in section.model_fields]
        return f"; did you mean {', '.join(within)}?" if within else did_you_mean(key, cls.model_fields)

    @classmethod
    def load(cls, path: str | Path | None = None, overrides: Iterable[str] = (), **given: Any) -> Self:
        """Return settings from a TOML file or a recipe, ``key=value`` texts and keyword arguments, later ones winning.

        Args:
            path: a TOML file, or the name of a recipe.
            overrides: ``key=value`` texts.
            given: keyword arguments; None leaves a key alone.

        Raises:
            SettingsError: the file cannot be read, or a key or value is wrong.
        """
        values: dict[str, Any] = {}
        if path is not None:
            values.update(read_toml(recipes.find(path)))
            cls.build(values, str(path))
        for text in overrides:
            name, equals, value = text.partition("=")
            if not equals:
                raise SettingsError(f"--set {text}: expected key=value")
            section, dot, key = name.strip().rpartition(".")
            if dot and section not in cls.sections():
                raise SettingsError(
                    f"--set {text}: there is no section {section!r}{did_you_mean(section, cls.sections())}"
                )
            owner = cls.sections()[section] if dot else cls
            if key not in owner.model_fields:
                raise SettingsError(f"--set: unknown key {key!r}{owner._near(key)}")
            place = values.setdefault(section, {}) if dot else values
            if not isinstance(place, dict):
                raise SettingsError(f"--set {text}: {section} was given as {place!r} before; it is a section")
            place[key] = _literal(value.strip())
        values.update({key: value for key, value in given.items() if value is not None})
        return cls.build(values, "settings")

    def to_toml(self) -> str:
        """Return all settings as a TOML file, each with its meaning above it."""
        return self.explained(None)

    def explained(self, chosen: SettingValues | None) -> str:
        """Return all settings as a TOML file: those `chosen`, then the others as comments; no comments if None."""
        fields, sections = type(self).model_fields, self.sections()
        text = ""
        for key in sorted(fields, key=lambda key: (key in sections, chosen is not None and key not in chosen)):
            value, meaning = getattr(self, key), f"# {fields[key].description}\n"
            if key in sections:
                text += f"\n{meaning}[{key}]\n{value.explained(None if chosen is None else chosen.get(key, {}))}"
            else:
                mark = "" if value is not None and (chosen is None or key in chosen) else "# "
                text += f"{meaning}{mark}{key} = {'(none)' if value is None else toml_value(value)}\n"
        return text


def read_toml(path: Path) -> dict[str, Any]:
    """Return a TOML file as a dict; raise `SettingsError`, with the file's name, if it cannot be read."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: no such file") from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read ({error.strerror}); name a TOML file") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path}: not valid TOML: {error}") from None


def _literal(text: str) -> Any:
    """Return a TOML value if it reads as one, else the text itself, so that ``model=TransE`` needs no quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def toml_value(value: Any) -> str:
    """Return `value` as TOML. JSON's escapes are TOML's too; TOML wants one character more escaped."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(toml_value, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)


class TrainSettings(Settings):
    """Settings of a training."""

    model: str = Field("TransE", description="TransE, TransH, TransR, TransD, DistMult, ComplEx or RotatE")
    dim: int = Field(128, ge=1, description="size of an entity vector; complex numbers count once")
    relation_dim: int | None = Field(
        None, ge=1, description="size of a relation vector, where it may differ (TransR, TransD)"
    )
    norm: Literal[1, 2] = Field(1, description="distance of the Trans* models: 1 or 2")
    normalize: bool = Field(False, description="OpenKE's norm flag: compare vectors scaled to unit length")
    reciprocal: bool = Field(
        False, description="a second vector for the inverse of each relation, used where the head is asked for"
    )
    init: float | None = Field(
        None,
        gt=0,
        description="initial values are uniform in ±init; by default chosen from model, loss, margin and dim",
    )

    loss: str = Field(
        "sigmoid",
        description="a name in `fkge.embed.losses.LOSSES`; see docs/reference/losses.md",
    )
    smoothing: float = Field(
        0.0, ge=0, lt=1, description="label smoothing of 1vsall and kvsall: this part of the target is uniform"
    )
    margin: float | None = Field(
        None, ge=0, description="the margin of the loss; by default chosen by the scale of the model's scores"
    )
    temperature: float = Field(
        1.0, ge=0, description="sharpness of the self-adversarial weights; 0 gives all negatives the same weight"
    )
    regularization: float = Field(
        0.0, ge=0, description="weight of the regulariser, over the rows of each positive, per triple"
    )
    regularizer: Literal["l3", "n3", "f2"] = Field(
        "l3",
        description="l3: Σ|x|³ over numbers; n3: over the moduli of complex numbers (the nuclear 3-norm); f2: Σ x²",
    )
    regularization_scale: Literal["fixed", "sparsity"] = Field(
        "fixed",
        description="fixed: the weight is `regularization`; sparsity: `regularization` times "
        "(entities² / (10⁴ triples))^⅓, limited to 0.1–1.2",
    )
    dropout: float = Field(
        0.0, ge=0, lt=1, description="part of a question's numbers, entity and relation, set to 0 (1vsall, kvsall)"
    )
    relation_weight: float = Field(
        0.0,
        ge=0,
        description="weight of a second task, predicting the relation between head and tail (1vsall, kvsall with "
        "DistMult or ComplEx)",
    )

    negatives: int = Field(64, ge=1, description="corrupted triples per positive")
    share: int = Field(
        1,
        ge=1,
        description="positives that share one draw of negatives, or (1vsall) answers of one question that share its "
        "scores; more is faster and slightly less random",
    )
    corruption: Literal["uniform", "bernoulli"] = Field(
        "uniform", description="head or tail with equal chance, or by the relation's tails per head (Bernoulli)"
    )
    filtered: bool = Field(
        True, description="never learn from a negative that is a training triple: draw another, or skip it if share > 1"
    )

    optimizer: Literal["sgd", "adagrad", "adam"] = Field("adam", description="row-wise optimiser")
    lr: float = Field(0.002, gt=0, description="learning rate")
    schedule: Literal["plateau", "linear"] = Field(
        "plateau",
        description="the learning rate falls at each validation without a better MRR, or linearly over `epochs`",
    )
    decay: float = Field(
        0.3, gt=0, le=1, description="factor on the learning rate: at each such validation, or at the last epoch"
    )
    batch: int = Field(
        512,
        ge=1,
        description="positives per step; with 1vsall, answers (a triple has two); with kvsall, questions",
    )
    epochs: int = Field(200, ge=0, description="passes over the training triples, at most")

    validate_every: int = Field(10, ge=0, description="epochs between validations; 0 switches validation off")
    patience: int = Field(
        5, ge=0, description="validations without a better MRR before training stops; 0 never stops early"
    )
    validation_triples: int = Field(
        5000, ge=0, description="validation triples ranked at each validation, sampled once; 0 for all"
    )

    seed: int = Field(0, ge=0, description="seed of everything random")
    device: str = Field("auto", description="cpu, cuda, cuda:1 …; auto takes a GPU if there is one")
    threads: int = Field(1, ge=1, description="CPU threads; results repeat to the bit with 1")
    kernels: bool = Field(True, description="use the closed-form CPU kernels where a model has one")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="of the matrix products of 1vsall and kvsall; auto takes bfloat16 where the processor has it. "
        "Parameters and sums are float32 in any case",
    )

"""Files of models and checkpoints: they read back, and damaged ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fkge.embed import (
    MODELS,
    load_checkpoint,
    load_model,
    save_checkpoint,
    save_model,
)
from fkge.errors import RunError
from tests.unit.embed.trainers import trainer_of


@pytest.mark.parametrize("model", list(MODELS))
def test_models_read_back(model: str, tmp_path: Path) -> None:
    trainer = trainer_of(model=model)
    trainer.run_epoch()
    save_model(tmp_path / "m", trainer.tables, trainer.settings)
    tables, settings = load_model(tmp_path / "m", "cpu")
    assert settings == trainer.settings
    assert not any("." in name for name in tables.export(state=False))
    for name, tensor in trainer.tables.export(state=False).items():
        assert torch.equal(tensor, tables.export(state=False)[name])


def test_the_same_state_is_the_same_file(tmp_path: Path) -> None:
    trainer = trainer_of()
    save_checkpoint(tmp_path / "a", trainer, {"x": 1, "y": 2})
    save_checkpoint(tmp_path / "b", trainer, {"y": 2, "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    trainer = trainer_of()
    path = tmp_path / "c"
    save_checkpoint(path, trainer, {})
    data = path.read_bytes()
    for bad in (data[:100], data[:-5], b"", b"\xff" * 64):
        path.write_bytes(bad)
        with pytest.raises(RunError, match="damaged"):
            load_checkpoint(path, trainer)
    with pytest.raises(RunError, match="no such file"):
        load_model(tmp_path / "none")
    save_model(path, trainer.tables, trainer.settings)
    with pytest.raises(RunError, match=r"is no fkge\.checkpoint"):
        load_checkpoint(path, trainer)
    save_checkpoint(path, trainer, {})
    with pytest.raises(RunError, match="does not fit this run"):
        load_checkpoint(path, trainer_of(dim=7))
    with pytest.raises(RunError, match="does not fit this run"):
        load_checkpoint(path, trainer_of(model="TransH"))


def test_a_checkpoint_without_inverses_does_not_fit_and_says_so(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "c", trainer_of(model="ComplEx"), {})
    with pytest.raises(RunError, match="no table 'inverse'"):
        load_checkpoint(tmp_path / "c", trainer_of(model="ComplEx", reciprocal=True))


@pytest.mark.parametrize("loss", ["1vsall", "kvsall"])
def test_a_checkpoint_within_an_epoch_reads_back(loss: str, tmp_path: Path) -> None:
    changes = {"model": "ComplEx", "loss": loss, "reciprocal": True, "dropout": 0.2, "optimizer": "adagrad"}
    trainer, other = trainer_of(**changes), trainer_of(**changes)
    assert trainer.run_epoch(stop=lambda: True) is None
    assert trainer.chunk > 0
    save_checkpoint(tmp_path / "c", trainer, {})
    load_checkpoint(tmp_path / "c", other)
    assert other.position() == trainer.position()
    assert other.run_epoch() == trainer.run_epoch()
    for name, tensor in trainer.tables.export(state=True).items():
        assert torch.equal(tensor, other.tables.export(state=True)[name])

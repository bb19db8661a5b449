"""Settings of a federation: its protocol and its clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.errors import SettingsError
from fkge.federation.settings import FederationSettings


def test_settings_of_the_protocol() -> None:
    s = FederationSettings.load(None, ["gather=false", "window=2", "train_alone=true", "period=9", "answer=5"])
    config = s.protocol_config(("x",))
    assert (config.gather, config.window, config.train_alone) == (False, 2.0, True)
    assert (config.period, config.answer) == (9.0, 5.0)
    assert config.refuses == config.avoids == {"x"}
    assert s.total_epochs == s.initial_epochs + s.exchanges * s.epochs


@pytest.mark.parametrize("text", ["train.epochs=7", "train.validate_every=0", "train.patience=1"])
def test_refuses_clocks_of_single_owners(text: str, tmp_path: Path) -> None:
    key = text.partition("=")[0]
    words = rf"^settings: {key} is for `fkge train`; in a federation say initial_epochs, exchanges, epochs"
    with pytest.raises(SettingsError, match=words):
        FederationSettings.load(None, [text])
    file = tmp_path / "f.toml"
    section, _, line = text.partition(".")
    file.write_text(f"[{section}]\n{line}\n")
    with pytest.raises(SettingsError, match=rf"f\.toml: {key} is for `fkge train`"):
        FederationSettings.load(file)


@pytest.mark.parametrize("text", ["answer=0", "period=0", "window=-1"])
def test_refuses_impossible_times(text: str) -> None:
    with pytest.raises(SettingsError, match=f"settings: {text.partition('=')[0]}: Input should be greater than"):
        FederationSettings.load(None, [text])

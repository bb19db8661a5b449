"""The project that `fkge new` writes says what it does, and does it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fkge.cli.scaffold import CHOSEN, write_project
from fkge.errors import RunError
from fkge.federation import FederationSettings, read_federation
from fkge.settings import Settings


def test_settings_say_what_is_chosen_and_name_all_there_is(tmp_path: Path) -> None:
    write_project(tmp_path / "new")
    path = tmp_path / "new" / "settings.toml"
    assert FederationSettings.load(path) == FederationSettings.build(CHOSEN)
    text = path.read_text()

    def keys(kind: type[Settings]) -> list[str]:
        own = [key for key in kind.model_fields if key not in kind.sections()]
        return own + [key for section in kind.sections().values() for key in keys(section)]

    assert sorted(re.findall(r"^(?:# )?(\w+) = ", text, flags=re.M)) == sorted(keys(FederationSettings))
    assert text.index("\nstart = ") < text.index("\n# share = ") < text.index("\n[train]")


def test_the_federation_shares_countries_and_keeps_a_relation(tmp_path: Path) -> None:
    write_project(tmp_path / "new")
    federation = read_federation(tmp_path / "new" / "federation.toml")
    common = federation.common("gazetteer")["almanac"]
    assert (len(common.entities), len(common.relations)) == (17, 1)
    almanac = federation.members["almanac"]
    assert almanac.policy is not None
    assert list(almanac.policy.unused(almanac.graph)) == []
    shared = almanac.policy.shareable(almanac.graph).graph
    assert set(almanac.graph.relations) - set(shared.relations) == {"member of"}


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(RunError, match="exists already"):
        write_project(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_commands_can_be_pasted_whatever_the_folder_is_called(tmp_path: Path) -> None:
    _, simulate, *_ = write_project(tmp_path / "my project")
    assert shlex.split(simulate)[2] == str(tmp_path / "my project" / "federation.toml")

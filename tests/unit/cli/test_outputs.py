"""Commands that show embedded federations and explain exit codes."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from fkge.cli.outputs import commands, data
from fkge.data import NAMES


def test_lists_the_embedded_federations() -> None:
    assert list(json.loads(CliRunner().invoke(data, ["list", "--json"]).stdout)["federations"]) == list(NAMES)
    assert "atlas" in CliRunner().invoke(data, ["list"]).stdout


def test_explains_an_exit_code_and_refuses_an_unknown_one() -> None:
    codes = json.loads(CliRunner().invoke(commands, ["errors", "--json"]).stdout)
    page = json.loads(CliRunner().invoke(commands, ["errors", "12", "--json"]).stdout)
    assert (page["code"], page["title"]) == (12, codes["12"])
    assert "there is no exit code 9999" in str(CliRunner().invoke(commands, ["errors", "9999"]).exception)

"""Commands as they are typed, run in this process."""

from __future__ import annotations

import json
from typing import Any

from typer import Typer
from typer.testing import CliRunner, Result

from fkge.errors import FkgeError


def typed(app: Typer, *words: object) -> Result:
    """What a command printed; raises what it raised, as `fkge.cli.main` sees it."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, FkgeError):
        raise result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def answer(app: Typer, *words: object) -> Any:
    """The answer of a command, as JSON data."""
    done = typed(app, *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout.splitlines()[-1])

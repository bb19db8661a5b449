"""Names that look like markup are printed as they are."""

from __future__ import annotations

import pytest
from rich.table import Table

from fkge.cli import tables


def test_names_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("[red]owner", "half [/b] open", ":smile:")
    drawn = Table("owner", title="[bold]circle")
    for name in names:
        drawn.add_row(name)
    tables.Answer({}, [drawn]).print(as_json=False)
    said = capsys.readouterr().out
    assert all(name in said for name in (*names, "[bold]circle"))

"""Messages of a command."""

from __future__ import annotations

import pytest

from fkge.cli.console import console_progress


def test_messages_go_to_standard_error_as_they_are(capfd: pytest.CaptureFixture[str]) -> None:
    with console_progress(quiet=False) as progress:
        progress.say("[bold] is no markup :smile: 12")
    out, err = capfd.readouterr()
    assert out == ""
    assert "[bold] is no markup :smile: 12" in err


def test_quiet_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with console_progress(quiet=True) as progress, progress.task("training", 3) as task:
        progress.say("a message")
        task.advance(1)
    assert capfd.readouterr() == ("", "")

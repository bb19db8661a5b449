"""What a command tells while it works, on standard error: words, and how far it is (`fkge.bars`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from fkge.bars import bars
from fkge.trace import Progress


class Screen:
    """Where a command reports to: `say` for people; `task` makes it a `fkge.trace.Progress`."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self.console = console
        self._progress = progress

    def say(self, text: str) -> None:
        if not self.console.quiet:
            self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def task(self, name: str, total: int | None, unit: str = "") -> Any:
        return self._progress.task(name, total, unit)


@contextmanager
def drawing(quiet: bool) -> Iterator[Screen]:
    """A screen for as long as the context lasts."""
    console = Console(stderr=True, quiet=quiet, emoji=False)
    with bars(not quiet, console) as progress:
        yield Screen(console, progress)

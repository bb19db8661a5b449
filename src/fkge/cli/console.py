"""Messages and progress bars of a command, on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from rich.console import Console

from fkge.progress import Progress, Task, show_progress


class ConsoleProgress(NamedTuple):
    """A `fkge.progress.Progress` that prints messages too."""

    console: Console
    bars: Progress

    def say(self, text: str) -> None:
        """Print one line as it is."""
        if not self.console.quiet:
            self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    def task(self, name: str, total: int | None, unit: str = "") -> AbstractContextManager[Task]:
        """Show a progress bar; see `fkge.progress.Progress.task`."""
        return self.bars.task(name, total, unit)


@contextmanager
def console_progress(quiet: bool) -> Iterator[ConsoleProgress]:
    """Show progress and messages while the context lasts; nothing if `quiet`."""
    console = Console(stderr=True, quiet=quiet, emoji=False)
    with show_progress(not quiet, console) as bars:
        yield ConsoleProgress(console, bars)

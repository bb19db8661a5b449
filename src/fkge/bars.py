"""Progress for commands, scripts and notebooks, and a Ctrl-C that loses nothing.

On a terminal, bars; in a notebook, one line that changes in place, and needs no widgets; elsewhere, a line for what is
worth one in a log.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from fkge.trace import SILENT, Progress, Task

_SECONDS_BEFORE_FIRST_LOOK = 0.5
_SECONDS_BETWEEN_LOOKS = 0.2
_WIDTH = 24


@contextmanager
def bars(shown: bool = True, console: Any = None) -> Iterator[Progress]:
    """Where work reports how far it is, as long as the context lasts; to nobody if not `shown`.

    Args:
        console: rich's, if something else is said there too; by default one of its own on standard error.
    """
    if not shown:
        yield SILENT
        return
    display = _notebook()
    if display is not None:
        yield _Line(display)
        return
    from rich.console import Console

    console = console or Console(stderr=True)
    if console.is_terminal:
        with _on_terminal(console) as drawn:
            yield _Bars(drawn)
    else:
        yield _Log()


@contextmanager
def interruptible(say: Callable[[str], None] = lambda text: None) -> Iterator[Callable[[], bool]]:
    """Ctrl-C, or a polite kill, asks for a stop where it is safe to go on later; a second one stops at once.

    Yields a function that says whether a stop was asked for. Only the main thread can hear; in others nobody asks.
    """
    # Whoever is interrupted may hold the very lock that drawing needs, so another thread says it.
    told = threading.Thread(target=say, args=("stopping at the next safe place (once more: at once) …",), daemon=True)
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        told.start()

    hears = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)} if hears else {}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if asked:
            told.join()


def _figures(shown: dict[str, float | str]) -> str:
    return "  ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items())


# -- a terminal ------------------------------------------------------------------------------------


def _on_terminal(console: Any) -> Any:
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Drawn
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text(_speed(task.finished_speed or task.speed, task.fields["unit"]), style="cyan")

    return Drawn(
        TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), Speed(),
        TimeElapsedColumn(), TextColumn("eta"), TimeRemainingColumn(), TextColumn("{task.fields[shown]}", markup=False),
        console=console, transient=True,
    )  # fmt: skip


def _speed(speed: float | None, unit: str) -> str:
    if not speed:
        return ""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if speed >= size:
            return f"{speed / size:.1f}{letter} {unit}/s"
    return f"{speed:.1f} {unit}/s"


class _Bars:
    def __init__(self, drawn: Any) -> None:
        self.drawn = drawn

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "") -> Iterator[Task]:
        key = self.drawn.add_task(name, total=total, unit=unit, shown="")
        try:
            yield _Bar(self.drawn, key)
        finally:
            self.drawn.remove_task(key)


class _Bar:
    def __init__(self, drawn: Any, key: Any) -> None:
        self.drawn, self.key = drawn, key
        self.shown: dict[str, float | str] = {}

    def advance(self, amount: int, **shown: float | str) -> None:
        self.shown |= shown
        self.drawn.update(self.key, advance=amount, shown=_figures(self.shown))


# -- a notebook ------------------------------------------------------------------------------------


def _notebook() -> Callable[[str], Callable[[str], None]] | None:
    """In a notebook, a function that displays a text and returns another that changes it; else None."""
    python = sys.modules.get("IPython")
    shell = python.get_ipython() if python is not None else None
    if not hasattr(shell, "kernel"):
        return None
    from IPython import display

    show: Any = display.display

    def begin(text: str) -> Callable[[str], None]:
        handle = show({"text/plain": text}, raw=True, display_id=True)
        return lambda changed: handle.update({"text/plain": changed}, raw=True)

    return begin


class _Line:
    """The outermost task as a line; what it does within itself is not drawn."""

    def __init__(self, display: Callable[[str], Callable[[str], None]]) -> None:
        self.display = display
        self.busy = False

    def task(self, name: str, total: int | None, unit: str = "") -> Any:
        if self.busy:
            return SILENT.task(name, total, unit)
        return self._drawn(name, total)

    @contextmanager
    def _drawn(self, name: str, total: int | None) -> Iterator[Task]:
        self.busy = True
        drawn = _Drawn(name, total, self.display)
        try:
            yield drawn
        finally:
            self.busy = False
            drawn.end()


class _Drawn:
    """A task as a line of text, shown once it has lasted long enough to be worth one."""

    def __init__(self, name: str, total: int | None, display: Callable[[str], Callable[[str], None]]) -> None:
        self.name, self.total, self.done = name, total, 0
        self.shown: dict[str, float | str] = {}
        self.began = time.monotonic()
        self.due = self.began + _SECONDS_BEFORE_FIRST_LOOK
        self.display = display
        self.change: Callable[[str], None] | None = None

    def advance(self, amount: int, **shown: float | str) -> None:
        self.done += amount
        self.shown |= shown
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + _SECONDS_BETWEEN_LOOKS
            self.draw()

    def end(self) -> None:
        if self.change is not None:
            self.draw()

    def draw(self) -> None:
        if self.change is None:
            self.change = self.display(self.text())
        else:
            self.change(self.text())

    def text(self) -> str:
        seconds = int(time.monotonic() - self.began)
        part = min(1.0, self.done / self.total) if self.total else 0.0
        full = round(part * _WIDTH)
        bar = f"{'█' * full}{'░' * (_WIDTH - full)} {part:4.0%}" if self.total else ""
        return f"{self.name}  {bar}  {seconds // 60}:{seconds % 60:02}  {_figures(self.shown)}".rstrip()


# -- a log -----------------------------------------------------------------------------------------


class _Log:
    """A line on standard error for each validation."""

    def task(self, name: str, total: int | None, unit: str = "") -> Any:
        return nullcontext(_Logged(name))


class _Logged:
    def __init__(self, name: str) -> None:
        self.name = name

    def advance(self, amount: int, **shown: float | str) -> None:
        if amount == 0 and shown:
            print(f"{self.name}: {_figures(shown)}", file=sys.stderr, flush=True)

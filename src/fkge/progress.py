"""Progress on a terminal (rich), in a notebook (one line that changes in place, since rich needs ipywidgets there) or
in a log (a line for each validation), and a Ctrl-C that stops where work can be resumed.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from rich.console import Console

SECONDS_BEFORE_FIRST_DRAWING = 0.5
_SECONDS_BETWEEN_DRAWINGS = 0.2
_WIDTH = 24

Figures = dict[str, float | str]
Display = Callable[[str], Callable[[str], None]]
"""Shows a text, and returns a function that replaces it."""


@dataclass
class Task:
    """A running task: what is done of it, and a function that draws it after each report."""

    draw: Callable[[Task, int, Figures], None] = lambda *report: None
    done: int = 0
    shown: Figures = field(default_factory=dict)

    def advance(self, amount: int, **shown: float | str) -> None:
        """Report `amount` more units done, and figures to show next to the bar."""
        self.done += amount
        self.shown |= shown
        self.draw(self, amount, shown)


class Progress(Protocol):
    """A receiver of progress reports."""

    def task(self, name: str, total: int | None, unit: str = "") -> AbstractContextManager[Task]:
        """Return a context manager that yields a running `Task`.

        Args:
            name: of the task, for people; total, unit: how many units there are (None: unknown), and what they are.
        """


class _Reporter(NamedTuple):
    """A `Progress` made of its one method."""

    task: Callable[..., AbstractContextManager[Task]]


SILENT: Progress = _Reporter(lambda name, total, unit="": nullcontext(Task()))
"""Progress that is not shown, the default for library calls."""


@contextmanager
def show_progress(shown: bool = True, console: Console | None = None) -> Iterator[Progress]:
    """Show the progress of tasks on a terminal, in a notebook or in a log, while the context lasts.

    Args:
        shown: False shows nothing.
        console: rich's console, if the caller prints on it too; by default a new one on standard error.
    """
    if not shown:
        yield SILENT
        return
    if (display := _notebook()) is not None:
        yield _Reporter(in_notebook(display))
        return
    from rich.console import Console

    console = console or Console(stderr=True)
    if console.is_terminal:
        with _bars(console) as bars:
            yield _Reporter(_on_terminal(bars))
    else:
        yield _Reporter(_in_log)


@contextmanager
def interruptible(say: Callable[[str], None] = lambda text: None) -> Iterator[Callable[[], bool]]:
    """Turn the first SIGINT or SIGTERM into a request to stop; the second raises KeyboardInterrupt at once.

    Signals reach the main thread only; in other threads no stop is ever requested.

    Args:
        say: called with a message when a stop is requested.

    Yields:
        A function that returns whether a stop was requested.
    """
    # The interrupted code may hold the lock that drawing needs, so the message comes from another thread.
    told = "stopping at the next safe point (press again to stop at once) …"
    message = threading.Thread(target=say, args=(told,), daemon=True)
    requested = False

    def handle(number: int, frame: object) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        message.start()

    in_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)} if in_main else {}
    try:
        yield lambda: requested
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if requested:
            message.join()


def _text(shown: Figures) -> str:
    return "  ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items())


# -- a terminal ------------------------------------------------------------------------------------


def _bars(console: Console) -> Any:
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Any) -> Text:
            speed = task.finished_speed or task.speed or 0.0
            size, letter = next(((s, x) for s, x in ((1e6, "M"), (1e3, "k")) if speed >= s), (1.0, ""))
            return Text(f"{speed / size:.1f}{letter} {task.fields['unit']}/s" if speed else "", style="cyan")

    return Bars(
        TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), Speed(),
        TimeElapsedColumn(), TextColumn("eta"), TimeRemainingColumn(), TextColumn("{task.fields[shown]}", markup=False),
        console=console, transient=True,
    )  # fmt: skip


def _on_terminal(bars: Any) -> Callable[..., AbstractContextManager[Task]]:
    @contextmanager
    def task(name: str, total: int | None, unit: str = "") -> Iterator[Task]:
        key = bars.add_task(name, total=total, unit=unit, shown="")
        try:
            yield Task(lambda running, *_: bars.update(key, completed=running.done, shown=_text(running.shown)))
        finally:
            bars.remove_task(key)

    return task


# -- a notebook ------------------------------------------------------------------------------------


def _notebook() -> Display | None:
    """Return the function that displays a text in this notebook; None outside of notebooks."""
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


def in_notebook(display: Display) -> Callable[..., AbstractContextManager[Task]]:
    """Return the `task` of a progress that draws the outermost task, once it has lasted a moment, as one line."""
    busy = False

    @contextmanager
    def task(name: str, total: int | None, unit: str = "") -> Iterator[Task]:
        nonlocal busy
        if busy:
            yield Task()
            return
        busy, began = True, time.monotonic()
        due = began + SECONDS_BEFORE_FIRST_DRAWING
        change: Callable[[str], None] | None = None

        def draw(running: Task, *report: object) -> None:
            nonlocal change, due
            if report and time.monotonic() < due:
                return
            due, seconds = time.monotonic() + _SECONDS_BETWEEN_DRAWINGS, int(time.monotonic() - began)
            part = min(1.0, running.done / total) if total else 0.0
            full = round(part * _WIDTH)
            bar = f"{'█' * full}{'░' * (_WIDTH - full)} {part:4.0%}" if total else ""
            line = f"{name}  {bar}  {seconds // 60}:{seconds % 60:02}  {_text(running.shown)}".rstrip()
            if change is None:
                change = display(line)
            else:
                change(line)

        running = Task(draw)
        try:
            yield running
        finally:
            busy = False
            if change is not None:
                draw(running)

    return task


# -- a log -----------------------------------------------------------------------------------------


@contextmanager
def _in_log(name: str, total: int | None, unit: str = "") -> Iterator[Task]:
    def draw(running: Task, amount: int, shown: Figures) -> None:
        if amount == 0 and shown:  # figures without work done: a validation
            print(f"{name}: {_text(shown)}", file=sys.stderr, flush=True)

    yield Task(draw)

"""The live view of a simulation on a terminal: a table of owners, updated with the trace.

Above the table are the running arm and the remaining time of all arms, below it the latest events. On a narrow terminal
the least important columns are left out, on a short one the last owners and events.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fkge.cli.console import ConsoleProgress, console_progress
from fkge.experiment.history import Course, History, Stage
from fkge.progress import SILENT
from fkge.trace import Record

if TYPE_CHECKING:
    from fkge.experiment.simulation import Simulation

EVENTS, WIDEST = 4, 110
ENOUGH = 0.02  # of all epochs, before the remaining time is estimated
_STATES = {
    "idle": ("waiting", "dim"), "ready": ("ready", ""), "training": ("training", "cyan"),
    "translating": ("exchanging", "magenta"), "updating": ("learning", "cyan"), "sleeping": ("sleeping", "dim"),
    "private": ("private training", "cyan"), "lone": ("training alone", "cyan"), "scoring": ("scoring", "cyan"),
    "done": ("finished", "green"), "dead": ("died", "bold red"),
}  # fmt: skip
_WITH = {"translating": "with", "updating": "from"}


@dataclass(frozen=True)
class _Column:
    """A figure of each owner; columns with the highest `rank` are left out first."""

    title: str
    rank: int
    width: int
    cell: Callable[[View, Stage, Course], Any]


@dataclass
class View:
    """A rich renderable of a running simulation; `feed` it from one thread, draw it in another."""

    name: str  # the federation's
    plan: dict[str, int]  # epochs of each owner by arm, for all arms, in order
    history: History  # with the events before this run, if it was resumed
    clock: Callable[[], float] = time.monotonic  # returns seconds, for elapsed time
    two_tracks: bool = False  # shared tracks are tested on other facts than the control, so no gain is shown

    def __post_init__(self) -> None:
        self._began, self._before = self.clock(), self.share
        self._lock = threading.Lock()

    def feed(self, record: Record) -> None:
        with self._lock:
            self.history.feed(record)

    @property
    def share(self) -> float:
        """The part of all arms' epochs that is done, 0 … 1."""
        total = sum(self.plan.values())
        done = 0.0
        for arm, epochs in self.plan.items():
            stage = self.history.stages.get(arm)
            if stage is not None and stage.courses:
                owners = [epochs if stage.over else min(course.epoch, epochs) for course in stage.courses.values()]
                done += sum(owners) / len(owners)
        return done / total if total else 1.0

    @property
    def remaining(self) -> float | None:
        """Seconds that the rest will take, at the speed so far; None before that is known."""
        done = self.share - self._before
        return (self.clock() - self._began) * (1 - self.share) / done if done > ENOUGH else None

    # -- drawing -------------------------------------------------------------------------------------

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            width, height = min(options.max_width, WIDEST), options.height or console.height
            yield self._head(width)
            stage = self.history.now
            if stage is not None and stage.courses:
                room = height - 3 - len(stage.courses)  # without this line, the table's header and the cursor's line
                yield from self._owners(stage, width, max(1, height - 3))
                yield from self._events(stage, width, max(0, min(EVENTS, room)))

    def _head(self, width: int) -> Table:
        elapsed, left = self.clock() - self._began, self.remaining
        line = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False, width=width)
        stage = self.history.now
        words = Text(self.name, "bold", no_wrap=True, overflow="ellipsis")
        if stage is not None:
            place = list(self.plan).index(stage.arm) + 1 if stage.arm in self.plan else 1
            words.append(f"  {stage.arm}", "bold cyan").append(f" (arm {place} of {len(self.plan)})", "dim")
        eta = "" if left is None or self.share >= 1 else f", about {clock_text(left)} left"
        line.add_column(ratio=1)
        line.add_column(width=max(4, min(16, width - 60)))
        line.add_column(justify="right", no_wrap=True)
        line.add_row(words, ProgressBar(total=1, completed=self.share), f"{self.share:.0%}  {clock_text(elapsed)}{eta}")
        return line

    def _owners(self, stage: Stage, width: int, lines: int) -> Iterator[Table | Text]:
        courses = list(stage.courses.values())
        shown = courses if len(courses) <= lines else courses[: max(1, lines - 1)]
        name = min(max(len("owner"), *(cell_len(course.owner) for course in courses)), 16)
        columns = self._fitting(stage, width - name - 1)
        drawn = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, width=width, header_style="dim")
        drawn.add_column("owner", width=name, no_wrap=True, overflow="ellipsis")
        drawn.add_column("does", ratio=1, no_wrap=True, overflow="ellipsis")
        for column in columns:
            justify: Any = "left" if column.title == "epochs" else "right"
            drawn.add_column(column.title, width=column.width, no_wrap=True, justify=justify)
        for course in shown:
            drawn.add_row(
                Text(course.owner), _state(stage, course), *(column.cell(self, stage, course) for column in columns)
            )
        yield drawn
        if len(shown) < len(courses):
            rest = courses[len(shown) :]
            done = sum(course.state == "done" for course in rest)
            yield Text(f"… and {len(rest)} more owners, {done} of them finished", "dim")

    def _fitting(self, stage: Stage, width: int) -> list[_Column]:
        """Return the columns that fit next to an owner's name and state."""
        columns = list(_COLUMNS)
        if all(course.spent is None for course in stage.courses.values()):
            columns.remove(_SPENT)
        if not any(course.hosted for course in stage.courses.values()):
            columns = [column for column in columns if column not in _EXCHANGES]
        if self._control(stage) is None:
            columns.remove(_GAIN)
        while columns and sum(column.width + 1 for column in columns) > width - 16:
            columns.remove(max(columns, key=lambda column: column.rank))
        return columns

    def _events(self, stage: Stage, width: int, lines: int) -> Iterator[Text]:
        for arm, _, owner, text in self.history.log[-lines:] if lines else ():
            style = "red" if text.startswith("died") else "green" if text.startswith("learned") else "dim"
            line = Text.assemble((owner, "bold"), " ", (text, style), no_wrap=True, overflow="ellipsis")
            if arm != stage.arm:
                line.append(f" ({arm})", "dim")
            line.truncate(width, overflow="ellipsis")
            yield line

    # -- figures -------------------------------------------------------------------------------------

    def _control(self, stage: Stage) -> Stage | None:
        return self.history.stages.get("control") if stage.arm != "control" and not self.two_tracks else None

    def bar(self, stage: Stage, course: Course) -> ProgressBar:
        return ProgressBar(total=max(1, stage.epochs), completed=min(course.epoch, stage.epochs), width=8)

    def gain(self, stage: Stage, course: Course) -> Text:
        """Return the best score so far minus the best of the same owner's control up to the same epoch."""
        control = self._control(stage)
        lone = control.courses.get(course.owner) if control is not None else None
        alone = lone.best_by(course.tests[-1].epoch) if lone is not None and course.tests else None
        if alone is None or course.best is None:
            return Text("")
        gain = course.best - alone
        style = "dim" if abs(gain) < 0.0005 else "green" if gain > 0 else "red"
        return Text(f"{gain:+.3f}".replace("0.", ".", 1), style)


def _state(stage: Stage, course: Course) -> Text:
    word, style = _STATES.get(course.state, (course.state, ""))
    if course.state == "sleeping" and course.epoch >= stage.epochs:
        word = "waiting for the others"
    if course.state in _WITH and course.peers:
        word = f"{word} {_WITH[course.state]} {', '.join(course.peers)}"
    return Text(word, style)


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}".replace("0.", ".", 1)


def clock_text(seconds: float) -> str:
    """A time as a clock shows it: ``1:00``, ``1:01:01``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def short_bytes(count: float) -> str:
    """A number of bytes in a few letters: ``999 B``, ``1.2 MB``."""
    units = ["B", "kB", "MB", "GB", "TB"]
    while count >= 999.5 and len(units) > 1:
        count, units = count / 1000, units[1:]
    return f"{count:.0f} {units[0]}" if units[0] == "B" or count >= 99.5 else f"{count:.1f} {units[0]}"


_GAIN = _Column("Δ ctrl", 1, 6, View.gain)
_SPENT = _Column("ε", 2, 5, lambda view, stage, course: "" if course.spent is None else f"{course.spent:.3g}")
_EXCHANGES = (
    _Column("exch.", 5, 5, lambda view, stage, course: f"{course.hosted.total():,}"),
    _Column("kept", 6, 4, lambda view, stage, course: str(course.accepted)),
    _Column("back", 7, 4, lambda view, stage, course: str(course.backtracked)),
    _Column("sent", 8, 7, lambda view, stage, course: short_bytes(course.sent)),
)
_COLUMNS = (
    _Column("epochs", 3, 8, View.bar),
    _Column("MRR", 4, 4, lambda view, stage, course: _score(course.tests[-1].score if course.tests else None)),
    _Column("best", 0, 4, lambda view, stage, course: _score(course.best)),
    _GAIN,
    *_EXCHANGES,
    _SPENT,
)


@contextmanager
def live_view(simulation: Simulation, quiet: bool) -> Iterator[tuple[ConsoleProgress, Callable[[Record], None] | None]]:
    """Show a running simulation while the context lasts: live on a terminal, as lines elsewhere.

    Yields:
        Where to report progress, and a function to call with each record of the trace.
    """
    console = Console(stderr=True, quiet=quiet, emoji=False)
    if quiet or not console.is_terminal or console.is_dumb_terminal:
        with console_progress(quiet) as progress:
            yield progress, None
        return
    spec, history = simulation.spec, History.read(simulation.folder)
    plan = {name: simulation.arm(name).epochs for name in simulation.spec.arms}
    view = View(spec.federation, plan, history, two_tracks=spec.two_tracks)
    with Live(view, console=console, refresh_per_second=4, transient=True):
        yield ConsoleProgress(console, SILENT), view.feed

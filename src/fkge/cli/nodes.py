"""Commands for a node that runs: status, log, pause, resume, stop; and for its audit log: verify, show."""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fkge.cli import tables
from fkge.cli.exits import Misuse
from fkge.cli.options import AsJson, completing, example
from fkge.errors import NodeError

if TYPE_CHECKING:
    from fkge.node.control import Status

NODE = "A node"
"""Heading of `fkge --help`."""

commands = typer.Typer()
audit_log = typer.Typer(help="What left a node: to whom, what, how protected, at what price.", no_args_is_help=True)

NodeFile = Annotated[Path, typer.Option("--config", help="The node's node.toml.")]
StateFolder = Annotated[
    Path | None, typer.Option("--state", help="The node's state folder, instead of --config.", show_default=False)
]
AuditPlace = Annotated[
    Path | None,
    typer.Argument(help="A folder of an audit log, or one of its files.", show_default="STATE/audit of --config"),
]

_LEVELS = ("debug", "info", "warning", "error")
_LOOK = {"warning": "yellow", "error": "bold red", "debug": "dim"}
_STATES = {
    "connected": "green", "joined": "green", "done": "green", "training": "cyan", "aligning": "magenta",
    "exchanging": "magenta", "away": "yellow", "connecting": "yellow", "paused": "yellow", "stopping": "yellow",
    "refused": "bold red", "failed": "bold red",
}  # fmt: skip
_AGO = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def state_of(config: Path, state: Path | None) -> Path:
    """The folder where a node keeps its things: as given, or as its configuration says."""
    from fkge.settings import read_toml

    if state is not None:
        return state
    if not config.exists():
        raise NodeError(f"{config}: no such file. Name a node's file with --config, or its folder with --state")
    named = read_toml(config).get("state", "state")
    if not isinstance(named, str):
        raise NodeError(f"{config}: state is not the path of a folder")
    return config.parent / named


# -- a node that runs --------------------------------------------------------------------------------


@commands.command(
    rich_help_panel=NODE,
    epilog=example("fkge status --config node.toml", "fkge status --watch", "fkge status --state state --json"),
)
def status(
    config: NodeFile = Path("node.toml"),
    state: StateFolder = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again and again, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between, with --watch.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Show how far a node is, what it has spent, and how it stands with its peers."""
    socket = _socket(config, state)
    told = _status(socket)
    if not watch:
        tables.answer(told, as_json, lambda: status_tables(told))
        return
    if as_json:
        while True:
            tables.answer(told, True, lambda: ())
            time.sleep(every)
            told = _status(socket)
    with Live(Group(*status_tables(told)), console=Console(markup=False, emoji=False), auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(Group(*status_tables(_status(socket))), refresh=True)


@commands.command(
    rich_help_panel=NODE,
    epilog=example("fkge log --follow", "fkge log --config node.toml -n 100 --level warning --peer genes"),
)
def log(
    config: NodeFile = Path("node.toml"),
    state: StateFolder = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    level: Annotated[
        str, typer.Option(help=f"The least level: {', '.join(_LEVELS)}.", autocompletion=completing(*_LEVELS))
    ] = "debug",
    peer: Annotated[str | None, typer.Option(help="Only lines about this peer.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Lines as they stand in the file, in JSON.")] = False,
) -> None:
    """Show what happened, the newest last. The node need not be running."""
    from fkge.node.logs import Tail

    if level not in _LEVELS:
        raise Misuse(f"--level {level}: a level is {', '.join(_LEVELS)}")
    tail = Tail(state_of(config, state) / "node.log", level=level, peer=peer)
    for record in tail.last(lines):
        _print_record(record, as_json)
    while follow:
        time.sleep(0.25)
        for record in tail.more():
            _print_record(record, as_json)


@commands.command(rich_help_panel=NODE, epilog=example("fkge pause --config node.toml"))
def pause(config: NodeFile = Path("node.toml"), state: StateFolder = None, as_json: AsJson = False) -> None:
    """Let a node finish the step it is at and rest; it stays connected. Peers wait for it once, `window` at most."""
    _tell(config, state, "pause", as_json, "pauses; go on with fkge resume")


@commands.command(rich_help_panel=NODE, epilog=example("fkge resume --config node.toml"))
def resume(config: NodeFile = Path("node.toml"), state: StateFolder = None, as_json: AsJson = False) -> None:
    """Let a node that pauses go on."""
    _tell(config, state, "resume", as_json, "goes on")


@commands.command(
    rich_help_panel=NODE, epilog=example("fkge stop --config node.toml", "fkge stop --state state --timeout 300")
)
def stop(
    config: NodeFile = Path("node.toml"),
    state: StateFolder = None,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait until its process is gone.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Let a node save what it has and end; wait until it is gone. Start it again with the same folder to go on."""
    from fkge.node import control

    socket = _socket(config, state)
    answer = control.stop(socket, timeout)
    tables.answer(answer, as_json, lambda: [f"{socket.parent}: stopped"])


def _socket(config: Path, state: Path | None) -> Path:
    from fkge.node.control import SOCKET

    return state_of(config, state) / SOCKET


def _tell(config: Path, state: Path | None, command: str, as_json: bool, outcome: str) -> None:
    from fkge.node import control

    socket = _socket(config, state)
    answer = control.call(socket, command)
    tables.answer(answer, as_json, lambda: [f"{socket.parent}: {outcome}"])


def _status(socket: Path) -> Status:
    from fkge.node import control

    return control.call(socket, "status")  # type: ignore[return-value]


def _print_record(record: Mapping[str, Any], as_json: bool) -> None:
    from fkge.node.logs import render

    if as_json:
        print(json.dumps(record, ensure_ascii=False), flush=True)
    else:
        console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
        console.print(Text(render(record), _LOOK.get(str(record["level"]), "")))


def status_tables(told: Status) -> Iterator[Table | Text]:
    """The node; what it has spent; its peers."""
    from fkge.node.logs import printable

    now = told["time"]
    mrr, epoch, epochs = told["validation_mrr"], told["epoch"], told["epochs"]
    life = f"{told['life']}, {_span(now - told['started'])} long; process {told['pid']}, fkge {told['version']}"
    drawn = Table(title=Text(f"node {told['name']}"), show_header=False)
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    for name, cell in {
        "state": _state(told["state"]) + Text(f", for {_span(now - told['since'])}"),
        "life": Text(life),
        "epochs": Text("" if epoch is None else f"{epoch:,} of {'?' if epochs is None else f'{epochs:,}'}"),
        "best validation MRR": Text("" if mrr is None else f"{mrr:.4f}"),
        "privacy": Text(told["privacy"]),
    }.items():
        drawn.add_row(name, cell)
    for spent in told["spent"]:
        budget = "no limit" if spent["epsilon"] is None else f"{spent['epsilon']:.4g}"
        used = "∞" if spent["spent"] is None else f"{spent['spent']:.4g}"
        whose = f"for one {spent['unit']}, {spent['relation']}"
        drawn.add_row("ε spent", Text(f"{used} of {budget}, at δ {spent['delta']:g}, {whose}"))
    if not told["spent"]:
        drawn.add_row("ε spent", Text("nothing has a price: what leaves has no guarantee"))
    if (audit := told.get("audit")) is not None:
        drawn.add_row("audit log", Text(f"{audit['entries']:,} entries, head"))
        drawn.add_row("", Text(audit["head"]))
    yield drawn
    if told["peers"]:
        yield _peers_table(told)
    for peer in told["peers"]:
        if peer["reason"]:
            yield Text.assemble((printable(peer["name"]), "bold"), f": {printable(peer['reason'])}")


def _peers_table(told: Status) -> Table:
    from fkge.node.logs import printable

    drawn = Table("peer", title="peers", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("state", "for"):
        drawn.add_column(column, no_wrap=True)
    for column in ("shared", "exchanges", "in", "out", "heard"):
        drawn.add_column(column, justify="right", no_wrap=True)
    now = told["time"]
    for peer in told["peers"]:
        shared, heard, since = peer["shared"], peer["heard"], peer["since"]
        drawn.add_row(
            Text(printable(peer["name"])), _state(peer["state"]),
            "" if since is None else _span(now - since), "" if shared is None else f"{shared:,}",
            f"{peer['exchanges']:,}", _bytes(peer["bytes_in"]), _bytes(peer["bytes_out"]),
            "never" if heard is None else f"{_span(now - heard)} ago",
        )  # fmt: skip
    return drawn


def _state(word: str) -> Text:
    return Text(word, _STATES.get(word, ""))


def _span(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d}"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


# -- the audit log -----------------------------------------------------------------------------------


@audit_log.command(
    epilog=example("fkge audit-log verify --config node.toml", "fkge audit-log verify state/audit --json")
)
def verify(
    place: AuditPlace = None,
    head: Annotated[
        str | None, typer.Option(help="A head that was kept elsewhere: the log must have come by it.")
    ] = None,
    config: NodeFile = Path("node.toml"),
    state: StateFolder = None,
    as_json: AsJson = False,
) -> None:
    """Check that nobody altered, removed, reordered or cut off entries; exit code 23 and one sentence if so.

    The node may be running. Keep the head that is printed elsewhere: a later log must have come by it.
    """
    from fkge.node import auditlog

    if head is not None and not re.fullmatch("[0-9a-fA-F]{64}", head):
        raise Misuse("--head: a head has 64 hexadecimal digits, as fkge audit-log verify prints it")
    where = _audit(place, config, state)
    found = auditlog.verify(where, head=None if head is None else head.lower())
    told = {"log": str(where), "sound": True, **vars(found)}
    tables.answer(told, as_json, lambda: _verdict(where, found))


def _verdict(where: Path, found: Any) -> Iterator[str]:
    yield f"{where}: sound, entries {found.first:,} to {found.last:,}; head {found.head}"
    if found.torn:
        yield f"Its last line was cut short ({found.torn} bytes), as by a crash: the node will cut it off and note it."
    if not found.sealed:
        yield "Only the chain was checked: there is no key here to check the anchor's seal with."


@audit_log.command(
    epilog=example("fkge audit-log show --peer genes --since 2h", "fkge audit-log show state/audit --what Offer --json")
)
def show(
    place: AuditPlace = None,
    peer: Annotated[str | None, typer.Option(help="Only what concerns this peer.")] = None,
    what: Annotated[str | None, typer.Option(help="Only this kind of message, or this event.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only from then on: 30m, 2h, 7d, or a date and time, such as 2026-01-31T08:00.")
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last entries.")] = 50,
    config: NodeFile = Path("node.toml"),
    state: StateFolder = None,
    as_json: AsJson = False,
) -> None:
    """Show the last entries, and what all of them come to by peer and protection; the chain is checked on the way."""
    from fkge.node import auditlog

    begin = "" if since is None else _instant(since)
    last: deque[dict[str, Any]] = deque(maxlen=lines)
    totals: dict[tuple[str, str], list[int]] = {}
    count = 0
    for entry in auditlog.entries(_audit(place, config, state)):
        if (
            entry["time"] < begin
            or peer not in (None, entry.get("to"), entry.get("peer"))
            or what not in (None, entry.get("what"), entry["event"])
        ):
            continue
        last.append(entry)
        count += 1
        if entry["event"] == "left":
            total = totals.setdefault((entry["to"], entry["protection"]), [0, 0])
            total[0] += 1
            total[1] += entry["bytes"]
    summed = [
        {"to": to, "protection": protection, "messages": messages, "bytes": nbytes}
        for (to, protection), (messages, nbytes) in sorted(totals.items())
    ]
    told = {"count": count, "entries": list(last), "totals": summed}
    tables.answer(told, as_json, lambda: _audit_tables(told))


def _audit_tables(told: Mapping[str, Any]) -> Iterator[Table]:
    from fkge.node.logs import printable

    shown = told["entries"]
    drawn = Table("", "time", "to", "what", "bytes", "protection", "price", "digest",
                  title="what left, and what else happened",
                  caption=f"the last {len(shown):,} of {told['count']:,}; -n shows more")  # fmt: skip
    for entry in shown:
        cells = [f"{entry['seq']:,}", entry["time"][5:19].replace("T", " ")]
        if entry["event"] == "left":
            cells += [entry["to"], entry["what"], f"{entry['bytes']:,}", entry["protection"], entry["price"] or "",
                      entry["digest"][:12]]  # fmt: skip
        else:
            fields = (f"{k}={v}" for k, v in entry.items() if k not in ("seq", "time", "event", "chain", "peer"))
            cells += [str(entry.get("peer", "")), entry["event"], "", " ".join(fields), "", ""]
        drawn.add_row(*(Text(printable(cell)) for cell in cells), style="" if entry["event"] == "left" else "dim")
    yield drawn
    drawn = Table("to", "protection", "messages", "bytes", title="in all")
    for total in told["totals"]:
        names = (Text(printable(total[key])) for key in ("to", "protection"))
        drawn.add_row(*names, f"{total['messages']:,}", f"{total['bytes']:,}")
    yield drawn


def _audit(place: Path | None, config: Path, state: Path | None) -> Path:
    if place is None:
        return state_of(config, state) / "audit"
    return place / "audit" if (place / "audit").is_dir() else place


def _instant(text: str) -> str:
    """A time in the log's own form, from what a person types."""
    if found := re.fullmatch(r"(\d+)([smhd])", text):
        when = datetime.now(UTC) - timedelta(seconds=int(found[1]) * _AGO[found[2]])
    else:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise Misuse(f"--since {text}: neither a span, such as 2h, nor a time, such as 2026-01-31T08:00") from None
        when = when.replace(tzinfo=when.tzinfo or UTC).astimezone(UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"

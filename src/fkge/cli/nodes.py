"""Commands for a node: node, preflight; status, log, pause, resume, stop; and for its audit log: verify, show."""

from __future__ import annotations

import json
import os
import re
import time
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.console import Console, Group
from rich.filesize import decimal
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fkge.cli import exit_codes as exits
from fkge.cli.exit_codes import Misuse
from fkge.cli.options import NODE, AsJson, Commands, completing
from fkge.cli.tables import Answer, make_table
from fkge.errors import NodeError, SettingsError

if TYPE_CHECKING:
    from fkge.node.ops.audit_log import Entry
    from fkge.node.ops.control import Status

commands = Commands(NODE)
audit_log = Commands(help="What a node has sent: to whom, what, how protected, at what cost.")

NodeFile = Annotated[Path, typer.Option("--config", help="The node's node.toml.")]
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


@dataclass(frozen=True)
class Node:
    """The node that a command is about."""

    config: NodeFile = Path("node.toml")
    state: Annotated[
        Path | None, typer.Option("--state", help="The node's state folder, instead of --config.", show_default=False)
    ] = None

    @property
    def folder(self) -> Path:
        """The state folder: as given, or as its configuration says; `NodeError` if there is none."""
        from fkge.settings import read_toml

        if self.state is not None:
            return self.state
        if not self.config.exists():
            raise NodeError(
                f"{self.config}: no such file. Name a node's file with --config, or its folder with --state"
            )
        named = read_toml(self.config).get("state", "state")
        if not isinstance(named, str):
            raise NodeError(f"{self.config}: state is not the path of a folder")
        return self.config.parent / named

    @property
    def socket(self) -> Path:
        """The socket on which it listens for commands."""
        from fkge.node.ops.control import SOCKET

        return self.folder / SOCKET

    def ask(self, command: str, outcome: str) -> Answer:
        """Send it a command; return its answer."""
        from fkge.node.ops import control

        return Answer(control.call(self.socket, command), [f"{self.socket.parent}: {outcome}"])


# -- a node that starts ------------------------------------------------------------------------------


@commands.add("fkge node --config node.toml")
def node(
    config: NodeFile = Path("node.toml"),
    anew: Annotated[
        bool, typer.Option("--anew", help="Set aside its training state and start over; ledger and audit log stay.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Log to the file only.")] = False,
    tape: Annotated[
        Path | None, typer.Option(help="Record all messages in this file, which is as private as its state.")
    ] = None,
    score: Annotated[
        Path | None,
        typer.Option(help="For a rehearsal: a recording of a simulation whose order to follow."),
    ] = None,
) -> None:
    """Run a node: federate with peers over mutual TLS, until stopped."""
    from fkge.node.transport import library

    library()  # before anything else loads gRPC
    import asyncio

    from fkge.node.service import Inputs, run_node
    from fkge.node.settings import NodeConfig

    found = NodeConfig.load(config)
    if found.node.rehearsal != (score is not None):
        raise SettingsError(
            f"{config}: rehearsal = true and --score need each other: all secrets follow from the seed then, and "
            "protect nothing. Use neither with real data"
        )
    os.umask(0o077)  # its files are private
    inputs = Inputs(recording=tape)
    if score is not None:
        from fkge.experiment.replay_script import ReplayScript

        inputs = replace(inputs, order=ReplayScript(score))
    asyncio.run(run_node(found, inputs, anew=anew, echo=not quiet))


@commands.add("fkge preflight --config node.toml")
def preflight(config: NodeFile = Path("node.toml"), as_json: AsJson = False) -> None:
    """Check whether a node could start: configuration, certificate, clock, ports, disk, GPU, and its peers."""
    from fkge.node.transport import library

    library()  # before anything else loads gRPC
    from fkge.node.ops.preflight import preflight as check

    console, findings = Console(highlight=False, soft_wrap=True), []
    marks = {"good": ("✓", "green"), "mind": ("!", "yellow"), "bad": ("✗", "bold red")}
    for finding in check(config):
        findings.append(finding)
        if not as_json:
            console.print(Text.assemble(marks[finding.verdict], f" {finding.what:<16}", finding.sentence))
    good = all(finding.verdict != "bad" for finding in findings)
    if as_json:
        print(json.dumps({"good": good, "found": [asdict(finding) for finding in findings]}))
    if not good:
        raise typer.Exit(exits.NODE)


# -- a running node ----------------------------------------------------------------------------------


@commands.add("fkge status --config node.toml", "fkge status --watch", "fkge status --state state --json")
def status(
    node: Node,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between refreshes.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Show a node's progress, its privacy spending and the state of its peers."""
    from fkge.node.ops.control import ask_status

    socket = node.socket
    found = ask_status(socket)
    if not watch or as_json:
        Answer(found, status_tables(found)).print(as_json)
        while watch:
            time.sleep(every)
            Answer(ask_status(socket), ()).print(as_json)
        return
    with Live(Group(*status_tables(found)), console=Console(markup=False, emoji=False), auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(Group(*status_tables(ask_status(socket))), refresh=True)


@commands.add("fkge log --follow", "fkge log --config node.toml -n 100 --level warning --peer genes")
def log(
    node: Node,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show new lines as they come, until Ctrl-C.")] = False,
    level: Annotated[
        str, typer.Option(help=f"The least level: {', '.join(_LEVELS)}.", autocompletion=completing(*_LEVELS))
    ] = "debug",
    peer: Annotated[str | None, typer.Option(help="Only lines about this peer.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the lines of the file, in JSON.")] = False,
) -> None:
    """Show the log, the newest line last. The node need not be running."""
    from fkge.node.ops.logs import Tail

    if level not in _LEVELS:
        raise Misuse(f"--level {level}: a level is {', '.join(_LEVELS)}")
    tail = Tail(node.folder / "node.log", level=level, peer=peer)
    for record in tail.last(lines):
        _print_record(record, as_json)
    while follow:
        time.sleep(0.25)
        for record in tail.more():
            _print_record(record, as_json)


@commands.add("fkge pause --config node.toml")
def pause(node: Node) -> Answer:
    """Pause a node after its current step; it stays connected. Peers wait for it once, for `window` at most."""
    return node.ask("pause", "pauses; continue with fkge resume")


@commands.add("fkge resume --config node.toml")
def resume(node: Node) -> Answer:
    """Continue a paused node."""
    return node.ask("resume", "continues")


@commands.add("fkge stop --config node.toml", "fkge stop --state state --timeout 300")
def stop(
    node: Node,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait until its process has ended.")] = 60.0,
) -> Answer:
    """Save a node's state and end it; wait until it has ended. Start it again with the same folder to continue."""
    from fkge.node.ops import control

    return Answer(control.stop(node.socket, timeout), [f"{node.folder}: stopped"])


def _print_record(record: Mapping[str, object], as_json: bool) -> None:
    from fkge.node.ops.logs import render

    if as_json:
        print(json.dumps(record, ensure_ascii=False), flush=True)
    else:
        console = Console(markup=False, emoji=False, highlight=False, soft_wrap=True)
        console.print(Text(render(record), _LOOK.get(str(record["level"]), "")))


def status_tables(status: Status) -> Iterator[Table | Text]:
    """Yield a table of the node, a table of its peers, and why peers are away or refused."""
    from fkge.node.ops.logs import printable

    now = status["time"]
    mrr, epoch, epochs = status["validation_mrr"], status["epoch"], status["epochs"]
    drawn = Table(title=Text(f"node {status['name']}"), show_header=False)
    drawn.add_column(no_wrap=True)
    drawn.add_column(overflow="fold")
    drawn.add_row("state", _state(status["state"]) + Text(f", for {_span(now - status['since'])}"))
    up = f"start {status['life']}, {_span(now - status['started'])} ago; process {status['pid']}"
    drawn.add_row("running since", Text(f"{up}, fkge {status['version']}"))
    drawn.add_row("epochs", Text("" if epoch is None else f"{epoch:,} of {'?' if epochs is None else f'{epochs:,}'}"))
    drawn.add_row("best validation MRR", Text("" if mrr is None else f"{mrr:.4f}"))
    drawn.add_row("privacy", Text(status["privacy"]))
    for spent in status["spent"]:
        budget = "no limit" if spent["epsilon"] is None else f"{spent['epsilon']:.4g}"
        used = "∞" if spent["spent"] is None else f"{spent['spent']:.4g}"
        unit = f"for one {spent['unit']}, {spent['relation']}"
        drawn.add_row("ε spent", Text(f"{used} of {budget}, at δ {spent['delta']:g}, {unit}"))
    if not status["spent"]:
        drawn.add_row("ε spent", Text("none is counted: what is sent has no guarantee"))
    if (audit := status.get("audit")) is not None:
        drawn.add_row("audit log", Text(f"{audit['entries']:,} entries, head\n{audit['head']}"))
    yield drawn
    if status["peers"]:
        yield _peers_table(status)
    for peer in status["peers"]:
        if peer["reason"]:
            yield Text.assemble((printable(peer["name"]), "bold"), f": {printable(peer['reason'])}")


def _peers_table(status: Status) -> Table:
    from fkge.node.ops.logs import printable

    drawn = Table("peer", title="peers", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for column in ("state", "for", "shared", "exchanges", "in", "out", "received"):
        drawn.add_column(column, justify="left" if column in ("state", "for") else "right", no_wrap=True)
    now = status["time"]
    for peer in status["peers"]:
        shared, received, since = peer["shared"], peer["heard"], peer["since"]
        drawn.add_row(
            Text(printable(peer["name"])),
            _state(peer["state"]),
            "" if since is None else _span(now - since),
            "" if shared is None else f"{shared:,}",
            f"{peer['exchanges']:,}",
            decimal(peer["bytes_in"]),
            decimal(peer["bytes_out"]),
            "never" if received is None else f"{_span(now - received)} ago",
        )
    return drawn


def _state(state: str) -> Text:
    return Text(state, _STATES.get(state, ""))


def _span(seconds: float) -> str:
    whole = max(0, round(seconds))
    for size, unit, smaller in ((86400, "d", 3600), (3600, "h", 60)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller} {'h' if unit == 'd' else 'min'}"
    return f"{whole} s" if whole < 60 else f"{whole // 60} min"


# -- the audit log -----------------------------------------------------------------------------------


@audit_log.add("fkge audit-log verify --config node.toml", "fkge audit-log verify state/audit --json")
def verify(
    place: AuditPlace = None,
    head: Annotated[
        str | None, typer.Option(help="A head that was printed earlier and stored elsewhere: the log must contain it.")
    ] = None,
    *,
    node: Node,
) -> Answer:
    """Check that nobody altered, removed, reordered or cut off entries; exit code 23 and one sentence if so.

    The node may be running. Store the printed head elsewhere: a later log must contain it.
    """
    from fkge.node.ops import audit_log as auditlog

    if head is not None and not re.fullmatch("[0-9a-fA-F]{64}", head):
        raise Misuse("--head: a head has 64 hexadecimal digits, as fkge audit-log verify prints it")
    where = _audit(place, node)
    found = auditlog.verify(where, head=None if head is None else head.lower())
    lines = [f"{where}: sound, entries {found.first:,} to {found.last:,}; head {found.head}"]
    if found.torn:
        lines.append(f"Its last line is incomplete ({found.torn} bytes), as after a crash; the node removes it.")
    if not found.sealed:
        lines.append("Only the chain was checked: there is no key here to check the anchor's seal with.")
    return Answer({"log": str(where), "sound": True, **vars(found)}, lines)


@audit_log.add("fkge audit-log show --peer genes --since 2h", "fkge audit-log show state/audit --what Update --json")
def show(
    place: AuditPlace = None,
    peer: Annotated[str | None, typer.Option(help="Only entries about this peer.")] = None,
    what: Annotated[str | None, typer.Option(help="Only this kind of message, or this event.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Only later entries: 30m, 2h, 7d, or a date and time, such as 2026-01-31T08:00.")
    ] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last entries.")] = 50,
    *,
    node: Node,
) -> Answer:
    """Show the last entries, and totals of all by peer and protection; the chain is checked, too."""
    from fkge.node.ops import audit_log as auditlog
    from fkge.node.ops.logs import printable

    start = "" if since is None else _instant(since)
    last: deque[Entry] = deque(maxlen=lines)
    messages, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    count = 0
    for entry in auditlog.entries(_audit(place, node)):
        if (
            entry["time"] < start
            or peer not in (None, entry.get("to"), entry.get("peer"))
            or what not in (None, entry.get("what"), entry["event"])
        ):
            continue
        last.append(entry)
        count += 1
        if entry["event"] == "left":
            messages[entry["to"], entry["protection"]] += 1
            sizes[entry["to"], entry["protection"]] += entry["bytes"]
    columns = ("to", "protection", "messages", "bytes")
    totals = [(*key, messages[key], sizes[key]) for key in sorted(messages)]
    rows = ((printable(to), printable(kind), f"{number:,}", f"{size:,}") for to, kind, number, size in totals)
    found = {"count": count, "entries": list(last), "totals": [dict(zip(columns, row, strict=True)) for row in totals]}
    return Answer(found, [_entries_table(last, count), make_table(columns, rows, title="totals")])


def _entries_table(entries: Collection[Entry], count: int) -> Table:
    from fkge.node.ops.logs import printable

    drawn = Table("", "time", "to", "what", "bytes", "protection", "price", "digest", title="messages sent and events",
                  caption=f"the last {len(entries):,} of {count:,}; -n shows more")  # fmt: skip
    for entry in entries:
        cells = [f"{entry['seq']:,}", entry["time"][5:19].replace("T", " ")]
        if entry["event"] == "left":
            cells += [entry["to"], entry["what"], f"{entry['bytes']:,}", entry["protection"], entry["price"] or ""]
            cells += [entry["digest"][:12]]
        else:
            fields = (f"{k}={v}" for k, v in entry.items() if k not in ("seq", "time", "event", "chain", "peer"))
            cells += [str(entry.get("peer", "")), entry["event"], "", " ".join(fields), "", ""]
        drawn.add_row(*(Text(printable(cell)) for cell in cells), style="" if entry["event"] == "left" else "dim")
    return drawn


def _audit(place: Path | None, node: Node) -> Path:
    if place is None:
        return node.folder / "audit"
    return place / "audit" if (place / "audit").is_dir() else place


def _instant(text: str) -> str:
    """Return a time as the log writes it, from a span (2h) or a time."""
    if found := re.fullmatch(r"(\d+)([smhd])", text):
        when = datetime.now(UTC) - timedelta(seconds=int(found[1]) * _AGO[found[2]])
    else:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise Misuse(f"--since {text}: neither a span, such as 2h, nor a time, such as 2026-01-31T08:00") from None
        when = when.replace(tzinfo=when.tzinfo or UTC).astimezone(UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03d}Z"

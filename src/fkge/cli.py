"""The command line. Draws what the rooms below report; everything it does, a library call does too.

Figures and pictures go to standard error; standard output carries the answer, as a table or, with ``--json``, as
one JSON object on its last line. Heavy imports wait until a command needs them, so that ``--help`` is quick.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Task as RichTask
from rich.table import Table
from rich.text import Text

from fkge.errors import FkgeError

if TYPE_CHECKING:
    from fkge.runs import Run

app = typer.Typer(
    help="Knowledge-graph embedding for owners who will federate.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

USER_ERROR, INTERRUPTED = 1, 130

RunFolder = Annotated[Path, typer.Argument(help="A folder made by `fkge train`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object as the last line of standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …; auto takes a GPU if there is one.")]


def main() -> None:
    """Entry point: errors meant for people become one line on standard error and exit code 1."""
    # Threads that spin while they wait starve each other when owners share a machine. Must precede torch.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        app()
    except FkgeError as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(Text.assemble(("error: ", "bold red"), str(error)))
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


# -- commands --------------------------------------------------------------------------------------


@app.command()
def train(
    graph: Annotated[
        str | None,
        typer.Argument(help="A file or folder of triples, or pykeen:NAME. Not needed with --resume."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The run folder to make.")] = Path("run"),
    model: Annotated[
        str | None, typer.Option(help="TransE, TransH, TransR, TransD, DistMult, ComplEx, RotatE.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a TOML file, such as recipes/transe.toml.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; overrides the file. Repeatable.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 … or auto.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    split_seed: Annotated[int, typer.Option(help="Seed of the split, where the graph has none ready-made.")] = 0,
    allow_unseen: Annotated[
        bool, typer.Option(help="Let valid and test hold entities and relations that train lacks.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on a graph and score it."""
    from fkge.graph import read_graph
    from fkge.runs import Run
    from fkge.settings import TrainSettings

    given = {"model": model, "seed": seed, "device": device}
    settings = TrainSettings.load(config, set_ or (), **given)
    with _drawing(quiet) as progress:
        if resume:
            run = Run.open(out)
            read = read_graph(graph, seed=split_seed, allow_unseen=allow_unseen, progress=progress) if graph else None
            run.check_same(read, {key: getattr(settings, key) for key in settings.model_fields_set})
        else:
            if graph is None:
                raise FkgeError("which graph? fkge train GRAPH --out RUN (or --resume to go on with a run)")
            Run.check_free(out)
            read = read_graph(graph, seed=split_seed, allow_unseen=allow_unseen, progress=progress)
            run = Run.create(out, read, settings)
        progress.say(repr(run.graph))
        for note in run.graph.notes:
            progress.say(f"note: {note}")
        with _interruptible(progress) as stop:
            result = run.train(progress=progress, stop=stop)
    if result is None:
        progress.say(f"stopped; nothing is lost. Go on with: fkge train --resume --out {out}")
        raise typer.Exit(INTERRUPTED)
    _answer(result, as_json, lambda: _metrics_table(run, result))


@app.command()
def evaluate(
    run: RunFolder,
    split: Annotated[list[str] | None, typer.Option(help="Splits to score; valid and test by default.")] = None,
    ties: Annotated[str, typer.Option(help="realistic, optimistic or pessimistic.")] = "realistic",
    raw: Annotated[bool, typer.Option(help="Let known answers compete (not filtered).")] = False,
    type_constraint: Annotated[
        bool, typer.Option(help="Only entities seen on a side of a relation compete there, as in OpenKE.")
    ] = False,
    categories: Annotated[bool, typer.Option(help="Also by relation category: 1-1, 1-n, n-1, n-n.")] = False,
    device: Device = "auto",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Score a trained model: link prediction and triple classification."""
    from fkge.runs import Run

    opened = Run.open(run)
    with _drawing(quiet) as progress:
        result = opened.evaluate(
            split or ("valid", "test"), device=device, ties=ties, raw=raw,
            type_constraint=type_constraint, categories=categories, progress=progress,
        )  # fmt: skip
    _answer(result, as_json, lambda: _metrics_table(opened, result))


@app.command()
def predict(
    run: RunFolder,
    head: Annotated[str | None, typer.Option(help="Head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="Relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Tail entity.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many answers.")] = 10,
    include_known: Annotated[bool, typer.Option(help="Show answers that the graph states already, too.")] = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Find the missing part of a triple: give two of head, relation and tail."""
    from fkge.evaluate import predict as ask
    from fkge.runs import Run

    opened = Run.open(run)
    answers = ask(
        opened.load(device), opened.graph, head=head, relation=relation, tail=tail,
        top=top, exclude_known=not include_known,
    )  # fmt: skip
    result = {
        "head": head, "relation": relation, "tail": tail,
        "answers": [answer._asdict() for answer in answers],
    }  # fmt: skip

    def table() -> Table:
        shown = [part if part is not None else "?" for part in (head, relation, tail)]
        drawn = Table("", "label", "score", *(["known"] if include_known else []), title="  ".join(shown))
        for place, answer in enumerate(answers, 1):
            known = ["yes" if answer.known else ""] if include_known else []
            drawn.add_row(str(place), answer.label, f"{answer.score:.4f}", *known)
        return drawn

    _answer(result, as_json, table)


@app.command()
def neighbors(
    run: RunFolder,
    entity: Annotated[str, typer.Argument(help="An entity's label.")],
    top: Annotated[int, typer.Option(min=1, help="How many.")] = 10,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Show the entities whose vectors are most like one entity's."""
    from fkge.evaluate import neighbors as near
    from fkge.runs import Run

    opened = Run.open(run)
    found = near(opened.load(device), opened.graph, entity, top=top)
    result = {"entity": entity, "neighbors": [neighbor._asdict() for neighbor in found]}

    def table() -> Table:
        drawn = Table("", "label", "cosine", title=entity)
        for place, neighbor in enumerate(found, 1):
            drawn.add_row(str(place), neighbor.label, f"{neighbor.similarity:.4f}")
        return drawn

    _answer(result, as_json, table)


@app.command()
def simulate(
    federation: Annotated[
        str | None,
        typer.Argument(help="A folder with a folder per owner and aligned/, or a TOML file. Not needed with --resume."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The folder to make.")] = Path("simulation"),
    translate: Annotated[str | None, typer.Option(help="frame, procrustes, ppat or ppat+refine.")] = None,
    start: Annotated[str | None, typer.Option(help="together, or alone (first train, then federate).")] = None,
    decide: Annotated[str | None, typer.Option(help="Validation triples that decide: all, or strict.")] = None,
    share: Annotated[str | None, typer.Option(help="both, entities or relations.")] = None,
    ratio: Annotated[float | None, typer.Option(help="Part of the aligned pairs to use, 0.2 … 1.0.")] = None,
    privacy: Annotated[
        str | None,
        typer.Option(help="none, paper (the game's votes are noised and paid for) or dp (DP-SGD of what is shared)."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε that may be spent in a lifetime (--privacy).")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of that (ε, δ).", show_default="1e-5")] = None,
    confidential: Annotated[
        float | None,
        typer.Option(help="For experiments: the share of every owner's triples that its policy keeps, 0 … 1."),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="processes: one per owner; in-process: one clock, repeatable.", show_default="processes"),
    ] = None,
    baselines: Annotated[
        str | None,
        typer.Option(
            help="Further arms: independent, control, permuted, random, unified, fede; comma between.",
            show_default="control",
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings from a TOML file; see recipes/federations.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value or train.key=value; overrides the file. Repeatable.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random.", show_default="0")] = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with the simulation in this folder.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Let the owners of a federation improve each other, on this machine, beside controls."""
    from fkge.federation import FederationSettings, read_federation
    from fkge.simulations import Simulation

    with _drawing(quiet) as progress:
        if resume is not None:
            others = (
                federation, translate, start, decide, share, ratio, privacy, epsilon, delta, confidential, engine,
                baselines, config, set_, seed,
            )  # fmt: skip
            if any(value is not None for value in others):
                raise FkgeError("--resume goes on with what its folder says; leave FEDERATION and settings out")
            simulation, out = Simulation.open(resume), resume
        else:
            if federation is None:
                raise FkgeError("which federation? fkge simulate FEDERATION --out RUN (or --resume RUN)")
            given = {"translate": translate, "start": start, "decide": decide, "share": share, "ratio": ratio}
            if privacy == "paper" and translate is None:
                given["translate"] = "ppat"
            words = {"mode": privacy, "epsilon": epsilon, "delta": delta}
            overrides = [f"privacy.{key}={value}" for key, value in words.items() if value is not None]
            settings = FederationSettings.load(config, [*(set_ or ()), *overrides], **given)
            Simulation.check_free(out)
            read = read_federation(federation, progress)
            if confidential is not None:
                read = read.keeping(confidential, seed or 0)
            for name, member in read.members.items():
                shared = {peer: len(common) for peer, common in read.common(name).items()}
                progress.say(
                    f"{name}: {member.graph!r}; shares {', '.join(f'{n:,} with {p}' for p, n in shared.items())}"
                )
                for note in member.policy.unused(member.graph) if member.policy else ():
                    progress.say(f"{name}: {note}")
            names = [name.strip() for name in ("control" if baselines is None else baselines).split(",")]
            simulation = Simulation.create(
                out,
                read,
                settings,
                baselines=filter(None, names),
                engine=engine or "processes",
                seed=seed or 0,
                progress=progress,
            )
        with _interruptible(progress) as stop:
            result = simulation.run(progress=progress, stop=stop)
    if result is None:
        progress.say(f"stopped; nothing is lost. Go on with: fkge simulate --resume {out}")
        raise typer.Exit(INTERRUPTED)
    if as_json:
        print(json.dumps(result, ensure_ascii=False), flush=True)
    else:
        for drawn in _simulation_tables(result):
            Console().print(drawn)


@app.command()
def audit(
    run: Annotated[Path, typer.Argument(help="A folder made by `fkge simulate`, finished. It is only read.")],
    only: Annotated[
        str | None,
        typer.Option(
            help="non-interference, membership, canaries, reconstruction, dictionary, poisoning; comma between.",
            show_default="all",
        ),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(help="The victim.", show_default="the owner with the largest alignment")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer attacks, weaker ones: a fraction of the time.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Attack a finished simulation, in a copy: does what it claims hold? Exit code 1 if a claim is broken."""
    from fkge.audits import audit as attack

    names = [name.strip() for name in (only or "").split(",")]
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill cleans up too
    try:
        with _drawing(quiet) as progress:
            result = attack(run, only=filter(None, names), owner=owner, quick=quick, progress=progress)
    finally:
        signal.signal(signal.SIGTERM, before)
    _answer(result, as_json, lambda: _audit_table(result))
    if result["broken"]:
        raise typer.Exit(USER_ERROR)


ledger = typer.Typer(help="What an owner's graph has given away, and how much more it may.", no_args_is_help=True)
app.add_typer(ledger, name="ledger")

LedgerFile = Annotated[
    Path, typer.Argument(help="An owner's privacy ledger, such as RUN/arms/federated/OWNER/ledger.sqlite.")
]


@ledger.command()
def show(path: LedgerFile, as_json: AsJson = False) -> None:
    """Verify a ledger, then show its budgets, what was spent of them, on whom, and what left without protection."""
    from fkge.privacy import Ledger, describe

    with Ledger.open(path) as opened:
        told = describe(opened)
    if as_json:
        print(json.dumps(told, ensure_ascii=False), flush=True)
    else:
        for drawn in _ledger_tables(told):
            Console().print(drawn)


@ledger.command()
def verify(path: LedgerFile, as_json: AsJson = False) -> None:
    """Check that nobody changed a ledger or put an older one in its place; exit code 1 and one sentence if so."""
    from fkge.privacy import Ledger

    with Ledger.open(path) as opened:
        head = opened.head
    if as_json:
        print(json.dumps({"ledger": str(path), "sound": True, "head": head.to_json()}), flush=True)
    else:
        print(f"{path}: sound, {head.rows:,} entries and {head.notes:,} notes; head {head.seal}")


# -- what is printed -------------------------------------------------------------------------------


def _answer(result: dict[str, Any], as_json: bool, table: Callable[[], Table]) -> None:
    """The answer on standard output, for a program or for a person."""
    if as_json:
        print(json.dumps(result, ensure_ascii=False), flush=True)
    else:
        Console().print(table())


_COLUMNS = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy")


def _metrics_table(run: Run, result: dict[str, Any]) -> Table:
    drawn = Table("split", *_COLUMNS, title=f"{run.settings.model} on {run.graph.name}")
    for split in run.graph.splits:
        scores = result.get(split)
        if scores is None:
            continue
        drawn.add_row(split, *(_figure(name, scores.get(name)) for name in _COLUMNS))
        for category, sides in scores.get("categories", {}).items():
            for side in ("head", "tail"):
                if side in sides:
                    drawn.add_row(
                        f"  {category} {side}", *(_figure(n, sides[side].get(n)) for n in _COLUMNS), style="dim"
                    )
    return drawn


_VERDICTS = {"holds": "green", "BROKEN": "bold red"}


def _audit_table(result: dict[str, Any]) -> Table:
    title = f"{result['federation']}: attacks on {result['owner']}, privacy {result['privacy']['mode']}"
    drawn = Table(title=title, show_lines=True)
    for column in ("attack", "on what", "result", "what the claim says", "verdict"):
        drawn.add_column(column, no_wrap=column == "attack")
    for name, found in result["sections"].items():
        verdict = Text(found["verdict"], style=_VERDICTS.get(found["verdict"], "yellow"))
        drawn.add_row(name, *(Text(found[key]) for key in ("on", "result", "claim")), verdict)
    return drawn


def _ledger_tables(told: dict[str, Any]) -> Iterator[Table]:
    """Budgets; what was paid for and left, by mechanism and peer; what left unprotected."""
    drawn = Table("", *(f"one {b['unit']}, {b['relation']}" for b in told["budgets"]), title=f"{told['graph']}: spent",
                  caption=f"Not covered: {told['uncovered']}")  # fmt: skip
    rows: dict[str, Callable[[dict[str, Any]], str]] = {
        "budget ε, at δ": lambda b: f"{_epsilon(b['epsilon'])}, {b['delta']:g}",
        "spent ε": lambda b: _epsilon(b["spent"]["epsilon"]),
        "by PLD / RDP": lambda b: f"{_epsilon(b['spent']['pld'])} / {_epsilon(b['spent']['rdp'])}",
        "by the paper's formula": lambda b: "" if b["spent"]["paper"] is None else f"{b['spent']['paper']:.4g}",
        "steps or queries": lambda b: f"{b['spent']['count']:,}",
        "left ε": lambda b: _epsilon(b["left"]),
    }
    for name, cell in rows.items():
        drawn.add_row(name, *(cell(b) for b in told["budgets"]))
    yield drawn
    drawn = Table("mechanism", "one", "peer", "paid for", "events", "left", "bytes", title="entries")
    for e in told["entries"]:
        figures = [f"{e[name]:,}" for name in ("paid", "paid_count", "left", "nbytes")]
        drawn.add_row(e["mechanism"], e["unit"], e["peer"] or "(nobody yet)", *figures)
    yield drawn
    drawn = Table("what", "peer", "messages", "bytes", "protection", title="left unprotected")
    for u in told["unprotected"]:
        drawn.add_row(u["what"], u["peer"], f"{u['messages']:,}", f"{u['nbytes']:,}", u["protection"])
    yield drawn


def _epsilon(value: float | None) -> str:
    return "∞" if value is None else f"{value:.4g}"


_PARTS = {
    "strict": "facts that nobody else holds",
    "chained": "facts that another owner holds, as only a chain of links shows",
    "held": "facts that a partner holds",
}


def _simulation_tables(result: dict[str, Any]) -> Iterator[Table]:
    """For each part of the test triples, MRR by owner and arm, then means over owners of other metrics too."""
    arms = list(result["mean"])
    for part, meaning in _PARTS.items():
        if not any(part in scores for scores in result["mean"].values()):
            continue
        drawn = Table("MRR of", *arms, "gain over control, 95%", title=f"{result['federation']}: {meaning}")
        for name, owner in result["owners"].items():
            cells = [owner["arms"][arm]["test"].get(part, {}).get("mrr") for arm in arms]
            versus = owner["versus"].get("control", {}).get(part, {}).get("mrr")
            gain = f"{versus['difference']:+.3f} ({versus['low']:+.3f} … {versus['high']:+.3f})" if versus else ""
            drawn.add_row(name, *(_short(value) for value in cells), gain)
        drawn.add_section()
        for metric in ("mrr", "hits@10", "accuracy"):
            means = {arm: result["mean"][arm].get(part, {}).get(metric) for arm in arms}
            gain = f"{means['federated'] - means['control']:+.3f}" if means.get("control") is not None else ""
            drawn.add_row(f"mean {metric}", *(_short(means[arm]) for arm in arms), gain)
        yield drawn
    yield from _privacy_table(result)


def _privacy_table(result: dict[str, Any]) -> Iterator[Table]:
    """What was spent, and of what; and what has no guarantee."""
    spent = {
        name: owner["arms"]["federated"]["privacy"]["budgets"]
        for name, owner in result["owners"].items()
        if "privacy" in owner["arms"]["federated"]
    }
    if not any(spent.values()):
        return
    paper = result["privacy"]["mode"] == "paper"
    caption = (
        "client's vectors: no guarantee"
        if paper
        else "given the vocabulary; see docs/privacy.md for what it leaves out"
    )
    for unit in dict.fromkeys(f"{b['unit']}, {b['relation']}" for budgets in spent.values() for b in budgets):
        drawn = Table("spent by", "ε", "PLD", "RDP", "paper's", "of", "δ", title=f"for one {unit}", caption=caption)
        for name, budgets in spent.items():
            for b in budgets:
                cost = b["spent"]
                figures = [_epsilon(cost[key]) for key in ("epsilon", "pld", "rdp")]
                formula = "" if cost["paper"] is None else _epsilon(cost["paper"])
                drawn.add_row(name, *figures, formula, _epsilon(b["epsilon"]), f"{b['delta']:g}")
        yield drawn


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _figure(name: str, value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}" if name == "mr" else f"{value:.4f}"


# -- what is drawn ---------------------------------------------------------------------------------


class _Speed(ProgressColumn):
    def render(self, task: RichTask) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        for size, letter in ((1e6, "M"), (1e3, "k")):
            if speed >= size:
                return Text(f"{speed / size:.1f}{letter} {task.fields['unit']}/s", style="cyan")
        return Text(f"{speed:.1f} {task.fields['unit']}/s", style="cyan")


class _Drawn:
    """Progress as bars on a terminal; elsewhere, a line at a time for what is worth a line in a log."""

    def __init__(self, console: Console, bars: Progress | None) -> None:
        self.console = console
        self.bars = bars

    def say(self, text: str) -> None:
        if not self.console.quiet:
            self.console.print(text, highlight=False, soft_wrap=True, markup=False)

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "") -> Iterator[Any]:
        if self.bars is None:
            yield _Logged(self, name)
            return
        nested = len(self.bars.tasks) > 0
        key = self.bars.add_task(name, total=total, unit=unit, shown="")
        try:
            yield _Bar(self.bars, key)
        finally:
            if nested:
                self.bars.remove_task(key)
            else:
                self.bars.stop_task(key)
                self.bars.refresh()
                self.bars.remove_task(key)


class _Bar:
    def __init__(self, bars: Progress, key: Any) -> None:
        self.bars, self.key = bars, key
        self.shown: dict[str, float | str] = {}

    def advance(self, amount: int, **shown: float | str) -> None:
        self.shown |= shown
        text = "  ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in self.shown.items())
        self.bars.update(self.key, advance=amount, shown=text)


class _Logged:
    """Where there is no terminal: one line for each validation."""

    def __init__(self, drawn: _Drawn, name: str) -> None:
        self.drawn, self.name = drawn, name

    def advance(self, amount: int, **shown: float | str) -> None:
        if amount == 0 and shown:
            figures = "  ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items())
            self.drawn.say(f"{self.name}: {figures}")


@contextmanager
def _drawing(quiet: bool) -> Iterator[_Drawn]:
    console = Console(stderr=True, quiet=quiet)
    if quiet or not console.is_terminal:
        yield _Drawn(console, None)
        return
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), _Speed(),
        TimeElapsedColumn(), TextColumn("eta"), TimeRemainingColumn(), TextColumn("{task.fields[shown]}"),
        console=console,
    )  # fmt: skip
    with bars:
        yield _Drawn(console, bars)


@contextmanager
def _interruptible(progress: _Drawn) -> Iterator[Callable[[], bool]]:
    """Ctrl-C, or a polite kill, asks training to stop where it can go on later; a second one stops it at once."""
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        progress.say("stopping at the next safe place (once more: at once) …")

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    main()

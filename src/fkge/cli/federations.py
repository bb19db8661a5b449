"""Commands for federations: new, simulate, demo, audit; and for an owner's privacy ledger: show, verify."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from fkge.cli import options as opt
from fkge.cli import tables
from fkge.cli.console import ConsoleProgress, console_progress
from fkge.cli.exit_codes import BROKEN, INTERRUPTED, Misuse
from fkge.cli.live import live_view
from fkge.cli.options import Config, Quiet, Seed, SimulationFolder
from fkge.cli.run_folders import require_simulation
from fkge.cli.tables import Answer
from fkge.errors import RunError
from fkge.files import whole_or_nothing
from fkge.progress import interruptible

if TYPE_CHECKING:
    from fkge.experiment.results import SimulationResult
    from fkge.experiment.simulation import Simulation
    from fkge.federation import Federation, FederationSettings

commands = opt.Commands(opt.FEDERATE)


@commands.add("fkge new project", "fkge simulate project/federation.toml --config project/settings.toml")
def new(folder: Annotated[Path, typer.Argument(help="The folder to create.")]) -> None:
    """Write a project to start from: two small graphs, their federation, a policy and settings, all explained."""
    from fkge.cli.scaffold import write_project

    print("\n".join(write_project(folder)))


@dataclass(frozen=True)
class ExchangeOptions:
    """Options of the exchange: keys of `FederationSettings`; None where the option was not given."""

    translate: Annotated[
        str | None, opt.choice("frame, procrustes, ppat or ppat+refine.", "frame", "procrustes", "ppat", "ppat+refine")
    ] = None
    start: Annotated[
        str | None, opt.choice("together, or alone (first train, then federate).", "together", "alone")
    ] = None
    decide: Annotated[str | None, opt.choice("Validation triples that decide: all, or strict.", "all", "strict")] = None
    share: Annotated[str | None, opt.choice("both, entities or relations.", "both", "entities", "relations")] = None
    ratio: Annotated[float | None, typer.Option(help="Part of the aligned pairs to use, 0.2 … 1.0.")] = None


@dataclass(frozen=True)
class PrivacyOptions:
    """Options of the protection of what owners send."""

    privacy: Annotated[
        str | None,
        opt.choice("none, paper (noise on the votes of the game) or dp (DP-SGD on what is shared).",
                   "none", "paper", "dp"),
    ] = None  # fmt: skip
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget ε of all releases (--privacy).")] = None
    delta: Annotated[float | None, typer.Option(help="δ of that (ε, δ).", show_default="1e-5")] = None
    confidential: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="For experiments: part of each owner's triples kept confidential, 0 … 1."),
    ] = None

    @property
    def overrides(self) -> list[str]:
        """The settings among them, as ``key=value``."""
        values = {"mode": self.privacy, "epsilon": self.epsilon, "delta": self.delta}
        return [f"privacy.{key}={value}" for key, value in values.items() if value is not None]


@dataclass(frozen=True)
class EngineOptions:
    """Options of the engine that runs the owners."""

    engine: Annotated[
        str | None,
        opt.choice(
            "processes: one per owner; in-process: one clock, repeatable; ray: on a cluster; nodes: real peers.",
            "processes", "in-process", "ray", "nodes", show_default="processes",
        ),
    ] = None  # fmt: skip
    address: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray: a cluster, as HOST:PORT or auto.", show_default="Ray is started on this machine"
        ),
    ] = None
    cpus: Annotated[
        float | None,
        typer.Option(min=0, help="With --engine ray: for each owner.", show_default="1, or a share if there are fewer"),
    ] = None
    gpus: Annotated[
        float | None,
        typer.Option(min=0, help="With --engine ray: for each owner.", show_default="a share, as train.device says"),
    ] = None

    @property
    def given(self) -> dict[str, object]:
        """The engine's own options that were given."""
        return {key: value for key, value in asdict(self).items() if key != "engine" and value is not None}


@commands.add(
    "fkge simulate project/federation.toml --config project/settings.toml --out runs/project",
    "fkge simulate atlas --config atlas --baselines control,permuted --out runs/atlas",
    "fkge simulate atlas --privacy dp --epsilon 8 --out runs/private",
    "fkge simulate --resume runs/atlas",
)
def simulate(
    federation: Annotated[
        str | None,
        typer.Argument(
            help="A folder with a folder per owner and aligned/, a TOML file, or the name of an embedded federation. "
            "Not needed with --resume.",
            autocompletion=opt.federations,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The folder to create.")] = Path("simulation"),
    *,
    exchange: ExchangeOptions,
    privacy: PrivacyOptions,
    engine: EngineOptions,
    baselines: Annotated[
        str | None,
        typer.Option(
            help="Further arms: independent, control, permuted, random, poisoned, unified, fede; comma between.",
            show_default="control",
        ),
    ] = None,
    config: Config = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value or train.key=value; overrides the file. Repeatable.")
    ] = None,
    seed: Seed = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Continue the simulation in this folder.")] = None,
    quiet: Quiet = False,
) -> Answer:
    """Run a federation on this machine, together with baselines without it, and compare them."""
    from fkge.federation import FederationSettings, read_federation

    if resume is not None:
        given = (federation, *astuple(exchange), *astuple(privacy), engine.engine, baselines, config, set_, seed)
        if any(value is not None for value in given):
            raise Misuse("--resume takes everything from its folder; leave FEDERATION and settings out")
        simulation = _open(resume)
    else:
        if federation is None:
            raise Misuse("which federation? fkge simulate FEDERATION --out RUN (or --resume RUN)")
        values = asdict(exchange)
        if privacy.privacy == "paper" and exchange.translate is None:
            values["translate"] = "ppat"
        settings = FederationSettings.load(opt.config_file(config), [*(set_ or ()), *privacy.overrides], **values)
        names = _split("control" if baselines is None else baselines)

        def read(progress: ConsoleProgress) -> Federation:
            found = read_federation(federation, progress)
            return found if privacy.confidential is None else found.keeping(privacy.confidential, seed or 0)

        simulation = _create(out, settings, names, engine, seed or 0, quiet, read)
    result = _run(simulation, quiet, f"fkge simulate --resume {quote(str(simulation.folder))}", engine)
    return Answer(result.to_json(), tables.simulation_tables(result))


@commands.add("fkge demo", "fkge demo atlas --out runs/atlas --seed 1", "fkge demo --fresh")
def demo(
    name: Annotated[
        str, typer.Argument(help="An embedded federation; see `fkge data list`.", autocompletion=opt.federations)
    ] = "atlas",
    out: Annotated[Path, typer.Option("--out", help="The folder to create, or to continue.")] = Path("runs/demo"),
    seed: Seed = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove an earlier demo in --out.")] = False,
    quiet: Quiet = False,
) -> Answer:
    """Run an embedded federation together with its controls, and write a report.

    The report's path is the last line of standard output. After an interrupt, the same command continues the run.
    """
    from fkge.data import build, recipe
    from fkge.federation import FederationSettings, read_federation
    from fkge.recipes import names
    from fkge.report import write_report

    if fresh:
        recipe(name)  # an unknown name must not cost an earlier demo
        _remove_demo(out)
    if (out / "simulation.json").exists():
        simulation = _open(out)
        was = simulation.spec
        if was.federation != name or (seed is not None and was.seed != seed):
            raise RunError(
                f"{out}: holds {was.federation} with seed {was.seed}; choose another --out, or --fresh to start again"
            )
    else:
        recipe(name)  # raises if there is no such federation, before anything is read
        settings = FederationSettings.load(names().get(name, names()["atlas"]))
        simulation = _create(
            out, settings, ("control",), EngineOptions(), seed or 0, quiet,
            lambda progress: read_federation(build(name, progress), progress),
        )  # fmt: skip
    result = _run(simulation, quiet, f"fkge demo {name} --out {quote(str(out))}", EngineOptions())
    report = str(write_report(out))
    return Answer({**result.to_json(), "report": report}, [*tables.simulation_tables(result), report])


def _remove_demo(out: Path) -> None:
    """Remove an earlier demo, and nothing else."""
    from fkge.data import NAMES
    from fkge.experiment.simulation import Simulation

    if not (out / "simulation.json").exists():
        return
    was = Simulation.open(out).spec.federation
    if was not in NAMES:
        raise RunError(f"{out}: holds a simulation of {was}, which is no demo; choose another --out")
    if Simulation.is_running(out):
        raise RunError(f"{out}: is being run by another process; wait for it, or stop it")
    shutil.rmtree(out)


@commands.add("fkge audit runs/demo --quick", "fkge audit runs/private --only non-interference,membership")
def audit(
    run: SimulationFolder,
    only: Annotated[
        str | None,
        typer.Option(help="Names of attacks, with commas between; a wrong name lists them.", show_default="all"),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(
            help="The owner to attack.",
            show_default="the owner with the largest alignment",
            autocompletion=opt.owners_of,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer, weaker attacks, in a fraction of the time.")] = False,
    *,
    progress: ConsoleProgress,
) -> Answer:
    """Attack a copy of a finished simulation and check its privacy claims. Exit code 24 if a claim is broken."""
    from fkge.audit.run import audit as attack

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM removes the copy too
    try:
        result = attack(require_simulation(run), only=_split(only or ""), owner=owner, quick=quick, progress=progress)
    finally:
        signal.signal(signal.SIGTERM, before)
    return Answer(result.to_json(), [tables.audit_table(result)], BROKEN if result.broken else 0)


# -- an owner's privacy ledger -----------------------------------------------------------------------

ledger = opt.Commands(help="What was released about an owner's graph, and how much more may be.")

LedgerFile = Annotated[
    Path, typer.Argument(help="An owner's privacy ledger, such as RUN/arms/federated/OWNER/ledger.sqlite.")
]


def _file(path: Path) -> Path:
    """Return a ledger's file, which may be given by its folder."""
    if path.is_dir():
        path = path / "ledger.sqlite"
        if not path.exists():
            raise RunError(f"{path.parent}: holds no ledger; an owner's is RUN/arms/ARM/OWNER/ledger.sqlite")
    return path


@ledger.add("fkge ledger show runs/private/arms/federated/gazetteer/ledger.sqlite")
def show(path: LedgerFile) -> Answer:
    """Verify a ledger, then show its budgets, what was spent of them, on whom, and what left without protection."""
    from fkge.privacy import Ledger, describe

    with Ledger.open(_file(path)) as opened:
        statement = describe(opened)
    return Answer(statement.to_json(), tables.ledger_tables(statement))


@ledger.add("fkge ledger verify runs/private/arms/federated/gazetteer/ledger.sqlite --json")
def verify(path: LedgerFile) -> Answer:
    """Check that nobody changed a ledger or put an older one in its place; exit code 23 and one sentence if so."""
    from fkge.privacy import Ledger

    with Ledger.open(_file(path)) as opened:
        head = opened.head
    sound = f"{path}: sound, {head.rows:,} entries and {head.notes:,} notes; head {head.seal}"
    return Answer({"ledger": str(path), "sound": True, "head": head.to_json()}, [sound])


# -- parts of the above ----------------------------------------------------------------------------


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _open(folder: Path) -> Simulation:
    from fkge.experiment.simulation import Simulation

    if not (folder / "simulation.json").exists() and (folder / "graph.safetensors").exists():
        raise RunError(f"{folder}: is a run of `fkge train`; resume it: fkge train --resume --out {folder}")
    return Simulation.open(folder)


def _create(
    out: Path, settings: FederationSettings, baselines: Sequence[str], engine: EngineOptions, seed: int, quiet: bool,
    read: Callable[[ConsoleProgress], Federation],
) -> Simulation:  # fmt: skip
    """Read a federation, print what the owners share, and create a simulation; what is sure to fail fails before."""
    from fkge.embed import resolve_device
    from fkge.experiment.simulation import Simulation
    from fkge.federation.recommended import recommended_federation

    kind = engine.engine or "processes"
    Simulation.check_free(out)
    Simulation.check_asked(settings, baselines, kind, engine.given)
    if kind != "ray":  # other machines have other devices
        resolve_device(settings.train.device)
    with console_progress(quiet) as progress:
        federation = read(progress)
        trains = [member.train for member in federation.members.values()]
        settings = recommended_federation(settings, list(federation.graphs.values()), trains)
        for name, member in federation.members.items():
            graph, shared = member.graph, {peer: len(common) for peer, common in federation.common(name).items()}
            sizes = f"{len(graph.entities):,} entities, {len(graph.relations):,} relations, {len(graph.train):,} facts"
            progress.say(f"{name}: {sizes}; shares {_shared(shared)}")
            for note in member.policy.unused(member.graph) if member.policy else ():
                progress.say(f"{name}: {note}")
        with whole_or_nothing(out):
            return Simulation.create(
                out, federation, settings, baselines=baselines, engine=kind, engine_options=engine.given, seed=seed,
                progress=progress,
            )  # fmt: skip


def _shared(sizes: dict[str, int]) -> str:
    """Say how many rows are shared with each peer; with more than two, the least and the most."""
    if len(sizes) > 2:
        return f"{min(sizes.values()):,} to {max(sizes.values()):,} with each of {len(sizes)} others"
    return " and ".join(f"{n:,} with {peer}" for peer, n in sizes.items()) or "nothing"


def _run(simulation: Simulation, quiet: bool, again: str, engine: EngineOptions) -> SimulationResult:
    """Run a simulation to its end; if it is interrupted, say how to resume it and exit."""
    with live_view(simulation, quiet) as (progress, watch):
        if simulation.result is not None:
            progress.say(f"{simulation.folder}: is finished; this is its result")
        with interruptible(progress.say) as stop:
            found = simulation.run(progress=progress, stop=stop, watch=watch, engine_options=engine.given)
    if found is None:
        progress.say(f"stopped; nothing is lost. Resume with: {again}")
        raise typer.Exit(INTERRUPTED)
    return found

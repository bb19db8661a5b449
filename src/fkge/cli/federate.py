"""Commands for federations: new, simulate, demo, audit."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fkge.bars import interruptible
from fkge.cli import tables
from fkge.cli.drawing import Screen, drawing
from fkge.cli.exits import BROKEN, INTERRUPTED, Misuse
from fkge.cli.folders import needs_simulation
from fkge.cli.live import watching
from fkge.cli.options import (
    FEDERATE,
    AsJson,
    Config,
    Quiet,
    Seed,
    SimulationFolder,
    about,
    completing,
    config_file,
    example,
    federations,
    owners_of,
)
from fkge.errors import RunError
from fkge.trace import whole_or_nothing

if TYPE_CHECKING:
    from fkge.federation import Federation
    from fkge.simulations import Simulation

commands = typer.Typer()


@commands.command(
    rich_help_panel=FEDERATE,
    epilog=example("fkge new project", "fkge simulate project/federation.toml --config project/settings.toml"),
)
def new(
    folder: Annotated[Path, typer.Argument(help="The folder to make.")],
) -> None:
    """Write a project to start from: two small graphs, their federation, a policy and settings, all explained."""
    from fkge.cli.scaffold import write_project

    for line in write_project(folder):
        print(line)


@commands.command(
    rich_help_panel=FEDERATE,
    epilog=example(
        "fkge simulate project/federation.toml --config project/settings.toml --out runs/project",
        "fkge simulate atlas --config atlas --baselines control,permuted --out runs/atlas",
        "fkge simulate atlas --privacy dp --epsilon 8 --out runs/private",
        "fkge simulate --resume runs/atlas",
    ),
)
def simulate(
    federation: Annotated[
        str | None,
        typer.Argument(
            help="A folder with a folder per owner and aligned/, a TOML file, or the name of an embedded federation. "
            "Not needed with --resume.",
            autocompletion=federations,
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The folder to make.")] = Path("simulation"),
    translate: Annotated[
        str | None,
        typer.Option(
            help="frame, procrustes, ppat or ppat+refine.",
            autocompletion=completing("frame", "procrustes", "ppat", "ppat+refine"),
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            help="together, or alone (first train, then federate).", autocompletion=completing("together", "alone")
        ),
    ] = None,
    decide: Annotated[
        str | None,
        typer.Option(
            help="Validation triples that decide: all, or strict.", autocompletion=completing("all", "strict")
        ),
    ] = None,
    share: Annotated[
        str | None,
        typer.Option(help="both, entities or relations.", autocompletion=completing("both", "entities", "relations")),
    ] = None,
    ratio: Annotated[float | None, typer.Option(help="Part of the aligned pairs to use, 0.2 … 1.0.")] = None,
    privacy: Annotated[
        str | None,
        typer.Option(
            help="none, paper (the game's votes are noised and paid for) or dp (DP-SGD of what is shared).",
            autocompletion=completing("none", "paper", "dp"),
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="ε that may be spent in a lifetime (--privacy).")] = None,
    delta: Annotated[float | None, typer.Option(help="δ of that (ε, δ).", show_default="1e-5")] = None,
    confidential: Annotated[
        float | None,
        typer.Option(
            min=0, max=1, help="For experiments: the share of every owner's triples that its policy keeps, 0 … 1."
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="processes: one per owner; in-process: one clock, repeatable; ray: on a cluster; nodes: real peers.",
            show_default="processes",
            autocompletion=completing("processes", "in-process", "ray", "nodes"),
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray: a cluster, as HOST:PORT or auto.", show_default="Ray is started on this machine"
        ),
    ] = None,
    cpus: Annotated[
        float | None,
        typer.Option(min=0, help="With --engine ray: for each owner.", show_default="1, or a share if there are fewer"),
    ] = None,
    gpus: Annotated[
        float | None,
        typer.Option(min=0, help="With --engine ray: for each owner.", show_default="a share, as train.device says"),
    ] = None,
    baselines: Annotated[
        str | None,
        typer.Option(
            help="Further arms: independent, control, permuted, random, unified, fede; comma between.",
            show_default="control",
        ),
    ] = None,
    config: Config = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="key=value or train.key=value; overrides the file. Repeatable.")
    ] = None,
    seed: Seed = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Go on with the simulation in this folder.")] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Let the owners of a federation improve each other, on this machine, beside controls."""
    from fkge.federation import FederationSettings, read_federation
    from fkge.simulations import Simulation

    places = {"address": address, "cpus": cpus, "gpus": gpus}
    options = {key: value for key, value in places.items() if value is not None}
    if resume is not None:
        others = (
            federation, translate, start, decide, share, ratio, privacy, epsilon, delta, confidential, engine,
            baselines, config, set_, seed,
        )  # fmt: skip
        if any(value is not None for value in others):
            raise Misuse("--resume goes on with what its folder says; leave FEDERATION and settings out")
        simulation, out = _opened(resume), resume
    else:
        if federation is None:
            raise Misuse("which federation? fkge simulate FEDERATION --out RUN (or --resume RUN)")
        given = {"translate": translate, "start": start, "decide": decide, "share": share, "ratio": ratio}
        if privacy == "paper" and translate is None:
            given["translate"] = "ppat"
        words = {"mode": privacy, "epsilon": epsilon, "delta": delta}
        overrides = [f"privacy.{key}={value}" for key, value in words.items() if value is not None]
        settings = FederationSettings.load(config_file(config), [*(set_ or ()), *overrides], **given)
        names = [name.strip() for name in ("control" if baselines is None else baselines).split(",") if name.strip()]
        with drawing(quiet) as progress:
            _check(out, settings, names, engine or "processes", options)
            read = read_federation(federation, progress)
            if confidential is not None:
                read = read.keeping(confidential, seed or 0)
            _introduce(read, progress)
            with whole_or_nothing(out):
                simulation = Simulation.create(
                    out, read, settings, baselines=names, engine=engine or "processes", engine_options=options,
                    seed=seed or 0, progress=progress,
                )  # fmt: skip
    result = _run(simulation, quiet, f"fkge simulate --resume {quote(str(out))}", options)
    tables.answer(result, as_json, lambda: tables.simulation_tables(result))


@commands.command(
    rich_help_panel=FEDERATE,
    epilog=example("fkge demo", "fkge demo atlas --out runs/atlas --seed 1", "fkge demo --fresh"),
)
def demo(
    name: Annotated[
        str, typer.Argument(help="An embedded federation; see `fkge data list`.", autocompletion=federations)
    ] = "atlas",
    out: Annotated[Path, typer.Option("--out", help="The folder to make, or to go on with.")] = Path("runs/demo"),
    seed: Seed = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Remove what an earlier demo left in --out.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Let the owners of an embedded federation improve each other, beside their controls, and write a report.

    The report's path is the last line of standard output. Run it again and it goes on where it was interrupted.
    """
    if fresh:
        _clear(out, name)
    if (out / "simulation.json").exists():
        simulation = _opened(out)
        was = simulation.about
        if was["federation"] != name or (seed is not None and was["seed"] != seed):
            raise RunError(
                f"{out}: holds {was['federation']} with seed {was['seed']}; choose another --out, or --fresh to begin "
                "anew"
            )
    else:
        simulation = _new_demo(name, out, seed or 0, quiet)
    result = _run(simulation, quiet, f"fkge demo {name} --out {quote(str(out))}")

    from fkge.report import write_report

    report = write_report(out)
    tables.answer({**result, "report": str(report)}, as_json, lambda: tables.simulation_tables(result))
    if not as_json:
        print(report)


def _clear(out: Path, name: str) -> None:
    """Remove an earlier demo, and nothing else."""
    from fkge.data import NAMES, recipe
    from fkge.simulations import Simulation

    recipe(name)  # a name that is not there must not cost what is
    if not (out / "simulation.json").exists():
        return
    was = about(out).get("federation")
    if was not in NAMES:
        raise RunError(f"{out}: holds a simulation of {was}, which is no demo; choose another --out")
    if Simulation.is_running(out):
        raise RunError(f"{out}: is being run by another process; wait for it, or stop it")
    shutil.rmtree(out)


def _new_demo(name: str, out: Path, seed: int, quiet: bool) -> Simulation:
    from fkge.data import build, recipe
    from fkge.federation import FederationSettings, read_federation
    from fkge.recipes import names as recipes
    from fkge.simulations import Simulation

    recipe(name)  # a name that is not there shows before anything is read
    settings = FederationSettings.load(recipes().get(name, recipes()["atlas"]))
    with drawing(quiet) as progress:
        _check(out, settings)
        read = read_federation(build(name, progress), progress)
        _introduce(read, progress)
        with whole_or_nothing(out):
            return Simulation.create(out, read, settings, baselines=("control",), seed=seed, progress=progress)


@commands.command(
    rich_help_panel=FEDERATE,
    epilog=example("fkge audit runs/demo --quick", "fkge audit runs/private --only non-interference,membership"),
)
def audit(
    run: SimulationFolder,
    only: Annotated[
        str | None,
        typer.Option(
            help="non-interference, membership, canaries, reconstruction, dictionary, poisoning; comma between.",
            show_default="all",
        ),
    ] = None,
    owner: Annotated[
        str | None,
        typer.Option(help="The victim.", show_default="the owner with the largest alignment", autocompletion=owners_of),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer attacks, weaker ones: a fraction of the time.")] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Attack a finished simulation, in a copy: does what it claims hold? Exit code 24 if a claim is broken."""
    from fkge.audits import audit as attack

    names = [name.strip() for name in (only or "").split(",")]
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill cleans up too
    try:
        with drawing(quiet) as progress:
            result = attack(
                needs_simulation(run), only=filter(None, names), owner=owner, quick=quick, progress=progress
            )
    finally:
        signal.signal(signal.SIGTERM, before)
    tables.answer(result, as_json, lambda: [tables.audit_table(result)])
    if result["broken"]:
        raise typer.Exit(BROKEN)


# -- parts of the above ----------------------------------------------------------------------------


def _opened(folder: Path) -> Simulation:
    from fkge.simulations import Simulation

    if not (folder / "simulation.json").exists() and (folder / "graph.safetensors").exists():
        raise RunError(f"{folder}: is a run of `fkge train`; go on with it: fkge train --resume --out {folder}")
    return Simulation.open(folder)


def _check(
    out: Path,
    settings: Any,
    baselines: Sequence[str] = (),
    engine: str = "processes",
    options: Mapping[str, Any] | None = None,
) -> None:
    """What can be known to fail is refused before anything is read."""
    from fkge.embed import resolve_device
    from fkge.simulations import Simulation

    Simulation.check_free(out)
    Simulation.check_asked(settings, baselines, engine, options)
    if engine != "ray":  # where the machines are others, they will say
        resolve_device(settings.train.device)


def _introduce(federation: Federation, progress: Screen) -> None:
    """Who takes part, and what they share."""
    for name, member in federation.members.items():
        graph, shared = member.graph, {peer: len(common) for peer, common in federation.common(name).items()}
        things = f"{len(graph.entities):,} entities, {len(graph.relations):,} relations, {len(graph.train):,} facts"
        progress.say(f"{name}: {things}; shares {_in_short(shared)}")
        for note in member.policy.unused(member.graph) if member.policy else ():
            progress.say(f"{name}: {note}")


def _run(simulation: Simulation, quiet: bool, again: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Run a simulation to its end, or say how to go on."""
    with watching(simulation, quiet) as (screen, watch):
        if simulation.result is not None:
            screen.say(f"{simulation.folder}: is finished; this is what it found")
        with interruptible(screen.say) as stop:
            result = simulation.run(progress=screen, stop=stop, watch=watch, engine_options=options)
    if result is None:
        screen.say(f"stopped; nothing is lost. Go on with: {again}")
        raise typer.Exit(INTERRUPTED)
    return result


def _in_short(shared: dict[str, int]) -> str:
    """How many things with whom; with more than two, the least and the most."""
    if len(shared) > 2:
        return f"{min(shared.values()):,} to {max(shared.values()):,} with each of {len(shared)} others"
    return " and ".join(f"{n:,} with {peer}" for peer, n in shared.items()) or "nothing"

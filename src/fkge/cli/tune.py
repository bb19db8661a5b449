"""The command `fkge tune`."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, cast

import typer

from fkge.cli import options as opt
from fkge.cli import tables
from fkge.cli.console import ConsoleProgress
from fkge.cli.exit_codes import INTERRUPTED, Misuse
from fkge.cli.options import Config, Seed
from fkge.cli.tables import Answer
from fkge.files import whole_or_nothing
from fkge.progress import interruptible

if TYPE_CHECKING:
    from fkge.tune.spec import Pruner
    from fkge.tune.study import Tuning

commands = opt.Commands(opt.LEARN)


@commands.add(
    "fkge tune pykeen:nations --minutes 2 --out runs/tuned",
    "fkge tune triples.tsv --minutes 30 --jobs 4 --set model=ComplEx --out runs/mine",
    "fkge tune project/federation.toml --minutes 20 --out runs/project-tuned",
    "fkge tune --resume runs/mine --minutes 60",
)
def tune(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A graph, as for `fkge train`; or a federation: a folder with a folder per owner and aligned/, or a "
            "TOML file. Not needed with --resume."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The folder to create.")] = Path("tuned"),
    minutes: Annotated[
        float | None,
        typer.Option(
            help="Minutes for the whole search; with --resume, including those already spent.",
            show_default="10",
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Trials at a time, a process each.", show_default="1")] = None,
    config: Config = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; fixed, not searched. Repeatable.")] = None,
    pruner: Annotated[
        str, opt.choice("median, hyperband or none: which trials end early.", "median", "hyperband", "none")
    ] = "median",
    seed: Seed = None,
    resume: Annotated[Path | None, typer.Option("--resume", help="Continue the search in this folder.")] = None,
    *,
    progress: ConsoleProgress,
) -> Answer:
    """Search for good settings by validation, within some minutes; ends with a recipe and a page.

    Of a federation, the first half of the time is for owners that train alone, the second for the federation.
    """
    from fkge.tune.study import Tuning

    if resume is not None:
        if any(value is not None for value in (source, config, seed, *(set_ or ()))) or pruner != "median":
            raise Misuse("--resume takes everything but --minutes and --jobs from its folder; leave the rest out")
        tuning = Tuning.open(resume, minutes=minutes, jobs=jobs)
    else:
        if source is None:
            raise Misuse("of what? fkge tune GRAPH --minutes 10 --out RUN (or --resume RUN)")
        if pruner not in ("median", "hyperband", "none"):
            raise Misuse(f"--pruner {pruner}: there are median, hyperband and none")
        minutes = 10.0 if minutes is None else minutes
        tuning = _create(
            source, out, config, set_ or [], seed or 0, minutes, jobs or 1, cast("Pruner", pruner), progress
        )
    with interruptible(progress.say) as stop:
        found = tuning.run(progress=progress, stop=stop)
        stopped = stop()
    if stopped:
        again = f"fkge tune --resume {quote(str(tuning.folder))}"
        recipe = f"{found.recipe} has the best so far" if found.recipe else "no trial was validated yet"
        progress.say(f"stopped; nothing is lost, and {recipe}. Continue with: {again}")
        raise typer.Exit(INTERRUPTED)
    return Answer(found.to_json(), tables.tune_tables(found))


def _create(
    source: str, out: Path, config: Path | None, fixed: list[str], seed: int, minutes: float, jobs: int, pruner: Pruner,
    progress: ConsoleProgress,
) -> Tuning:  # fmt: skip
    """Read what is to be tuned and create the folder; what is sure to fail fails before anything is read."""
    from fkge.embed import resolve_device
    from fkge.federation import FederationSettings, read_federation
    from fkge.graph import Graph, read_graph
    from fkge.settings import TrainSettings
    from fkge.tune.journal import require
    from fkge.tune.proposal import given
    from fkge.tune.start import check_budget, check_privacy, start_of
    from fkge.tune.study import Tuning

    require()
    Tuning.check_free(out)
    check_budget(minutes, jobs)
    federation = is_federation(source)
    kind = FederationSettings if federation else TrainSettings
    asked = given(kind.load(None, fixed))
    values = given(kind.load(opt.config_file(config), fixed)) if config is not None else asked
    asked.pop("seed", None)
    start = start_of(kind, values, triples=0, seed=seed, config=config is not None)
    if isinstance(start, FederationSettings):
        check_privacy(start)
    resolve_device(str(values.get("train.device" if federation else "device", "auto")))
    read = read_federation(source, progress) if federation else read_graph(source, progress=progress)
    graphs = [read] if isinstance(read, Graph) else list(read.graphs.values())
    largest = max(len(graph.train) for graph in graphs)
    start = start_of(kind, values, triples=largest, seed=seed, config=config is not None)
    for graph in graphs:
        progress.say(repr(graph))
    with whole_or_nothing(out):
        return Tuning.create(
            out, read, start, asked, name=source, seed=seed, progress=progress, minutes=minutes, jobs=jobs,
            pruner=pruner,
        )  # fmt: skip


def is_federation(source: str) -> bool:
    """Return whether `source` names a federation: a TOML file, a folder with ``aligned/``, or an embedded one."""
    from fkge.data import NAMES

    path = Path(source)
    return path.suffix == ".toml" or (path / "aligned").is_dir() or (source in NAMES and not path.exists())

"""Commands for what came of it, and for help: report, dashboard, export, track, data, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fkge.cli import exits, tables
from fkge.cli.drawing import drawing
from fkge.cli.folders import needs_simulation, needs_sound, needs_whole
from fkge.cli.options import (
    HELP,
    SHOW,
    AsJson,
    Quiet,
    SimulationFolder,
    arms_of,
    completing,
    example,
    federations,
    owners_of,
)

commands = typer.Typer()

AnyRun = Annotated[Path, typer.Argument(help="A folder made by `fkge train`, `fkge simulate` or `fkge demo`.")]


@commands.command(
    rich_help_panel=SHOW,
    epilog=example("fkge report runs/demo", "fkge report runs/demo --out demo.html --figures figures"),
)
def report(
    run: AnyRun,
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file to write.", show_default="RUN/report.html")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="A folder for the figures.", show_default="RUN/figures")] = None,
    as_json: AsJson = False,
) -> None:
    """Write what a run found as one HTML page, with figures. Its path is the last line of standard output."""
    from fkge.report import write_report

    written = write_report(needs_whole(run), out, figures)
    tables.answer({"run": str(run), "report": str(written)}, as_json, lambda: [str(written)])


@commands.command(
    rich_help_panel=SHOW,
    epilog=example("fkge dashboard runs/demo", "fkge dashboard runs/demo --port 0 --no-open"),
)
def dashboard(
    run: SimulationFolder,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8765,
    token: Annotated[
        str | None, typer.Option(help="What a browser must show to be let in.", show_default="a random one")
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let in whoever can reach the address.")] = False,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Show a simulation as a live page in a browser, while it runs or afterwards. Ctrl-C ends it."""
    from fkge.dashboard import serve

    if no_token and token is not None:
        raise exits.Misuse("--token and --no-token contradict each other; leave one out")
    if not run.exists() or (run / "graph.safetensors").exists():  # one that is just being made is waited for
        needs_simulation(run)
    given: dict[str, Any] = {"token": None} if no_token else {} if token is None else {"token": token}
    serve(run, host=host, port=port, open_browser=open_browser, **given)


def _formats(incomplete: str) -> list[str]:
    return completing("safetensors", "numpy", "parquet", "word2vec", "pykeen")(incomplete)


@commands.command(
    rich_help_panel=SHOW,
    epilog=example(
        "fkge export runs/umls --to numpy --out umls.npz",
        "fkge export runs/demo --owner gazetteer --to parquet --out gazetteer",
    ),
)
def export(
    run: AnyRun,
    to: Annotated[
        str,
        typer.Option("--to", help="safetensors, numpy, parquet, word2vec or pykeen.", autocompletion=_formats),
    ],
    out: Annotated[Path, typer.Option("--out", help="The file or folder to write.")],
    owner: Annotated[str | None, typer.Option(help="Whose vectors, of a simulation.", autocompletion=owners_of)] = None,
    arm: Annotated[str, typer.Option(help="Of which arm, of a simulation.", autocompletion=arms_of)] = "federated",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write vectors and labels for other programs: NumPy, pandas, gensim, PyKEEN."""
    from fkge.export import export as write

    with drawing(quiet) as progress:
        written = write(needs_sound(run), out, to, owner=owner, arm=arm, progress=progress)
    tables.answer({"run": str(run), "format": to, "written": str(written)}, as_json, lambda: [str(written)])


@commands.command(
    rich_help_panel=SHOW,
    epilog=example(
        "fkge track runs/demo --to tensorboard --where events",
        "fkge track runs/demo --to mlflow --where sqlite:///mlflow.db",
    ),
)
def track(
    run: AnyRun,
    to: Annotated[
        str, typer.Option("--to", help="mlflow or tensorboard.", autocompletion=completing("mlflow", "tensorboard"))
    ],
    where: Annotated[str, typer.Option("--where", help="MLflow's tracking address, or a folder of event files.")],
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Log a run's settings and scores to MLflow or TensorBoard, from its trace."""
    from fkge.trackers import track as log

    with drawing(quiet) as progress:
        logged = log(needs_sound(run), to, where, progress=progress)
    tables.answer({"run": str(run), "to": to, "where": where, "logged": logged}, as_json, lambda: [logged])


# -- embedded federations ----------------------------------------------------------------------------

data = typer.Typer(help="The federations that come with fkge.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="An embedded federation.", autocompletion=federations)]


@data.command("list", epilog=example("fkge data list"))
def list_(as_json: AsJson = False) -> None:
    """Which federations there are."""
    from fkge.data import NAMES, recipe

    told = {name: recipe(name).about for name in NAMES}
    tables.answer({"federations": told}, as_json, lambda: [tables.names_table(told)])


@data.command("show", epilog=example("fkge data show atlas"))
def show_(name: Name, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Who its owners are, where their facts come from and under which licence, and what each two have in common."""
    from fkge.data import describe

    with drawing(quiet) as progress:
        told = describe(name, progress)
    tables.answer(told, as_json, lambda: tables.data_tables(told))


@data.command(epilog=example("fkge data build atlas"))
def build(name: Name, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Build a federation, unless it is there already, and print its file, for `fkge simulate`."""
    from fkge.data import build as make

    with drawing(quiet) as progress:
        made = make(name, progress)
    tables.answer({"name": name, "file": str(made)}, as_json, lambda: [str(made)])


# -- help --------------------------------------------------------------------------------------------


@commands.command(rich_help_panel=HELP, epilog=example("fkge errors", "fkge errors 12"))
def errors(
    code: Annotated[int | None, typer.Argument(help="An exit code.", show_default="all of them")] = None,
    as_json: AsJson = False,
) -> None:
    """What an exit code means, what usually causes it, and the ways out."""
    if code is None:
        told: dict[str, Any] = {str(number): page.title for number, page in exits.PAGES.items()}
        tables.answer(told, as_json, lambda: [tables.exits_table(told)])
        return
    if code not in exits.PAGES:
        raise exits.Misuse(f"there is no exit code {code}; `fkge errors` lists them")
    page = exits.PAGES[code]
    told = {"code": code, "title": page.title, "means": page.means, "causes": page.causes, "ways_out": page.ways_out}
    tables.answer(told, as_json, lambda: tables.page(told))

"""Commands for results and help: report, dashboard, export, track, data, errors."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fkge.cli import exit_codes as exits
from fkge.cli import options as opt
from fkge.cli import tables
from fkge.cli.console import ConsoleProgress
from fkge.cli.options import SimulationFolder
from fkge.cli.run_folders import require_simulation, require_whole
from fkge.cli.tables import Answer

commands = opt.Commands(opt.SHOW)

FORMATS = ("safetensors", "numpy", "parquet", "word2vec", "pykeen")
"""As in `fkge.export.FORMATS`, which takes seconds to import."""

AnyRun = Annotated[Path, typer.Argument(help="A folder made by `fkge train`, `fkge simulate` or `fkge demo`.")]


@commands.add("fkge report runs/demo", "fkge report runs/demo --out demo.html --figures figures")
def report(
    run: AnyRun,
    out: Annotated[
        Path | None, typer.Option("--out", help="The HTML file to write.", show_default="RUN/report.html")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="A folder for the figures.", show_default="RUN/figures")] = None,
) -> Answer:
    """Write a run's results as one HTML page, with figures. Its path is the last line of standard output."""
    from fkge.report import write_report

    written = write_report(require_whole(run), out, figures)
    return Answer({"run": str(run), "report": str(written)}, [str(written)])


@commands.add("fkge dashboard runs/demo", "fkge dashboard runs/demo --port 0 --no-open")
def dashboard(
    run: SimulationFolder,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8765,
    token: Annotated[
        str | None, typer.Option(help="Secret that a browser must send.", show_default="a random one")
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Serve everyone who can reach the address.")] = False,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = True,
) -> None:
    """Show a simulation as a live page in a browser, while it runs or afterwards. Ctrl-C ends it."""
    if no_token and token is not None:
        raise exits.Misuse("--token and --no-token contradict each other; give one of them")
    if not run.exists() or (run / "graph.safetensors").exists():  # the page waits for one that is being created
        require_simulation(run)
    from fkge.dashboard import serve

    serve(run, host=host, port=port, token=None if no_token else token or "", open_browser=open_browser)


@commands.add(
    "fkge export runs/umls --to numpy --out umls.npz",
    "fkge export runs/demo --owner gazetteer --to parquet --out gazetteer",
)
def export(
    run: AnyRun,
    to: Annotated[str, opt.choice("safetensors, numpy, parquet, word2vec or pykeen.", *FORMATS)],
    out: Annotated[Path, typer.Option("--out", help="The file or folder to write.")],
    owner: Annotated[str | None, typer.Option(help="The owner, in a simulation.", autocompletion=opt.owners_of)] = None,
    arm: Annotated[str, typer.Option(help="The arm, in a simulation.", autocompletion=opt.arms_of)] = "federated",
    *,
    progress: ConsoleProgress,
) -> Answer:
    """Write vectors and labels for other programs: NumPy, pandas, gensim, PyKEEN."""
    from fkge.export import export as write

    written = write(run, out, to, owner=owner, arm=arm, progress=progress)
    return Answer({"run": str(run), "format": to, "written": str(written)}, [str(written)])


@commands.add(
    "fkge track runs/demo --to tensorboard --where events",
    "fkge track runs/demo --to mlflow --where sqlite:///mlflow.db",
)
def track(
    run: AnyRun,
    to: Annotated[str, opt.choice("mlflow or tensorboard.", "mlflow", "tensorboard")],
    where: Annotated[str, typer.Option("--where", help="MLflow's tracking address, or a folder of event files.")],
    *,
    progress: ConsoleProgress,
) -> Answer:
    """Log a run's settings and scores to MLflow or TensorBoard, from its trace."""
    from fkge.experiment.trackers import track as log

    logged = log(run, to, where, progress=progress)
    return Answer({"run": str(run), "to": to, "where": where, "logged": logged}, [logged])


# -- embedded federations ----------------------------------------------------------------------------

data = opt.Commands(help="The federations that come with fkge.")
Name = Annotated[str, typer.Argument(help="An embedded federation.", autocompletion=opt.federations)]


@data.add("fkge data list", name="list")
def list_() -> Answer:
    """List the embedded federations."""
    from fkge.data import NAMES, recipe

    told = {name: recipe(name).about for name in NAMES}
    return Answer({"federations": told}, [tables.make_table(("federation", "about"), told.items())])


@data.add("fkge data show atlas", name="show")
def show_(name: Name, progress: ConsoleProgress) -> Answer:
    """Show its owners, where their facts come from and under which licence, and what each pair has in common."""
    from fkge.data import describe

    told = describe(name, progress)
    return Answer(told, tables.data_tables(told))


@data.add("fkge data build atlas")
def build(name: Name, progress: ConsoleProgress) -> Answer:
    """Build a federation, unless it has been built, and print its file, for `fkge simulate`."""
    from fkge.data import build as make

    made = make(name, progress)
    return Answer({"name": name, "file": str(made)}, [str(made)])


# -- help --------------------------------------------------------------------------------------------


@commands.add("fkge errors", "fkge errors 12", panel=opt.HELP)
def errors(
    code: Annotated[int | None, typer.Argument(help="An exit code.", show_default="all of them")] = None,
) -> Answer:
    """Explain an exit code: its meaning, usual causes, and what to do."""
    if code is None:
        titles = {str(number): page.title for number, page in exits.pages().items()}
        table = tables.make_table(("code", "meaning"), titles.items(), caption="fkge errors CODE explains one")
        return Answer(titles, [table])
    if code not in exits.pages():
        raise exits.Misuse(f"there is no exit code {code}; `fkge errors` lists them")
    page = exits.pages()[code]
    return Answer({"code": code, **asdict(page)}, tables.exit_code_page(code, page))

"""Commands for one model on one graph: train, evaluate, predict, neighbors."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from fkge.bars import interruptible
from fkge.cli import tables
from fkge.cli.drawing import drawing
from fkge.cli.exits import INTERRUPTED, Misuse
from fkge.cli.folders import needs_run
from fkge.cli.options import (
    LEARN,
    AsJson,
    Config,
    Device,
    Model,
    Quiet,
    RunFolder,
    Seed,
    completing,
    config_file,
    example,
)
from fkge.errors import RunError
from fkge.trace import whole_or_nothing

commands = typer.Typer()


@commands.command(
    rich_help_panel=LEARN,
    epilog=example(
        "fkge train pykeen:umls --model RotatE --set epochs=100 --out runs/umls",
        "fkge train triples.tsv --config settings.toml --out runs/mine",
        "fkge train --resume --out runs/mine",
    ),
)
def train(
    graph: Annotated[
        str | None,
        typer.Argument(help="A file or folder of triples, or pykeen:NAME. Not needed with --resume."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The run folder to make.")] = Path("run"),
    model: Model = None,
    config: Config = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; overrides the file. Repeatable.")] = None,
    seed: Seed = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1 … or auto.", autocompletion=completing("auto", "cpu", "cuda"))
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.")] = False,
    split_seed: Annotated[int, typer.Option(min=0, help="Seed of the split, where the graph has none ready-made.")] = 0,
    allow_unseen: Annotated[
        bool, typer.Option("--allow-unseen", help="Let valid and test hold entities and relations that train lacks.")
    ] = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on a graph and score it."""
    from fkge.embed import resolve_device
    from fkge.graph import read_graph
    from fkge.runs import Run
    from fkge.settings import TrainSettings

    given = {"model": model, "seed": seed, "device": device}
    settings = TrainSettings.load(config_file(config), set_ or (), **given)
    resolve_device(settings.device)  # now, not after an hour of reading
    with drawing(quiet) as progress:
        if resume:
            if (out / "simulation.json").exists():
                raise RunError(f"{out}: is a simulation; go on with it: fkge simulate --resume {out}")
            run = Run.open(out)
            read = read_graph(graph, seed=split_seed, allow_unseen=allow_unseen, progress=progress) if graph else None
            run.check_same(read, {key: getattr(settings, key) for key in settings.model_fields_set})
            if run.result is not None:
                progress.say(f"{out}: is finished; this is what it found")
        else:
            if graph is None:
                raise Misuse("which graph? fkge train GRAPH --out RUN (or --resume to go on with a run)")
            Run.check_free(out)
            read = read_graph(graph, seed=split_seed, allow_unseen=allow_unseen, progress=progress)
            with whole_or_nothing(out):
                run = Run.create(out, read, settings)
        progress.say(repr(run.graph))
        for note in run.graph.notes:
            progress.say(f"note: {note}")
        with interruptible(progress.say) as stop:
            result = run.train(progress=progress, stop=stop)
    if result is None:
        progress.say(f"stopped; nothing is lost. Go on with: fkge train --resume --out {quote(str(out))}")
        raise typer.Exit(INTERRUPTED)
    tables.answer(result, as_json, lambda: [tables.metrics_table(run, result)])


@commands.command(
    rich_help_panel=LEARN,
    epilog=example(
        "fkge evaluate runs/umls --categories",
        "fkge evaluate runs/demo/arms/federated/gazetteer --split test --json",
    ),
)
def evaluate(
    run: RunFolder,
    split: Annotated[
        list[str] | None,
        typer.Option(
            help="Splits to score; valid and test by default.", autocompletion=completing("train", "valid", "test")
        ),
    ] = None,
    ties: Annotated[
        str,
        typer.Option(
            help="realistic, optimistic or pessimistic.",
            autocompletion=completing("realistic", "optimistic", "pessimistic"),
        ),
    ] = "realistic",
    raw: Annotated[bool, typer.Option("--raw", help="Let known answers compete (not filtered).")] = False,
    type_constraint: Annotated[
        bool,
        typer.Option("--type-constraint", help="Only entities seen on a side of a relation compete there (OpenKE)."),
    ] = False,
    categories: Annotated[
        bool, typer.Option("--categories", help="Also by relation category: 1-1, 1-n, n-1, n-n.")
    ] = False,
    device: Device = "auto",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Score a trained model: link prediction and triple classification."""
    from fkge.runs import Run

    opened = Run.open(needs_run(run, "fkge evaluate"))
    with drawing(quiet) as progress:
        result = opened.evaluate(
            split or ("valid", "test"), device=device, ties=ties, raw=raw,
            type_constraint=type_constraint, categories=categories, progress=progress,
        )  # fmt: skip
    tables.answer(result, as_json, lambda: [tables.metrics_table(opened, result)])


@commands.command(
    rich_help_panel=LEARN,
    epilog=example(
        "fkge predict runs/umls --head virus --relation causes --top 5",
        "fkge predict runs/umls --head virus --tail bacterium",
    ),
)
def predict(
    run: RunFolder,
    head: Annotated[str | None, typer.Option(help="Head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="Relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Tail entity.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many answers.")] = 10,
    include_known: Annotated[
        bool, typer.Option("--include-known", help="Show answers that the graph states already, too.")
    ] = False,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Find the missing part of a triple: give two of head, relation and tail."""
    from fkge.evaluation import predict as ask
    from fkge.runs import Run

    opened = Run.open(needs_run(run, "fkge predict"))
    answers = ask(
        opened.load(device), opened.graph, head=head, relation=relation, tail=tail,
        top=top, exclude_known=not include_known,
    )  # fmt: skip
    result = {
        "head": head, "relation": relation, "tail": tail,
        "answers": [answer._asdict() for answer in answers],
    }  # fmt: skip
    tables.answer(result, as_json, lambda: [tables.answers_table(result, include_known)])


@commands.command(rich_help_panel=LEARN, epilog=example("fkge neighbors runs/umls bacterium --top 5"))
def neighbors(
    run: RunFolder,
    entity: Annotated[str, typer.Argument(help="An entity's label.")],
    top: Annotated[int, typer.Option(min=1, help="How many.")] = 10,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Show the entities whose vectors are most like one entity's."""
    from fkge.evaluation import neighbors as near
    from fkge.runs import Run

    opened = Run.open(needs_run(run, "fkge neighbors"))
    found = near(opened.load(device), opened.graph, entity, top=top)
    result = {"entity": entity, "neighbors": [neighbor._asdict() for neighbor in found]}
    tables.answer(result, as_json, lambda: [tables.neighbors_table(result)])

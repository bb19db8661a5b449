"""Commands for one model on one graph: train, evaluate, predict, neighbors."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from fkge.cli import options as opt
from fkge.cli import tables
from fkge.cli.console import ConsoleProgress
from fkge.cli.exit_codes import INTERRUPTED, Misuse
from fkge.cli.options import Config, Device, Model, RunFolder, Seed
from fkge.cli.run_folders import require_run
from fkge.cli.tables import Answer
from fkge.errors import RunError
from fkge.files import whole_or_nothing
from fkge.progress import interruptible

if TYPE_CHECKING:
    from fkge.graph import Graph

commands = opt.Commands(opt.LEARN)


@commands.add(
    "fkge train pykeen:umls --model RotatE --set epochs=100 --out runs/umls",
    "fkge train triples.tsv --config settings.toml --out runs/mine",
    "fkge train --resume --out runs/mine",
)
def train(
    graph: Annotated[
        str | None, typer.Argument(help="A file or folder of triples, or pykeen:NAME. Not needed with --resume.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The run folder to create.")] = Path("run"),
    model: Model = None,
    config: Config = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="key=value; overrides the file. Repeatable.")] = None,
    seed: Seed = None,
    device: Annotated[str | None, opt.choice("cpu, cuda, cuda:1 … or auto.", "auto", "cpu", "cuda")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    split_seed: Annotated[int, typer.Option(min=0, help="Seed of the split, if the graph comes without one.")] = 0,
    allow_unseen: Annotated[
        bool, typer.Option("--allow-unseen", help="Let valid and test hold entities and relations that train lacks.")
    ] = False,
    *,
    progress: ConsoleProgress,
) -> Answer:
    """Train a model on a graph and evaluate it."""
    from fkge.embed import resolve_device
    from fkge.embed.recommended import recommended
    from fkge.experiment.training_run import Run
    from fkge.graph import read_graph
    from fkge.settings import TrainSettings

    settings = TrainSettings.load(opt.config_file(config), set_ or (), model=model, seed=seed, device=device)
    resolve_device(settings.device)  # before the graph is read, which may take an hour

    def read(source: str) -> Graph:
        return read_graph(source, seed=split_seed, allow_unseen=allow_unseen, progress=progress)

    if resume:
        if (out / "simulation.json").exists():
            raise RunError(f"{out}: is a simulation; resume it: fkge simulate --resume {out}")
        run = Run.open(out)
        run.check_same(
            read(graph) if graph else None, {key: getattr(settings, key) for key in settings.model_fields_set}
        )
        if run.result is not None:
            progress.say(f"{out}: is finished; this is its result")
    else:
        if graph is None:
            raise Misuse("which graph? fkge train GRAPH --out RUN (or --resume to continue a run)")
        Run.check_free(out)
        found = read(graph)
        with whole_or_nothing(out):
            run = Run.create(out, found, recommended(settings, found))
    progress.say(repr(run.graph))
    for note in run.graph.notes:
        progress.say(f"note: {note}")
    with interruptible(progress.say) as stop:
        result = run.train(progress=progress, stop=stop)
    if result is None:
        progress.say(f"stopped; nothing is lost. Resume with: fkge train --resume --out {quote(str(out))}")
        raise typer.Exit(INTERRUPTED)
    return Answer(result.to_json(), [tables.metrics_table(run, {k: s.to_json() for k, s in result.splits.items()})])


@commands.add(
    "fkge evaluate runs/umls --categories", "fkge evaluate runs/demo/arms/federated/gazetteer --split test --json"
)
def evaluate(
    run: RunFolder,
    split: Annotated[
        list[str] | None, opt.choice("Splits to evaluate; valid and test by default.", "train", "valid", "test")
    ] = None,
    ties: Annotated[
        str, opt.choice("realistic, optimistic or pessimistic.", "realistic", "optimistic", "pessimistic")
    ] = "realistic",
    raw: Annotated[bool, typer.Option("--raw", help="Rank known answers too (not filtered).")] = False,
    type_constraint: Annotated[
        bool, typer.Option("--type-constraint", help="Rank only entities seen on that side of the relation (OpenKE).")
    ] = False,
    categories: Annotated[
        bool, typer.Option("--categories", help="Also by relation category: 1-1, 1-n, n-1, n-n.")
    ] = False,
    device: Device = "auto",
    *,
    progress: ConsoleProgress,
) -> Answer:
    """Evaluate a trained model: link prediction and triple classification."""
    from fkge.experiment.training_run import Run

    opened = Run.open(require_run(run, "fkge evaluate"))
    result = opened.evaluate(
        split or ("valid", "test"), device=device, ties=ties, raw=raw,
        type_constraint=type_constraint, categories=categories, progress=progress,
    )  # fmt: skip
    return Answer(result, [tables.metrics_table(opened, result)])


@commands.add(
    "fkge predict runs/umls --head virus --relation causes --top 5",
    "fkge predict runs/umls --head virus --tail bacterium",
)
def predict(
    run: RunFolder,
    head: Annotated[str | None, typer.Option(help="Head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="Relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Tail entity.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of answers.")] = 10,
    include_known: Annotated[
        bool, typer.Option("--include-known", help="Include answers that are in the graph already.")
    ] = False,
    device: Device = "auto",
) -> Answer:
    """Find the missing part of a triple: give two of head, relation and tail."""
    from fkge.evaluation import predict as query
    from fkge.experiment.training_run import Run

    opened = Run.open(require_run(run, "fkge predict"))
    found = query(
        opened.load(device), opened.graph, head=head, relation=relation, tail=tail, top=top,
        exclude_known=not include_known,
    )  # fmt: skip
    triple = {"head": head, "relation": relation, "tail": tail}
    result = {**triple, "answers": [answer._asdict() for answer in found]}
    title = "  ".join("?" if part is None else part for part in triple.values())
    return Answer(result, [tables.ranked_table(title, found)])


@commands.add("fkge neighbors runs/umls bacterium --top 5")
def neighbors(
    run: RunFolder,
    entity: Annotated[str, typer.Argument(help="An entity's label.")],
    top: Annotated[int, typer.Option(min=1, help="Number of entities.")] = 10,
    device: Device = "auto",
) -> Answer:
    """Show the entities with the most similar vectors."""
    from fkge.evaluation import neighbors as query
    from fkge.experiment.training_run import Run

    opened = Run.open(require_run(run, "fkge neighbors"))
    found = query(opened.load(device), opened.graph, entity, top=top)
    result = {"entity": entity, "neighbors": [neighbor._asdict() for neighbor in found]}
    return Answer(result, [tables.ranked_table(entity, found)])

"""What commands print on standard output: tables for people, or one JSON object for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from fkge.audit.findings import AuditReport
    from fkge.cli.exit_codes import Page
    from fkge.data import Description
    from fkge.evaluation import Neighbor, Prediction
    from fkge.experiment.results import SimulationResult
    from fkge.experiment.training_run import Run
    from fkge.results import BudgetAccount, LedgerStatement
    from fkge.tune.spec import TuneResult

_METRICS = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy")
_VERDICTS = {"holds": "green", "BROKEN": "bold red"}
_PARTS = {
    "strict": "facts that nobody else holds",
    "chained": "facts that another owner holds, as only a chain of links shows",
    "held": "facts that a partner holds",
}


@dataclass(frozen=True)
class Answer:
    """What a command prints, before it exits with `code`.

    Attributes:
        result: the answer as JSON data, printed in one line with --json.
        shown: tables and texts, printed otherwise; a plain text is printed as one line.
    """

    result: Mapping[str, object]
    shown: Iterable[Table | Text | str]
    code: int = 0

    def print(self, as_json: bool) -> None:
        """Print the answer, and exit if it has a code."""
        if as_json:
            print(json.dumps(self.result, ensure_ascii=False), flush=True)
        for item in () if as_json else self.shown:
            if isinstance(item, str):
                print(item, flush=True)
            else:
                Console(markup=False, emoji=False).print(item)  # names may look like markup
        if self.code:
            raise typer.Exit(self.code)


def make_table(
    columns: Sequence[str], rows: Iterable[Iterable[str]], *, title: str = "", caption: str = "", numbers: int = 0
) -> Table:
    """Return a table of texts.

    Args:
        columns, rows: titles and cells.
        title, caption: above and below the table.
        numbers: how many of the last columns are aligned to the right.
    """
    texts = len(columns) - numbers
    right = [Column(column, justify="right") for column in columns[texts:]]
    drawn = Table(*columns[:texts], *right, title=title or None, caption=caption or None)
    for row in rows:
        drawn.add_row(*row)
    return drawn


# -- one model ---------------------------------------------------------------------------------------


def metrics_table(run: Run, result: Mapping[str, Any]) -> Table:
    """Return the metrics of each split, and of each relation category where there are any."""
    drawn = make_table(("split", *_METRICS), (), title=f"{run.settings.model} on {run.graph.name}")
    for split in (split for split in run.graph.splits if split in result):
        drawn.add_row(split, *_metrics(result[split]))
        for category, sides in result[split].get("categories", {}).items():
            for side in ("head", "tail"):
                if side in sides:
                    drawn.add_row(f"  {category} {side}", *_metrics(sides[side]), style="dim")
    return drawn


def _metrics(scores: Mapping[str, float]) -> list[str]:
    return ["" if (v := scores.get(n)) is None else f"{v:,.1f}" if n == "mr" else f"{v:.4f}" for n in _METRICS]


def ranked_table(title: str, answers: Sequence[Prediction] | Sequence[Neighbor]) -> Table:
    """Return the answers to a query, numbered; with a column for known ones if there are any."""
    titles = {"label": "label", "score": "score", "similarity": "cosine"}
    if any(getattr(found, "known", False) for found in answers):
        titles["known"] = "known"
    fields = [name for name in (answers[0]._fields if answers else ("label", "score")) if name in titles]
    rows = [[str(place), *(_cell(getattr(found, name)) for name in fields)] for place, found in enumerate(answers, 1)]
    return make_table(["", *(titles[name] for name in fields)], rows, title=title)


def _cell(value: str | float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def tune_tables(result: TuneResult) -> Iterator[Table | Text | str]:
    """Return the best trial of each phase, the test scores of a graph, and where recipe and page are."""
    titles = {"train": result.name, "lone": "owners alone (control)", "federated": "the federation"}
    rows = []
    for phase in result.phases:
        best = phase.winner
        chosen = {} if best is None else {key.removeprefix("train."): value for key, value in best.settings.items()}
        told = ", ".join(f"{key} {f'{v:.3g}' if isinstance(v, float) else v}" for key, v in chosen.items())
        mrr = "" if best is None or best.score is None else f"{best.score:.4f}"
        rows.append((titles[phase.phase], str(len(phase.trials)), mrr, told))
    yield make_table(("", "trials", "validation mrr", "with"), rows, title="best by validation")
    if result.test is not None:
        yield f"test, looked at once, of the best trial's vectors: MRR {result.test['mrr']:.4f}"
    if result.warning:
        yield f"note: {result.warning}"
    yield from (path for path in (result.recipe, result.page) if path is not None)


# -- a federation ------------------------------------------------------------------------------------


def simulation_tables(result: SimulationResult) -> Iterator[Table | Text]:
    """Return for each part of the test triples MRR by owner and arm and the means, then what was spent of budgets."""
    arms = list(result.mean)
    over = ["gain over control, 95%"] if "control" in arms else []
    parts = [part for part in _PARTS if any(part in scores for scores in result.mean.values())]
    if not parts:
        yield Text("No owner has test facts, so there is nothing to evaluate.")
    for part in parts:
        drawn = Table("MRR of", *arms, *over, title=f"{result.federation}: {_PARTS[part]}")
        for name, owner in result.owners.items():
            scores = [owner.arms[arm].test.get(part) for arm in arms]
            versus = owner.versus.get("control", {}).get(part, {}).get("mrr")
            gain = f"{versus.difference:+.3f} ({versus.low:+.3f} … {versus.high:+.3f})" if versus else ""
            drawn.add_row(name, *("" if s is None else f"{s.mrr:.3f}" for s in scores), *([gain] if over else []))
        drawn.add_section()
        for metric in ("mrr", "hits@10", "accuracy"):
            means = {arm: scores[part][metric] for arm, scores in result.mean.items() if part in scores}
            gain = f"{means['federated'] - means['control']:+.3f}" if "control" in means else ""
            cells = [f"{means[arm]:.3f}" if arm in means else "" for arm in arms]
            drawn.add_row(f"mean {metric}", *cells, *([gain] if over else []))
        yield drawn
    yield from _spent_tables(result)
    if result.privacy.mode == "none":
        yield Text("Owners sent vectors without noise, and no ε covers them (--privacy).", "dim")


def _spent_tables(result: SimulationResult) -> Iterator[Table]:
    accounts = {name: owner.arms["federated"].privacy for name, owner in result.owners.items()}
    spent = [(name, budget) for name, account in accounts.items() if account for budget in account.budgets]
    caption = (
        "client's vectors: no guarantee" if result.privacy.mode == "paper"
        else "given the vocabulary; see docs/explanation/privacy.md for what it leaves out"
    )  # fmt: skip
    for unit in dict.fromkeys(f"{b.unit}, {b.relation}" for _, b in spent):
        rows = [
            [name, *(_epsilon(e) for e in (b.spent.epsilon, b.spent.pld, b.spent.rdp)),
             "" if b.spent.paper is None else _epsilon(b.spent.paper), _epsilon(b.epsilon), f"{b.delta:g}"]
            for name, b in spent if f"{b.unit}, {b.relation}" == unit
        ]  # fmt: skip
        columns = ("spent by", "ε", "PLD", "RDP", "paper's", "of", "δ")
        yield make_table(columns, rows, title=f"for one {unit}", caption=caption)


def audit_table(report: AuditReport) -> Table:
    """Return what each attack found."""
    title = f"{report.federation}: attacks on {report.owner}, privacy {report.privacy['mode']}"
    others = ("on what", "result", "what the claim says", "verdict")
    drawn = Table(Column("attack", no_wrap=True), *others, title=title, show_lines=True)
    for name, found in report.sections.items():
        verdict = Text(found.verdict, style=_VERDICTS.get(found.verdict, "yellow"))
        drawn.add_row(name, found.on, found.result, found.claim, verdict)
    return drawn


def ledger_tables(statement: LedgerStatement) -> Iterator[Table]:
    """Return budgets, releases by mechanism and peer, and what was sent unprotected."""
    budgets = statement.budgets
    cells: dict[str, Callable[[BudgetAccount], str]] = {
        "budget ε, at δ": lambda b: f"{_epsilon(b.epsilon)}, {b.delta:g}",
        "spent ε": lambda b: _epsilon(b.spent.epsilon),
        "by PLD / RDP": lambda b: f"{_epsilon(b.spent.pld)} / {_epsilon(b.spent.rdp)}",
        "by the paper's formula": lambda b: "" if b.spent.paper is None else f"{b.spent.paper:.4g}",
        "steps or queries": lambda b: f"{b.spent.count:,}",
        "left ε": lambda b: _epsilon(b.left),
    }
    yield make_table(
        ["", *(f"one {b.unit}, {b.relation}" for b in budgets)],
        ([name, *(cell(b) for b in budgets)] for name, cell in cells.items()),
        title=f"{statement.graph}: spent",
        caption=f"Not covered: {statement.uncovered}",
    )
    yield make_table(
        ("mechanism", "one", "peer", "paid for", "events", "sent", "bytes"),
        (
            [e.mechanism, e.unit, e.peer or "(not sent yet)",
             *(f"{n:,}" for n in (e.paid, e.paid_count, e.left, e.nbytes))]
            for e in statement.entries
        ),
        title="entries",
    )  # fmt: skip
    yield make_table(
        ("what", "peer", "messages", "bytes", "protection"),
        (
            [u.what, u.peer or "", f"{u.messages:,}", f"{u.nbytes:,}", u.protection] for u in statement.unprotected
        ),
        title="sent unprotected",
    )  # fmt: skip


def _epsilon(value: float | None) -> str:
    return "∞" if value is None else f"{value:.4g}"


# -- embedded federations, exit codes ----------------------------------------------------------------


def data_tables(told: Description) -> Iterator[Table | Text]:
    """Return owners with their sizes, sources with licences, and what each pair of owners has in common."""
    yield Text(told["about"])
    splits, sizes, sources = ("train", "valid", "test"), [], []
    for name, owner in told["owners"].items():
        counts = (owner["entities"], owner["relations"], *(owner["triples"][split] for split in splits))
        sizes.append([name, *(f"{count:,}" for count in counts)])
        version, pinned = owner["version"], owner["pinned"]
        package = f"{owner['package']} {version}" + (f", not {pinned}" if version != pinned else "")
        sources.append([name, package, owner["licence"], owner["attribution"]])
    shared = [
        [", ".join(pair["between"]),
         *(f"{n:,}" for n in (pair["entities"], len(pair["relations"]), pair["same_facts"]))]
        for pair in told["pairs"]
    ]  # fmt: skip
    title = told["name"]
    yield make_table(("owner", "entities", "relations", *splits), sizes, title=f"{title}: owners", numbers=5)
    yield make_table(("owner", "package", "licence", "data of"), sources, title=f"{title}: sources")
    yield make_table(("pair", "entities", "relations", "facts"), shared, title=f"{title}: in common", numbers=3)


def exit_code_page(code: int, page: Page) -> Iterator[Text]:
    """Return the help on one exit code."""
    yield Text(f"{code}: {page.title}", "bold")
    yield Text(page.means)
    for title, items in (("Usual causes", page.causes), ("What to do", page.ways_out)):
        if items:
            yield Text(f"\n{title}", "bold")
            yield from (Text(f"- {item}") for item in items)

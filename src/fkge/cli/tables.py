"""What is printed: the answer on standard output, as tables for a person or as one JSON object for a program."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from fkge.runs import Run


def answer(result: Mapping[str, Any], as_json: bool, shown: Callable[[], Iterable[Table | Text | str]]) -> None:
    """The answer on standard output, for a program or for a person. A plain text is printed as it is, in one line."""
    if as_json:
        print(json.dumps(result, ensure_ascii=False), flush=True)
        return
    for item in shown():
        if isinstance(item, str):
            print(item, flush=True)
        else:
            Console(markup=False, emoji=False).print(item)  # names are data


_COLUMNS = ("mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy")


def metrics_table(run: Run, result: dict[str, Any]) -> Table:
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


def answers_table(result: dict[str, Any], known: bool) -> Table:
    """What `fkge predict` found; `known`: whether to say what the graph states already."""
    title = "  ".join(part if part is not None else "?" for part in (result[k] for k in ("head", "relation", "tail")))
    drawn = Table("", "label", "score", *(["known"] if known else []), title=Text(title))
    for place, found in enumerate(result["answers"], 1):
        more = ["yes" if found["known"] else ""] if known else []
        drawn.add_row(str(place), Text(found["label"]), f"{found['score']:.4f}", *more)
    return drawn


def neighbors_table(result: dict[str, Any]) -> Table:
    drawn = Table("", "label", "cosine", title=Text(result["entity"]))
    for place, found in enumerate(result["neighbors"], 1):
        drawn.add_row(str(place), Text(found["label"]), f"{found['similarity']:.4f}")
    return drawn


_VERDICTS = {"holds": "green", "BROKEN": "bold red"}


def audit_table(result: dict[str, Any]) -> Table:
    title = f"{result['federation']}: attacks on {result['owner']}, privacy {result['privacy']['mode']}"
    drawn = Table(title=title, show_lines=True)
    for column in ("attack", "on what", "result", "what the claim says", "verdict"):
        drawn.add_column(column, no_wrap=column == "attack")
    for name, found in result["sections"].items():
        verdict = Text(found["verdict"], style=_VERDICTS.get(found["verdict"], "yellow"))
        drawn.add_row(name, *(Text(found[key]) for key in ("on", "result", "claim")), verdict)
    return drawn


def ledger_tables(told: dict[str, Any]) -> Iterator[Table]:
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


def simulation_tables(result: dict[str, Any]) -> Iterator[Table | Text]:
    """For each part of the test triples, MRR by owner and arm, then means of other metrics too; what was spent."""
    arms = list(result["mean"])
    over = ["gain over control, 95%"] if "control" in arms else []
    parts = [part for part in _PARTS if any(part in scores for scores in result["mean"].values())]
    if not parts:
        yield Text("No owner has test facts, so there is nothing to score.")
    for part in parts:
        drawn = Table("MRR of", *arms, *over, title=f"{result['federation']}: {_PARTS[part]}")
        for name, owner in result["owners"].items():
            cells = [owner["arms"][arm]["test"].get(part, {}).get("mrr") for arm in arms]
            versus = owner["versus"].get("control", {}).get(part, {}).get("mrr")
            gain = f"{versus['difference']:+.3f} ({versus['low']:+.3f} … {versus['high']:+.3f})" if versus else ""
            drawn.add_row(name, *(_short(value) for value in cells), *([gain] if over else []))
        drawn.add_section()
        for metric in ("mrr", "hits@10", "accuracy"):
            means = {arm: result["mean"][arm].get(part, {}).get(metric) for arm in arms}
            gain = f"{means['federated'] - means['control']:+.3f}" if means.get("control") is not None else ""
            drawn.add_row(f"mean {metric}", *(_short(means[arm]) for arm in arms), *([gain] if over else []))
        yield drawn
    yield from _privacy_table(result)
    if result["privacy"]["mode"] == "none":
        yield Text("No noise was added to what owners sent, and no ε covers it (--privacy).", "dim")


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
        else "given the vocabulary; see docs/explanation/privacy.md for what it leaves out"
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


# -- embedded federations, exit codes ----------------------------------------------------------------


def names_table(told: Mapping[str, str]) -> Table:
    drawn = Table("federation", "about")
    for name, about in told.items():
        drawn.add_row(name, Text(about))
    return drawn


def data_tables(told: Mapping[str, Any]) -> Iterator[Table | Text]:
    """Owners with their sizes; sources and licences; what each two have in common."""
    yield Text(told["about"])
    drawn = Table("owner", title=f"{told['name']}: owners")
    for column in ("entities", "relations", "train", "valid", "test"):
        drawn.add_column(column, justify="right")
    for name, owner in told["owners"].items():
        sizes = (
            owner["entities"],
            owner["relations"],
            *(owner["triples"][part] for part in ("train", "valid", "test")),
        )
        drawn.add_row(name, *(f"{size:,}" for size in sizes))
    yield drawn
    drawn = Table("owner", "package", "licence", "whose data", title=f"{told['name']}: sources")
    for name, owner in told["owners"].items():
        version, pinned = owner["version"], owner["pinned"]
        package = f"{owner['package']} {version}" + (f", not {pinned}" if version != pinned else "")
        drawn.add_row(name, *(Text(cell) for cell in (package, owner["licence"], owner["attribution"])))
    yield drawn
    drawn = Table("pair", title=f"{told['name']}: in common")
    for column in ("entities", "relations", "facts"):
        drawn.add_column(column, justify="right")
    for pair in told["pairs"]:
        sizes = (pair["entities"], len(pair["relations"]), pair["same_facts"])
        drawn.add_row(", ".join(pair["between"]), *(f"{size:,}" for size in sizes))
    yield drawn


def exits_table(told: Mapping[str, str]) -> Table:
    drawn = Table("code", "meaning", caption="fkge errors CODE says more")
    for code, title in told.items():
        drawn.add_row(code, title)
    return drawn


def page(told: Mapping[str, Any]) -> Iterator[Text]:
    """The help on one exit code."""
    yield Text(f"{told['code']}: {told['title']}", "bold")
    yield Text(told["means"])
    for title, items in (("Usual causes", told["causes"]), ("Ways out", told["ways_out"])):
        if items:
            yield Text(f"\n{title}", "bold")
            for item in items:
                yield Text(f"- {item}")

"""The report: what a simulation found, what it cost and what it gave away, on one page that needs nothing else."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

from fkge.history import History
from fkge.report import figures, words
from fkge.report.folders import Simulated, Trained
from fkge.report.layout import bullets, document, facts, figure, paragraph, table, tiles
from fkge.report.numbers import between, chance, duration, plain, short, signed, size
from fkge.report.svg import Drawing, escape, legend

EMPTY = '""'
SAID = 300
"""Events told in words, at most."""


def simulation_page(found: Simulated) -> str:
    """The report on a simulation, as HTML."""
    result, history = found.result, found.history
    sections = [
        ("findings", "What was found", _findings(result)),
        ("owners", "Owner by owner", _owners(result)),
        ("course", "How it went", _course(found)),
        ("learned", "Who learned from whom", _learned(found)),
        ("privacy", "What left, and what covered it", _privacy(result, history)),
        ("cost", "What it cost", _cost(result, history)),
        ("reading", "How to read this", _READING),
        ("provenance", "Where this comes from", _provenance(found)),
    ]
    lead = words.headline(result)
    return document(result["federation"], "fkge simulation report", lead, _top(found), sections, _made())


# -- sections --------------------------------------------------------------------------------------


def _top(found: Simulated) -> str:
    result, notes = found.result, []
    if not found.finished:
        over = sum(stage.over for stage in found.history.stages.values())
        now = "It is under way." if found.running else f"Go on with it: fkge simulate --resume {found.folder.name}"
        notes.append(
            f"This simulation is not finished: {over} of {len(found.about['arms'])} arms are over. Here is what there "
            f"is so far. {now}"
        )
    for arm, stage in found.history.stages.items():
        dead = [f"{o} ({c.why})" for o, c in stage.courses.items() if c.state == "dead"]
        if dead:
            notes.append(f"In {arm}, these owners died and the others went on without: {'; '.join(dead)}.")
    told = "".join(f'<p class="note" role="note">{escape(note)}</p>' for note in notes)
    return told + tiles(_glance(result))


def _glance(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A few figures worth a large print."""
    found = []
    means = result["mean"]
    for part in ("strict", "held"):
        arms = [arm for arm in ("control", "federated") if part in means.get(arm, {})]
        if arms:
            values = " → ".join(short(means[arm][part]["mrr"]) for arm in arms)
            found.append((f"mean MRR, {words.PARTS[part]}: {' → '.join(arms)}", values))
    mode = result["privacy"]["mode"]
    found.append(("privacy", {"none": "no noise", "paper": "paper's votes", "dp": "DP, every triple"}[mode]))
    if result.get("seconds"):
        found.append(("time on the wall, all arms", duration(result["seconds"])))
    return found


def _findings(result: Mapping[str, Any]) -> str:
    drawn = "".join(figure(figures.gains(result, part)) for part in _parts(result) if _has_versus(result, part))
    caption = "Squares are gains in MRR, lines their 95% intervals; filled where the interval leaves zero out."
    forest = f'<div class="figures">{drawn}</div><p>{escape(caption)}</p>' if drawn else ""
    return bullets(words.findings(result)) + forest + paragraph(*words.fairness(result))


def _owners(result: Mapping[str, Any]) -> str:
    tables = [_scores(result, part) for part in _parts(result)]
    known = [(name, owner) for name, owner in result["owners"].items() if "entities" in owner]
    if known:
        rows = []
        for name, owner in known:
            shares = ", ".join(f"{s['entities']:,} and {s['relations']:,} with {p}" for p, s in owner["shares"].items())
            figures_ = [f"{owner[key]:,}" for key in ("entities", "relations", "triples")]
            rows.append([escape(name), escape(owner["model"]), *figures_, escape(shares)])
        columns = ("owner", "model", "entities", "relations", "training triples", "shares (entities and relations)")
        tables.append(table("Who takes part", "", columns, rows, texts=(5,)))
    return "".join(tables) or paragraph("No arm is over yet.")


def _scores(result: Mapping[str, Any], part: str) -> str:
    """One part of the test facts: a row per owner, two columns per arm, gains over control."""
    arms = [arm for arm in _arms(result) if any(part in _test(o, arm) for o in result["owners"].values())]
    versus = any(o["versus"].get("control", {}).get(part) for o in result["owners"].values())
    gains = [("mrr", "gain, MRR"), ("hits@10", "gain, Hit@10")] if versus else []
    columns = ["owner", "facts"] + ["MRR", "Hit@10"] * len(arms) + ["95% interval", "p"] * len(gains)
    groups = [("", 2), *((arm, 2) for arm in arms), *((word, 2) for _, word in gains)]
    rows = []
    for name, owner in result["owners"].items():
        scores = [_test(owner, arm).get(part) for arm in arms]
        there = next((s for s in scores if s), None)
        cells = [escape(name), f"{there['triples']:,}" if there else ""]
        for arm, score in zip(arms, scores, strict=True):
            strong = "!sure!" if arm == "federated" and score else ""
            cells += [strong + short(score[key]) if score else "" for key in ("mrr", "hits@10")]
        for key, _ in gains:
            cells += _gain(owner["versus"].get("control", {}).get(part, {}).get(key))
        rows.append(cells)
    foot = ["mean", ""]
    for arm in arms:
        mean = result["mean"].get(arm, {}).get(part)
        foot += [short(mean[key]) if mean else "" for key in ("mrr", "hits@10")]
    for key, _ in gains:
        ends = [result["mean"].get(arm, {}).get(part) for arm in ("control", "federated")]
        foot += [signed(ends[1][key] - ends[0][key]) if ends[0] and ends[1] else "", ""]
    caption = f"{part.capitalize()}: {words.PARTS[part]}"
    return table(caption, "Test facts, filtered ranking. Gains are over control.", columns, rows,
                 groups=groups, foot=[foot] if len(rows) > 1 else [])  # fmt: skip


def _gain(versus: Mapping[str, float] | None) -> list[str]:
    if not versus:
        return ["", ""]
    role = "!sure!" if versus["low"] > 0 else "!worse!" if versus["high"] < 0 else ""
    return [f"{role}{signed(versus['difference'])} ({between(versus['low'], versus['high'])})",
            escape(chance(versus["p"]))]  # fmt: skip


def _course(found: Simulated) -> str:
    history, two_tracks = found.history, bool(found.result["two_tracks"])
    owners = list(dict.fromkeys(o for stage in history.stages.values() for o in stage.courses))
    panels = "".join(figure(figures.accuracy(history, owner, two_tracks=two_tracks)) for owner in owners)
    keys = _at_widths(lambda width: _keys(history, width))
    clock = found.clock
    note = _TWO_TRACKS if two_tracks else ""
    lines = [
        f"<li>{escape(f'{arm}, {at:,.1f} s, {owner}: {text}')}</li>" for arm, at, owner, text in history.said[-SAID:]
    ]
    more = f"The last {SAID} of {len(history.said):,} events" if len(history.said) > SAID else "Every test, in words"
    return (
        "<h3>Validation over epochs</h3>"
        + (f'{keys}<div class="figures">{panels}</div>' if owners else paragraph("No owner has begun yet."))
        + (paragraph(_SCALES) if owners else "")
        + paragraph(note)
        + "<h3>Who did what, when</h3>"
        + _at_widths(lambda width: figures.timeline(history, clock=clock, width=width))
        + paragraph(_TIMELINE)
        + (f"<details><summary>{escape(more)}</summary><ul>{''.join(lines)}</ul></details>" if lines else "")
    )


def _learned(found: Simulated) -> str:
    return (
        '<div class="pair">'
        + figure(figures.learned(found.history),
                 "Gifts of a peer that an owner took in before a test that was better than all before it, of those it "
                 "translated. A gift may come with others, and training goes on besides: this tells who was there when "
                 "an owner got better, not whose merit it was.", "one")
        + figure(figures.network(found.history, found.shares, found.arm),
                 "Who shares entities with whom, and where every owner stood at the end of the trace.", "one")
        + "</div>"
    )  # fmt: skip


def _at_widths(draw: Callable[[int], str]) -> str:
    """A wide figure three times, for desk, tablet and phone; the style sheet shows one of them."""
    widths = {"wide": 1040, "middle": 700, "narrow": 360}
    return "".join(figure(draw(width), role=role) for role, width in widths.items())


def _keys(history: History, width: int) -> str:
    """What the lines and marks of all panels mean."""
    drawing = Drawing(width, 1, "What the lines mean", "Arms and marks of the panels below")
    drawing.height = legend(drawing, figures.arms_legend(history), 0, 0, width) or 1
    return str(drawing)


_SCALES = "Each owner has a scale of its own, which need not begin at zero: compare lines within a panel, not panels."
_TWO_TRACKS = (
    "Federated lines are those of the shared tracks, tested on facts that may be shared (under differential privacy, "
    "not at all); control is tested on all. The two are not to be compared here: what the private tracks reached is in "
    "the tables above."
)
_TIMELINE = (
    "The federated arm, a row per owner: work on its vectors above, translations with it as host below. Sleep after an "
    "owner's last work is left out."
)


def _privacy(result: Mapping[str, Any], history: History) -> str:
    told = "".join(paragraph(sentence) for sentence in words.privacy(result))
    rows, left = [], []
    for name, owner in result["owners"].items():
        statement = owner["arms"].get("federated", {}).get("privacy", {})
        for b in statement.get("budgets", ()):
            spent = b["spent"]
            formula = "" if spent["paper"] is None else plain(spent["paper"])
            rows.append([escape(name), plain(spent["epsilon"]), plain(b["epsilon"]), f"{b['delta']:g}",
                         plain(spent["pld"]), plain(spent["rdp"]), formula, f"{spent['count']:,}",
                         escape(f"one {b['unit']}, {b['relation']}")])  # fmt: skip
        kinds: dict[str, list[int]] = {}
        for u in statement.get("unprotected", ()):
            tally = kinds.setdefault(u["what"], [0, 0])
            tally[0] += u["messages"]
            tally[1] += u["nbytes"]
        left += [[escape(name), escape(what), f"{m:,}", size(b)] for what, (m, b) in kinds.items()]
    if rows:
        told += figure(figures.spending(history, result["privacy"]["epsilon"]), "ε spent, and what may be.", "one")
        columns = ("owner", "ε spent", "of", "δ", "by PLD", "by RDP", "paper's formula", "steps or queries", "for")
        told += table("What was spent", "", columns, rows, texts=(8,))
    if left:
        told += table("What left without protection", "", ("owner", "what", "messages", "bytes"), left, texts=(1,))
    return told


def _cost(result: Mapping[str, Any], history: History) -> str:
    arms = {
        name: owner["arms"]["federated"] for name, owner in result["owners"].items() if "federated" in owner["arms"]
    }
    resumed = any(stage.restarts for stage in history.stages.values())
    told = paragraph(*words.cost(result, resumed)) or paragraph("No arm is over yet.")
    if not arms:
        return told
    activities = list(dict.fromkeys(activity for arm in arms.values() for activity in arm["seconds"]))
    rows = [
        [escape(name), *(f"{arm['seconds'].get(a, 0.0):,.2f}" for a in activities), f"{arm['epochs']:,}",
         f"{sum(arm['handshakes'].values()):,}", size(sum(arm["sent"].values()))]
        for name, arm in arms.items()
    ]  # fmt: skip
    columns = ("owner", *(f"{activity}, CPU s" for activity in activities), "epochs", "translations", "sent")
    return told + table("The federated arm, owner by owner", "", columns, rows)


_READING = facts(
    (word, escape(meaning))
    for word, meaning in (
        ("control", "The owner alone, with the same settings and as many epochs. Gains are over it."),
        ("independent", "A lone owner's first training, shorter than the others."),
        ("permuted, random", "The federation with aligned rows mixed up, or with random vectors sent: what these earn "
         "is no transfer of knowledge."),
        ("fede, unified", "A server that averages shared vectors; one graph made of all. Both need what owners do not "
         "give away here."),
        ("strict", "Test facts that no other owner has in its training set, through whatever chain of links: what an "
         "owner gains here is not copied. Another may still relate the same two things in other words, or the other "
         "way round; then it is inferred from close by."),
        ("held", "Test facts that stand in a partner's training set: what an owner gains here is copied. Its benefit, "
         "and what the others give away."),
        ("chained", "Test facts that another owner holds, as only a chain of links through third owners shows."),
        ("MRR", "Mean reciprocal rank: 1 if the right answer always comes first, .5 if second; other right answers are "
         "left out of the ranking."),
        ("Hit@10", "How often the right answer is among the first ten."),
        ("95% interval", "Where the gain would lie on other test facts of the same kind (paired bootstrap). Of "
         "comparisons without any difference, one in forty would look like a gain and one in forty like a loss."),
        ("p", "How often so large a difference would come by chance if there were none."),
    )
)  # fmt: skip


def _provenance(found: Simulated) -> str:
    about, result = found.about, found.result
    began = [stage.began for stage in found.history.stages.values()]
    baselines = ",".join(arm for arm in about["arms"] if arm != "federated")
    again = (
        f"fkge simulate FEDERATION --config {found.folder.name}/settings.toml --engine {about['engine']} "
        f"--seed {about['seed']} --baselines {baselines or EMPTY} --out NEW"
    )
    if result["policies"]:
        again += "   (with the same policies)"
    rows = [
        ("federation", escape(str(result["federation"]))),
        ("owners", escape(", ".join(about["owners"]))),
        ("arms", escape(", ".join(about["arms"]))),
        ("engine", escape(about["engine"])),
        ("seed", f"{about['seed']}"),
        ("start, translation", escape(f"{result['start']}, {result['translate']}")),
        ("begun", _date(min(began)) if began else ""),
        ("folder", escape(found.folder.name)),
        ("report made", f"{_date(time.time())}, {escape(_versions())}"),
        ("to run it again", f"<code>{escape(again)}</code>"),
    ]
    return facts(rows) + _settings(found.settings)


def _settings(text: str) -> str:
    return f'<details><summary>Every setting</summary><pre tabindex="0">{escape(text)}</pre></details>'


# -- a lone training -------------------------------------------------------------------------------


def training_page(found: Trained) -> str:
    """The shorter report on a folder of `fkge train`, as HTML."""
    result = found.result
    name = result["graph"] if result else found.folder.name
    if result is None:
        lead = "This training is not finished."
        top = f'<p class="note" role="note">Go on with it: fkge train --resume --out {escape(found.folder.name)}</p>'
        scores = paragraph("Scores come when it is finished.")
    else:
        test = result.get("test") or result.get("valid")
        lead = (
            f"{result['model']} answers with a mean reciprocal rank of {short(test['mrr'])} and has the right answer "
            f"among the first ten in {100 * test['hits@10']:.0f}% of cases."
            if test else f"{result['model']} was trained on a graph without facts to test it on."
        )  # fmt: skip
        sizes = [(word, f"{result[word]:,}") for word in ("entities", "relations", "triples")]
        top = tiles([*sizes, ("time", duration(result["seconds"]))])
        splits = [key for key, value in result.items() if isinstance(value, dict) and "mrr" in value]
        columns = {"mrr": "MRR", "hits@1": "Hit@1", "hits@3": "Hit@3", "hits@10": "Hit@10", "mr": "mean rank",
                   "accuracy": "accuracy"}  # fmt: skip
        rows = [[escape(split), *(_metric(key, result[split].get(key)) for key in columns)] for split in splits]
        scores = table("Scores", f"The best vectors by validation, of epoch {result['best_epoch']:,}.",
                       ("split", *columns.values()), rows)  # fmt: skip
    reading = facts((word, escape(_MEANINGS[word])) for word in ("MRR", "Hit@10"))
    told = facts([
        ("model", escape(result["model"]) if result else ""), ("seed", f"{result['seed']}" if result else ""),
        ("epochs", f"{result['epochs']:,}" if result else ""), ("folder", escape(found.folder.name)),
        ("report made", f"{_date(time.time())}, {escape(_versions())}"),
    ])  # fmt: skip
    sections = [
        ("scores", "Scores", scores),
        ("course", "How it went", figure(figures.curve(found.records), "Marks: the best so far.", "one")),
        ("reading", "How to read this", reading),
        ("provenance", "Where this comes from", told + _settings(found.settings)),
    ]
    return document(name, "fkge training report", lead, top, sections, _made())


_MEANINGS = {
    "MRR": "Mean reciprocal rank: 1 if the right answer always comes first, .5 if second; other right answers are left "
    "out of the ranking.",
    "Hit@10": "How often the right answer is among the first ten.",
}


def _metric(key: str, value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}" if key == "mr" else short(value)


# -- what is there ---------------------------------------------------------------------------------


def _test(owner: Mapping[str, Any], arm: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = owner["arms"].get(arm, {}).get("test", {})
    return found


def _arms(result: Mapping[str, Any]) -> list[str]:
    """Arms that any owner has finished, in the order they ran."""
    return list(dict.fromkeys(arm for owner in result["owners"].values() for arm in owner["arms"]))


def _parts(result: Mapping[str, Any]) -> list[str]:
    return [
        p for p in words.PARTS if any(p in _test(o, arm) for o in result["owners"].values() for arm in _arms(result))
    ]


def _has_versus(result: Mapping[str, Any], part: str) -> bool:
    return any(owner["versus"].get("control", {}).get(part) for owner in result["owners"].values())


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _versions() -> str:
    found = [f"Python {platform.python_version()}"]
    for name in ("fkge", "torch", "numpy"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def _made() -> str:
    return f"Made by fkge, {_date(time.time())}. This page holds all it shows and loads nothing."

"""What a simulation found, in plain words: every sentence is made from its figures and intervals, losses too.

A gain or a loss is one whose 95% interval (paired bootstrap over the owner's test facts) leaves zero out; all else may
be chance, and is said to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkge.report.numbers import count, duration, listed, plain, short, signed, size

FEW = 100
"""Test facts below which an owner's interval is called rough: the bootstrap is too sure of itself there."""

PARTS = {
    "strict": "facts that no other owner holds",
    "chained": "facts that others hold, by a chain of links",
    "held": "facts that a partner holds",
}

Result = Mapping[str, Any]


def headline(result: Result) -> str:
    """The one sentence to remember."""
    for part, facts in PARTS.items():
        gained, lost, unsure = _sorted(result, part)
        many = len(gained) + len(lost) + len(unsure)
        if not many:
            continue
        also = f"; {count(len(lost))} lost" if lost else ""
        whose = f" on {facts}" if part != "strict" else ""
        if many == 1:
            what = "gained" if gained else "lost" if lost else "neither gained nor lost"
            return f"{next(iter(gained or lost or unsure))} {what} by the company{whose}."
        if gained:
            all_ = "Both" if many == 2 else f"All {count(many)}"
            who = all_ if len(gained) == many else f"{count(len(gained)).capitalize()} of {count(many)}"
            did = "learned more" if part == "strict" else "answer better"  # what others hold is copied, not learned
            return f"{who} owners {did} in company than alone{whose}{also}."
        return f"No owner's gain over the lone owner is beyond chance{whose}{also}."
    return _nothing(result)


def findings(result: Result) -> list[str]:
    """Who gained on what, by how much, who did not, who lost; then means of all arms; then what to beware of."""
    told = [sentence for part in PARTS for sentence in _part(result, part)]
    told = told or [_nothing(result)]
    told += [sentence for part in PARTS if (sentence := _means(result, part))]
    return told + _against(result) + _few(result)


def _nothing(result: Result) -> str:
    """Why nothing is compared."""
    if not _has(result, "control"):
        return "There is no control in this run, so nothing here says whether the company helped."
    if not any("control" in told["versus"] for told in result["owners"].values()):
        return "The simulation is not finished, so nothing is compared yet."
    return "No owner has two test facts of a kind, so nothing can be compared."


def _part(result: Result, part: str) -> list[str]:
    gained, lost, unsure = _sorted(result, part)
    many = len(gained) + len(lost) + len(unsure)
    if not many:
        return []
    facts = PARTS[part]
    told = []
    if gained:
        who = _of(len(gained), many, gained)
        verb = "answers" if len(gained) == 1 else "answer"
        told.append(f"{who} {verb} questions about {facts} better in company than alone: {_amounts(gained)}.")
    else:
        told.append(f"No owner answers questions about {facts} better in company than alone, beyond chance.")
    if lost:
        verb = "does" if len(lost) == 1 else "do"
        told.append(f"{listed(list(lost))} {verb} worse on them: {_amounts(lost)}.")
    if unsure:
        told.append(f"For {listed(list(unsure))} the difference may be chance: {_amounts(unsure)}.")
    compared = gained | lost | unsure
    without = [owner for owner in result["owners"] if owner not in compared]
    if without:
        verb = "has" if len(without) == 1 else "have"
        some = any(part in _test(result, owner) for owner in without)
        told.append(f"{listed(without)} {verb} {'fewer than two' if some else 'no'} such test facts.")
    return told


def _has(result: Result, arm: str) -> bool:
    """Whether an arm is part of the simulation, finished or not."""
    return arm in result.get("arms", result["mean"])


def _few(result: Result) -> list[str]:
    """A warning where an owner has few test facts of a kind."""
    told = []
    for part in PARTS:
        owners = {owner: test[part]["triples"] for owner in result["owners"] if part in (test := _test(result, owner))}
        few = [f"{owner} {many:,}" for owner, many in owners.items() if many < FEW]
        if few:
            told.append(f"{part} {', '.join(few)}")
    return [f"Few test facts ({'; '.join(told)}), so intervals are rough there, and rather too narrow."] if told else []


def _sorted(
    result: Result, part: str, over: str = "control"
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """Differences in MRR of those that gained, that lost, and of the rest."""
    gained, lost, unsure = dict[str, float](), dict[str, float](), dict[str, float]()
    for owner, told in result["owners"].items():
        versus = told.get("versus", {}).get(over, {}).get(part, {}).get("mrr")
        if versus:
            pile = gained if versus["low"] > 0 else lost if versus["high"] < 0 else unsure
            pile[owner] = versus["difference"]
    return gained, lost, unsure


def _test(result: Result, owner: str) -> Mapping[str, Any]:
    """What an owner reached in company, by part of its test facts."""
    found: Mapping[str, Any] = result["owners"][owner]["arms"].get("federated", {}).get("test", {})
    return found


def _of(some: int, many: int, who: Mapping[str, float]) -> str:
    if some == many:
        return next(iter(who)) if many == 1 else "Both owners" if many == 2 else f"All {count(many)} owners"
    return f"{count(some).capitalize()} of {count(many)} owners ({listed(list(who))})"


def _amounts(differences: Mapping[str, float]) -> str:
    """``+.012 to +.083 MRR``, or the one there is."""
    low, high = signed(min(differences.values())), signed(max(differences.values()))
    return f"{low} MRR" if low == high else f"{low} to {high} MRR"


def _means(result: Result, part: str) -> str:
    means = {arm: told[part]["mrr"] for arm, told in result["mean"].items() if part in told}
    if len(means) < 2:
        return ""
    figures = ", ".join(f"{arm} {short(mrr)}" for arm, mrr in means.items())
    return f"Mean MRR over owners on {PARTS[part]}: {figures}."


def _against(result: Result) -> list[str]:
    """The federation beside a server, and beside controls that must not gain."""
    told = []
    for arm, what in (("fede", "a server that averages (FedE)"), ("unified", "one graph made of all"),
                      ("permuted", "the same exchange with aligned rows mixed up (permuted)"),
                      ("random", "the same exchange of random vectors (random)")):  # fmt: skip
        for part, facts in PARTS.items():
            better, worse, same = _sorted(result, part, arm)
            many = len(better) + len(worse) + len(same)
            if many:
                piles = [count(len(pile)) if pile else "none" for pile in (better, worse, same)]
                told.append(
                    f"Against {what}, on {facts}: better for {piles[0]} of {count(many)} owners, worse for {piles[1]}, "
                    f"undecided for {piles[2]}."
                )
    return told


def fairness(result: Result) -> list[str]:
    """What makes the comparison fair, and how far it reaches."""
    told = []
    epochs, private = result["epochs"], result.get("private_epochs", 0)
    if _has(result, "control"):
        if private:
            told.append(
                f"Equal compute: each owner has {epochs:,} epochs for what it shares and {private:,} for its private "
                f"track; its control, alone, has {epochs + private:,} on everything it knows."
            )
        else:
            told.append(
                f"Equal compute: each owner has {epochs:,} epochs in company, and its control the same number alone, "
                "with the same settings and as many tests on validation facts."
            )
    told.append(
        f"One run, one seed ({result['seed']}): intervals are over the test facts of this run, and say nothing of how "
        "another seed would fare."
    )
    if result.get("decide") == "strict":
        told.append(
            "Owners kept their best vectors by validation facts that nobody else holds; a simulation can tell those."
        )
    return told


# -- privacy ---------------------------------------------------------------------------------------


def privacy(result: Result) -> list[str]:
    """What covered what left, and what did not."""
    mode = result["privacy"]["mode"]
    told = []
    if policies := result.get("policies"):
        told.append(
            f"Sharing policy ({listed(policies)}): these owners federated with the triples that their policies share. "
            "Nothing that left depends on the others, exactly and without an ε; the private track that learned from "
            "them never left. What follows from shareable triples, and these themselves, have no protection from this."
        )
    told += {"none": _none, "paper": _paper, "dp": _dp}[mode](result)
    budgets = _budgets(result)
    if budgets and mode != "none":
        ledger = result["privacy"].get("ledger")
        told.append(
            "The ledgers are kept for good, over all runs." if ledger
            else "Each arm of this simulation is a lifetime of its own: figures are for the federated arm."
        )  # fmt: skip
    uncovered = {o["arms"]["federated"]["privacy"]["uncovered"] for o in _federated(result)}
    told += [f"Not covered: {text}." for text in sorted(uncovered)]
    return told


def _none(result: Result) -> list[str]:
    return [
        "No noise and no ε: nothing covers the vectors that left. Unnoised vectors give away what they were trained "
        "on; that is for owners who trust each other with what they share."
    ]


def _paper(result: Result) -> list[str]:
    spent = _spent(result)
    return [
        "The paper's mode: the votes by which a host's rows reach its client were noised and counted, over all "
        f"handshakes and peers together. {spent}Client's vectors: no guarantee; they reach the host as they are."
    ]


def _dp(result: Result) -> list[str]:
    spent = _spent(result)
    return [
        f"Differential privacy of all that left, for every training triple an owner shares. {spent}The vocabulary "
        "counts as public: which entities and relations an owner has, and shares with whom, is not covered; nor is an "
        "entity or a fact that several triples tell, for which ε adds up. The private track never left."
    ]


def _spent(result: Result) -> str:
    """``ε = 7.9 to 8 of 8 at δ = 1e-05, for one triple, add or remove. ``"""
    told = ""
    for unit, found in _budgets(result).items():
        values = [b["spent"]["epsilon"] for b in found]
        low, high = plain(min(values, key=_infinite_last)), plain(max(values, key=_infinite_last))
        limits = {b["epsilon"] for b in found}
        of = f" of {plain(next(iter(limits)))}" if len(limits) == 1 and None not in limits else ""
        amount = low if low == high else f"{low} to {high}"
        told += f"Spent: ε = {amount}{of} at δ = {found[0]['delta']:g}, for one {unit}. "
    return told


def _infinite_last(value: float | None) -> float:
    return float("inf") if value is None else value


def _federated(result: Result) -> list[Mapping[str, Any]]:
    """Owners that have a statement of privacy for the federated arm."""
    return [o for o in result["owners"].values() if "privacy" in o["arms"].get("federated", {})]


def _budgets(result: Result) -> dict[str, list[Mapping[str, Any]]]:
    """By unit and relation, what each owner was allowed and spent."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for owner in _federated(result):
        for budget in owner["arms"]["federated"]["privacy"]["budgets"]:
            found.setdefault(f"{budget['unit']} ({budget['relation']})", []).append(budget)
    return found


# -- cost ------------------------------------------------------------------------------------------


def cost(result: Result, resumed: bool = False) -> list[str]:
    """Wall time of all arms; CPU seconds and bytes of the federated one.

    Args:
        resumed: an arm was broken off and taken up again.
    """
    told = []
    if result.get("seconds"):
        since = ", each since it was last taken up" if resumed else ""
        took = duration(result["seconds"])
        told.append(f"All finished arms together took {took} on the wall, one after another{since}.")
    arms = [arm for o in result["owners"].values() if (arm := o["arms"].get("federated"))]
    if arms:
        sums: dict[str, float] = {}
        for arm in arms:
            for activity, seconds in arm["seconds"].items():
                sums[activity] = sums.get(activity, 0.0) + seconds
        by = ", ".join(f"{activity} {duration(seconds)}" for activity, seconds in sums.items() if seconds)
        told.append(f"The federated arm took {duration(sum(sums.values()))} of CPU time over all owners: {by}.")
        sent = [sum(arm["sent"].values()) for arm in arms]
        if any(sent):
            low, high = size(min(sent)), size(max(sent))
            each = f"{low} each" if low == high else f"{low} to {high} each"
            told.append(f"Owners sent {size(sum(sent))} in all, {each}.")
    return told

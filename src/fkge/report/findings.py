"""The findings of a simulation in sentences, losses too: each is made from numbers and intervals of the result.

A gain or a loss is a difference whose 95% interval (paired bootstrap over the owner's test facts) excludes zero; every
other difference may be chance, and the sentence says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fkge.experiment.results import Comparison, OwnerResult, SimulationResult
from fkge.report.formatting import byte_size, count_word, duration, epsilon, listing, score, signed
from fkge.results import Blend, BudgetAccount, OwnerReport, PrivacyAccount, Scores

FEW = 100
"""Number of test facts below which the bootstrap's interval of an owner is called rough: it is too narrow there."""

PARTS = {
    "strict": "facts that no other owner holds",
    "chained": "facts that others hold, by a chain of links",
    "held": "facts that a partner holds",
}

_BASELINES = {
    "fede": "a server that averages (FedE)",
    "unified": "one graph made of all",
    "permuted": "the same exchange with aligned rows mixed up (permuted)",
    "random": "the same exchange of random vectors (random)",
    "poisoned": "the same exchange with one hostile owner (poisoned)",
}


# -- looking into a result ---------------------------------------------------------------------------


def comparisons(
    result: SimulationResult, part: str, over: str = "control", metric: str = "mrr"
) -> dict[str, Comparison]:
    """Compare each federated owner with itself in another arm, on one part of its test facts.

    Args:
        result: of a simulation.
        part: a key of `PARTS`.
        over: the other arm.
        metric: a metric that is compared, such as ``mrr``.

    Returns:
        Comparisons by owner, for owners that have one.
    """
    found = {name: owner.versus.get(over, {}).get(part, {}).get(metric) for name, owner in result.owners.items()}
    return {owner: comparison for owner, comparison in found.items() if comparison is not None}


def scores_by_arm(owner: OwnerResult, part: str) -> dict[str, Scores]:
    """Return the scores of an owner on one part of its test facts, by arm."""
    return {arm: report.test[part] for arm, report in owner.arms.items() if part in report.test}


def arms_with(result: SimulationResult, part: str) -> list[str]:
    """Return the arms in which any owner has scores on one part of its test facts, in the order they ran."""
    return list(dict.fromkeys(arm for owner in result.owners.values() for arm in scores_by_arm(owner, part)))


def means(result: SimulationResult, part: str) -> dict[str, Scores]:
    """Return mean scores over owners on one part of the test facts, by arm."""
    return {arm: parts[part] for arm, parts in result.mean.items() if part in parts}


def federated(result: SimulationResult) -> dict[str, OwnerReport]:
    """Return the owners' reports on the federated arm, for owners that have finished it."""
    return {name: owner.arms["federated"] for name, owner in result.owners.items() if "federated" in owner.arms}


def privacy_accounts(result: SimulationResult) -> dict[str, PrivacyAccount]:
    """Return the owners' privacy accounts of the federated arm."""
    return {name: report.privacy for name, report in federated(result).items() if report.privacy is not None}


def blends(result: SimulationResult) -> dict[str, Blend]:
    """Return the blends of federated models with lone ones, by owner."""
    return {name: report.blend for name, report in federated(result).items() if report.blend is not None}


def cpu_seconds(result: SimulationResult) -> dict[str, float]:
    """Return CPU seconds of all owners in the federated arm, by activity."""
    found = [report.seconds for report in federated(result).values()]
    activities = dict.fromkeys(activity for seconds in found for activity in seconds)
    return {activity: sum(seconds.get(activity, 0.0) for seconds in found) for activity in activities}


class _Outcome(NamedTuple):
    """Differences in MRR by owner: of those that gained, that lost, and of the rest."""

    gained: dict[str, float]
    lost: dict[str, float]
    unsure: dict[str, float]

    @property
    def owners(self) -> int:
        return sum(map(len, self))


def _outcome(result: SimulationResult, part: str, over: str = "control") -> _Outcome:
    outcome = _Outcome({}, {}, {})
    for owner, found in comparisons(result, part, over).items():
        group = outcome.gained if found.low > 0 else outcome.lost if found.high < 0 else outcome.unsure
        group[owner] = found.difference
    return outcome


# -- findings ----------------------------------------------------------------------------------------


def headline(result: SimulationResult) -> str:
    """Return the main finding, as one sentence."""
    for part, facts in PARTS.items():
        outcome = _outcome(result, part)
        gained, lost, unsure = outcome
        if not outcome.owners:
            continue
        also = f"; {count_word(len(lost))} lost" if lost else ""
        whose = f" on {facts}" if part != "strict" else ""
        if outcome.owners == 1:
            what = "gained" if gained else "lost" if lost else "neither gained nor lost"
            return f"{next(iter(gained or lost or unsure))} {what} by federating{whose}."
        if not gained:
            return f"No owner gained beyond chance over training alone{whose}{also}."
        did = "learned more" if part == "strict" else "answer better"  # what others hold is copied, not learned
        return f"{_who(outcome)} {did} federated than alone{whose}{also}."
    return _why_nothing_is_compared(result)


def findings(result: SimulationResult) -> list[str]:
    """Return who gained on what and by how much, who did not, who lost; means of all arms; baselines; warnings."""
    sentences = [sentence for part in PARTS for sentence in _findings_on(result, part)]
    sentences = sentences or [_why_nothing_is_compared(result)]
    for part, facts in PARTS.items():
        found = means(result, part)
        if len(found) > 1:
            values = ", ".join(f"{arm} {score(scores.mrr)}" for arm, scores in found.items())
            sentences.append(f"Mean MRR over owners on {facts}: {values}.")
    return sentences + _against_baselines(result) + _warnings(result)


def _why_nothing_is_compared(result: SimulationResult) -> str:
    if "control" not in result.arms:
        return "This run has no control arm, so nothing here says whether federating helped."
    if not any("control" in owner.versus for owner in result.owners.values()):
        return "The simulation is not finished, so nothing is compared yet."
    return "No owner has two test facts of a kind, so nothing can be compared."


def _who(outcome: _Outcome) -> str:
    """Return those that gained: ``All three owners``, ``Two of four owners``."""
    gained, many = len(outcome.gained), outcome.owners
    if gained < many:
        return f"{count_word(gained).capitalize()} of {count_word(many)} owners"
    return "Both owners" if many == 2 else f"All {count_word(many)} owners"


def _findings_on(result: SimulationResult, part: str) -> list[str]:
    outcome, facts = _outcome(result, part), PARTS[part]
    gained, lost, unsure = outcome
    many = outcome.owners
    if not many:
        return []
    sentences = []
    if gained:
        who = next(iter(gained)) if many == 1 else _who(outcome)
        who += f" ({listing(list(gained))})" if len(gained) < many else ""
        verb = "answers" if len(gained) == 1 else "answer"
        sentences.append(f"{who} {verb} questions about {facts} better federated than alone: {_amounts(gained)}.")
    else:
        sentences.append(f"No owner answers questions about {facts} better federated than alone, beyond chance.")
    if lost:
        sentences.append(f"{listing(list(lost))} {'does' if len(lost) == 1 else 'do'} worse on them: {_amounts(lost)}.")
    if unsure:
        sentences.append(f"For {listing(list(unsure))} the difference may be chance: {_amounts(unsure)}.")
    without = [owner for owner in result.owners if owner not in gained | lost | unsure]
    if without:
        some = any("federated" in scores_by_arm(result.owners[owner], part) for owner in without)
        verb, number = "has" if len(without) == 1 else "have", "fewer than two" if some else "no"
        sentences.append(f"{listing(without)} {verb} {number} such test facts.")
    return sentences


def _amounts(differences: Mapping[str, float]) -> str:
    """Return ``+.012 to +.083 MRR``, or the one there is."""
    return f"{_span([signed(bound(differences.values())) for bound in (min, max)])} MRR"


def _span(ends: Sequence[str]) -> str:
    """Return ``LOW to HIGH``, or the one that both are."""
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _warnings(result: SimulationResult) -> list[str]:
    """Return a warning where owners have few test facts of a kind."""
    parts = []
    for part in PARTS:
        counts = {name: report.test[part].triples for name, report in federated(result).items() if part in report.test}
        few = [f"{owner} {many:,}" for owner, many in counts.items() if many is not None and many < FEW]
        if few:
            parts.append(f"{part} {', '.join(few)}")
    warning = f"Few test facts ({'; '.join(parts)}), so intervals are rough there, and rather too narrow."
    return [warning] if parts else []


def _against_baselines(result: SimulationResult) -> list[str]:
    """Return the federation compared with a server, and with controls that must not gain."""
    sentences = []
    for arm, what in _BASELINES.items():
        for part, facts in PARTS.items():
            outcome = _outcome(result, part, arm)
            if outcome.owners:
                better, worse, same = (count_word(len(group)) if group else "none" for group in outcome)
                sentences.append(
                    f"Against {what}, on {facts}: better for {better} of {count_word(outcome.owners)} owners, worse "
                    f"for {worse}, undecided for {same}."
                )
    return sentences


def fairness(result: SimulationResult) -> list[str]:
    """Return sentences on the conditions that make the comparison fair, and on their limits."""
    sentences = []
    if "control" in result.arms:
        if result.private_epochs:
            sentences.append(
                f"Equal compute: each owner has {result.epochs:,} epochs for what it shares and "
                f"{result.private_epochs:,} for its private track; its control, alone, has "
                f"{result.epochs + result.private_epochs:,} on everything it knows."
            )
        elif result.lone_epochs:
            sentences.append(
                f"Equal compute: each owner trains for {result.epochs:,} epochs federated and {result.lone_epochs:,} "
                "without peers, and blends the two models as its validation triples say; its control spends as many "
                "on two models without peers, from two seeds, and blends them, too. An owner to whom its peers "
                "bring nothing trains once more without them."
            )
        else:
            sentences.append(
                f"Equal compute: each owner trains for {result.epochs:,} epochs federated, and its control for as many "
                "alone, with the same settings and as many validations."
            )
    sentences.append(
        f"One run, one seed ({result.seed}): intervals are over the test facts of this run, and do not say how much "
        "another seed would change."
    )
    if result.decide == "strict":
        blend = " The blend with a lone model was chosen by all validation facts." if result.lone_epochs else ""
        sentences.append("Owners chose their best vectors by validation facts that nobody else holds, which only a "
                    f"simulation can identify.{blend}")  # fmt: skip
    return sentences


# -- privacy -----------------------------------------------------------------------------------------


def privacy(result: SimulationResult) -> list[str]:
    """Return sentences on the protection of what was sent, and on what it does not cover."""
    mode, accounts = result.privacy.mode, privacy_accounts(result)
    sentences = []
    if result.policies:
        sentences.append(
            f"Sharing policy ({listing(result.policies)}): these owners federated with the triples that their policies "
            "share. Nothing that was sent depends on the others, exactly and without an ε; the private track that "
            "learned from them was never sent. The policy does not protect shareable triples, nor what follows from "
            "them."
        )
    budgets: dict[str, list[BudgetAccount]] = {}
    for account in accounts.values():
        for budget in account.budgets:
            budgets.setdefault(f"{budget.unit} ({budget.relation})", []).append(budget)
    spent = "".join(_spent(unit, found) for unit, found in budgets.items())
    if mode == "none":
        sentences.append(
            "No noise and no ε: nothing protects the vectors that were sent. Vectors without noise reveal what they "
            "were trained on; this mode is for owners who trust each other with what they share."
        )
    elif mode == "paper":
        sentences.append(
            "The paper's mode: the votes by which a host's rows reach its client were noised and accounted for, over "
            f"all handshakes and peers together. {spent}Client's vectors: no guarantee; they reach the host as they "
            "are."
        )
    else:
        sentences.append(
            f"Differential privacy of everything that was sent, for every training triple an owner shares. {spent}The "
            "vocabulary counts as public: which entities and relations an owner has, and shares with whom, is not "
            "covered; nor is an entity or a fact that several triples state, for which ε adds up. The private track "
            "was never sent."
        )
    if budgets and mode != "none":
        sentences.append(
            "The ledgers are permanent and count all runs." if result.privacy.ledger
            else "Each arm of this simulation has a ledger of its own: figures are for the federated arm."
        )  # fmt: skip
    return sentences + sorted({f"Not covered: {account.uncovered}." for account in accounts.values()})


def _spent(unit: str, budgets: Sequence[BudgetAccount]) -> str:
    """Return ``Spent: ε = 7.9 to 8 of 8 at δ = 1e-05, for one triple (add or remove). ``"""
    values = sorted(float("inf") if b.spent.epsilon is None else b.spent.epsilon for b in budgets)
    limits = {b.epsilon for b in budgets}
    of = f" of {epsilon(next(iter(limits)))}" if len(limits) == 1 and None not in limits else ""
    amount = _span([epsilon(values[0]), epsilon(values[-1])])
    return f"Spent: ε = {amount}{of} at δ = {budgets[0].delta:g}, for one {unit}. "


# -- cost --------------------------------------------------------------------------------------------


def cost(result: SimulationResult, *, resumed: bool = False) -> list[str]:
    """Return wall time of all arms; CPU seconds and bytes of the federated one.

    Args:
        result: of a simulation.
        resumed: an arm was interrupted and resumed.
    """
    sentences = []
    if result.seconds:
        since = ", each counted since it was last resumed" if resumed else ""
        sentences.append(f"All finished arms took {duration(result.seconds)} of wall time, one after another{since}.")
    sums = cpu_seconds(result)
    if sums:
        by = ", ".join(f"{activity} {duration(seconds)}" for activity, seconds in sums.items() if seconds)
        sentences.append(f"The federated arm took {duration(sum(sums.values()))} of CPU time over all owners: {by}.")
    sent = [sum(report.sent.values()) for report in federated(result).values()]
    if any(sent):
        each = _span([byte_size(min(sent)), byte_size(max(sent))])
        sentences.append(f"Owners sent {byte_size(sum(sent))} in all, {each} each.")
    return sentences

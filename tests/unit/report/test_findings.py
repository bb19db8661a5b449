"""Each sentence says what the figures say: gains, losses, doubts, missing controls, what privacy covers."""

from __future__ import annotations

from fkge.experiment.results import SimulationResult
from fkge.report import findings as words
from fkge.results import Blend
from tests.unit.report.made import result

UP, DOWN, OPEN = (0.01, 0.03), (-0.03, -0.01), (-0.01, 0.02)


def told(made: SimulationResult) -> str:
    return " ".join(words.findings(made))


def test_all_gain() -> None:
    made = result({"ant": {"strict": UP}, "bee": {"strict": (0.05, 0.09)}, "cat": {"strict": UP}})
    assert words.headline(made) == "All three owners learned more federated than alone."
    assert (
        "All three owners answer questions about facts that no other owner holds better federated than alone: "
        "+.020 to +.070 MRR." in told(made)
    )
    assert "chance" not in told(made)
    assert "worse on them" not in told(made)


def test_a_mix_names_everybody_and_says_a_loss_plainly() -> None:
    made = result({"ant": {"strict": UP}, "bee": {"strict": DOWN}, "cat": {"strict": OPEN}, "dog": {"strict": UP}})
    assert words.headline(made) == "Two of four owners learned more federated than alone; one lost."
    text = told(made)
    assert "Two of four owners (ant and dog) answer questions" in text
    assert "bee does worse on them: −.020 MRR." in text
    assert "For cat the difference may be chance: +.005 MRR." in text


def test_nobody_gains() -> None:
    made = result({"ant": {"strict": OPEN}, "bee": {"strict": DOWN}})
    assert words.headline(made) == "No owner gained beyond chance over training alone; one lost."
    assert "No owner answers questions about facts that no other owner holds better" in told(made)


def test_an_interval_that_touches_zero_is_no_gain() -> None:
    assert words.headline(result({"a": {"strict": (0.0, 0.2)}, "b": {"strict": (-0.2, 0.0)}})) == (
        "No owner gained beyond chance over training alone."
    )


def test_parts_are_told_apart() -> None:
    made = result({"ant": {"strict": OPEN, "held": UP}, "bee": {"strict": OPEN}})
    assert words.headline(made) == "No owner gained beyond chance over training alone."
    text = told(made)
    assert "ant answers questions about facts that a partner holds better federated than alone" in text
    assert "bee has no such test facts." in text
    assert words.headline(result({"a": {"held": UP}, "b": {"held": UP}})) == (
        "Both owners answer better federated than alone on facts that a partner holds."
    )


def test_an_owner_with_a_single_test_fact_is_not_compared_and_not_forgotten() -> None:
    made = result({"ant": {"strict": UP}, "bee": {"strict": UP}, "cat": {"strict": UP}})
    made.owners["cat"].versus["control"].clear()
    assert "cat has fewer than two such test facts." in told(made)
    for owner in made.owners.values():
        owner.versus["control"].clear()
    assert "No owner has two test facts of a kind" in words.headline(made)
    assert "not finished" not in told(made)


def test_a_lone_comparison() -> None:
    assert words.headline(result({"ant": {"strict": UP}})) == "ant gained by federating."
    assert words.headline(result({"ant": {"strict": DOWN}})) == "ant lost by federating."
    assert words.headline(result({"ant": {"strict": OPEN}})) == "ant neither gained nor lost by federating."


def test_without_control_nothing_is_claimed() -> None:
    made = result({"ant": {"strict": UP}}, arms=["federated"])
    assert "This run has no control arm" in words.headline(made)
    assert "This run has no control arm" in told(made)
    assert not any("Equal compute" in sentence for sentence in words.fairness(made))
    made = result({"ant": {"strict": UP}})
    made.owners["ant"].versus.clear()  # as while other arms still have to run
    assert words.headline(made) == "The simulation is not finished, so nothing is compared yet."
    assert words.headline(made) in told(made)


def test_other_arms_are_put_beside_it() -> None:
    made = result({"ant": {"strict": UP}, "bee": {"strict": DOWN}}, arms=("control", "permuted", "federated", "fede"))
    text = told(made)
    assert "Mean MRR over owners on facts that no other owner holds: control .300, permuted .300" in text
    for arm in ("a server that averages (FedE)", "mixed up (permuted)"):
        assert arm in text
    assert "better for one of two owners, worse for one, undecided for none." in text


def test_few_test_facts_are_a_warning() -> None:
    assert "Few test facts (strict ant 40)" in told(result({"ant": {"strict": UP}}, triples=40))
    assert "Few test facts" not in told(result({"ant": {"strict": UP}}, triples=400))


def test_fairness_says_compute_and_seed() -> None:
    text = " ".join(words.fairness(result({"ant": {"strict": UP}})))
    assert "each owner trains for 20 epochs federated, and its control for as many alone" in text
    assert "one seed (7)" in text
    text = " ".join(words.fairness(result({"ant": {"strict": UP}}, private_epochs=12, decide="strict")))
    assert "20 epochs for what it shares and 12 for its private track; its control, alone, has 32" in text
    assert "nobody else holds" in text


def test_fairness_of_blends() -> None:
    text = " ".join(words.fairness(result({"ant": {"strict": UP}}, lone_epochs=6)))
    assert "20 epochs federated and 6 without peers" in text
    assert "its control spends as many on two models without peers" in text


def test_blends_are_listed_where_there_are_any() -> None:
    made = result({"ant": {"strict": UP}, "bee": {"strict": UP}})
    assert words.blends(made) == {}
    blend = Blend(epochs=6, score=0.4, first=0.38, lone=0.3, weight=0.8, relations=2)
    ant = made.owners["ant"]
    report = ant.arms["federated"].model_copy(update={"blend": blend})
    blended = ant.model_copy(update={"arms": {**ant.arms, "federated": report}})
    made = made.model_copy(update={"owners": {**made.owners, "ant": blended}})
    assert words.blends(made) == {"ant": blend}


def test_privacy_says_what_ran_and_what_it_leaves_out() -> None:
    none, paper, dp = (" ".join(words.privacy(result({"a": {"strict": UP}}, mode=m))) for m in ("none", "paper", "dp"))
    assert "No noise and no ε" in none
    assert "ε =" not in none
    assert "Client's vectors: no guarantee" in paper
    assert "ε = 7.5 of 8 at δ = 1e-05, for one row of the host's aligned vectors (replace)" in paper
    assert "ε = 7.5 of 8 at δ = 1e-05, for one triple (add or remove)" in dp
    assert "vocabulary counts as public" in dp
    assert "no guarantee" not in dp
    for text in (none, paper, dp):
        assert "Not covered: timing." in text


def test_a_sharing_policy_is_told_apart_from_noise() -> None:
    text = " ".join(words.privacy(result({"a": {"strict": UP}}, policies=["a", "b"])))
    assert text.startswith("Sharing policy (a and b):")
    assert "No noise and no ε" in text
    assert "Sharing policy" not in " ".join(words.privacy(result({"a": {"strict": UP}})))


def test_a_permanent_ledger_counts_all_runs() -> None:
    made = result({"a": {"strict": UP}}, mode="dp")
    assert "a ledger of its own" in " ".join(words.privacy(made))
    kept = made.privacy.model_copy(update={"ledger": "ledgers"})
    made = made.model_copy(update={"privacy": kept})
    assert "are permanent" in " ".join(words.privacy(made))


def test_cost_adds_up() -> None:
    text = " ".join(words.cost(result({"ant": {"strict": UP}, "bee": {"strict": UP}})))
    assert "1 min 1 s of wall time, one after another." in text
    assert "5.5 s of CPU time over all owners: train 4.0 s, translate 1.0 s, test 0.5 s" in text
    assert "Owners sent 4.0 kB in all, 2.0 kB each." in text
    assert "since it was last resumed" in words.cost(result({"ant": {"strict": UP}}), resumed=True)[0]

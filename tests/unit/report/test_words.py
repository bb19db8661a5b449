"""Each sentence says what the figures say: gains, losses, doubts, missing controls, what privacy covers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.report.made import result

from fkge.report import words
from fkge.report.numbers import between, chance, count, duration, listed, plain, short, signed, size

UP, DOWN, OPEN = (0.01, 0.03), (-0.03, -0.01), (-0.01, 0.02)


def told(made: dict[str, Any]) -> str:
    return " ".join(words.findings(made))


def test_all_gain() -> None:
    made = result({"ant": {"strict": UP}, "bee": {"strict": (0.05, 0.09)}, "cat": {"strict": UP}})
    assert words.headline(made) == "All three owners learned more in company than alone."
    assert (
        "All three owners answer questions about facts that no other owner holds better in company than alone: "
        "+.020 to +.070 MRR." in told(made)
    )
    assert "chance" not in told(made)
    assert "worse on them" not in told(made)


def test_a_mix_names_everybody_and_says_a_loss_plainly() -> None:
    made = result({"ant": {"strict": UP}, "bee": {"strict": DOWN}, "cat": {"strict": OPEN}, "dog": {"strict": UP}})
    assert words.headline(made) == "Two of four owners learned more in company than alone; one lost."
    text = told(made)
    assert "Two of four owners (ant and dog) answer questions" in text
    assert "bee does worse on them: −.020 MRR." in text
    assert "For cat the difference may be chance: +.005 MRR." in text


def test_nobody_gains() -> None:
    made = result({"ant": {"strict": OPEN}, "bee": {"strict": DOWN}})
    assert words.headline(made) == "No owner's gain over the lone owner is beyond chance; one lost."
    assert "No owner answers questions about facts that no other owner holds better" in told(made)


def test_an_interval_that_touches_zero_is_no_gain() -> None:
    assert words.headline(result({"a": {"strict": (0.0, 0.2)}, "b": {"strict": (-0.2, 0.0)}})) == (
        "No owner's gain over the lone owner is beyond chance."
    )


def test_parts_are_told_apart() -> None:
    made = result({"ant": {"strict": OPEN, "held": UP}, "bee": {"strict": OPEN}})
    assert words.headline(made) == "No owner's gain over the lone owner is beyond chance."
    text = told(made)
    assert "ant answers questions about facts that a partner holds better in company than alone" in text
    assert "bee has no such test facts." in text
    assert words.headline(result({"a": {"held": UP}, "b": {"held": UP}})) == (
        "Both owners answer better in company than alone on facts that a partner holds."
    )


def test_an_owner_with_a_single_test_fact_is_not_compared_and_not_forgotten() -> None:
    made = result({"ant": {"strict": UP}, "bee": {"strict": UP}, "cat": {"strict": UP}})
    made["owners"]["cat"]["versus"]["control"] = {}
    assert "cat has fewer than two such test facts." in told(made)
    for owner in made["owners"].values():
        owner["versus"]["control"] = {}
    assert "No owner has two test facts of a kind" in words.headline(made)
    assert "not finished" not in told(made)


def test_a_lone_comparison() -> None:
    assert words.headline(result({"ant": {"strict": UP}})) == "ant gained by the company."
    assert words.headline(result({"ant": {"strict": DOWN}})) == "ant lost by the company."
    assert words.headline(result({"ant": {"strict": OPEN}})) == "ant neither gained nor lost by the company."


def test_without_control_nothing_is_claimed() -> None:
    made = result({"ant": {"strict": UP}}, arms=["federated"])
    assert "There is no control in this run" in words.headline(made)
    assert "There is no control in this run" in told(made)
    assert not any("Equal compute" in sentence for sentence in words.fairness(made))
    made = result({"ant": {"strict": UP}})
    made["owners"]["ant"]["versus"] = {}  # as of one that still has other arms to run
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
    assert "each owner has 20 epochs in company, and its control the same number alone" in text
    assert "one seed (7)" in text
    text = " ".join(words.fairness(result({"ant": {"strict": UP}}, private_epochs=12, decide="strict")))
    assert "20 epochs for what it shares and 12 for its private track; its control, alone, has 32" in text
    assert "nobody else holds" in text


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


def test_a_ledger_that_is_kept_is_no_lifetime_of_an_arm() -> None:
    made = result({"a": {"strict": UP}}, mode="dp")
    assert "a lifetime of its own" in " ".join(words.privacy(made))
    made["privacy"]["ledger"] = "ledgers"
    assert "kept for good" in " ".join(words.privacy(made))


def test_cost_adds_up() -> None:
    text = " ".join(words.cost(result({"ant": {"strict": UP}, "bee": {"strict": UP}})))
    assert "1 min 1 s on the wall, one after another." in text
    assert "5.5 s of CPU time over all owners: train 4.0 s, translate 1.0 s, test 0.5 s" in text
    assert "Owners sent 4.0 kB in all, 2.0 kB each." in text
    assert "since it was last taken up" in words.cost(result({"ant": {"strict": UP}}), resumed=True)[0]


@pytest.mark.parametrize(
    ("made", "read"),
    [
        (short(0.2731), ".273"), (short(1.0), "1.000"), (short(None), ""), (short(-0.00001), ".000"),
        (signed(0.0653), "+.065"), (signed(-0.1), "−.100"), (signed(0.0), ".000"), (signed(0.0004), "+.0004"),
        (between(-0.01, 0.02), "−.010 … +.020"), (chance(0.0004), "<.001"), (chance(0.03), ".030"),
        (plain(None), "∞"), (plain(7.999999), "8"), (plain(1313.4), "1,313"), (count(5), "five"), (count(40), "40"),
        (listed(["a"]), "a"), (listed(["a", "b"]), "a and b"), (listed(["a", "b", "c"]), "a, b and c"),
        (duration(0.84), "0.8 s"), (duration(59.7), "1 min"), (duration(576), "9 min 36 s"),
        (duration(12000), "3 h 20 min"), (size(840), "840 B"), (size(29294), "29 kB"), (size(4.12e9), "4.1 GB"),
        (size(999_600), "1.0 MB"),
    ],
)  # fmt: skip
def test_figures_read_as_people_write_them(made: str, read: str) -> None:
    assert made == read

"""The ledger: never over budget, nothing paid twice, nothing leaves unpaid, and two processes cannot cheat it."""

from __future__ import annotations

import json
import math
import random
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fkge.privacy
from fkge.errors import AlreadyLeft, BudgetError, FkgeError, LedgerError, PrivacyError
from fkge.privacy import ADD_OR_REMOVE, GAUSSIAN, REPLACE, Budget, Head, Ledger, Release, Unprotected, describe, price
from tests.unit.privacy.ledgers import ROWS, TRIPLES, open_ledger, steps, votes


def test_pay_leave_and_the_entries_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fkge.privacy.ledger.time.time", lambda: 1e9)
    with open_ledger(tmp_path) as ledger:
        assert ledger.state("a") == "unknown"
        ledger.pay("a", steps(100), peer="bee")
        assert ledger.state("a") == "paid"
        ledger.leave("a", "bee", 1000)
        assert ledger.state("a") == "left"
        ledger.leave("a", "cat", 1000)
        ledger.pay("b", votes(), peer=None)
        spent = ledger.spent(TRIPLES)
        assert (spent.count, spent.paper) == (100, None)
        assert (
            spent.epsilon
            == ledger.charged(TRIPLES)
            == price([steps(100)], 1e-5, "gdp")
            == pytest.approx(1.993, abs=1e-3)
        )
        assert spent.left == 4.0 - spent.epsilon
        assert spent.epsilon <= spent.pld <= spent.rdp
        asked = ledger.spent(ROWS)
        assert f"{asked.pld:.2f} {asked.rdp:.2f} {asked.paper:.2f}" == "1.43 1.54 2.73"
        assert [e.kind for e in ledger.entries()] == ["opened", "budgets", "paid", "left", "left", "paid"]
        paid = ledger.entries()[2]
        assert (paid.key, paid.release, paid.peer, paid.time) == ("a", steps(100), "bee", 1e9)
    with Ledger.open(tmp_path / "ledger") as again:
        assert again.graph == "atlas"
        assert again.budgets == (ROWS, TRIPLES)
        assert again.state("a") == "left"
        assert again.spent(TRIPLES) == spent
        assert again.entries()[2] == paid


def test_a_budget_error_says_what_was_asked_is_left_and_would_fit(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.pay("a", steps(200), peer=None)
        head = ledger.head
        with pytest.raises(BudgetError) as refused:
            ledger.pay("b", steps(1000), peer="bee")
        said = str(refused.value)
        for part in ("1,000 × gaussian", "triple (add or remove, δ = 1e-05)", "to 8.385", "budget is 4",
                     "2.943 is spent", "1.057 left", "142 of these would fit"):  # fmt: skip
            assert part in said
        assert ledger.head == head
        assert ledger.state("b") == "unknown"
        with pytest.raises(BudgetError, match="142 of these"):
            ledger.pay("b", steps(143), peer="bee")
        ledger.pay("b", steps(142), peer="bee")
        with pytest.raises(BudgetError, match="Not even one of these fits"):
            ledger.pay("c", steps(1), peer=None)
        ledger.pay("c", votes(29), peer=None)  # another unit, another purse
        with pytest.raises(BudgetError, match="of these would fit"):
            ledger.pay("d", votes(100), peer=None)


def test_refuses_to_pay_without_a_budget(tmp_path: Path) -> None:
    with open_ledger(tmp_path, budgets=[TRIPLES]) as ledger:
        for other in (votes(1), Release(GAUSSIAN, "triple", REPLACE, 1.0, 1e6)):
            with pytest.raises(BudgetError, match=r"there is no budget for .* Budgets: triple \(add or remove\)"):
                ledger.pay("a", other, peer=None)


def test_an_infinite_budget_counts_and_never_refuses(tmp_path: Path) -> None:
    free = Budget("triple", ADD_OR_REMOVE, math.inf, 1e-5)
    with open_ledger(tmp_path, budgets=[free]) as ledger:
        ledger.pay("a", steps(10**9, noise=0.001), peer=None)
        assert ledger.spent(free).count == 10**9
        assert ledger.spent(free).left == math.inf
        assert json.loads(json.dumps(describe(ledger).to_json(), allow_nan=False))["budgets"][0]["epsilon"] is None
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert ledger.budgets == (free,)


def test_refuses_a_key_used_for_another_release(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        ledger.pay("a", steps(10), peer="bee")
        head = ledger.head
        ledger.pay("a", steps(10), peer="bee")
        assert ledger.head == head
        for other in (steps(11), steps(10, 21.0), votes(1)):
            with pytest.raises(LedgerError, match="'a' was paid for 10 × gaussian"):
                ledger.pay("a", other, peer="bee")
        ledger.leave("a", "bee", 10)
        for release in (steps(10), steps(1)):
            with pytest.raises(AlreadyLeft, match="has left already, to bee"):
                ledger.pay("a", release, peer="cat")
        assert ledger.spent(TRIPLES).count == 10


def test_refuses_to_send_what_was_not_paid_for(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        with pytest.raises(LedgerError, match="never paid"):
            ledger.leave("a", "bee", 10)
        with pytest.raises(PrivacyError, match="only a Release"):
            ledger.pay("a", Unprotected("rows"), peer="bee")  # type: ignore[arg-type]
        ledger.pay("a", steps(), peer=None)
        ledger.leave("a", "bee", 10)
        head = ledger.head
        ledger.leave("a", "bee", 10)  # the same bytes again: no news
        assert ledger.head == head


def test_unprotected_things_are_counted_and_do_not_grow_the_ledger(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as ledger:
        rows = ledger.head.rows
        for _ in range(20):
            ledger.note_unprotected(Unprotected("shared rows"), "bee", 100)
        ledger.note_unprotected("offer", "bee", 1)
        ledger.note_unprotected("shared rows", "cat", 5)
        assert ledger.head.rows == rows
        assert ledger.head.notes == 22
        with pytest.raises(PrivacyError, match="bytes long"):
            ledger.note_unprotected("rows", "bee", -1)
    with Ledger.open(tmp_path / "ledger") as ledger:
        told = describe(ledger).to_json()["unprotected"]
        assert {(u["what"], u["peer"], u["messages"], u["nbytes"], u["protection"]) for u in told} == {
            ("offer", "bee", 1, 1, "none"), ("shared rows", "bee", 20, 2000, "none"),
            ("shared rows", "cat", 1, 5, "none"),
        }  # fmt: skip


def test_a_change_of_budgets_is_recorded(tmp_path: Path) -> None:
    open_ledger(tmp_path).close()
    with open_ledger(tmp_path) as ledger:
        assert ledger.head.rows == 2
        ledger.pay("a", steps(342), peer=None)
    less = Budget("triple", ADD_OR_REMOVE, 1.0, 1e-5)
    with open_ledger(tmp_path, budgets=[less]) as ledger:
        assert [e.kind for e in ledger.entries()] == ["opened", "budgets", "paid", "budgets"]
        assert ledger.spent(less).left == 0
        with pytest.raises(BudgetError, match="Not even one"):
            ledger.pay("b", steps(1), peer=None)
    with open_ledger(tmp_path, budgets=[Budget("triple", ADD_OR_REMOVE, 5.0, 1e-5)]) as ledger:
        ledger.pay("b", steps(1), peer=None)


def test_impossible_budgets_and_other_graphs_are_refused(tmp_path: Path) -> None:
    for wrong in (("", REPLACE, 1.0, 1e-5), ("row", "other", 1.0, 1e-5), ("row", REPLACE, -1.0, 1e-5),
                  ("row", REPLACE, math.nan, 1e-5), ("row", REPLACE, 1.0, 0.0)):  # fmt: skip
        with pytest.raises(PrivacyError, match="budget"):
            Budget(*wrong)
    with pytest.raises(PrivacyError, match="one for each unit"):
        open_ledger(tmp_path, budgets=[TRIPLES, Budget("triple", REPLACE, 1.0, 1e-5)])
    with pytest.raises(LedgerError, match="no such ledger"):
        Ledger.open(tmp_path / "ledger")
    assert list(tmp_path.iterdir()) == []
    open_ledger(tmp_path).close()
    with pytest.raises(LedgerError, match="the ledger of 'atlas', not of 'other'"):
        open_ledger(tmp_path, graph="other")


def test_keeps_its_anchor_elsewhere_and_its_key_private(tmp_path: Path) -> None:
    elsewhere = tmp_path / "other disk"
    with pytest.raises(LedgerError, match="Is its disk mounted"):
        open_ledger(tmp_path, anchor=elsewhere / "anchor")
    elsewhere.mkdir()
    with open_ledger(tmp_path, anchor=elsewhere / "anchor") as ledger:
        ledger.pay("a", steps(), peer=None)
        assert stat.S_IMODE((tmp_path / "ledger.key").stat().st_mode) == 0o600
        assert Head(**json.loads((elsewhere / "anchor").read_bytes())) == ledger.head
    assert not (tmp_path / "ledger.anchor").exists()
    with Ledger.open(tmp_path / "ledger") as ledger:  # it knows where its anchor is
        assert ledger.state("a") == "paid"


# -- for any sequence of payments -----------------------------------------------------------------------

payments = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 150), st.sampled_from([15.0, 20.0, 40.0])), max_size=10)


@settings(max_examples=25, deadline=None)
@given(payments, st.randoms(use_true_random=False))
def test_never_over_budget_monotone_idempotent_and_order_does_not_matter(
    wanted: list[tuple[int, int, float]],
    shuffled: random.Random,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with open_ledger(Path(folder)) as ledger:
            accepted: dict[str, Release] = {}
            before = 0.0
            for key, count, noise in wanted:
                release = steps(count, noise)
                try:
                    ledger.pay(str(key), release, peer=None)
                except BudgetError:
                    assert price([*accepted.values(), release], 1e-5, "gdp") > 4.0
                except LedgerError:
                    assert accepted[str(key)] != release
                else:
                    accepted[str(key)] = release
                after = ledger.charged(TRIPLES)
                assert before <= after <= 4.0
                before = after
            assert before == price(accepted.values(), 1e-5, "gdp")
            for key, release in accepted.items():
                ledger.pay(key, release, peer=None)
            assert ledger.charged(TRIPLES) == before
        again = list(accepted.items())
        shuffled.shuffle(again)
        with Ledger.open(Path(folder) / "second", graph="atlas", budgets=[TRIPLES]) as ledger:
            for key, release in again:
                ledger.pay(key, release, peer=None)
            assert ledger.charged(TRIPLES) == before


# -- two at a time --------------------------------------------------------------------------------------

PAYER = """
import sys
from pathlib import Path
from tests.unit.privacy.ledgers import open_ledger, steps
from fkge.errors import BudgetError
who, paid = sys.argv[2], 0
with open_ledger(Path(sys.argv[1])) as ledger:
    try:
        while True:
            ledger.pay(f"{who} {paid}", steps(6), peer=None)
            paid += 1
            ledger.note_unprotected("rows", who, 1)
    except BudgetError:
        print(paid)
"""


def test_two_processes_never_exceed_a_common_budget(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", PAYER, str(tmp_path)]
    both = [
        subprocess.Popen([*command, who], cwd=Path(__file__).parents[3], stdout=subprocess.PIPE, text=True)
        for who in ("ant", "bee")
    ]
    paid = [int(process.communicate()[0]) for process in both]
    assert sum(paid) == 342 // 6
    with open_ledger(tmp_path) as ledger:
        assert ledger.spent(TRIPLES).count == 6 * sum(paid)
        assert ledger.spent(TRIPLES).epsilon <= 4.0
        assert sum(tally.notes for tally in ledger.unprotected.values()) == sum(paid)
        assert [e.kind for e in ledger.entries()].count("opened") == 1


def test_several_processes_may_create_a_ledger_at_once(tmp_path: Path) -> None:
    everybody = 4
    for i in range(25):  # left to itself, SQLite refuses one opening in thirty
        ready = threading.Barrier(everybody)

        def first(folder: Path, ready: threading.Barrier) -> str:
            ready.wait()
            with open_ledger(folder) as ledger:
                return ledger.head.chain

        with ThreadPoolExecutor(everybody) as pool:
            heads = list(pool.map(first, [tmp_path / str(i)] * everybody, [ready] * everybody))
        assert len(set(heads)) == 1


def test_two_open_ledgers_and_several_threads_share_a_budget(tmp_path: Path) -> None:
    with open_ledger(tmp_path) as one, open_ledger(tmp_path) as other:
        refused: list[FkgeError] = []

        def pay(ledger: Ledger, who: str) -> None:
            for i in range(30):
                try:
                    ledger.pay(f"{who} {i}", steps(5), peer=None)
                except BudgetError as error:
                    refused.append(error)

        threads = [
            threading.Thread(target=pay, args=(ledger, who)) for ledger, who in ((one, "a"), (one, "b"), (other, "c"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert one.spent(TRIPLES) == other.spent(TRIPLES)
        assert one.spent(TRIPLES).count == 5 * (342 // 5)
        assert len(refused) == 90 - 342 // 5
        one.verify()


def test_public_names() -> None:
    assert {name for name, value in vars(fkge.privacy).items() if isinstance(value, type) or callable(value)} == {
        "Budget", "Head", "Ledger", "Release", "Tally", "Unprotected", "describe", "fits", "noise_for", "price",
    }  # fmt: skip

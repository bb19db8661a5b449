"""A federation under differential privacy: every step is paid for before it is made, and none twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fkge.audit.attacks.non_interference import sent_messages
from fkge.embed import DpTrainer, load_model
from fkge.errors import AlreadyLeft, BudgetError, LedgerError, PeerError, PrivacyError, SettingsError
from fkge.experiment.engines import InProcess
from fkge.experiment.history import History
from fkge.experiment.simulation import Simulation
from fkge.federation import FederationSettings, Owner, Released, Update
from fkge.federation.codec import encode
from fkge.federation.egress import HOST_ROW, TRIPLE, Egress, dp_sgd
from fkge.federation.exchange import Ack
from fkge.federation.participant import Participant
from fkge.ppat.messages import Gradient, Samples
from fkge.privacy import ADD_OR_REMOVE, REPLACE, Budget, Ledger, noise_for, price
from tests.conftest import COMPLEX, OWNERS, EventLog, reported, tiny_federation, tiny_settings

EPSILON = 8.0


def dp_settings(**changes: Any) -> FederationSettings:
    values = {"privacy": {"mode": "dp", "epsilon": EPSILON}, "dp": {"negatives": 2, "optimizer": "adam"}}
    return tiny_settings(**{**values, "exchanges": 4, "private": {"epochs": 2}, **changes})


def ledger_of(made: Simulation, owner: str) -> Ledger:
    return Ledger.open(made.folder / "arms" / "federated" / owner / "ledger.sqlite")


def test_the_whole_budget_is_planned_for_and_spent_once(tmp_path: Path) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(), dp_settings(), engine="in-process")
    result = made.run()
    assert result is not None
    steps = made.settings.total_epochs
    for name in OWNERS:
        account = result.owners[name].arms["federated"].privacy
        assert account is not None
        (budget,) = account.budgets
        assert (budget.unit, budget.relation, budget.spent.count) == (TRIPLE, ADD_OR_REMOVE, steps)
        assert budget.spent.epsilon is not None
        assert 0.999 * EPSILON < budget.spent.epsilon <= EPSILON
        assert account.unprotected == []
        # What people see at the end is all of it, not what it was a moment before.
        assert History.read(made.folder).stages["federated"].courses[name].spent == budget.spent.epsilon
        with ledger_of(made, name) as ledger:
            paid = [e for e in ledger.entries() if e.kind == "paid"]
            assert len({e.key for e in paid}) == len(paid) == steps
            release = paid[0].release
            assert release is not None
            assert release.noise / release.sensitivity == pytest.approx(noise_for(EPSILON, 1e-5, steps))
            assert price([release.times(steps)], 1e-5, "gdp") <= EPSILON
        assert result.owners[name].arms["federated"].tests == 0  # nothing is decided on raw validation


def test_a_private_track_keeps_what_the_shared_one_cannot_have(tmp_path: Path) -> None:
    """ComplEx with 1vsall and inverse rows: DP-SGD trains without them, the owner's own track with them."""
    settings = dp_settings(train=COMPLEX, exchanges=2, private={"epochs": 2})
    made = Simulation.create(tmp_path / "run", tiny_federation(), settings, baselines=(), engine="in-process")
    assert made.run() is not None
    for member in made.owners:
        assert set(member.peers[next(iter(member.peers))].widths.values()) == {16}
        tables, train = load_model(member.workspace("federated").folder / "model.safetensors")
        assert tables.width("relation") == 32
        assert (train.loss, train.reciprocal) == ("1vsall", True)


def test_what_the_trainer_adds_is_what_the_ledger_was_told(tmp_path: Path) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(), dp_settings(), engine="in-process")
    owner, _ = made.owners[0].owner(made.arm("federated"))
    assert isinstance(owner.trainer, DpTrainer)
    owner.improve(initial=True, pause=lambda: True)
    assert owner.egress.ledger is not None
    paid = [entry.release for entry in owner.egress.ledger.entries() if entry.release is not None]
    assert owner.trainer.private.noise == paid[0].noise
    lone, _ = made.owners[0].owner(made.arm("control"))
    assert not isinstance(lone.trainer, DpTrainer)


@pytest.mark.parametrize(
    "changes",
    [
        {"start": "alone"}, {"translate": "ppat"}, {"neighbours": True}, {"aggregate": "validation"},
        {"privacy": {"mode": "dp"}}, {"privacy": {"mode": "paper"}, "translate": "frame"},
    ],
)  # fmt: skip
def test_settings_under_which_it_would_not_hold_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        dp_settings(**changes)


# -- the gate --------------------------------------------------------------------------------------


def offer(**fields: Any) -> Update:
    return Update(0, "", torch.zeros(1, 2), torch.zeros(0, 2), **fields)


def gate_in(folder: Path, settings: FederationSettings) -> Egress:
    return Egress.open(folder, "owner", settings)


def test_what_nothing_covers_does_not_leave(tmp_path: Path) -> None:
    gate = gate_in(tmp_path, dp_settings())
    gate.pay_for_epoch(0, dp_sgd(20.0, 1))
    assert gate.release(offer(), "peer").protection == "epoch 0"
    for raw in (
        {"entity_weight": torch.ones(1)}, {"triples": torch.zeros(0, 3, dtype=torch.int64)},
        {"neighbours": torch.zeros(1, 2)},
    ):  # fmt: skip
        with pytest.raises(PrivacyError, match="raw triples"):
            gate.release(offer(**raw), "peer")
    for message in (Gradient(0, torch.zeros(1, 2)), Samples(0, torch.zeros(1, 2))):
        with pytest.raises(PrivacyError, match="does not leave"):
            gate.release(message, "peer")
    unledgered = Egress(dp_settings())
    with pytest.raises(PrivacyError, match="needs a ledger"):
        unledgered.release(offer(), "peer")


def test_votes_are_paid_for_by_the_handshake_or_not_given(tmp_path: Path) -> None:
    game = tiny_settings(translate="ppat", privacy={"mode": "paper", "epsilon": 3.0})
    gate = gate_in(tmp_path, game)
    answer = Gradient(0, torch.zeros(1, 2))
    with pytest.raises(PrivacyError, match="not paid"):
        gate.release(answer, "bee", 1)
    gate.pay_for_votes("bee", 1, 29, 0.05)
    released = gate.release(answer, "bee", 1)
    gate.leaves(released, "bee", 100)
    with pytest.raises(BudgetError, match="77 of these would fit"):
        gate.pay_for_votes("bee", 2, 32_000, 0.05)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        spent = ledger.spent(Budget(HOST_ROW, REPLACE, 3.0, 1e-5))
    assert spent.pld == pytest.approx(1.43, abs=0.01)
    assert spent.paper == pytest.approx(2.73, abs=0.01)


def test_an_owner_that_cannot_afford_a_game_goes_on_without(tmp_path: Path) -> None:
    settings = tiny_settings(translate="ppat", privacy={"mode": "paper", "epsilon": 6.0}, ppat={"lam": 0.05})
    made = Simulation.create(tmp_path / "run", tiny_federation(), settings, baselines=(), engine="in-process")
    log = EventLog()
    assert InProcess(made.owners, log).run(made.arm("federated"))
    assert log.of("over budget")
    for member in made.owners:
        result = reported(member, "federated")
        assert result is not None
        assert result["epochs"] == settings.total_epochs
        (budget,) = result["privacy"]["budgets"]
        assert 0 < budget["spent"]["epsilon"] <= 6.0
        assert any(left["what"] == "client's vectors: no guarantee" for left in result["privacy"]["unprotected"])


# -- death -----------------------------------------------------------------------------------------

POINTS: dict[str, tuple[Any, str, bool]] = {  # class, method, before or after it
    "before a payment": (Ledger, "pay", True),
    "after a payment": (Ledger, "pay", False),
    "after the steps": (DpTrainer, "run_epoch", False),
    "before it is kept": (Owner, "save", True),
    "after it is kept": (Owner, "save", False),
    "before it is said to leave": (Ledger, "leave", True),
    "after that, before it goes": (Ledger, "leave", False),
    "after it went": (Participant, "_send", False),
}


AT_LEAST = ("after a payment", "after it is kept", "after that, before it goes")  # the others take their time


def live_until(folder: Path, point: str, times: int) -> None:
    """In a process of its own: run, and die at the n-th time of a point."""
    kind, name, before = POINTS[point]
    honest: Callable[..., Any] = getattr(kind, name)
    left = [times]

    def struck(self: Any, *args: Any, **kwargs: Any) -> Any:
        left[0] -= 1
        if before and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        out = honest(self, *args, **kwargs)
        if not before and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return out

    setattr(kind, name, struck)
    torch.set_num_threads(1)
    Simulation.open(folder).run()


@pytest.mark.parametrize(
    "point", [p if p in AT_LEAST else pytest.param(p, marks=pytest.mark.long) for p in sorted(POINTS)]
)
def test_killed_anywhere_it_pays_for_every_step_once(point: str, tmp_path: Path) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(), dp_settings(), baselines=(), engine="in-process")
    for times in (2, 7):
        child = multiprocessing.get_context("spawn").Process(target=live_until, args=(made.folder, point, times))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
    assert Simulation.open(made.folder).run() is not None
    for name in OWNERS:
        with ledger_of(made, name) as ledger:
            entries = ledger.entries()
        paid = [e.key for e in entries if e.kind == "paid"]
        assert sorted(paid) == sorted(f"epoch {e}" for e in range(made.settings.total_epochs))


def test_a_checkpoint_from_before_is_paid_for_anew_and_refused_beyond_the_budget(tmp_path: Path) -> None:
    """Steps that have left, lived again from an older checkpoint, are other releases: the plan has no room for them."""
    made = Simulation.create(tmp_path / "run", tiny_federation(), dp_settings(), baselines=(), engine="in-process")
    kept: dict[str, bytes] = {}
    log = EventLog()

    def early() -> bool:
        for name in OWNERS:
            path = made.folder / "arms" / "federated" / name / "checkpoint.safetensors"
            if name not in kept and path.exists():
                kept[name] = path.read_bytes()
        return any(n["epoch"] >= 8 for n in log.of("progress"))

    InProcess(made.owners, log).run(made.arm("federated"), early)
    for name, data in kept.items():
        (made.folder / "arms" / "federated" / name / "checkpoint.safetensors").write_bytes(data)
    with pytest.raises(BudgetError, match="left"):
        InProcess(made.owners, EventLog()).run(made.arm("federated"))


def test_a_ledger_that_was_put_back_stops_the_owner(tmp_path: Path) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(), dp_settings(), baselines=(), engine="in-process")
    log = EventLog()
    InProcess(made.owners, log).run(made.arm("federated"), lambda: any(n["epoch"] >= 4 for n in log.of("progress")))
    path = made.folder / "arms" / "federated" / "ant" / "ledger.sqlite"
    with sqlite3.connect(path) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = next(t for t in tables if t not in ("tallies", "head"))
        db.execute(f"DELETE FROM {rows} WHERE rowid = (SELECT MAX(rowid) FROM {rows})")
    with pytest.raises(LedgerError):
        InProcess(made.owners, EventLog()).run(made.arm("federated"))


# -- what a reviewer broke -------------------------------------------------------------------------


def test_degrees_do_not_enter_a_shared_track_whatever_a_peer_sends(tmp_path: Path) -> None:
    """A peer that sends weights, which nobody asked for, must not make the host weigh its own rows by raw counts."""
    made = Simulation.create(tmp_path / "run", tiny_federation(), dp_settings(aggregate="support"), baselines=())
    owner, _ = made.owners[0].owner(made.arm("federated"))
    peer = next(iter(owner.peers))
    assert all(bool((weights == 1).all()) for weights in owner.exchange.support.values())
    rows = owner.exchange.rows(peer)
    weight = torch.ones(len(rows["entity"]))
    role = owner.host(peer, 1)
    for extra in (
        {"entity_weight": weight},
        {"neighbours": torch.zeros(1, rows["entity"].shape[1]), "triples": torch.zeros(0, 3, dtype=torch.int64)},
    ):
        with pytest.raises(PeerError, match="was not agreed on"):
            role.step(Update(0, "", rows["entity"], rows["relation"], **extra))
    assert role.update is None


def test_the_rest_of_an_epoch_that_has_left_is_paid_for(tmp_path: Path) -> None:
    """A checkpoint from within an epoch, loaded after that epoch has left, is made to pay before it goes on."""
    settings = dp_settings(dp={"negatives": 2, "optimizer": "sgd", "rate": 0.1})
    made = Simulation.create(tmp_path / "run", tiny_federation(), settings, baselines=(), engine="in-process")
    member, arm = made.owners[0], made.arm("federated")
    owner, _ = member.owner(arm)
    owner.improve(initial=True, pause=lambda: True)
    assert owner.trainer.chunk > 0
    owner.save(tmp_path / "within")
    while owner.trainer.chunk:
        owner._epoch(None)
    released = owner.egress.release(owner.make_update(next(iter(owner.peers)), "frame"), "bee")
    owner.egress.leaves(released, "bee", 1)

    def paid() -> int:
        with ledger_of(made, member.name) as ledger:
            return sum(e.release.count for e in ledger.entries() if e.kind == "paid" and e.release is not None)

    before = paid()
    twin, _ = member.owner(arm)
    twin.load(tmp_path / "within")
    assert paid() == before + settings.dp.steps_in(1)


def test_of_two_lives_under_one_payment_one_goes(tmp_path: Path) -> None:
    one, other = (gate_in(tmp_path, dp_settings()) for _ in range(2))
    for gate in (one, other):
        gate.pay_for_epoch(0, dp_sgd(20.0, 1))
    one.leaves(one.release(offer(), "bee"), "bee", 10)
    with pytest.raises(AlreadyLeft, match="another process"):
        other.leaves(other.release(offer(), "bee"), "bee", 10)


def test_every_peer_that_got_it_is_written_down(tmp_path: Path) -> None:
    gate = gate_in(tmp_path, dp_settings())
    for epoch in range(3):
        gate.pay_for_epoch(epoch, dp_sgd(20.0, 1))
    for peer in ("bee", "cat"):
        gate.leaves(gate.release(offer(), peer), peer, 1000)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        left = [(e.key, e.peer, e.nbytes) for e in ledger.entries() if e.kind == "left"]
    assert left == [("epoch 0", "bee", 0), ("epoch 1", "bee", 0), ("epoch 2", "bee", 1000), ("epoch 2", "cat", 1000)]


def test_what_was_released_does_not_change(tmp_path: Path) -> None:
    released = gate_in(tmp_path, dp_settings()).release(Ack(0), "bee")
    with pytest.raises(PrivacyError, match="cannot be changed"):
        released.message = offer()
    blank = Released.__new__(Released)
    with pytest.raises(TypeError, match="not released"):
        encode(blank)


def test_one_ledger_for_good_composes_over_runs(tmp_path: Path) -> None:
    """With a ledger that outlives a run, a second run of the same owner finds the budget spent."""
    settings = dp_settings(privacy={"mode": "dp", "epsilon": EPSILON, "ledger": str(tmp_path / "ledgers")})
    for number in range(2):
        made = Simulation.create(tmp_path / f"run{number}", tiny_federation(), settings, baselines=())
        if number == 0:
            assert InProcess(made.owners, EventLog()).run(made.arm("federated"))
        else:
            with pytest.raises(BudgetError, match="8 is spent"):
                InProcess(made.owners, EventLog()).run(made.arm("federated"))
    with Ledger.open(tmp_path / "ledgers" / "ant.sqlite") as ledger:
        assert ledger.charged(ledger.budgets[0]) <= EPSILON


def test_a_split_at_random_is_refused(tmp_path: Path) -> None:
    federation = tiny_federation()
    members = {n: replace(m, graph=replace(m.graph, split_seed=0)) for n, m in federation.members.items()}
    with pytest.raises(SettingsError, match="split at random"):
        Simulation.create(tmp_path / "run", replace(federation, members=members), dp_settings(), baselines=())


def test_the_virtual_clock_knows_no_private_count(tmp_path: Path) -> None:
    """Who meets whom, and when, in the in-process engine is the same with one training triple less."""
    order = []
    for number in range(2):
        federation = tiny_federation()
        member = federation.members["ant"]
        graph = replace(member.graph, splits={**member.graph.splits, "train": member.graph.train[number:]})
        changed = replace(federation, members={**federation.members, "ant": replace(member, graph=graph)})
        made = Simulation.create(tmp_path / f"run{number}", changed, dp_settings(), baselines=(), engine="in-process")
        InProcess(made.owners, EventLog(), recordings=tmp_path / f"rec{number}").run(made.arm("federated"))
        order.append({n: [(peer, size) for peer, size, _ in sent_messages(tmp_path / f"rec{number}" / f"{n}.tape")]
                      for n in OWNERS})  # fmt: skip
    assert order[0] == order[1]

"""The egress of an owner: what may leave, under which protection, and who can make a released message."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
import torch

from fkge.errors import BudgetError, PrivacyError
from fkge.federation.egress import PUBLIC, Egress, Released
from fkge.federation.messages import Request
from fkge.ppat import Gradient, Samples
from fkge.privacy import Unprotected
from tests.conftest import tiny_settings

PAPER = tiny_settings(translate="ppat", privacy={"mode": "paper", "epsilon": 5.0})


def test_names_the_protection_of_every_message() -> None:
    egress = Egress(tiny_settings())
    assert egress.release(Request("ant", 1), "bee").protection == PUBLIC
    assert isinstance(egress.release(Samples(0, torch.ones(2, 2)), "bee").protection, Unprotected)
    with pytest.raises(PrivacyError):
        egress.release(object(), "bee")


def test_only_an_egress_makes_a_released_message() -> None:
    with pytest.raises(PrivacyError, match="only an egress releases a message"):
        Released(Request("ant", 1), PUBLIC, object())
    released = Egress(tiny_settings()).release(Request("ant", 1), "bee")
    assert released.sealed
    assert not object.__new__(Released).sealed
    with pytest.raises(PrivacyError, match="cannot be changed"):
        released.message = Request("ant", 2)


def test_votes_leave_only_if_they_are_paid_for(tmp_path: Path) -> None:
    with closing(Egress.open(tmp_path, "ant", PAPER)) as egress:
        answer = Gradient(0, torch.ones(2, 2))
        with pytest.raises(PrivacyError):
            egress.release(answer, "bee", 1)
        egress.pay_for_votes("bee", 1, queries=2, lam=0.05)
        assert "votes for bee" in str(egress.release(answer, "bee", 1).protection)
        with pytest.raises(BudgetError):
            egress.pay_for_votes("bee", 2, queries=10_000, lam=0.05)
        with pytest.raises(PrivacyError, match="votes without noise have no price"):
            egress.pay_for_votes("bee", 2, queries=2, lam=0)


def test_paying_needs_a_ledger() -> None:
    with pytest.raises(PrivacyError, match="needs a ledger"):
        Egress(PAPER).pay_for_votes("bee", 1, queries=2, lam=0.05)

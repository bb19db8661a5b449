"""Other secrets, and what two runs of a federation sent: the smallest difference is found, and none is made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fkge.audit.attacks.non_interference import SECRET, Comparison, attack, disturbed, non_interference
from fkge.audit.findings import Verdict
from fkge.audit.subject import opened
from fkge.federation.source import Member
from fkge.graph import Graph, Policy
from tests.conftest import OWNERS, arc, random_graph, tiny_federation, tiny_settings

SHORT: dict[str, Any] = {"initial_epochs": 1, "epochs": 1, "test_every": 1}


def keeping(graph: Graph, share: float = 0.3) -> Member:
    federation = tiny_federation(OWNERS[:1])
    one = replace(federation, members={OWNERS[0]: Member(graph)}).keeping(share, seed=4)
    return one.members[OWNERS[0]]


def labelled(graph: Graph, split: str, mask: Any = slice(None)) -> set[tuple[str, str, str]]:
    return {(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.splits[split][mask]}


def shared(member: Member, split: str) -> set[tuple[str, str, str]]:
    assert member.policy is not None
    return labelled(member.graph, split, member.policy.mask(member.graph, split))


def test_one_without_secrets_stays_as_it_is() -> None:
    member = Member(arc("ant", 0))
    assert disturbed(member) is member
    everything = Member(arc("ant", 0), policy=Policy.everything())
    for split in ("train", "valid", "test"):
        assert shared(disturbed(everything), split) == shared(everything, split)


@pytest.mark.parametrize("graph", [arc("ant", 0), random_graph()], ids=["arc", "random"])
def test_what_is_shareable_stays_and_secrets_are_others(graph: Graph) -> None:
    member = keeping(graph)
    other = disturbed(member, seed=1)
    assert other.policy == member.policy
    for split in ("train", "valid", "test"):
        assert shared(other, split) == shared(member, split)
        before, after = (labelled(m.graph, split) - shared(m, split) for m in (member, other))
        assert before - after
        assert after - before
    assert any(label.startswith(SECRET) for label in other.graph.entities)


def test_the_disturbed_graph_is_one_that_a_reader_would_make() -> None:
    graph = disturbed(keeping(random_graph()), seed=2).graph
    facts = graph.facts
    assert sorted(graph.entities) == list(graph.entities)
    assert set(np.unique(facts[:, [0, 2]])) == set(range(len(graph.entities)))
    assert set(np.unique(facts[:, 1])) == set(range(len(graph.relations)))


def test_the_same_seed_disturbs_alike_and_another_does_not() -> None:
    member = keeping(random_graph())
    prints = [disturbed(member, seed).graph.fingerprint for seed in (1, 1, 2)]
    assert prints[0] == prints[1] != prints[2]


def test_a_comparison_is_the_same_only_if_nothing_differs() -> None:
    good = Comparison({"train": 3}, 5, 100, None, True, True)
    assert good.same
    for change in ({"first_difference": 0}, {"same_graph": False}, {"same_alignment": False}):
        assert not replace(good, **change).same


def test_every_owner_sends_the_same_whatever_its_secrets(tmp_path: Path) -> None:
    federation = tiny_federation(OWNERS[:2]).keeping(0.3, seed=4)
    found = non_interference(federation, tiny_settings(**SHORT), tmp_path, exchanges=2)
    assert set(found) == set(OWNERS[:2])
    for owner in found.values():
        assert owner.same
        assert owner.messages > 0
        assert owner.bytes > 0
        assert owner.secrets["train"] > 0


def test_a_difference_is_found_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One shareable triple less in the second world: a secret that was none."""

    def careless(member: Member, seed: int) -> Member:
        assert member.policy is not None
        graph = member.graph
        (last,) = np.nonzero(member.policy.mask(graph, "train"))[0][-1:]
        return replace(
            member, graph=replace(graph, splits={**graph.splits, "train": np.delete(graph.train, last, axis=0)})
        )

    monkeypatch.setattr("fkge.audit.attacks.non_interference.disturbed", careless)
    federation = tiny_federation(OWNERS[:2]).keeping(0.3, seed=4)
    found = non_interference(federation, tiny_settings(**SHORT), tmp_path, exchanges=2)
    assert not any(owner.same for owner in found.values())


def test_without_a_policy_nothing_is_claimed(simulated: Path) -> None:
    with opened(simulated, quick=True) as subject:
        found = attack(subject)
        assert (found.verdict, found.result) == (Verdict.OPEN, "nothing is confidential")
        assert list(subject.scratch.iterdir()) == []

"""An owner's process on Ray, without Ray: one thread does its work in order, and errors are answers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs Ray: pip install 'fkge[ray]'")

import ray

from fkge.errors import EngineError
from fkge.experiment.engines.ray_owner import BY_REFERENCE, Failed, Opened, OwnerActor
from fkge.experiment.engines.stepped import Reaction, Start
from fkge.experiment.simulation import Simulation
from tests.conftest import OWNERS, tiny_federation, tiny_settings

SHORT: dict[str, Any] = {"initial_epochs": 0, "exchanges": 2, "epochs": 4, "test_every": 1, "train": {"batch": 8}}


class Here:
    """The place of an actor that is in this process."""

    def get_node_id(self) -> str:
        return "here"


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    return Simulation.create(
        tmp_path / "run",
        tiny_federation(OWNERS[:2]),
        tiny_settings(**SHORT),
        baselines=("control",),
        engine="ray",
    )


@pytest.fixture
def actor(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The first owner, its store open."""
    monkeypatch.setattr(ray, "get_runtime_context", Here)
    made: Any = OwnerActor()
    store = simulation.owners[0]
    place = made.open(store.folder, store.run, [], 1)
    assert (place.node, ray.is_initialized()) == ("here", False)
    return made


def test_jobs_are_done_one_by_one_in_their_order_by_another_thread() -> None:
    actor, done, hold = OwnerActor(), list[tuple[int, int]](), threading.Event()
    first = actor.enqueue(lambda: hold.wait(30))
    rest = [actor.enqueue(lambda i=i: done.append((i, threading.get_ident()))) for i in range(5)]  # type: ignore[misc]
    assert not rest[0].done()
    hold.set()
    assert first.result(30)
    rest[-1].result(30)
    assert [i for i, _ in done] == list(range(5))
    assert {thread for _, thread in done} != {threading.get_ident()}
    assert len({thread for _, thread in done}) == 1


def test_a_job_that_fails_does_not_end_the_thread() -> None:
    actor = OwnerActor()
    with pytest.raises(ZeroDivisionError):
        actor.enqueue(lambda: 1 / 0).result(30)
    assert actor.enqueue(lambda: 7).result(30) == 7


def test_a_folder_that_is_not_here_or_of_another_run_is_an_answer(simulation: Simulation, tmp_path: Path) -> None:
    store, actor = simulation.owners[0], OwnerActor()
    for folder, run, words in (
        (tmp_path / "elsewhere", store.run, "does not see its folder"),
        (store.folder, "another", "belongs to another run"),
    ):
        reply: Any = actor.open(folder, run, [], 1)  # type: ignore[call-arg, arg-type]
        assert isinstance(reply, Failed)
        assert words in reply.why
        assert "share" in reply.why
        assert reply.trace == ""  # its own sentence says it all


def test_an_unexpected_error_is_an_answer_with_its_trace(actor: Any) -> None:
    reply = actor.take("no arm", None, False)
    assert isinstance(reply, Failed)
    assert reply.why.startswith("AttributeError: ")
    assert "Traceback" in reply.trace


def test_an_arm_from_its_beginning_to_its_end(actor: Any, simulation: Simulation) -> None:
    opened = actor.take(simulation.arm("control"), None, False)
    assert isinstance(opened, Opened)
    assert (opened.peers, opened.epoch) == (frozenset(), 0)
    assert opened.triples > 0
    reaction, rounds = actor.step(Start()), 0
    while reaction.epochs is not None:
        reaction, rounds = actor.end_round(), rounds + 1
        assert reaction.finished is not None
    assert rounds > 1
    assert actor.conclude() is True
    assert simulation.owners[0].workspace("control").finished
    assert actor.events()[-1].kind == "concluded"
    assert actor.events() == []


def test_an_owner_with_peers_posts_what_it_has_for_them(actor: Any, simulation: Simulation) -> None:
    assert actor.take(simulation.arm("federated"), None, False).peers == {"bee"}
    assert actor.step(Start()).epochs == 4
    reaction = actor.end_round()
    (post,) = reaction.posts
    assert (post[0], post[1]) == ("bee", len(post[2]))  # too small to lie in the object store
    assert post[1] < BY_REFERENCE
    assert isinstance(actor.deliver("bee", b"no message"), Reaction | Failed)
    assert isinstance(actor.deliver("bee", post[2]), Reaction)  # a signal, as bee would send it


def test_a_halted_round_is_left_and_saved_and_goes_on_later(actor: Any, simulation: Simulation) -> None:
    actor.take(simulation.arm("control"), None, False)
    actor.halt()
    assert actor.step(Start()).epochs == 4
    reaction = actor.end_round()
    assert (reaction.halted, reaction.finished) == (True, None)
    assert actor.save() is None
    opened = actor.take(simulation.arm("control"), None, True)
    assert 0 < opened.epoch < 4
    actor.step(Start())
    assert actor.end_round().finished is not None


def test_what_waits_for_the_thread_answers_with_errors_too(actor: Any) -> None:
    for reply in (actor.end_round(), actor.save(), actor.conclude()):
        assert isinstance(reply, Failed)
        assert "AssertionError" in reply.why  # no arm was taken


def test_an_arm_with_a_server_that_does_not_exist_is_an_answer(actor: Any, simulation: Simulation) -> None:
    reply = actor.central("no arm", [owner.folder for owner in simulation.owners])
    assert isinstance(reply, Failed)
    assert not isinstance(reply, EngineError)

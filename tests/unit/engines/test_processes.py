"""Owners in processes of their own: what passes between them, and what happens when one dies or stands still."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import OWNERS, Notes, tiny_federation, tiny_settings
from torch import Tensor

from fkge.engines import ENGINES, Processes, processes
from fkge.engines.station import Note
from fkge.errors import EngineError
from fkge.federation import Home
from fkge.federation.codec import KINDS, decode
from fkge.simulations import Simulation


class TappedPipes:
    """A way to start processes in which every byte through a pipe is seen."""

    def __init__(self) -> None:
        self._context = get_context("spawn")
        self.seen: list[list[bytes]] = []
        self.threads: list[threading.Thread] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Pipe(self) -> tuple[Connection, Connection]:
        (a, near), (far, b) = self._context.Pipe(), self._context.Pipe()
        seen: list[bytes] = []
        self.seen.append(seen)
        self.threads.append(threading.Thread(target=self._carry, args=(near, far, seen), daemon=True))
        self.threads[-1].start()
        return a, b

    def _carry(self, near: Connection, far: Connection, seen: list[bytes]) -> None:
        with near, far:
            while True:
                for end in wait([near, far]):
                    try:
                        data = end.recv_bytes()  # type: ignore[union-attr]
                        seen.append(data)
                        (far if end is near else near).send_bytes(data)
                    except (EOFError, OSError):
                        return


def test_nothing_passes_but_messages_about_what_is_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(exchanges=2))
    taps = TappedPipes()
    monkeypatch.setattr(processes, "get_context", lambda _: taps)
    with Processes(made.homes, Notes()) as engine:
        assert engine.run(made.arm("federated"))
    for thread in taps.threads:
        thread.join(timeout=30)
    homes = {home.name: home for home in made.homes}
    between = [(a, b) for i, a in enumerate(OWNERS) for b in OWNERS[i + 1 :]]
    kinds = set()
    for (a, b), seen in zip(between, taps.seen, strict=False):  # then come those to the starting process
        shared = homes[a].peers[b].common
        assert seen
        for data in seen:
            message, _ = decode(data[processes._RUN_BYTES :])
            assert type(message) in KINDS.values()
            kinds.add(type(message).__name__)
            tensors = {k: v for k, v in vars(message).items() if isinstance(v, Tensor)}
            if tensors:
                assert len(message.entity) == len(shared.entities) < len(homes[a].graph.entities)
                assert len(message.relation) == len(shared.relations)
                assert message.entity_moments.shape == (2, *message.entity.shape)
                assert set(tensors) <= {
                    "entity", "relation", "entity_weight", "relation_weight", "entity_moments", "relation_moments",
                }  # fmt: skip
    assert {"Signal", "Request", "Accept", "Offer", "Thanks"} <= kinds
    control = b"".join(data for seen in taps.seen[len(between) :] for data in seen)
    assert all(data[:1] == b"{" for seen in taps.seen[len(between) :] for data in seen)
    assert len(control) < sum(len(data) for seen in taps.seen[: len(between)] for data in seen)


# -- death -----------------------------------------------------------------------------------------


class Struck(Processes):
    """Owners, one of whom is killed once `when` says so: asked about every note, and, with "", now and then."""

    def __init__(self, homes: list[Home], note: Note, victim: str, when: Callable[..., bool]) -> None:
        def told(event: str, **fields: Any) -> None:
            note(event, **fields)
            self._strike(event, **fields)

        super().__init__(homes, told)
        self._victim, self._when = victim, when

    def _strike(self, event: str, **fields: Any) -> None:
        if self._victim and self._when(event, **fields):
            os.kill(self.pids[self._victim], signal.SIGKILL)
            self._victim = ""

    def run(self, arm: Any, stop: Callable[[], bool] | None = None) -> bool:
        def ask() -> bool:
            self._strike("", arm=arm.name)
            return stop is not None and stop()

        return super().run(arm, ask)


def at_first(event: str, **fields: Any) -> bool:
    return event == "" and fields["arm"] == "federated"


def in_an_exchange(event: str, **fields: Any) -> bool:
    return event == "translated" and fields["arm"] == "federated" and fields["owner"] == "bee"


def at_rest(event: str, **fields: Any) -> bool:
    return event == "state" and fields["arm"] == "federated" and fields["owner"] == "bee" and fields["state"] == "sleep"


@pytest.mark.parametrize(
    ("moment", "engine"),
    [(at_first, "in-process"), (in_an_exchange, "processes"), (at_rest, "in-process")],
)
def test_one_that_is_killed_takes_nothing_with_it(
    moment: Callable[..., bool], engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings())
    with monkeypatch.context() as patched:
        patched.setitem(ENGINES, "processes", lambda homes, note: Struck(list(homes), note, "bee", moment))
        with pytest.raises(EngineError, match=r"^bee died during federated; .* fkge simulate --resume"):
            made.run()
    died = [r for r in made.trace.read() if r["event"] == "died"]
    assert [r["owner"] for r in died] == ["bee"]
    assert "signal 9" in died[0]["why"]
    before = {home.name: home.result("federated") for home in made.homes}
    assert {name: result is None for name, result in before.items()} == {"ant": False, "bee": True, "cat": False}
    for name in ("ant", "cat"):
        work = [r for r in made.trace.read() if r["event"] == "work" and r["owner"] == name and r["arm"] == "federated"]
        assert work[-1]["epoch"] == made.settings.total_epochs

    again = Simulation.open(made.folder)
    again.about["engine"] = engine  # what was begun on one engine may be ended on another
    result = again.run()
    assert result is not None
    for name in ("ant", "cat"):
        assert result["owners"][name]["arms"]["federated"]["best_score"] >= before[name]["best_score"]  # type: ignore[index]
    assert result["owners"]["bee"]["arms"]["federated"]["tests"] >= 1
    assert Simulation.open(made.folder).result == result


def test_one_that_stands_still_stops_nobody(tmp_path: Path) -> None:
    made = Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(window=0.2))
    notes, total = Notes(), made.settings.total_epochs
    with Processes(made.homes, notes) as engine:
        os.kill(engine.pids["bee"], signal.SIGSTOP)

        def ends() -> bool:
            if all(notes.of("work", owner=name, epoch=total) for name in ("ant", "cat")):
                os.kill(engine.pids["bee"], signal.SIGCONT)  # or the arm would wait for it
            return False

        assert engine.run(made.arm("federated"), ends)
    assert notes.of("work", owner="bee")[0]["initial"]
    assert all(home.result("federated") for home in made.homes)

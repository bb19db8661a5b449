"""What an attack is given: a copy, a victim and its nearest peer; and the run itself stays as it is."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from fkge.audit.subject import epoch_counter, nearest, opened, shared_sizes
from fkge.errors import RunError, UnknownLabelError
from fkge.experiment.simulation import Simulation
from fkge.progress import Task
from tests.conftest import OWNERS, tiny_federation, tiny_settings


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where copies are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_victim_is_the_owner_with_the_largest_alignment(simulated: Path, temporary: Path) -> None:
    with opened(simulated) as subject:
        sizes = {name: max(shared_sizes(owner).values()) for name, owner in subject.owners.items()}
        assert sizes[subject.owner] == max(sizes.values())
        assert subject.peer == nearest(subject.victim)
        assert subject.member.graph.fingerprint == subject.victim.graph.fingerprint
        assert subject.track(subject.owner) is subject.track(subject.owner)
        assert (subject.quick, list(subject.scratch.iterdir())) == (False, [])


def test_a_refused_peer_is_no_attacker(simulated: Path, temporary: Path) -> None:
    with opened(simulated, "ant") as subject:
        assert set(shared_sizes(subject.victim)) == {"cat"}
        assert subject.peer == "cat"
    with opened(simulated, "cat") as subject:
        assert set(shared_sizes(subject.victim)) == {"ant", "bee"}


def test_one_that_shares_nothing_has_no_attacker(tmp_path: Path) -> None:
    federation = tiny_federation(OWNERS[:2], refuses=("ant", "bee"))
    made = Simulation.create(tmp_path / "run", federation, tiny_settings(), baselines=())
    with pytest.raises(RunError, match="shares no rows with any peer, so there is no attacker"):
        nearest(made.owners[0])


def test_the_run_is_copied_without_what_no_attack_needs_and_the_copy_is_removed(
    simulated: Path, temporary: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in simulated.rglob("*")}

    def attacked() -> None:
        with opened(simulated) as subject:
            copy = subject.simulation.folder
            assert copy != simulated
            assert subject.scratch.parent == copy.parent
            assert temporary in copy.parents
            shutil.rmtree(copy / "owners")  # an attack may do what it likes
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        attacked()
    assert list(temporary.iterdir()) == []
    assert {path: path.stat().st_mtime_ns for path in simulated.rglob("*")} == before


def test_what_cannot_be_attacked_is_refused_before_anything_is_copied(simulated: Path, temporary: Path) -> None:
    with pytest.raises(UnknownLabelError, match="did you mean ant"), opened(simulated, "ante"):
        pass
    with pytest.raises(RunError), opened(temporary / "none"):
        pass
    unfinished = Path(shutil.copytree(simulated, temporary / "unfinished"))
    (unfinished / "arms" / "federated" / "bee" / "result.json").unlink()
    with pytest.raises(RunError, match="is not finished, so it cannot be audited"), opened(unfinished):
        pass
    assert [path.name for path in temporary.iterdir()] == ["unfinished"]


def test_epochs_are_counted_and_nothing_else() -> None:
    task = Task()
    count = epoch_counter(task)
    for event in ("progress", "work", "progress", "died"):
        count(event, owner="ant", epoch=9)
    assert task.done == 2

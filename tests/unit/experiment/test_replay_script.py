"""A replay script delivers messages in the order of a recording, whatever order they arrive in."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.errors import RunError
from fkge.experiment.replay_script import ReplayScript
from fkge.federation.events import Lost, Wake
from fkge.federation.recording import Recorder


def test_messages_wait_for_their_turn(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "recording")
    recorder.note("begin", trained=False)
    recorder.note("finish")
    recorder.received("bee", b"one")
    recorder.event(Wake())
    recorder.received("ant", b"two")
    recorder.close()
    script = ReplayScript(tmp_path / "recording")
    script.arrived("ant", b"2")
    assert script.following(finished=False) == ("begin", "", b"")
    assert script.following(finished=False) is None
    assert script.following(finished=True) == ("finish", "", b"")
    assert script.following(finished=False) is None  # bee's has not arrived
    script.arrived("bee", b"1")
    assert [script.following(finished=False) for _ in range(3)] == [
        ("deliver", "bee", b"1"),
        ("wake", "", b""),
        ("deliver", "ant", b"2"),
    ]
    assert script.over
    assert script.following(finished=True) is None


def test_refuses_a_recording_in_which_a_peer_is_lost(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "recording")
    recorder.event(Lost("bee"))
    recorder.close()
    with pytest.raises(RunError, match="a peer is lost or joins"):
        ReplayScript(tmp_path / "recording")

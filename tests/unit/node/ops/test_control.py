"""Speaking with a node that runs: over a real socket, with real processes."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fkge.cli import app
from fkge.errors import BudgetError, NodeError
from fkge.node.ops import control
from fkge.node.ops.control import SOCKET, Status, call, serve

STATUS: Status = {
    "name": "clinic", "life": 3, "pid": 4711, "version": "0.1.0", "time": 1_000_000.0, "started": 900_000.0,
    "state": "training", "since": 999_990.0, "epoch": 12, "epochs": 1000, "validation_mrr": 0.3125, "privacy": "dp",
    "spent": [{"unit": "triple", "relation": "add or remove", "epsilon": 8.0, "spent": 1.25, "delta": 1e-5}],
    "peers": [
        {
            "name": "genes", "state": "connected", "since": 999_000.0, "shared": 1200, "exchanges": 7,
            "bytes_in": 1_500_000, "bytes_out": 20, "heard": 999_998.0, "reason": None,
        },
        {
            "name": "shop", "state": "refused", "since": None, "shared": None, "exchanges": 0, "bytes_in": 0,
            "bytes_out": 0, "heard": None, "reason": "budget",
        },
    ],
    "audit": {"entries": 99, "head": "cd" * 32},
}  # fmt: skip


async def answer_status() -> Mapping[str, Any]:
    return STATUS


async def echo() -> dict[str, Any]:
    return {"heard": {}}


async def refuse() -> dict[str, Any]:
    raise BudgetError("the budget is spent. Raise epsilon")


async def fail() -> dict[str, Any]:
    raise ZeroDivisionError("secret")


@contextmanager
def node(path: Path, handlers: Mapping[str, control.Handler]) -> Iterator[list[dict[str, Any]]]:
    """A node's control socket in a thread of its own; yields what its loop was told of bugs."""
    bugs: list[dict[str, Any]] = []
    ready, over = threading.Event(), threading.Event()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        loop.set_exception_handler(lambda _, context: bugs.append(context))
        server = await serve(path, handlers)
        ready.set()
        await loop.run_in_executor(None, over.wait)
        await server.close()
        await loop.shutdown_default_executor()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(30)
        yield bugs
    finally:
        over.set()
        thread.join()
        loop.close()


def test_a_command_and_its_answer(tmp_path: Path) -> None:
    path = tmp_path / SOCKET
    with node(path, {"echo": echo, "refuse": refuse, "fail": fail}) as bugs:
        assert call(path, "echo") == {"heard": {}}
        with pytest.raises(NodeError, match="the budget is spent"):
            call(path, "refuse")
        with pytest.raises(NodeError, match=r"fail failed \(ZeroDivisionError\)") as told:
            call(path, "fail")
        assert "secret" not in str(told.value)
        with pytest.raises(NodeError, match="does not know the command 'dance'; it knows echo, fail, refuse"):
            call(path, "dance")
        assert call(path, "echo") == {"heard": {}}
    assert [type(bug["exception"]) for bug in bugs] == [ZeroDivisionError]
    assert not path.exists()


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b"[1]\n", b"{}\n", b'{"command": 7}\n', b"[" * 5000 + b"\n", b"\xff\n", b"null\n"]
)
def test_what_is_no_request_is_answered_with_an_error(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / SOCKET
    with node(path, {"echo": echo}) as bugs:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            connection.sendall(line)
            assert json.loads(connection.makefile("rb").readline())["ok"] is False
        assert call(path, "echo") == {"heard": {}}
    assert bugs == []


def test_a_request_without_end_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / SOCKET
    with node(path, {"echo": echo}) as bugs:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            with pytest.raises(ConnectionError):
                connection.sendall(b"x" * (64 << 20))
        assert call(path, "echo") == {"heard": {}}
    assert bugs == []


def test_only_its_user_may_speak_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / SOCKET
    with node(path, {"echo": echo}):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        monkeypatch.setattr(control, "credentials", lambda _: (0, os.getuid() + 1))
        with pytest.raises(NodeError, match="another user's"):
            call(path, "echo")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become somebody else")
def test_somebody_else_is_turned_away_also_by_an_open_socket() -> None:
    script = """
import os, sys
from pathlib import Path
from fkge.errors import NodeError
from fkge.node.ops.control import call
os.setuid(65534)
try:
    print(call(Path(sys.argv[1]), "echo"))
except NodeError as error:
    print(error)
"""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / SOCKET
        path.parent.chmod(0o755)
        words = [sys.executable, "-c", script, str(path)]
        with node(path, {"echo": echo}):
            assert "belongs to another user" in subprocess.run(words, capture_output=True, text=True, check=True).stdout
            path.chmod(0o777)
            assert "another user's?" in subprocess.run(words, capture_output=True, text=True, check=True).stdout


def held_open() -> Iterator[str]:
    """What this process's descriptors stand for."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            yield os.readlink(descriptor)


def test_a_long_path_works(tmp_path: Path) -> None:
    state = tmp_path.joinpath(*["a-rather-long-folder-name"] * 8)
    state.mkdir(parents=True)
    path = state / SOCKET
    assert len(str(path)) > 200
    with node(path, {"echo": echo}):
        assert call(path, "echo") == {"heard": {}}
        with pytest.raises(NodeError, match="a node listens here already"):
            asyncio.run(serve(path, {}))
    assert not path.exists()
    assert not [held for held in held_open() if held.startswith(str(tmp_path))]


@pytest.mark.parametrize("turns", range(6))
def test_one_that_knocks_as_it_closes_is_not_lost(turns: int, tmp_path: Path) -> None:
    """However far asyncio was with it: every connection is closed when the server is."""
    path = tmp_path / SOCKET

    async def knocked() -> list[str]:
        before = set(held_open())
        server = await serve(path, {})
        with socket.socket(socket.AF_UNIX) as caller:
            caller.setblocking(False)
            caller.connect(str(path))
            for _ in range(turns):
                await asyncio.sleep(0)
        await server.close()
        return [held for held in held_open() if held.startswith("socket:") and held not in before]

    assert asyncio.run(knocked()) == []


def test_nobody_there_is_told_from_somebody_who_died(tmp_path: Path) -> None:
    path = tmp_path / SOCKET
    with pytest.raises(NodeError, match=r"no node runs with this state folder\. Start it"):
        call(path, "echo")
    with pytest.raises(NodeError, match="Is the path right"):
        call(tmp_path / "nowhere" / SOCKET, "echo")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with pytest.raises(NodeError, match="is gone, and was not stopped properly"):
        call(path, "echo")
    with node(path, {"echo": echo}):  # takes the dead one's place
        assert call(path, "echo") == {"heard": {}}


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / SOCKET).write_text("precious")
    with pytest.raises(NodeError, match="is not a socket, and the control socket needs this path"):
        asyncio.run(serve(tmp_path / SOCKET, {}))
    assert (tmp_path / SOCKET).read_text() == "precious"


def test_a_node_that_does_not_answer_is_not_waited_for_forever(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(tmp_path / SOCKET))
        deaf.listen()
        with pytest.raises(NodeError, match="does not answer"):
            call(tmp_path / SOCKET, "status", patience=0.05)


def test_what_is_no_node_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / SOCKET
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"220 hello\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(NodeError, match="is no node of this version"):
            call(path, "status")
        thread.join()


_NODE = """
import asyncio, os, signal, sys
from pathlib import Path
from fkge.node.ops.control import serve

async def main():
    over = asyncio.Event()
    async def stop():
        over.set()
        return {"life": 1}
    async def plain():
        return {}
    server = await serve(Path(sys.argv[1]) / "control.sock", {"stop": stop, "pause": plain, "resume": plain})
    print("ready", flush=True)
    await over.wait()
    await server.close()
    if len(sys.argv) > 2:  # one that takes its time
        sys.stdin.read()

asyncio.run(main())
"""


@contextmanager
def node_process(state: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", _NODE, str(state), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def fkge(*words: str) -> tuple[int, str, BaseException | None]:
    done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
    return done.exit_code, done.stdout, done.exception


def test_stop_waits_until_the_process_is_gone(tmp_path: Path) -> None:
    with node_process(tmp_path) as process:
        assert fkge("pause", "--state", str(tmp_path))[1] == f"{tmp_path}: pauses; continue with fkge resume\n"
        assert fkge("resume", "--state", str(tmp_path))[1] == f"{tmp_path}: continues\n"
        code, out, _ = fkge("stop", "--state", str(tmp_path), "--json")
        assert (code, json.loads(out)) == (0, {"life": 1})
        assert process.poll() == 0
    assert isinstance(fkge("stop", "--state", str(tmp_path))[2], NodeError)


def test_stop_says_if_it_takes_longer(tmp_path: Path) -> None:
    with node_process(tmp_path, "slow"):
        code, _, error = fkge("stop", "--state", str(tmp_path), "--timeout", "0.2")
        assert code != 0
        assert "has not ended after 0.2 seconds" in str(error)


def test_stop_without_a_process_to_watch_waits_for_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "credentials", lambda _: (0, None))
    with node_process(tmp_path):
        assert control.stop(tmp_path / SOCKET) == {"life": 1}
        assert not (tmp_path / SOCKET).exists()


def test_the_command_line_shows_a_status(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text('state = "."\n')
    with node(tmp_path / SOCKET, {"status": answer_status}):
        code, out, _ = fkge("status", "--config", str(tmp_path / "node.toml"), "--json")
        assert (code, json.loads(out)) == (0, STATUS)
        code, out, error = fkge("status", "--state", str(tmp_path))
        assert code == 0, error
    for said in (
        "node clinic", "training, for 10 s", "start 3, 1 d 3 h ago", "12 of 1,000", "0.3125",
        "1.25 of 8, at δ 1e-05, for one triple, add or remove", "99 entries", "1.5 MB", "1,200", "2 s ago", "never",
        "budget",
    ):  # fmt: skip
        assert said in out, said


def test_the_command_line_does_not_call_nothing_spent_a_guarantee(tmp_path: Path) -> None:
    async def plain() -> Mapping[str, Any]:
        return {**STATUS, "spent": [], "privacy": "none", "epoch": None, "validation_mrr": None}

    with node(tmp_path / SOCKET, {"status": plain}):
        assert "what is sent has no guarantee" in fkge("status", "--state", str(tmp_path))[1]


def test_the_command_line_watches(tmp_path: Path) -> None:
    with node(tmp_path / SOCKET, {"status": answer_status}):
        words = [
            sys.executable,
            "-m",
            "fkge",
            "status",
            "--state",
            str(tmp_path),
            "--watch",
            "--every",
            "0.2",
            "--json",
        ]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert [json.loads(process.stdout.readline())["name"] for _ in range(3)] == ["clinic"] * 3
            process.terminate()

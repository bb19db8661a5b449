"""The server as a person starts it: in a process of its own, on a real port."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the live page needs fkge[dashboard]")

from fkge import dashboard
from fkge.dashboard import make_app, serve, server
from fkge.errors import FkgeError

PROGRAM = "import sys; from pathlib import Path; from fkge.dashboard import serve; serve(Path(sys.argv[1]), port=0)"


@pytest.fixture
def served(simulated: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A server's process, its port and its token."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-c", PROGRAM, str(simulated)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", process.stdout.readline())
        assert found
        yield process, int(found[1]), found[2]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_with_its_streams(served: tuple[subprocess.Popen[str], int, str], number: int) -> None:
    process, port, token = served
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", f"/?token={token}")
    answer = connection.getresponse()
    answer.read()
    cookie = str(answer.headers["set-cookie"]).split(";")[0]
    connection.request("GET", "/events", headers={"cookie": cookie})
    stream = connection.getresponse()
    assert stream.status == 200
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.readline().startswith(b"retry:")
    process.send_signal(number)
    rest = stream.read()  # raises if it was cut off in the middle
    assert b"event: state" in rest
    assert process.wait(20) == (0 if number == signal.SIGINT else -number)
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
    connection.close()


def test_a_listener_that_leaves_is_not_kept(simulated: Path) -> None:
    app = make_app(simulated, None)
    running = server.Server(app, None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            connections = [http.client.HTTPConnection(*listening.getsockname(), timeout=30) for _ in range(3)]
            for connection in connections:
                connection.request("GET", "/events")
                assert connection.getresponse().readline().startswith(b"retry:")
            assert app.state.events.listeners == 3
            for connection in connections:
                connection.close()
            end = time.monotonic() + 30
            while app.state.events.listeners and time.monotonic() < end:
                thread.join(0.01)
            assert app.state.events.listeners == 0
        finally:
            running.should_exit = True
            thread.join(30)


def test_a_taken_port_is_one_sentence_with_a_free_one(simulated: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FkgeError, match=f"port {port} of 127.0.0.1 is taken") as caught:
            serve(simulated, port=port)
    free = re.search(r"--port (\d+) is free", str(caught.value))
    assert free
    assert int(free[1]) != port
    socket.create_server(("127.0.0.1", int(free[1]))).close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org"])
def test_open_to_others_needs_a_token(simulated: Path, host: str) -> None:
    with pytest.raises(FkgeError, match="a token is needed"):
        serve(simulated, host=host, port=0, token=None)


def test_a_port_or_host_that_is_none_is_one_sentence(simulated: Path) -> None:
    with pytest.raises(FkgeError, match="from 1 to 65535"):
        serve(simulated, port=70000)
    with pytest.raises(FkgeError, match=r"cannot listen on 192\.0\.2\.7"):
        serve(simulated, host="192.0.2.7", port=0)


def test_a_missing_library_is_one_sentence(simulated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(FkgeError, match=re.escape("pip install 'fkge[dashboard]'")):
        dashboard.serve(simulated)


def test_to_import_it_needs_no_server(tmp_path: Path) -> None:
    """`fkge --help` must stay quick."""
    program = "import sys, fkge.dashboard; sys.exit(any(m in sys.modules for m in ('fastapi', 'uvicorn', 'torch')))"
    assert subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=False).returncode == 0

"""Control a running node: a Unix socket in its state folder, one line of JSON for a request and one for its answer.

Only the user that runs the node, and root, may use it: the socket is 0600, and the system says who is at its other end.
A request is ``{"command": "status"}``; the answer is ``{"ok": true, "answer": {...}}`` or ``{"ok": false, "error": "one
sentence"}``. Every node answers `status` (a `Status`), `pause`, `resume` and `stop`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import socket
import stat
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NotRequired, TypedDict, cast

from fkge.errors import FkgeError, NodeError
from fkge.node.ops.sockets import Connections

SOCKET = "control.sock"
"""Its name in a node's state folder."""

PATIENCE = 30.0
"""Seconds to wait for an answer."""

REQUEST_BYTES = 64 << 10
ANSWER_BYTES = 8 << 20
CONNECTIONS = 16
"""At a time; more are closed."""

Handler = Callable[[], Awaitable[Mapping[str, object]]]
"""Carries out a command; returns the answer, or raises an `FkgeError`."""


class PeerStatus(TypedDict):
    """The state of one peer. Times are seconds since 1970; what is not known yet is None."""

    name: str
    state: str  # away, refused, aligning, connected or joined
    since: float | None  # when it came to that state
    shared: int | None  # rows that both hold
    exchanges: int  # finished ones
    bytes_in: int
    bytes_out: int
    heard: float | None  # when anything was last received from it
    reason: str | None  # why it was refused, or shares nothing


class Spent(TypedDict):
    """One privacy budget, as in `fkge ledger show`; `epsilon` is None for no limit, `spent` for no bound."""

    unit: str
    relation: str
    epsilon: float | None
    spent: float | None
    delta: float


class AuditStatus(TypedDict):
    """The position of the audit log; keep its head elsewhere to detect an older log."""

    entries: int
    head: str


class Status(TypedDict):
    """The answer to `status`."""

    name: str
    life: int  # how many times the node was started
    pid: int
    version: str
    time: float  # of this answer
    started: float  # when this process did
    state: str  # paused, or a value of `fkge.node.state.NodeState`
    since: float  # when the node came to it
    epoch: int | None  # how many are done; None before training
    epochs: int | None  # in all
    validation_mrr: float | None  # the best so far
    privacy: str  # the mode: none, paper or dp
    spent: list[Spent]  # by budget; empty where nothing has a price
    peers: list[PeerStatus]  # all that the configuration names
    audit: NotRequired[AuditStatus]


# -- in the node -------------------------------------------------------------------------------------


class Server(Connections):
    """A server that answers until it is closed, and then removes its socket; `serve` makes one."""

    def __init__(self, path: Path, handlers: Mapping[str, Handler]) -> None:
        super().__init__()
        self.path = path
        self._handlers = handlers
        self._inode = path.stat().st_ino

    async def close(self) -> None:
        """Accept no more requests; those under way are answered first."""
        await self.stop_listening()
        with contextlib.suppress(OSError):
            if self.path.stat().st_ino == self._inode:  # not one that another node has made since
                self.path.unlink()
        if others := self.busy - {asyncio.current_task()}:
            await asyncio.wait(others, timeout=PATIENCE)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, if it comes from this process's user or from root."""
        _, user = credentials(writer.get_extra_info("socket"))
        if len(self.busy) > CONNECTIONS or user not in (None, os.getuid(), 0):
            return
        async with asyncio.timeout(PATIENCE):
            try:
                line = await reader.readuntil(b"\n")
            except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                return
        answer = json.dumps(await self._answer(line), ensure_ascii=False).encode() + b"\n"
        async with asyncio.timeout(PATIENCE):
            writer.write(answer)
            await writer.drain()

    async def _answer(self, line: bytes) -> dict[str, object]:
        try:
            command = json.loads(line)["command"]
            if not isinstance(command, str):
                raise TypeError
        except (ValueError, TypeError, KeyError, RecursionError):
            return {"ok": False, "error": 'this is no request; one is a line such as {"command": "status"}'}
        if command not in self._handlers:
            known = ", ".join(sorted(self._handlers))
            return {"ok": False, "error": f"this node does not know the command {command!r}; it knows {known}"}
        try:
            return {"ok": True, "answer": await self._handlers[command]()}
        except FkgeError as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"control command {command} failed", "exception": error}
            )
            return {"ok": False, "error": f"{command} failed ({type(error).__name__}); the log says more"}


async def serve(path: Path, handlers: Mapping[str, Handler]) -> Server:
    """Listen on a socket, with a handler for each command. A socket that a dead node has left is replaced.

    Raises:
        NodeError: another node listens there.
    """
    listener = _listener(path)
    server = Server(path, handlers)
    server.listening = await asyncio.start_unix_server(server.accept, sock=listener, limit=REQUEST_BYTES)
    return server


def _listener(path: Path) -> socket.socket:
    if path.exists() and not stat.S_ISSOCK(path.stat().st_mode):
        raise NodeError(f"{path}: is not a socket, and the control socket needs this path; move it")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _reachable(path) as address:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                try:
                    probe.connect(address)
                except FileNotFoundError:
                    pass
                except ConnectionRefusedError:
                    path.unlink(missing_ok=True)
                else:
                    raise NodeError(f"{path}: a node listens here already. Stop it first: fkge stop")
            os.fchmod(listener.fileno(), 0o600)  # what the file will have, from its first moment
            listener.bind(address)
            listener.listen(CONNECTIONS)
        listener.setblocking(False)
    except BaseException as error:
        listener.close()
        if isinstance(error, OSError):
            raise NodeError(f"{path}: no control socket can be made here: {error.strerror or error}") from error
        raise
    return listener


def credentials(connection: Any) -> tuple[int, int | None]:
    """The other end's process (0: not known here) and user (None: not known)."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, None
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


# -- at the operator's side --------------------------------------------------------------------------


def call(path: Path, command: str, *, patience: float = PATIENCE) -> Mapping[str, object]:
    """Send a command to a node and return the answer.

    Args:
        path: of its control socket; command: the command.
        patience: seconds to wait for the answer.

    Raises:
        NodeError: no node listens there, it does not answer in time, or it says why it will not.
    """
    with _connected(path, patience) as connection:
        return _ask(path, connection, command)


def ask_status(path: Path, patience: float = PATIENCE) -> Status:
    """Ask a node for its status; see `call`."""
    return cast(Status, call(path, "status", patience=patience))


def stop(path: Path, patience: float = 60.0) -> Mapping[str, object]:
    """Ask a node to stop, and wait until its process has ended; return the node's answer.

    Raises:
        NodeError: it is still there after `patience` seconds.
    """
    end = time.monotonic() + patience
    with _connected(path, min(PATIENCE, patience)) as connection:
        pid, _ = credentials(connection)
        process = -1
        if pid > 0 and hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                process = os.pidfd_open(pid)  # now, while it is surely the process that answers
        answer = _ask(path, connection, "stop")
    if process < 0:
        gone = _falls_silent(path, end)
    else:
        try:
            gone = bool(select.select([process], [], [], max(0.0, end - time.monotonic()))[0])
        finally:
            os.close(process)
    if not gone:
        raise NodeError(
            f"{path.parent}: the node is stopping, but its process has not ended after {patience:g} seconds. It is "
            "finishing its current step; wait longer with --timeout, or check it: fkge status"
        )
    return answer


def _ask(path: Path, connection: socket.socket, command: str) -> Mapping[str, object]:
    try:
        connection.sendall(json.dumps({"command": command}).encode() + b"\n")
        with connection.makefile("rb") as f:
            line = f.readline(ANSWER_BYTES)
    except TimeoutError:
        raise NodeError(f"{path}: the node does not answer. Try again, or look: fkge log") from None
    except OSError:
        line = b""
    if not line.endswith(b"\n"):
        raise NodeError(f"{path}: the node hung up without an answer. Is it stopping, or another user's?")
    try:
        reply = json.loads(line)
        if reply["ok"]:
            return dict(reply["answer"])
        sentence = str(reply["error"])
    except (ValueError, TypeError, KeyError):
        raise NodeError(f"{path}: what listens here is no node of this version of fkge") from None
    raise NodeError(sentence)


@contextlib.contextmanager
def _connected(path: Path, patience: float) -> Iterator[socket.socket]:
    state = path.parent
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience)
        try:
            with _reachable(path) as address:
                connection.connect(address)
        except (FileNotFoundError, NotADirectoryError):
            way = "Start it with fkge node, or name another --state" if state.is_dir() else "Is the path right?"
            raise NodeError(f"{state}: no node runs with this state folder. {way}") from None
        except ConnectionRefusedError:
            raise NodeError(
                f"{state}: the node that ran with this state folder is gone, and was not stopped properly. "
                "Its log says more (fkge log); start it again with fkge node"
            ) from None
        except PermissionError:
            raise NodeError(f"{path}: belongs to another user. Ask as the user that runs the node") from None
        except OSError as error:
            raise NodeError(f"{path}: the node cannot be reached: {error.strerror or error}") from None
        yield connection


@contextlib.contextmanager
def _reachable(path: Path) -> Iterator[str]:
    """Yield an address for the socket `path` that is short enough: the system takes no more than 107 bytes."""
    if len(os.fsencode(path)) <= 100 or not os.path.isdir("/proc/self/fd"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def _falls_silent(path: Path, end: float) -> bool:
    """Return whether the socket closes in time; used where the process cannot be watched."""
    while time.monotonic() < end:
        try:
            with _connected(path, 1.0):
                time.sleep(0.1)
        except NodeError:
            return True
    return False

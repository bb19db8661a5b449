"""The live page: a simulation in a browser, while it runs, after it was interrupted, or when it is finished.

The server only reads. It follows ``trace.jsonl`` while a browser shows the page, draws the report's figures, and
queries the owners' models. FastAPI and uvicorn are needed here and nowhere else (``fkge[dashboard]``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fkge.errors import need

if TYPE_CHECKING:
    from fastapi import FastAPI

RANDOM = ""
"""A token that is generated when the server starts."""


def make_app(run: Path, token: str | None) -> FastAPI:
    """Build the application that shows the simulation in `run`, whether it exists yet or not.

    Args:
        run: the folder of a simulation.
        token: what a browser must send once; None: everybody who reaches the server has access.
    """
    made: FastAPI = _server().make_app(run, token)
    return made


def serve(
    run: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = RANDOM,
    open_browser: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the live page until Ctrl-C.

    Args:
        run: the folder of a simulation; the page waits for one that does not exist yet.
        host, port: where to listen; port 0 takes a free one.
        token: part of the printed address; None: no token, on this machine only.
        open_browser: open the address in a browser.
        say: called with the address and with warnings.

    Raises:
        FkgeError: the port is taken, or other machines can reach the host and there is no token.
        RunError: `run` is something else than a simulation.
    """
    _server().serve(run, host=host, port=port, token=token, open_browser=open_browser, say=say)


def _server() -> Any:
    """Import the module that needs FastAPI."""
    for library in ("fastapi", "uvicorn"):
        need(library, "dashboard", "the live page")
    from fkge.dashboard import server

    return server

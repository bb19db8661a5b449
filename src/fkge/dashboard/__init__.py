"""The live page: a simulation's folder in a browser, while it is written, after it was broken off, or when it is done.

The server only reads. It follows ``trace.jsonl`` while somebody looks, draws the report's figures, and answers
questions to the owners' models. FastAPI and uvicorn are needed here and nowhere else (``fkge[dashboard]``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fkge.errors import need

if TYPE_CHECKING:
    from fastapi import FastAPI

RANDOM = ""
"""A token that is made up when the server starts."""


def make_app(run: Path, token: str | None) -> FastAPI:
    """The application for the simulation in `run`, whether it is there yet or not.

    Args:
        token: what a browser must show once; None: whoever reaches the server is let in.
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
        run: a simulation's folder; one that is not there yet is waited for.
        host, port: where to listen; port 0 takes a free one.
        token: part of the address that is told; None: nobody needs one, on this machine only.
        open_browser: open the address.
        say: told the address and what happens.

    Raises:
        FkgeError: the port is taken, or the host is open to others and there is no token.
        RunError: `run` holds something else than a simulation.
    """
    _server().serve(run, host=host, port=port, token=token, open_browser=open_browser, say=say)


def _server() -> Any:
    """The module that needs FastAPI."""
    for library in ("fastapi", "uvicorn"):
        need(library, "dashboard", "the live page")
    from fkge.dashboard import server

    return server

"""The live page: a simulation in a browser, while it runs, after it was interrupted, or when it is finished.

The server only reads. It follows ``trace.jsonl`` while a browser shows the page, draws the report's figures, and
queries the owners' models. FastAPI and uvicorn are needed here and nowhere else (``fkge[dashboard]``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fkge.errors import need

if TYPE_CHECKING:
    from fkge.dashboard.server import make_app, serve

__all__ = ["make_app", "serve"]


def __getattr__(name: str) -> Any:
    """Import the server when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for library in ("fastapi", "uvicorn"):
        need(library, "dashboard", "the live page")
    from fkge.dashboard import server

    return getattr(server, name)

"""The server of the live page."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
import webbrowser
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles

from fkge.dashboard.auth import AuthMiddleware
from fkge.dashboard.events import Events, EventStream
from fkge.dashboard.figures import Figures
from fkge.dashboard.owners import Ledgers, describe_owner
from fkge.dashboard.queries import Kind, ModelQueries
from fkge.dashboard.state import WatchedRun, check
from fkge.errors import FkgeError, UnknownLabelError
from fkge.report import theme

STATIC = Path(__file__).parent / "static"

Name = Annotated[str, Query(max_length=200)]
Label = Annotated[str | None, Query(max_length=2000)]
Typed = Annotated[str, Query(max_length=100)]
Top = Annotated[int, Query(ge=1, le=50)]


def make_app(run: Path, token: str | None, hosts: Iterable[str] = ()) -> FastAPI:
    """Build the application that shows the simulation in `run`, whether it exists yet or not.

    Args:
        run: the folder of a simulation.
        token: what a browser must send once; None: everybody who reaches the server has access.
        hosts: further names of this server.
    """
    check(run)
    if token == "":
        raise FkgeError("an empty token protects nothing; give a longer one, or None for none")
    app = FastAPI(title="fkge", docs_url=None, redoc_url=None, openapi_url=None)
    watched = WatchedRun(run)
    figures = Figures(watched)

    def poll() -> Events:
        try:
            watched.refresh()
            drawn = figures.draw()
        except (FkgeError, OSError, ValueError, KeyError) as error:  # such as while the folder is being deleted
            return {"trouble": ("trouble", f"The simulation cannot be read: {error}")}
        return {
            "trouble": ("trouble", ""),
            "state": ("state", watched.state() | {"figures": list(drawn)}),
            **{name: ("figure", {"name": name, **figure}) for name, figure in drawn.items()},
        }

    app.state.events = EventStream(poll)
    _add_pages(app)
    _add_data(app, watched, figures, ModelQueries(run))
    _add_error_handlers(app)
    app.add_middleware(AuthMiddleware, token=token, hosts=tuple(hosts))
    return app


def _add_pages(app: FastAPI) -> None:
    headers = {"cache-control": "no-cache"}  # revalidate each time

    @app.get("/")
    def page() -> Response:
        return FileResponse(STATIC / "index.html", headers=headers)

    @app.get("/theme.css")
    def stylesheet() -> Response:
        return Response(theme.colours() + theme.FIGURES, media_type="text/css", headers=headers)

    app.mount("/static", StaticFiles(directory=STATIC), name="static")


def _add_data(app: FastAPI, watched: WatchedRun, figures: Figures, queries: ModelQueries) -> None:
    ledgers = Ledgers()

    def known(owner: str) -> str:
        watched.refresh()
        return watched.check_owner(owner)

    def arms() -> list[str]:
        return [arm for arm in (watched.baseline, "federated") if arm is not None]

    @app.get("/events")
    async def events() -> Response:
        return StreamingResponse(app.state.events.stream(), media_type="text/event-stream")

    @app.get("/api/state")
    def state() -> Response:
        watched.refresh()
        return JSONResponse(watched.state())

    @app.get("/api/owner/{name}")
    def owner(name: str) -> Response:
        return JSONResponse(describe_owner(watched, known(name)) | {"figure": figures.of_owner(name)})

    @app.get("/api/ledger/{name}")
    def ledger(name: str) -> Response:
        return JSONResponse({"ledger": ledgers.of(watched.run, known(name))})

    @app.get("/api/labels")
    def labels(owner: Name, kind: Kind, prefix: Typed = "") -> Response:
        return JSONResponse({"labels": queries.labels(known(owner), kind, prefix)})

    @app.get("/api/examples")
    def examples(owner: Name) -> Response:
        return JSONResponse({"examples": queries.examples(known(owner))})

    @app.get("/api/predict")
    def predict(
        owner: Name, head: Label = None, relation: Label = None, tail: Label = None, top: Top = 10, stated: bool = False
    ) -> Response:
        asked = head or None, relation or None, tail or None
        return JSONResponse({"arms": queries.predict(known(owner), arms(), asked, top, known=stated)})

    @app.get("/api/neighbors")
    def neighbors(owner: Name, entity: Annotated[str, Query(max_length=2000)], top: Top = 10) -> Response:
        return JSONResponse({"arms": queries.neighbors(known(owner), arms(), entity, top)})


def _add_error_handlers(app: FastAPI) -> None:
    """Answer errors with a sentence as JSON."""

    @app.exception_handler(FkgeError)
    def handle_fkge_error(request: Request, error: FkgeError) -> Response:
        return JSONResponse({"error": str(error)}, 404 if isinstance(error, UnknownLabelError) else 400)

    @app.exception_handler(RequestValidationError)
    def handle_invalid_request(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return JSONResponse({"error": f"{first['loc'][-1]}: {first['msg']}"}, 400)


def serve(
    run: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    token: str | None = "",
    open_browser: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Serve the live page until Ctrl-C.

    Args:
        run: the folder of a simulation; the page waits for one that does not exist yet.
        host, port: where to listen; port 0 takes a free one.
        token: part of the printed address; empty: a random one; None: no token, on this machine only.
        open_browser: open the address in a browser.
        say: called with the address and with warnings.

    Raises:
        FkgeError: the port is taken, or other machines can reach the host and there is no token.
        RunError: `run` is something else than a simulation.
    """
    if token is None and not _is_loopback(host):
        raise FkgeError(f"{host} is open to other machines: a token is needed there, or listen on 127.0.0.1")
    token = secrets.token_urlsafe(16) if token == "" else token
    app = make_app(run, token, {host, socket.gethostname()} if not _is_loopback(host) else {host})
    with _listen(host, port) as listening:
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/" + (f"?token={quote(token, safe='')}" if token else "")
        if not (run / "simulation.json").exists():
            say(f"{run} holds no simulation yet; the page waits for one.")
        if not _is_loopback(host):
            say("Other machines can reach this page, and its traffic is not encrypted; use a tunnel (ssh -L) instead.")
        say(f"{address}\nCtrl-C stops the page; the simulation continues.")
        server = Server(app, (lambda: webbrowser.open(address)) if open_browser else None)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


class Server(uvicorn.Server):
    """A server that ends its event streams when it shuts down; they never end by themselves."""

    def __init__(self, app: FastAPI, started: Callable[[], object] | None) -> None:
        super().__init__(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5))
        self._events: EventStream = app.state.events
        self._started = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._started is not None:
            self._started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._events.close()
        await super().shutdown(sockets)


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port <= 65535:
        raise FkgeError(f"there is no port {port}; choose one from 1 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            with socket.create_server((host, 0), family=family) as free:
                way_out = f"--port {free.getsockname()[1]} is free"
            raise FkgeError(f"port {port} of {host} is taken, by another live page perhaps; {way_out}") from None
        raise FkgeError(f"cannot listen on {host}, port {port}: {error.strerror or error}; try 127.0.0.1") from None


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

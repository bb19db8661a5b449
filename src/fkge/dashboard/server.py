"""The live page's server. Needs FastAPI; `fkge.dashboard` imports it when it is called for."""

from __future__ import annotations

import errno
import ipaddress
import secrets
import socket
import webbrowser
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import uvicorn
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles

from fkge.dashboard.drawn import Figures, style_sheet
from fkge.dashboard.guard import Guard
from fkge.dashboard.live import Events, Live
from fkge.dashboard.owners import Ledgers, describe_owner
from fkge.dashboard.questions import Kind, Questions
from fkge.dashboard.state import Watched, check
from fkge.errors import FkgeError, UnknownLabelError

STATIC = Path(__file__).parent / "static"

Name = Annotated[str, Query(max_length=200)]
Label = Annotated[str | None, Query(max_length=2000)]
Typed = Annotated[str, Query(max_length=100)]
Top = Annotated[int, Query(ge=1, le=50)]


def make_app(run: Path, token: str | None, hosts: Iterable[str] = ()) -> FastAPI:
    """The application; `hosts` are further names by which it may be asked."""
    check(run)
    if token == "":
        raise FkgeError("an empty token protects nothing; give a longer one, or None for none")
    app = FastAPI(title="fkge", docs_url=None, redoc_url=None, openapi_url=None)
    watched = Watched(run)
    figures = Figures(watched)

    def look() -> Events:
        try:
            watched.look()
            drawn = figures.draw()
        except (FkgeError, OSError, ValueError, KeyError) as error:  # such as a folder that is being deleted
            return {"trouble": ("trouble", f"The simulation cannot be read now: {error}")}
        return {
            "trouble": ("trouble", ""),
            "state": ("state", watched.state() | {"figures": list(drawn)}),
            **{name: ("figure", {"name": name, **figure}) for name, figure in drawn.items()},
        }

    app.state.live = Live(look)
    _pages(app)
    _telling(app, watched, figures)
    _asking(app, watched, Questions(run))
    _errors(app)
    app.add_middleware(Guard, token=token, hosts=tuple(hosts))
    return app


def _pages(app: FastAPI) -> None:
    kept = {"cache-control": "no-cache"}  # asked for again each time, sent again if it has changed

    @app.get("/")
    def page() -> Response:
        return FileResponse(STATIC / "index.html", headers=kept)

    @app.get("/theme.css")
    def theme() -> Response:
        return Response(style_sheet(), media_type="text/css", headers=kept)

    app.mount("/static", StaticFiles(directory=STATIC), name="static")


def _telling(app: FastAPI, watched: Watched, figures: Figures) -> None:
    ledgers = Ledgers()

    @app.get("/events")
    async def events() -> Response:
        return StreamingResponse(app.state.live.stream(), media_type="text/event-stream")

    @app.get("/api/state")
    def state() -> Response:
        watched.look()
        return JSONResponse(watched.state())

    @app.get("/api/owner/{name}")
    def owner(name: str) -> Response:
        watched.look()
        told = describe_owner(watched, watched.known(name))
        return JSONResponse(told | {"figure": figures.of_owner(name)})

    @app.get("/api/ledger/{name}")
    def ledger(name: str) -> Response:
        watched.look()
        return JSONResponse({"ledger": ledgers.of(watched.run, watched.known(name))})


def _asking(app: FastAPI, watched: Watched, questions: Questions) -> None:
    def known(owner: str) -> str:
        watched.look()
        return watched.known(owner)

    def arms() -> list[str]:
        return [arm for arm in (watched.before, "federated") if arm is not None]

    @app.get("/api/labels")
    def labels(owner: Name, kind: Kind, prefix: Typed = "") -> Response:
        return JSONResponse({"labels": questions.labels(known(owner), kind, prefix)})

    @app.get("/api/examples")
    def examples(owner: Name) -> Response:
        return JSONResponse({"examples": questions.examples(known(owner))})

    @app.get("/api/predict")
    def predict(
        owner: Name, head: Label = None, relation: Label = None, tail: Label = None, top: Top = 10, stated: bool = False
    ) -> Response:
        name, (head, relation, tail) = known(owner), (part or None for part in (head, relation, tail))
        found = questions.predict(name, arms(), head=head, relation=relation, tail=tail, top=top, known=stated)
        return JSONResponse({"arms": found})

    @app.get("/api/neighbors")
    def neighbors(owner: Name, entity: Annotated[str, Query(max_length=2000)], top: Top = 10) -> Response:
        name = known(owner)
        return JSONResponse({"arms": questions.neighbors(name, arms(), entity, top)})


def _errors(app: FastAPI) -> None:
    """Every error is a sentence."""

    @app.exception_handler(FkgeError)
    def ours(request: Request, error: FkgeError) -> Response:
        return JSONResponse({"error": str(error)}, 404 if isinstance(error, UnknownLabelError) else 400)

    @app.exception_handler(RequestValidationError)
    def badly_asked(request: Request, error: RequestValidationError) -> Response:
        first: dict[str, Any] = error.errors()[0]
        return JSONResponse({"error": f"{first['loc'][-1]}: {first['msg']}"}, 400)


# -- serving ---------------------------------------------------------------------------------------


def serve(
    run: Path, *, host: str, port: int, token: str | None, open_browser: bool, say: Callable[[str], None]
) -> None:
    """See `fkge.dashboard.serve`."""
    if token is None and not _is_loopback(host):
        raise FkgeError(f"{host} is open to other machines: a token is needed there, or listen on 127.0.0.1")
    token = secrets.token_urlsafe(16) if token == "" else token
    app = make_app(run, token, {host, socket.gethostname()} if not _is_loopback(host) else {host})
    with _listening(host, port) as listening:
        shown = socket.gethostname() if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listening.getsockname()[1]}/" + (f"?token={quote(token, safe='')}" if token else "")
        if not (run / "simulation.json").exists():
            say(f"{run} holds no simulation yet; the page waits for it.")
        if not _is_loopback(host):
            say("Other machines can reach this page, and what it sends is not encrypted; a tunnel (ssh -L) would be.")
        say(f"{address}\nCtrl-C ends it; the simulation does not mind.")
        server = _Server(app, (lambda: webbrowser.open(address)) if open_browser else None)
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """Ends its event streams when it is asked to end; they never would by themselves."""

    def __init__(self, app: FastAPI, begun: Callable[[], object] | None) -> None:
        super().__init__(uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=5))
        self._live: Live = app.state.live
        self._begun = begun

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._begun is not None:
            self._begun()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._live.close()
        await super().shutdown(sockets)


def _listening(host: str, port: int) -> socket.socket:
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

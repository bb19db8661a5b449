"""Who is let in, and what every answer carries so that the page keeps to itself.

A browser shows the token once, in the address (``/?token=…``), and gets a cookie for it that no script can read and
that no other site's page can make it send. Requests must come by an address or by a name that is ours: a page of
somebody else's whose name was made to point at this machine (DNS rebinding) comes by its own name.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width"><title>{title}</title>
<main><h1>{title}</h1><p>{text}</p></main></html>"""


class Guard:
    """Around an application.

    Args:
        token: what must be shown; None: nothing.
        hosts: names by which this server may be asked, besides ``localhost`` and addresses.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        # Cookies know no ports: each token has a cookie of its own, so that two servers do not fight over one.
        self._cookie = "fkge-" + hashlib.sha256((token or "").encode()).hexdigest()[:12]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        request = Request(scope)
        answer = self._turned_away(request)
        await (answer or self._app)(scope, receive, dressed)

    def _turned_away(self, request: Request) -> Response | None:
        """What to answer instead of the application, if anything."""
        if not self._is_ours(request.headers.get("host", "")):
            text = "This server is asked by a name that is not its own. Open it by its address, such as 127.0.0.1."
            return HTMLResponse(_PAGE.format(title="Not here", text=text), 403)
        if self._token is None:
            return None
        if self._fits(request.query_params.get("token")):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
            return answer
        if self._fits(request.cookies.get(self._cookie)):
            return None
        text = "Open the address, token included, that the command printed when it started this page."
        return HTMLResponse(_PAGE.format(title="A token is needed", text=text), 401)

    def _fits(self, shown: str | None) -> bool:
        """In a time that says nothing about how much of it was right."""
        return shown is not None and secrets.compare_digest(shown.encode(), str(self._token).encode())

    def _is_ours(self, host: str) -> bool:
        name = host[1 : host.find("]")] if host.startswith("[") else host.rpartition(":")[0] or host
        if name.lower() in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

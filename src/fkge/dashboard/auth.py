"""Access to the live page, and the security headers of every response.

A browser sends the token once, in the address (``/?token=…``), and gets a cookie for it that no script can read and
that pages of other sites cannot make it send. The ``Host`` of a request must be an IP address or one of our own names:
a page of another site whose name was made to resolve to this machine (DNS rebinding) sends its own name. Starlette's
`TrustedHostMiddleware` knows names only, not all IP addresses, so this is written here.
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


class AuthMiddleware:
    """Let requests through that carry the token and are sent to our own name.

    Args:
        app: the application.
        token: what a browser must send; None: nothing.
        hosts: names of this server, in addition to ``localhost`` and IP addresses.
    """

    def __init__(self, app: ASGIApp, token: str | None, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        # Cookies ignore ports: with a name for each token, two servers on one host do not overwrite each other's.
        self._cookie = "fkge-" + hashlib.sha256((token or "").encode()).hexdigest()[:12]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no web sockets here
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await (self._refuse(Request(scope)) or self._app)(scope, receive, send_with_headers)

    def _refuse(self, request: Request) -> Response | None:
        """Return the response to a request that is not let through to the application; None if it is."""
        if not self._is_ours(request.headers.get("host", "")):
            text = "This name is not known to the server. Open the page by its IP address, such as 127.0.0.1."
            return HTMLResponse(_PAGE.format(title="Unknown host", text=text), 403)
        if self._token is None:
            return None
        if self._fits(request.query_params.get("token")):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._cookie, self._token, httponly=True, samesite="strict", path="/")
            return answer
        if self._fits(request.cookies.get(self._cookie)):
            return None
        text = "Open the address that the command printed when it started, including the token."
        return HTMLResponse(_PAGE.format(title="A token is needed", text=text), 401)

    def _fits(self, shown: str | None) -> bool:
        """Compare in constant time."""
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

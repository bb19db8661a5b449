"""A real browser, without a window: Chromium, driven by Playwright.

A page fails its test on any error on its console and on any request that leaves this machine.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NewPage = Callable[..., "Page"]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LOCAL = ("127.0.0.1", "localhost", "[::1]")


# Of a module, not of the session: while it is open, its event loop is this thread's.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, started once for a module."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("needs Chromium on the path")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield started
        started.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[NewPage]:
    """Makes pages: ``new_page(width=360, dark=True)``; further options are those of a Playwright context."""
    wrong: list[str] = []
    contexts = []

    def make(width: int = 1280, height: int = 800, dark: bool = False, **options: Any) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", **options
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: wrong.append(f"console: {said.text}") if said.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
        page.on("request", lambda asked: None if _is_local(asked.url) else wrong.append(f"request: {asked.url}"))
        return page

    yield make
    for context in contexts:
        context.close()
    assert not wrong, "\n".join(wrong)


@pytest.fixture
def page(new_page: NewPage) -> Page:
    """A page of 1280 by 800, light."""
    return new_page()


def _is_local(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in ("file", "data", "blob", "about") or parts.hostname in {h.strip("[]") for h in LOCAL}

"""The live page in a real browser, before a real server, beside a real simulation in another process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("fastapi", reason="the live page needs fkge[dashboard]")
api = pytest.importorskip("playwright.sync_api", reason="browser tests need playwright")

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
SIMULATE = Path(__file__).with_name("simulating.py")
SERVE = (
    "import sys; from pathlib import Path; from fkge.dashboard import serve; "
    "serve(Path(sys.argv[1]), port=int(sys.argv[2]), token=sys.argv[3])"
)
TOKEN = "open-sesame"
UNKIND = "<img src=x onerror=alert(1)>&\"'"
PATIENCE = 60_000

Simulate = Callable[..., "subprocess.Popen[str]"]


def started(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def heard(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return
    pytest.fail(f"it ended without a word of {word!r}")


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()


@pytest.fixture
def simulate() -> Iterator[Simulate]:
    """Starts simulations; those that are left are ended."""
    processes = []

    def start(folder: Path, works: int = -1) -> subprocess.Popen[str]:
        processes.append(started(str(SIMULATE), str(folder), str(works)))
        return processes[-1]

    yield start
    for process in processes:
        ended(process)


class Server:
    """The live page's server, in a process; always on the same port."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[str] | None = None

    def start(self, run: Path, token: str = TOKEN) -> str:
        """The address to open."""
        self.process = started("-c", SERVE, str(run), str(self.port), token)
        heard(self.process, "Ctrl-C")
        return f"http://127.0.0.1:{self.port}/?token={token}"

    def stop(self) -> None:
        if self.process is not None:
            ended(self.process)
            self.process = None


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser") / "run"
    process = started(str(SIMULATE), str(folder))
    process.communicate()
    assert process.returncode == 0
    return folder


@pytest.fixture(scope="module")
def address(finished: Path) -> Iterator[str]:
    """Of a server for a finished simulation."""
    made = Server()
    yield made.start(finished)
    made.stop()


def status(page: Page, word: str) -> None:
    api.expect(page.locator("#status")).to_have_text(word, timeout=PATIENCE)


def stamp(page: Page) -> None:
    """Whatever is loaded anew loses it."""
    page.evaluate("document.body.dataset.stamp = 'kept'")


def has_stamp(page: Page) -> bool:
    return bool(page.evaluate("document.body.dataset.stamp === 'kept'"))


# -- a run, live ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_run_is_followed_from_before_it_begins_to_its_end(
    server: Server, page: Page, simulate: Simulate, tmp_path: Path
) -> None:
    page.goto(server.start(tmp_path / "run"))
    status(page, "waiting")
    assert "token" not in page.url
    stamp(page)
    simulation = simulate(tmp_path / "run", 9)
    heard(simulation, "waiting")
    status(page, "running")
    rows = page.locator("#owners tbody tr")
    api.expect(rows).to_have_count(3)
    api.expect(page.locator("#arms li")).to_have_count(2)
    for name in ("network", "accuracy", "timeline", "learned"):
        api.expect(page.locator(f"[data-figure={name}] svg")).to_be_visible(timeout=PATIENCE)
    api.expect(page.locator("[data-figure=gains]")).to_be_hidden()
    lines = page.locator("#log li")
    before = lines.count()
    assert before > 3
    rows.nth(1).locator("a").focus()
    page.locator("#log-box summary").click()
    rows.nth(1).locator("a").focus()
    drawn = page.locator("[data-figure=accuracy] svg").inner_html()

    go_on(simulation)
    status(page, "finished")
    api.expect(page.locator("[data-figure=gains] svg")).to_be_visible()
    api.expect(page.locator("#arms li").nth(1)).to_contain_text("finished in")
    api.expect(page.locator("#lead")).to_contain_text("owner")
    assert page.locator("#log li").count() > before
    assert page.locator("[data-figure=accuracy] svg").inner_html() != drawn
    assert page.evaluate("document.activeElement.textContent") == "bee"  # focus stayed where it was
    assert page.locator("#log-box").get_attribute("open") is None  # and what was closed stays closed
    assert has_stamp(page)


def test_a_run_that_is_killed_and_taken_up_again(
    server: Server, page: Page, simulate: Simulate, tmp_path: Path
) -> None:
    first = simulate(tmp_path / "run", 9)
    heard(first, "waiting")
    page.goto(server.start(tmp_path / "run"))
    status(page, "running")
    stamp(page)
    first.kill()
    status(page, "interrupted")
    api.expect(page.locator("#lead")).to_contain_text("--resume")
    second = simulate(tmp_path / "run", 3)
    heard(second, "waiting")
    status(page, "running")
    api.expect(page.locator("#arms li").nth(1)).to_contain_text("resumed once")
    go_on(second)
    status(page, "finished")
    assert has_stamp(page)


def test_a_server_that_comes_back_is_found_again(browser: Browser, server: Server, finished: Path) -> None:
    context = browser.new_context()
    page = context.new_page()  # one whose console may complain of a server that is away
    try:
        page.goto(server.start(finished))
        status(page, "finished")
        stamp(page)
        notice = page.locator("#connection")
        api.expect(notice).to_be_hidden()
        server.stop()
        api.expect(notice).to_contain_text("trying again", timeout=PATIENCE)
        api.expect(page.locator("#owners tbody tr")).to_have_count(3)  # what is known stays
        server.start(finished)
        api.expect(notice).to_be_hidden(timeout=PATIENCE)
        server.stop()
        server.start(finished, "another")
        api.expect(notice).to_contain_text("another token", timeout=PATIENCE)
        assert has_stamp(page)
    finally:
        context.close()


def test_without_the_token_there_is_a_page_that_says_what_to_do(browser: Browser, address: str) -> None:
    context = browser.new_context()
    try:
        page = context.new_page()
        answer = page.goto(address.partition("?")[0])
        assert answer is not None
        assert answer.status == 401
        assert "the command printed" in page.locator("main").inner_text()
    finally:
        context.close()


# -- an owner --------------------------------------------------------------------------------------------


def test_asking_with_the_keyboard_alone(page: Page, address: str) -> None:
    page.goto(address)
    status(page, "finished")
    press = page.keyboard.press
    press("Tab")
    api.expect(page.locator(".skip")).to_be_focused()
    for _ in range(30):
        press("Tab")
        if page.evaluate("document.activeElement.textContent") == "bee":
            break
    press("Enter")
    api.expect(page.locator("#owner-title")).to_have_text("bee")
    api.expect(page.locator("#owner-title")).to_be_focused()
    for _ in range(30):
        press("Tab")
        if page.evaluate("document.activeElement.id") == "head":
            break
    head, options = page.locator("#head"), page.locator("#head-list [role=option]")
    page.keyboard.type("place3")
    api.expect(options).to_have_count(10)
    assert head.get_attribute("aria-expanded") == "true"
    press("ArrowDown")
    press("ArrowDown")
    api.expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    assert head.get_attribute("aria-activedescendant") == options.nth(1).get_attribute("id")
    press("ArrowUp")
    press("ArrowUp")
    api.expect(options.last).to_have_attribute("aria-selected", "true")  # around the end
    press("Escape")
    api.expect(page.locator("#head-list")).to_be_hidden()
    assert head.input_value() == "place3"
    assert head.get_attribute("aria-expanded") == "false"
    press("ArrowDown")
    api.expect(options.first).to_be_visible()  # open again
    press("ArrowDown")
    press("Enter")
    assert head.input_value() == "place30"
    press("Tab")
    page.keyboard.type("one")
    press("Tab")
    press("Enter")  # from the empty field
    tables = page.locator("#answers table")
    api.expect(tables).to_have_count(2, timeout=PATIENCE)
    assert [one.strip() for one in page.locator("#answers h3").all_inner_texts()] == [
        "Before: control",
        "After: federated",
    ]
    assert tables.nth(0).locator("tbody tr").count() == 10


def test_test_facts_are_marked_and_an_example_asks_for_one(page: Page, address: str) -> None:
    page.goto(f"{address}#/owner/cat")
    page.locator("#examples button").first.click()
    api.expect(page.locator("#answers .places").first).to_contain_text("not in training", timeout=PATIENCE)
    api.expect(page.locator("#answers tr.hit .true").first).to_contain_text("true, not in training")


def test_the_owners_page_tells_its_course_and_its_ledger(page: Page, address: str) -> None:
    page.goto(f"{address}#/owner/ant")
    api.expect(page.locator("#owner-lead")).to_contain_text("40 entities", timeout=PATIENCE)
    api.expect(page.locator("#owner-figure svg")).to_be_visible()
    api.expect(page.locator("#ledger")).to_contain_text("The ledger is intact")
    api.expect(page.locator("#ledger")).to_contain_text("rows of the shared track")
    api.expect(page.locator("#owner-tables")).to_contain_text("gain over control")
    page.locator(".brand").click()
    api.expect(page.locator("#overview")).to_be_visible()
    page.go_back()
    api.expect(page.locator("#owner-title")).to_be_visible()


def test_what_is_not_there_gets_a_sentence(browser: Browser, address: str) -> None:
    context = browser.new_context()  # a browser's console complains of every answer that is a refusal
    try:
        page = context.new_page()
        page.goto(f"{address}#/owner/cat")
        page.locator("#head").fill("place")
        page.locator("#relation").fill("one")
        page.locator("#ask button").click()
        api.expect(page.locator("#answers .notice")).to_contain_text("no entity 'place'", timeout=PATIENCE)
        page.goto(f"{address.partition('?')[0]}#/owner/nobody")
        api.expect(page.locator("#owner-lead")).to_contain_text("no owner 'nobody'", timeout=PATIENCE)
    finally:
        context.close()


def test_labels_are_never_markup(browser: Browser, address: str) -> None:
    context = browser.new_context()
    try:
        page = context.new_page()
        dialogs: list[str] = []
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.goto(f"{address}#/owner/ant")
        api.expect(page.locator("#owner-figure svg")).to_be_visible(timeout=PATIENCE)
        page.locator("#entity").press_sequentially("<img")
        option = page.locator("#entity-list [role=option]")
        api.expect(option).to_have_text(UNKIND)
        option.click()
        page.locator("#near button").click()
        api.expect(page.locator("#neighbors table")).to_have_count(2, timeout=PATIENCE)
        page.locator("#entity").fill("place01")
        page.locator("#head").fill(UNKIND)
        page.locator("#relation").fill("<b>no</b>")
        page.locator("#ask button").click()
        api.expect(page.locator("#answers .notice")).to_contain_text("<b>no</b>")
        assert page.locator("img").count() == 0
        assert page.locator("#answers b").count() == 0
        assert dialogs == []
    finally:
        context.close()


# -- for everybody -----------------------------------------------------------------------------------------

ROUTES = ("", "#/owner/ant")


def opened(page: Page, address: str, route: str) -> None:
    """Shown in full: on an owner's page with questions answered."""
    page.goto(address + route)
    if not route:
        status(page, "finished")
        api.expect(page.locator("[data-figure=accuracy] svg")).to_be_visible(timeout=PATIENCE)
        return
    page.locator("#examples button").first.click()
    api.expect(page.locator("#answers table")).to_have_count(2, timeout=PATIENCE)
    page.locator("#entity").fill("place01")
    api.expect(page.locator("#entity-list")).to_be_hidden()  # typed out, it needs no suggestion in the way
    page.locator("#near button").click()
    api.expect(page.locator("#neighbors table")).to_have_count(2, timeout=PATIENCE)
    api.expect(page.locator("#ledger table").first).to_be_visible(timeout=PATIENCE)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("width", [360, 800, 1280])
def test_no_width_makes_the_page_scroll_sideways(page: Page, address: str, route: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    opened(page, address, route)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    small = page.evaluate(
        """[...document.querySelectorAll("svg text")].filter((t) => t.getBoundingClientRect().width > 0)
           .filter((t) => parseFloat(getComputedStyle(t).fontSize)
             * t.ownerSVGElement.getBoundingClientRect().width / t.ownerSVGElement.viewBox.baseVal.width < 8.5)
           .map((t) => t.textContent)"""
    )
    assert small == []  # text in figures can be read


@pytest.mark.parametrize("route", ROUTES)
def test_what_a_screen_reader_needs(page: Page, address: str, route: str) -> None:
    opened(page, address, route)
    assert page.locator("html").get_attribute("lang") == "en"
    for landmark in ("banner", "main", "contentinfo"):
        api.expect(page.get_by_role(landmark)).to_have_count(1)
    found = page.evaluate(
        """() => {
          const shown = (node) => node.getClientRects().length > 0;
          const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);
          const named = (node) => node.getAttribute("aria-label") || node.labels?.length || node.textContent.trim()
            || document.getElementById(node.getAttribute("aria-labelledby") ?? "");
          return {
            nameless: all("a, button, input, progress, summary, [role=region], [tabindex='0']")
              .filter((n) => !named(n)).map((n) => n.outerHTML),
            headings: all("h1, h2, h3, h4").map((n) => Number(n.tagName[1])),
            bare: all("table").filter((n) => !n.caption?.textContent.trim()).length,
            scopeless: all("th").filter((n) => !n.getAttribute("scope")).length,
            mute: all("svg").filter((n) => n.getAttribute("role") !== "img" || !n.getAttribute("aria-label")).length,
            twice: [...document.querySelectorAll("[id]")].map((n) => n.id)
              .filter((id, i, ids) => ids.indexOf(id) !== i),
            live: all("#log[aria-live]").length,
          };
        }"""
    )
    headings = found.pop("headings")
    assert headings.count(1) == 1
    assert headings[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))
    assert found == {"nameless": [], "bare": 0, "scopeless": 0, "mute": 0, "twice": [], "live": 0}


CONTRAST = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(node).backgroundColor);
      if (a > 0) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !node.getClientRects().length || node.closest(".skip, desc, title, .inverse")) continue;
    const style = getComputedStyle(node);
    const ink = parse(node.closest("svg") ? style.fill : style.color);
    const [one, two] = [light(ink), light(behind(node))].sort((a, b) => b - a);
    if ((one + 0.05) / (two + 0.05) < 4.5) poor.push(node.outerHTML.slice(0, 120));
  }
  return poor;
}"""


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_in_light_and_in_dark(page: Page, address: str, route: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    opened(page, address, route)
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    was = page.evaluate(ground)
    assert page.evaluate(CONTRAST) == []
    page.locator("#theme").click()
    assert page.evaluate(ground) != was
    assert page.evaluate(CONTRAST) == []


def test_who_wants_no_motion_gets_none(page: Page, address: str) -> None:
    page.emulate_media(reduced_motion="reduce")
    opened(page, address, "")
    moving = "[...document.querySelectorAll('*')].filter((n) => n.getAnimations({ subtree: true }).length).length"
    page.evaluate("document.querySelector('#status').className = 'pill running'")
    assert page.evaluate(moving) == 0
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(moving) > 0


@pytest.mark.parametrize("route", ROUTES)
def test_the_keyboard_reaches_every_control_and_shows_where_it_is(page: Page, address: str, route: str) -> None:
    opened(page, address, route)
    controls = page.evaluate(
        """[...document.querySelectorAll("a, button, input, summary, [tabindex='0']")]
           .filter((n) => n.getClientRects().length).map((n, i) => (n.dataset.nth = i)).length"""
    )
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    reached, invisible = set(), []
    for _ in range(controls + 3):
        page.keyboard.press("Tab")
        nth, outline = page.evaluate(
            "[document.activeElement.dataset.nth, getComputedStyle(document.activeElement).outlineStyle]"
        )
        reached.add(nth)
        if nth is not None and outline == "none":
            invisible.append(nth)
    assert {str(i) for i in range(controls)} <= reached
    assert invisible == []

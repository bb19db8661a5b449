"""The report in a real browser: on a phone, a tablet and a desk, light, dark and on paper."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fkge.experiment.simulation import Simulation
from fkge.report import write_report
from fkge.report.page import render
from fkge.report.run_folder import SimulationRun
from tests.browser.conftest import NewPage
from tests.conftest import tiny_federation, tiny_settings
from tests.unit.report.made import history, result

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTHS = (360, 800, 1400)
KINDS = ("circle", "crowd", "begun", "dp")

# What is to the right of the window, but for what scrolls by itself.
BEYOND = """() => [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, .skip, defs'))
  .filter(e => { const r = e.getBoundingClientRect(); return r.width && r.right > innerWidth + 1 })
  .map(e => e.outerHTML.slice(0, 120))"""

# Texts of one figure that lie on each other, leave the figure, or are too small to read.
TEXTS = """() => { const wrong = [];
  for (const svg of document.querySelectorAll('svg.fig')) {
    const frame = svg.getBoundingClientRect(); if (!frame.width) continue;
    const scale = frame.width / svg.viewBox.baseVal.width;
    const texts = [...svg.querySelectorAll('text')].filter(t => !/rotate/.test(t.getAttribute('transform') || ''))
      .map(t => [[...t.childNodes].filter(c => c.nodeType === 3).map(c => c.data).join(''), t.getBoundingClientRect()]);
    for (const [word, r] of texts) {
      if (r.left < frame.left - 2 || r.right > frame.right + 2 || r.top < frame.top - 2 || r.bottom > frame.bottom + 4)
        wrong.push(`outside: ${word} of ${svg.getAttribute('aria-label')}`);
    }
    if (11 * scale < 9) wrong.push(`small: ${11 * scale}px in ${svg.getAttribute('aria-label')}`);
    for (let i = 0; i < texts.length; i++) for (let j = 0; j < i; j++) {
      const [a, p] = texts[i], [b, q] = texts[j];
      const x = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const y = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (x > 1 && y > 4) wrong.push(`on each other: ${a} | ${b} of ${svg.getAttribute('aria-label')}`);
    }
  } return wrong }"""

# Texts whose contrast with what lies behind them is below 4.5, as WCAG counts it.
PALE = """() => {
  const parse = c => { const m = c.match(/[\\d.]+/g).map(Number); return m.length > 3 && m[3] === 0 ? null : m };
  const linear = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
  const behind = e => e ? parse(getComputedStyle(e).backgroundColor) || behind(e.parentElement) : [255, 255, 255];
  const wrong = []; let seen = 0;
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(c => c.nodeType === 3 && c.data.trim());
    if (!own || !e.getBoundingClientRect().width || ['SCRIPT', 'title', 'desc'].includes(e.tagName)) continue;
    const style = getComputedStyle(e), c = parse(e.tagName === 'text' ? style.fill : style.color);
    const a = light(c.slice(0, 3)), b = light(behind(e).slice(0, 3));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05); seen++;
    if (ratio < 4.5) wrong.push(`${ratio.toFixed(2)}: ${e.textContent.trim().slice(0, 40)}`);
  } return [seen, wrong] }"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A real one; one that has hardly begun; eleven owners with long names and every arm; one under dp."""
    folder = tmp_path_factory.mktemp("reports")
    baselines = ("independent", "control", "permuted", "fede")
    simulation = Simulation.create(
        folder / "circle", tiny_federation(), tiny_settings(), baselines=baselines, engine="in-process"
    )
    assert simulation.run() is not None
    Simulation.create(folder / "begun", tiny_federation(), tiny_settings(), engine="in-process")
    names = [f"Organisation of some renown {i}" for i in range(11)]
    arms = (*baselines, "federated")
    crowd = _page(folder / "crowd", names, arms, "paper")
    dp = _page(folder / "dp", ["clinic", "gene bank", "maker"], ("control", "federated"), "dp")
    return {name: write_report(folder / name) for name in ("circle", "begun")} | {"crowd": crowd, "dp": dp}


def _page(folder: Path, names: list[str], arms: tuple[str, ...], mode: str) -> Path:
    parts = {"strict": (0.01, 0.05), "chained": (-0.02, 0.01), "held": (-0.3, -0.1)}
    found = result(dict.fromkeys(names, parts), arms=arms, mode=mode)
    made = SimulationRun(folder, "epochs = 3\n", found, True, False, history(names, 12, arms=arms))
    folder.mkdir()
    (folder / "report.html").write_text(render(made), encoding="utf-8")
    return folder / "report.html"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits_and_can_be_read(
    new_page: NewPage, reports: dict[str, Path], kind: str, width: int, dark: bool
) -> None:
    page = _opened(new_page(width, dark=dark), reports[kind])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(BEYOND) == []
    assert page.evaluate(TEXTS) == []
    seen, pale = page.evaluate(PALE)
    assert seen > 50
    assert pale == []


@pytest.mark.parametrize("kind", KINDS)
def test_structure(page: Page, reports: dict[str, Path], kind: str) -> None:
    _opened(page, reports[kind])
    for role in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(role, exact=True).count() == 1, role  # type: ignore[arg-type]
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.caption && t.caption.innerText.trim())")
    assert page.evaluate("[...document.querySelectorAll('th')].every(t => t.scope)")
    assert page.evaluate("[...document.querySelectorAll('svg')].every(s => s.getAttribute('aria-label'))")
    assert page.evaluate("document.documentElement.lang") == "en"


def test_keys_alone_lead_through_it(page: Page, reports: dict[str, Path]) -> None:
    _opened(page, reports["circle"])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the report"
    assert page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        place = page.evaluate(
            "() => { const e = document.activeElement; return e === document.body ? null : "
            "[[...document.querySelectorAll('*')].indexOf(e), e.tagName, getComputedStyle(e).outlineStyle] }"
        )
        if place is None:
            break
        stops.append(place)
    places = [place for place, _, _ in stops]
    assert places == sorted(places), "as it is written, so it is walked"
    tags = [tag for _, tag, _ in stops]
    assert tags.count("A") == 8
    assert tags.count("BUTTON") == 1
    assert tags.count("DIV") == page.locator(".scroll").count(), "what scrolls can be scrolled by keys"
    assert all(outline != "none" for _, _, outline in stops)


def test_light_and_dark_can_be_switched(new_page: NewPage, reports: dict[str, Path]) -> None:
    page = _opened(new_page(800, dark=True), reports["circle"])
    dark = _paper(page)
    page.get_by_role("button", name="Light or dark").click()
    light = _paper(page)
    assert (dark, light) == ("rgb(18, 22, 27)", "rgb(255, 255, 255)")
    page.get_by_role("button", name="Light or dark").click()
    assert _paper(page) == dark


def test_it_needs_no_script(new_page: NewPage, reports: dict[str, Path]) -> None:
    page = _opened(new_page(800, java_script_enabled=False), reports["circle"])
    assert page.get_by_role("heading", name="Findings").is_visible()
    assert not page.locator("#theme").is_visible()


@pytest.mark.parametrize("kind", KINDS)
def test_on_paper_it_is_light_and_whole(new_page: NewPage, reports: dict[str, Path], kind: str) -> None:
    page = _opened(new_page(688, dark=True), reports[kind])  # A4 less its margins
    page.emulate_media(media="print")
    assert _paper(page) == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert page.evaluate(
        "[...document.querySelectorAll('.scroll')].every(e => getComputedStyle(e).overflowX === 'visible')"
    )
    cut = "[...document.querySelectorAll('td, th, svg')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
    assert page.evaluate(f"{cut}.map(e => e.outerHTML.slice(0, 80))") == []
    assert page.evaluate(PALE)[1] == []
    pdf = page.pdf(prefer_css_page_size=True)
    assert pdf.startswith(b"%PDF")
    assert pdf.count(b"/Type /Page\n") >= 2


def test_figures_stand_alone(new_page: NewPage, reports: dict[str, Path]) -> None:
    for svg in sorted((reports["circle"].parent / "figures").glob("*.svg")):
        for dark, ink in ((False, "rgb(26, 31, 36)"), (True, "rgb(232, 237, 242)")):
            page = _opened(new_page(900, dark=dark), svg)
            fills = page.evaluate("[...document.querySelectorAll('text')].map(t => getComputedStyle(t).fill)")
            assert ink in fills, svg.name


def _opened(page: Page, path: Path) -> Page:
    page.goto(path.as_uri())
    return page


def _paper(page: Page) -> Any:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")

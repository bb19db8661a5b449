"""The report: whole, self-contained, true to its folder, and refused with a way out where there is nothing to tell."""

from __future__ import annotations

import html
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from fkge.errors import RunError
from fkge.experiment.simulation import Simulation
from fkge.experiment.training_run import Run
from fkge.progress import SILENT
from fkge.report import page as module
from fkge.report import write_report
from fkge.settings import TrainSettings
from tests.conftest import random_graph, tiny_federation, tiny_settings


class Page(HTMLParser):
    """A page's elements, checked for closing in order."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "circle"
    simulation = Simulation.create(folder, tiny_federation(), tiny_settings(), engine="in-process")
    assert simulation.run() is not None
    return folder


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "copy"))


def test_a_report_is_one_page_and_its_figures(copy: Path) -> None:
    path = write_report(copy)
    assert path == copy / "report.html"
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    for tag in ("header", "nav", "main", "footer", "h1"):
        assert len(page.all(tag)) == 1, tag
    assert len(page.all("table")) == len(page.all("caption")) >= 4
    assert all(th.get("scope") for th in page.all("th"))
    drawn = {p.stem for p in (copy / "figures").glob("*.svg")}
    assert drawn == {"accuracy", "timeline", "learned", "network", "gains"}
    result = json.loads((copy / "results.json").read_text(encoding="utf-8"))
    for owner, told in result["owners"].items():
        assert owner in text
        assert f"{told['arms']['federated']['test']['strict']['mrr']:.3f}"[1:] in text
    assert "seconds of the engine's own clock" in html.unescape(text)


def test_a_page_loads_nothing(copy: Path) -> None:
    text = write_report(copy).read_text(encoding="utf-8")
    page = Page(text)
    for tag, attrs in page.elements:
        for key in ("src", "srcset", "data", "action", "poster"):
            assert key not in attrs, (tag, attrs)
        assert (attrs.get("href") or "#").startswith(("#", "data:")), (tag, attrs)
    assert not re.search(r"@import|url\(|//", re.sub(r"<desc>.*?</desc>", "", text).replace("<!doctype", ""))


def test_ids_are_unique_and_links_have_targets(copy: Path) -> None:
    page = Page(write_report(copy).read_text(encoding="utf-8"))
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(ids) == len(set(ids))
    links = [attrs["href"] or "" for attrs in page.all("a")]
    assert len(links) >= 9
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert {attrs["aria-labelledby"] for attrs in page.all("section")} <= set(ids)


def test_figures_are_written_as_png_where_resvg_is_installed(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("resvg_py", reason="needs resvg_py: pip install 'fkge[figures]'")
    write_report(copy, figures=copy / "with")
    assert {p.stem for p in (copy / "with").glob("*.png")} == {p.stem for p in (copy / "with").glob("*.svg")}
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in (copy / "with").glob("*.png"))
    assert len((copy / "with" / "network.png").read_bytes()) > 5_000

    real = importlib.util.find_spec
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None if name == "resvg_py" else real(name))
    said: list[str] = []

    class Told:
        def task(self, name: str, total: int | None, unit: str = "") -> Any:
            said.append(name)
            return SILENT.task(name, total)

    write_report(copy, figures=copy / "without", progress=Told())
    assert not list((copy / "without").glob("*.png"))
    assert "pip install 'fkge[figures]'" in said[0]


def test_labels_are_text_and_never_markup(copy: Path) -> None:
    for name in ("results.json", "simulation.json", "trace.jsonl"):
        text = (copy / name).read_text(encoding="utf-8")
        (copy / name).write_text(text.replace('"bee"', '"<script>alert(1)</script>"'), encoding="utf-8")
    text = write_report(copy).read_text(encoding="utf-8")
    assert len(Page(text).all("script")) == 1
    assert "&lt;script&gt;alert" in text


def test_an_unfinished_simulation_says_so(copy: Path) -> None:
    (copy / "results.json").unlink()
    for path in (copy / "arms" / "federated").glob("*/result.json"):
        path.unlink()
    lines = (copy / "trace.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    begun = next(i for i, line in enumerate(lines) if '"arm": "federated"' in line)
    (copy / "trace.jsonl").write_text("".join(lines[: begun + 12]), encoding="utf-8")
    text = write_report(copy).read_text(encoding="utf-8")
    assert "This simulation is not finished: 1 of 2 arms are finished" in text
    assert "fkge simulate --resume copy" in text
    assert "nothing is compared yet" in text
    assert "Strict: facts" in text, "what control reached is there"


def test_a_simulation_that_has_not_started_has_a_page(tmp_path: Path) -> None:
    Simulation.create(tmp_path / "new", tiny_federation(), tiny_settings(), engine="in-process")
    text = write_report(tmp_path / "new").read_text(encoding="utf-8")
    Page(text)
    assert "0 of 2 arms are finished" in text
    assert "No owner has started yet" in text


def test_paths_of_the_page_and_the_figures_can_be_chosen(copy: Path, tmp_path: Path) -> None:
    path = write_report(copy, tmp_path / "deep" / "down.html", tmp_path / "drawn")
    assert path == tmp_path / "deep" / "down.html"
    assert path.exists()
    assert (tmp_path / "drawn" / "gains.svg").exists()
    assert not (copy / "report.html").exists()
    with pytest.raises(RunError, match="cannot be written"):
        write_report(copy, copy / "results.json" / "report.html")


def test_a_training_has_a_shorter_report(tmp_path: Path) -> None:
    settings = TrainSettings(model="DistMult", dim=8, epochs=4, validate_every=2, device="cpu")
    training = Run.create(tmp_path / "run", random_graph(), settings)
    unfinished = write_report(tmp_path / "run").read_text(encoding="utf-8")
    assert "not finished" in unfinished
    found = training.train()
    assert found is not None
    text = write_report(tmp_path / "run").read_text(encoding="utf-8")
    Page(text)
    assert f"{found.splits['test'].mrr:.3f}"[1:] in text
    assert (tmp_path / "run" / "figures" / "curve.svg").exists()


def test_folders_without_a_run_are_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such folder"):
        write_report(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="holds no run"):
        write_report(tmp_path / "empty")
    with pytest.raises(RunError, match=r"is part of the simulation in .*fkge report"):
        write_report(copy / "arms" / "federated" / "ant")
    (copy / "results.json").write_text("{", encoding="utf-8")
    with pytest.raises(RunError, match=r"is damaged. Remove it"):
        write_report(copy)


def test_figures_and_words_need_no_torch() -> None:
    code = "import sys, fkge.report.figures, fkge.report.findings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

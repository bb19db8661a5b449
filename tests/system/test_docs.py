"""What the documentation says runs, runs; what it names is there; and the site can be built, and needs no other.

A page is carried out in a folder of its own, from top to bottom: a block with a ``title="x.toml"`` is a file, Python
runs, and so do the `fkge` lines of a block below ``<!-- run -->``. All other `fkge` lines go through the program's own
parser.
"""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from fkge import recipes
from fkge.federation import FederationSettings
from fkge.federation.source import FederationFile, LinkTable, MemberTable
from fkge.graph import Policy
from fkge.graph.policy import Rule
from fkge.node.settings import NodeSettings, PeerSettings
from fkge.settings import Settings, TrainSettings

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file it stands for, whether it is to be run, and its text."""

    language: str
    title: str
    run: bool
    text: str

    @property
    def lines(self) -> list[list[str]]:
        """The words of every `fkge` line, without comments and dots."""
        joined = self.text.replace("\\\n", " ")
        split = [shlex.split(line, comments=True) for line in joined.splitlines()] if self.language == "sh" else []
        return [[word for word in words[1:] if word != "…"] for words in split if words[:1] == ["fkge"]]


_FENCE = re.compile(r'(<!-- run -->\n\s*)?^```(\w*)(?: title="([^"]+)")?[^\n]*\n(.*?)^```$', flags=re.S | re.M)


def blocks(page: Path) -> list[Block]:
    return [
        Block(language, title, bool(run), text)
        for run, language, title, text in _FENCE.findall(page.read_text(encoding="utf-8"))
    ]


def spans(page: Path) -> Iterator[str]:
    """The pieces of code within a page's text."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    yield from (found.replace(r"\|", "|") for found in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text))


def test_blocks_and_spans_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('`a = 1`\n<!-- run -->\n```sh\nfkge x \\\n  y … # z\n```\n\n```toml title="b/c.toml"\nd = 2\n```\n')
    assert blocks(page) == [
        Block("sh", "", True, "fkge x \\\n  y … # z\n"),
        Block("toml", "b/c.toml", False, "d = 2\n"),
    ]
    assert blocks(page)[0].lines == [["x", "y"]]
    assert list(spans(page)) == ["a = 1"]


# -- carrying a page out -----------------------------------------------------------------------------

_HELPERS = """
import pathlib as _pathlib, subprocess as _subprocess, sys as _sys

def _file(path, text):
    _pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    _pathlib.Path(path).write_text(text, encoding="utf-8")

def _fkge(*words):
    done = _subprocess.run([_sys.executable, "-m", "fkge", *words], capture_output=True, text=True)
    if done.returncode:
        _sys.exit(f"fkge {' '.join(words)}: exit {done.returncode}\\n{done.stdout}{done.stderr}")
"""


def script(page: Path) -> str:
    """All that a page does, as one program; empty if it does nothing."""
    steps = []
    for block in blocks(page):
        if block.title:
            steps.append(f"_file({block.title!r}, {block.text!r})")
        elif block.language == "python":
            steps.append(block.text)
        elif block.run:
            steps += [f"_fkge(*{words!r})" for words in block.lines]
    return "\n".join([_HELPERS, *steps]) if steps else ""


@pytest.mark.long
@pytest.mark.parametrize("page", [p for p in PAGES if script(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_what_a_page_does_works(page: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script(page)],
        cwd=tmp_path, text=True, capture_output=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


# -- what a page names -------------------------------------------------------------------------------


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `fkge WORDS` means, and the words that are left for it."""
    from fkge.cli import app

    command: Any = typer.main.get_command(app)
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"there is no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def options_of(command: Any) -> set[str]:
    here = {name for p in command.params for name in (*p.opts, *p.secondary_opts)} | {"--help"}
    below = command.commands.values() if isinstance(command, TyperGroup) else ()
    return here.union(*(options_of(c) for c in below))


@each_page
def test_commands_can_be_given_as_they_stand(page: Path) -> None:
    for block in blocks(page):
        for words in block.lines:
            command, rest = command_of(words)
            if isinstance(command, TyperGroup):
                assert set(rest) <= options_of(command), words
                continue
            given = command.make_context("fkge", list(rest)).params  # raises for what it cannot make sense of
            check_settings(command.name, given)


def check_settings(command: str, given: dict[str, Any]) -> None:
    """Refuse recipes and settings that do not exist."""
    if "set_" not in given:
        return
    kind = TrainSettings if command in ("train", "tune") else FederationSettings
    config = given["config"]
    file = config if config is not None and str(config) in recipes.names() else None
    assert file is not None or config is None or config.suffix == ".toml" or str(config).isupper(), config
    kind.load(file, given["set_"] or ())


@each_page
def test_commands_and_options_in_the_text_exist(page: Path) -> None:
    anywhere = options_of(command_of([])[0])
    for span in spans(page):
        words = span.split()
        if words[0] == "fkge" and len(words) > 1 and not words[1].isupper():
            command, rest = command_of(words[1:])
            assert {w for w in rest if w.startswith("--")} <= options_of(command), span
        elif words[0].startswith("--"):
            assert {w.rstrip(",") for w in words if w.startswith("--")} <= anywhere, span


def keys() -> tuple[set[str], dict[str, set[str]]]:
    """Every key that a TOML file of ours may hold, and those of each section."""
    kinds: list[type[Settings]] = [
        TrainSettings, FederationSettings, Rule, MemberTable, LinkTable, FederationFile, NodeSettings, PeerSettings,
    ]  # fmt: skip
    sections = {name: set(kind.model_fields) for name, kind in FederationSettings.sections().items()}
    return {key for kind in kinds for key in kind.model_fields}.union({"default"}, *sections.values()), sections


@each_page
def test_settings_in_the_text_exist(page: Path) -> None:
    known, sections = keys()
    for span in spans(page):
        if found := re.fullmatch(r"([a-z_]+)\.([a-z_]+)( = .*)?", span):
            section, key = found[1], found[2]
            there = key in sections.get(section, (key,)) or hasattr(importlib.import_module(f"fkge.{section}"), key)
            assert there, span
        elif found := re.fullmatch(r"([a-z_]+) = .*", span):
            assert found[1] in known, span


@each_page
def test_toml_in_a_page_is_valid(page: Path) -> None:
    for block in blocks(page):
        if block.language != "toml":
            continue
        values = tomllib.loads(block.text)
        if "owners" in values or "links" in values:
            FederationFile.build(values)
            for owner in values["owners"].values():
                TrainSettings.build(MemberTable.build(owner).train)
            for link in values.get("links", ()):
                assert set(LinkTable.build(link).between) <= set(values["owners"])
        elif "default" in values or "rules" in values:
            Policy.build(values | {"rules": [rule for rule in values["rules"] if "source" not in rule]})
        elif "peers" in values:
            for table in values["peers"].values():
                PeerSettings.build(table)
        elif "listen" in values:
            NodeSettings.build(values)
        else:
            FederationSettings.build(values)


@each_page
def test_files_and_names_in_the_text_exist(page: Path) -> None:
    for span in spans(page):
        if re.fullmatch(r"[\w/]+\.py", span):
            assert any((base / span).exists() for base in (ROOT, ROOT / "src", ROOT / "src" / "fkge")), span
        elif re.fullmatch(r"fkge(\.\w+)+", span):
            resolve(span)


def resolve(name: str) -> object:
    """What a dotted name stands for."""
    words = name.split(".")
    found: Any = importlib.import_module(words[0])
    for i, word in enumerate(words[1:], 2):
        try:
            found = importlib.import_module(".".join(words[:i]))
        except ModuleNotFoundError:
            found = getattr(found, word)
    return found


def test_keys_of_files_are_all_told() -> None:
    told = set(re.findall(r"`(\w+)`", (ROOT / "docs/reference/files.md").read_text(encoding="utf-8")))
    told |= set(re.findall(r"^(\w+) =", (ROOT / "docs/reference/files.md").read_text(encoding="utf-8"), flags=re.M))
    assert set(Rule.model_fields) | set(LinkTable.model_fields) | set(MemberTable.model_fields) - {"train"} <= told


def test_every_event_of_a_trace_is_told() -> None:
    from fkge.experiment.trace_events import EVENTS  # all of them

    told = (ROOT / "docs/reference/files.md").read_text(encoding="utf-8")
    assert not [event for event in EVENTS if f"`{event}`" not in told]


def test_every_message_is_told() -> None:
    from fkge.federation.codec import KINDS

    told = (ROOT / "docs/reference/wire.md").read_text(encoding="utf-8")
    for name, kind in KINDS.items():
        missing = [field for field in kind.__dataclass_fields__ if f"`{field}`" not in told]
        assert f"`{name}`" in told, name
        assert not missing, (name, missing)


def test_pages_that_the_program_writes_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_pages_that_the_sources_name_exist() -> None:
    for file in [ROOT / "Makefile", *(ROOT / "src" / "fkge").rglob("*"), *(ROOT / "benchmarks").glob("*")]:
        if file.suffix not in ("", ".py", ".toml", ".md") or file.is_dir():
            continue
        for name in re.findall(r"docs/[\w/.-]+\.(?:md|ipynb)", file.read_text(encoding="utf-8")):
            assert (ROOT / name).exists(), f"{file.relative_to(ROOT)} names {name}"


def test_extras_that_are_named_exist() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = set(tomllib.load(file)["project"]["optional-dependencies"])
    for page in [*PAGES, *(ROOT / "src" / "fkge").rglob("*.py"), ROOT / "docs" / "tutorial.ipynb"]:
        named = re.findall(r"fkge\[([a-z,]+)\]", page.read_text(encoding="utf-8"))
        assert {extra for names in named for extra in names.split(",")} <= extras, page


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target


# -- the site ----------------------------------------------------------------------------------------


class Resources(HTMLParser):
    """What a browser fetches for a page without being asked."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        fetched = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data", "link": "href"}
        if tag in fetched and given.get(fetched[tag]):
            self.found.append(given[fetched[tag]] or "")


def test_the_site_is_built_without_a_warning_and_needs_no_other(tmp_path: Path) -> None:
    """Strict: every link leads somewhere, every page is in the table of contents."""
    pytest.importorskip("mkdocs", reason="needs mkdocs: pip install 'fkge[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
        cwd=ROOT, text=True, capture_output=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted(tmp_path.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        resources = Resources()
        resources.feed(text)
        assert resources.found
        outside = [name for name in resources.found if re.match(r"(https?:)?//", name)]
        assert not outside, (page.name, outside)
        assert "```" not in re.sub(r"(?s)<code.*?</code>", "", text), page.name
    for style in tmp_path.rglob("*.css"):
        assert not re.search(r"(url\(|@import )['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style.name


# -- recipes -----------------------------------------------------------------------------------------


def test_recipes_are_valid_and_name_their_model() -> None:
    from fkge.embed import MODELS

    found = {path.stem: TrainSettings.load(path) for path in (ROOT / "src" / "fkge" / "recipes").glob("*.toml")}
    assert {s.model.lower() for s in found.values()} == {name.lower() for name in MODELS} == set(found)


def test_recipes_of_federations_are_valid() -> None:
    found = {
        p.stem: FederationSettings.load(p) for p in (ROOT / "src" / "fkge" / "recipes" / "federations").glob("*.toml")
    }
    assert set(found) >= {"dbp5l", "dbp5l-dp", "dense", "fb15k237-r3", "fb15k237-r3-dp", "paper"}
    paper = found["paper"]
    assert (paper.start, paper.translate, paper.gather, paper.patience) == ("alone", "ppat", False, 1)
    assert (paper.ppat.batch, paper.ppat.teachers, paper.ppat.lr, paper.ppat.lam) == (32, 4, 0.02, 0.05)

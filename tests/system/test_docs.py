"""What the documentation says runs, runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_python_snippets_run_in_order(page: Path, tmp_path: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.S)
    if not snippets:
        pytest.skip(f"{page.name} has no Python in it")
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(snippets)], cwd=tmp_path, text=True, capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_recipes_are_valid_and_name_their_model() -> None:
    from fkge.embed import MODELS
    from fkge.settings import TrainSettings

    recipes = {path.stem: TrainSettings.load(path) for path in (ROOT / "recipes").glob("*.toml")}
    assert {s.model.lower() for s in recipes.values()} == {name.lower() for name in MODELS} == set(recipes)


def test_recipes_of_federations_are_valid() -> None:
    from fkge.federation import FederationSettings

    recipes = {p.stem: FederationSettings.load(p) for p in (ROOT / "recipes" / "federations").glob("*.toml")}
    assert set(recipes) == {"dbp5l", "dbp5l-dp", "dense", "fb15k237-r3", "fb15k237-r3-dp", "paper"}
    paper = recipes["paper"]
    assert (paper.start, paper.translate, paper.gather, paper.patience) == ("alone", "ppat", False, 1)
    assert (paper.ppat.batch, paper.ppat.teachers, paper.ppat.lr, paper.ppat.lam) == (32, 4, 0.02, 0.05)

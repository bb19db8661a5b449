"""`fkge new`: write a project that runs as it is, to start from."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from fkge.errors import RunError
from fkge.files import write_atomically

if TYPE_CHECKING:
    from fkge.settings import SettingValues

_PROJECT = Path(__file__).parent / "project"

CHOSEN: SettingValues = {
    "initial_epochs": 0, "exchanges": 20, "epochs": 3, "test_every": 4, "start": "together", "translate": "frame",
    "train": {"model": "TransE", "dim": 32, "lr": 0.01, "negatives": 16, "batch": 64, "device": "cpu"},
    "privacy": {"mode": "none"},
    "private": {"epochs": 40},
}  # fmt: skip
"""Settings that the project sets; all others are comments with their defaults."""

_HEAD = """\
# How the owners train and exchange. Lines that are not comments are in force; below them are all other settings as
# comments, with their defaults. `--set key=value` and `--set section.key=value` override this file for one run.

"""


def write_project(folder: Path) -> list[str]:
    """Write a project into `folder`, which must be new or empty; return what to print.

    Raises:
        RunError: the folder holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunError(f"{folder}: exists already; name a new folder")
    from fkge.federation import FederationSettings

    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(_PROJECT.iterdir()):
        if file.is_file():
            write_atomically(folder / file.name, file.read_bytes())
    text = _HEAD + FederationSettings.build(CHOSEN).explained(CHOSEN)
    write_atomically(folder / "settings.toml", text.encode())
    federation, settings, run, model = (
        quote(str(folder / name))
        for name in ("federation.toml", "settings.toml", "run", "run/arms/federated/gazetteer")
    )
    return [
        f"{folder}: a federation of two owners; README.md says what is what. Run it:",
        f"  fkge simulate {federation} --config {settings} --out {run}",
        f"  fkge report {run}",
        f"  fkge predict {model} --head Danube --relation 'flows through'",
    ]

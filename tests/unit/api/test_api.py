"""What the Python interface exports, and that importing it is light."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

import fkge
from tests.unit.api.scripts import script


def test_public_names() -> None:
    offered = {
        "Answers", "Federation", "FederationSettings", "FkgeError", "Graph", "Links", "Member", "Policy", "Result",
        "TrainSettings", "Trained", "evaluate", "open", "read_graph", "train",
    }  # fmt: skip
    assert {*fkge.__all__, "open"} == offered <= set(dir(fkge))
    for name in offered:
        found = getattr(fkge, name)
        assert found.__name__ == name
        assert found.__doc__
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        fkge.tarin  # noqa: B018


def test_the_version_is_that_of_the_installed_package() -> None:
    assert fkge.__version__ == metadata.version("fkge")
    assert "__version__" in dir(fkge)


def test_importing_the_package_is_light(tmp_path: Path) -> None:
    script(
        "import sys, fkge\nheavy = {'torch', 'numpy', 'pandas', 'numba', 'rich', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\nfkge.FkgeError\nassert 'torch' not in sys.modules\n"
        "fkge.train\nassert 'torch' in sys.modules and 'pandas' not in sys.modules\n",
        tmp_path,
    )

"""A cache of their own for the tests of embedded federations."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.data import build, recipe
from fkge.data.atlas.owners import GFLANGUAGES
from fkge.errors import DataError, MissingLibraryError


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("FKGE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="session")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The atlas's TOML file, built once."""
    try:
        recipe("atlas").versions()
    except MissingLibraryError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FKGE_CACHE", str(tmp_path_factory.mktemp("cache")))
        try:
            GFLANGUAGES.fetch()
        except DataError as error:
            pytest.skip(str(error))
        return build("atlas")


@pytest.fixture
def in_atlas_cache(atlas: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the atlas, in the cache that is set."""
    monkeypatch.setenv("FKGE_CACHE", str(atlas.parent.parent))
    return atlas.parent

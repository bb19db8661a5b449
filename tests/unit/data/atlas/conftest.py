"""The files of the built atlas."""

from __future__ import annotations

from pathlib import Path

import pytest

OWNERS = ("gazetteer", "airports", "standards", "locales", "languages", "almanac")
Splits = dict[str, list[tuple[str, ...]]]


@pytest.fixture(scope="session")
def owners(atlas: Path) -> dict[str, Splits]:
    """Facts of each owner by split."""
    return {
        owner: {
            split: [
                tuple(line.split("\t"))
                for line in (atlas.parent / owner / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
            ]
            for split in ("train", "valid", "test")
        }
        for owner in OWNERS
    }

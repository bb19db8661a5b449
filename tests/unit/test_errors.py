"""Errors that name the place, the nearest words and the way out."""

from __future__ import annotations

import math

import pytest

from fkge.errors import FkgeError, GraphError, MissingLibraryError, UnknownLabelError, did_you_mean, need


def test_suggests_the_nearest_words() -> None:
    assert did_you_mean("atlass", ["atlas", "bio", "microbes"]) == "; did you mean atlas?"
    assert did_you_mean("zzz", ["atlas"]) == ""
    assert did_you_mean("aa", ["aab", "aac", "aad", "aae"], limit=2).count(",") == 1


def test_names_the_file_the_line_and_the_advice() -> None:
    error = GraphError("graph.tsv", "two columns", "Give three.", line=7)
    assert isinstance(error, FkgeError)
    assert all(part in str(error) for part in ("graph.tsv", "7", "two columns", "Give three."))


def test_names_an_unknown_label_and_its_neighbours() -> None:
    text = str(UnknownLabelError("entity", "Pariss", ["Paris", "Rome"]))
    assert "entity" in text
    assert "did you mean Paris" in text


def test_names_the_extra_that_installs_a_library() -> None:
    assert need("math", "none", "this") is math
    with pytest.raises(MissingLibraryError, match=r"Export needs no_such_module, .* pip install 'fkge\[export\]'"):
        need("no_such_module", "export", "Export")

"""What a shell offers is what there is."""

from __future__ import annotations

from fkge.cli import options, show
from fkge.embed import MODELS
from fkge.export import FORMATS


def test_models_and_formats_are_those_that_there_are() -> None:
    assert set(options.MODELS) == set(MODELS)
    assert set(show._formats("")) == set(FORMATS)


def test_an_example_is_shown_as_it_is_typed() -> None:
    assert options.example("fkge x [y]") == "[bold]Example:[/]\n\nfkge x \\[y]"

"""Every kind of error has a number, and every number a page."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from fkge import errors
from fkge.cli import exit_codes as exits


def kinds(kind: type[errors.FkgeError]) -> Iterator[type[errors.FkgeError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from kinds(below)


def made(kind: type[errors.FkgeError]) -> errors.FkgeError:
    if issubclass(kind, errors.GraphError):
        return kind("graph.tsv", "has no triples", "Add some.")
    if issubclass(kind, errors.UnknownLabelError):
        return kind("entity", "a", ["b"])
    if issubclass(kind, errors.IdentityError):
        return kind("expired", "a certificate has expired")
    return kind("something is wrong")


def test_every_error_of_the_tree_has_a_number_of_its_own_or_its_parents() -> None:
    named = [kind for kind in kinds(errors.FkgeError) if kind.__module__ == "fkge.errors"]
    codes = {}
    for kind in named:
        found = exits.explain(made(kind))
        assert found is not None
        codes[kind], sentence = found
        assert sentence == str(made(kind))
        assert codes[kind] in exits.pages()
    apart = [kind for kind in named if kind is not errors.FkgeError]
    assert len({codes[kind] for kind in apart}) == len(apart)
    assert exits.OTHER not in {codes[kind] for kind in apart}


def test_pages_are_in_order_and_say_something() -> None:
    assert list(exits.pages()) == sorted(exits.pages())
    for code, page in exits.pages().items():
        assert 0 <= code < 256
        assert page.title[0].islower()
        assert page.means.endswith(".")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "file"), exits.DISK),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), exits.DISK),
        (RuntimeError("I/O error: No space left on device (os error 28)"), exits.DISK),
        (errors.EngineError("a died (OSError: No space left on device)"), exits.DISK),
        (PermissionError(errno.EACCES, os.strerror(errno.EACCES), "file"), exits.FILES),
        (OSError(errno.EROFS, os.strerror(errno.EROFS), "file"), exits.FILES),
        (OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)), exits.PORT),
        (MemoryError(), exits.MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), exits.MEMORY),
        (errors.GraphError("pykeen:umls", "PyKEEN is not installed", "Run: pip install 'fkge[pykeen]'."), exits.EXTRA),
    ],
)
def test_what_the_system_says_is_understood(error: Exception, code: int) -> None:
    found = exits.explain(error)
    assert found is not None
    assert found[0] == code
    assert "\n" not in found[1]


@pytest.mark.parametrize("error", [ValueError("x"), KeyError("x"), OSError(errno.EIO, "x"), RuntimeError("x")])
def test_a_bug_is_a_bug(error: Exception) -> None:
    assert exits.explain(error) is None


def test_a_hint_only_where_it_helps() -> None:
    assert exits.hint(12, "unknown key 'dims'; did you mean dim?") == ""
    assert exits.hint(12, "x.toml: no such file") == " (exit 12; fkge errors 12)"

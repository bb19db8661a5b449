"""RDF files, streamed through pyoxigraph: IRIs and blank nodes are entities, properties relations."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Literal, TypeAlias

from fkge.errors import GraphError
from fkge.graph.builder import Builder
from fkge.graph.source import opened
from fkge.progress import Progress

Literals: TypeAlias = Literal["skip", "keep"]

RDF_ENDINGS = {".nt": "N_TRIPLES", ".nq": "N_QUADS", ".ttl": "TURTLE", ".trig": "TRIG", ".rdf": "RDF_XML"}
"""File ending → name in `pyoxigraph.RdfFormat`."""

SAME_AS = "http://www.w3.org/2002/07/owl#sameAs"

# What the parser calls a node the file gives no name: a random 128-bit number that starts with a letter,
# in hexadecimal without leading zeros. (A shorter one than 20 digits has a chance below 2⁻⁴⁸.)
_RANDOM_NAME = re.compile(r"[a-f][0-9a-f]{19,31}").fullmatch


class RdfReader:
    """Reads the files of one graph; keeps what has to be the same across them.

    Blank nodes keep the label of their file, ``_:label``, so that ids repeat, and a node means the same in train and in
    test. Nodes without a label (Turtle's ``[]`` and ``( )``) get a random name from the parser. They are renamed
    ``_:[1]``, ``_:[2]``, … in order of appearance: only here the order of the statements matters.

    Args:
        builder: receives labels and triples.
        literals: skip them, or keep them as entities.
        progress: shows the bytes consumed.
    """

    def __init__(self, builder: Builder, literals: Literals, progress: Progress) -> None:
        self._builder = builder
        self._keep_literals = literals == "keep"
        self._progress = progress
        self._nameless: dict[str, str] = {}

    def read(self, path: Path, format_name: str, split: str) -> None:
        """Append the facts of `path` to `split`, and its ``owl:sameAs`` statements to the builder's.

        Args:
            path: the file.
            format_name: as pyoxigraph calls it.
            split: receives the triples.

        Raises:
            GraphError: the file is malformed, or holds no triples.
        """
        try:
            import pyoxigraph
        except ImportError:
            problem = "reading RDF needs pyoxigraph, which is not installed"
            raise GraphError(path, problem, "Run: pip install 'fkge[rdf]'.") from None
        node, format_ = pyoxigraph.NamedNode, getattr(pyoxigraph.RdfFormat, format_name)
        has_nameless = format_name not in ("N_TRIPLES", "N_QUADS")
        builder = self._builder
        rows = builder.rows(split)
        before = len(rows)
        add, entities, relations = rows.extend, builder.entities, builder.relations
        statements = 0
        skipped: Counter[str] = Counter()
        with opened(path, self._progress) as source:
            try:
                # The file object only needs read(size), which is all the parser calls.
                for statement in pyoxigraph.parse(source, format_, rename_blank_nodes=False):  # type: ignore[arg-type]
                    statements += 1
                    target, subject = statement.object, statement.subject
                    tail = target.value if type(target) is node else self._label(target, has_nameless)
                    head = subject.value if type(subject) is node else self._label(subject, has_nameless)
                    if tail is None or head is None:
                        skipped["literals" if type(target) is pyoxigraph.Literal else "nested statements"] += 1
                        continue
                    relation = statement.predicate.value
                    if relation == SAME_AS:
                        builder.same_as.append((head, tail))
                    else:
                        add((entities[head], relations[relation], entities[tail]))
            except SyntaxError as error:
                raise _invalid(path, error, by_lines=not has_nameless) from None
        for what, count in skipped.items():
            builder.notes.append(f"{path.name}: {count:,} statements with {what} are skipped.")
        if len(rows) == before:
            if not statements:
                raise GraphError(path, "holds no triples", "It needs at least one statement.")
            found = f"{statements:,} statements, {skipped['literals']:,} of them with literals"
            advice = 'To make literals entities, read it with literals="keep".'
            raise GraphError(path, f"holds no triples between entities ({found})", advice)

    def _label(self, term: object, has_nameless: bool) -> str | None:
        """Return the label of a term other than an IRI, or None for one that is to be skipped."""
        import pyoxigraph

        if isinstance(term, pyoxigraph.BlankNode):
            if has_nameless and _RANDOM_NAME(term.value):
                return self._nameless.setdefault(term.value, f"_:[{len(self._nameless) + 1}]")
            return f"_:{term.value}"
        return str(term) if self._keep_literals and isinstance(term, pyoxigraph.Literal) else None


def _invalid(path: Path, error: SyntaxError, by_lines: bool) -> GraphError:
    """Return the parser's complaint, with the line it is about."""
    # The parser's text repeats the place: "Parser error at line 3 column 1: …".
    message = re.sub(r"^Parser error .*?: ", "", error.msg).rstrip(".")
    line = error.lineno
    # An unfinished line, and a broken byte, are reported as an empty stretch at the start of the next line.
    empty_at_start = (error.offset, error.end_offset, error.end_lineno) == (1, 1, line)
    if by_lines and line is not None and empty_at_start and not re.search(r"UTF-8|\bbyte\b", message):
        line -= 1
    advice = f"Correct the file, or give it the ending of its format ({', '.join(RDF_ENDINGS)})."
    return GraphError(path, f"is not valid RDF ({message})", advice, line)

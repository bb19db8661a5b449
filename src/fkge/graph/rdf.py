"""RDF files, streamed through pyoxigraph: IRIs and blank nodes are entities, properties relations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias

from fkge.errors import GraphError
from fkge.graph.builder import Builder
from fkge.graph.source import opened
from fkge.trace import Progress

Literals: TypeAlias = Literal["skip", "keep"]

RDF_ENDINGS = {".nt": "N_TRIPLES", ".nq": "N_QUADS", ".ttl": "TURTLE", ".trig": "TRIG", ".rdf": "RDF_XML"}
"""File ending → name in `pyoxigraph.RdfFormat`."""

SAME_AS = "http://www.w3.org/2002/07/owl#sameAs"

# What the parser calls a node the file gives no name: a random 128-bit number that starts with a letter,
# in hexadecimal without leading zeros. (A shorter one than 20 digits has a chance below 2⁻⁴⁸.)
_RANDOM_NAME = re.compile(r"[a-f][0-9a-f]{19,31}").fullmatch


class RdfReader:
    """Reads the files of one graph; keeps what has to be the same across them.

    Blank nodes keep the label of their file, ``_:label``: `rename_blank_nodes` stays off, so that ids
    repeat from run to run, and so that a node means the same in train and in test. Nodes without a
    label (Turtle's ``[]`` and ``( )``) get a random name from the parser even so. They are renamed
    ``_:[1]``, ``_:[2]``, … in order of appearance, which no label in a file can be. So the same file
    always gives the same graph, but here, and only here, the order of the statements matters: telling
    nameless nodes apart by what is said of them is graph canonicalisation, which cannot be streamed.
    N-Triples and N-Quads have no nameless nodes.
    """

    def __init__(self, builder: Builder, literals: Literals, progress: Progress) -> None:
        self._builder = builder
        self._keep_literals = literals == "keep"
        self._progress = progress
        self._nameless: dict[str, str] = {}

    def read(self, path: Path, format_name: str, split: str) -> None:
        """Append the facts of `path` to `split`, and its ``owl:sameAs`` statements to the builder's."""
        try:
            import pyoxigraph
        except ImportError:
            problem = "reading RDF needs pyoxigraph, which is not installed"
            raise GraphError(path, problem, "Run: pip install 'fkge[rdf]'.") from None
        node, blank, literal = pyoxigraph.NamedNode, pyoxigraph.BlankNode, pyoxigraph.Literal
        may_be_nameless = format_name not in ("N_TRIPLES", "N_QUADS")
        builder = self._builder
        rows = builder.rows(split)
        before = len(rows)
        add, entities, relations = rows.extend, builder.entities, builder.relations
        statements = skipped_literals = skipped_quotes = 0
        with opened(path, self._progress) as source:
            try:
                # One statement at a time; nothing is made for a row but what is looked up.
                for statement in pyoxigraph.parse(
                    source,  # type: ignore[arg-type]  # all it calls is read(size)
                    getattr(pyoxigraph.RdfFormat, format_name),
                    rename_blank_nodes=False,
                ):
                    statements += 1
                    target = statement.object
                    kind = type(target)
                    if kind is node:
                        tail = target.value
                    elif kind is blank:
                        tail = self._blank(target.value, may_be_nameless)
                    elif kind is not literal:
                        skipped_quotes += 1
                        continue
                    elif self._keep_literals:
                        tail = str(target)
                    else:
                        skipped_literals += 1
                        continue
                    subject = statement.subject
                    kind = type(subject)
                    if kind is node:
                        head = subject.value
                    elif kind is blank:
                        head = self._blank(subject.value, may_be_nameless)
                    else:
                        skipped_quotes += 1
                        continue
                    relation = statement.predicate.value
                    if relation == SAME_AS:
                        if type(target) is not literal:
                            builder.same_as.append((head, tail))
                    else:
                        add((entities[head], relations[relation], entities[tail]))
            except SyntaxError as error:
                problem = f"is not valid RDF ({str(error.msg).rstrip('.')})"
                advice = f"Correct the file, or give it the ending of its format ({', '.join(RDF_ENDINGS)})."
                raise GraphError(path, problem, advice, error.lineno) from None
        if skipped_literals:
            builder.notes.append(f"{path.name}: {skipped_literals:,} statements with literals are skipped.")
        if skipped_quotes:
            builder.notes.append(f"{path.name}: {skipped_quotes:,} statements about statements are skipped.")
        if len(rows) == before:
            raise _no_triples(path, statements, skipped_literals)

    def _blank(self, label: str, may_be_nameless: bool) -> str:
        if may_be_nameless and _RANDOM_NAME(label):
            return self._nameless.setdefault(label, f"_:[{len(self._nameless) + 1}]")
        return f"_:{label}"


def _no_triples(path: Path, statements: int, literals: int) -> GraphError:
    if not statements:
        return GraphError(path, "holds no triples", "It needs at least one statement.")
    problem = (
        f"holds no triples between entities ({statements:,} statements, {literals:,} of them with literals)"
    )
    return GraphError(path, problem, 'To make literals entities, read it with literals="keep".')

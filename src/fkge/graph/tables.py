"""TSV and CSV files of head, relation, tail."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from fkge.errors import GraphError
from fkge.graph.builder import Builder
from fkge.graph.source import Source, opened, wrong_columns
from fkge.progress import Progress

# What a header calls each column.
_HEADER = (
    frozenset({"head", "h", "subject", "subj", "s", "source", "src", "from"}),
    frozenset({"relation", "rel", "r", "predicate", "pred", "p", "property", "edge"}),
    frozenset({"tail", "t", "object", "obj", "o", "target", "dst", "to"}),
)


def read_table(path: Path, split: str, builder: Builder, progress: Progress) -> None:
    """Append the triples of a TSV or CSV file to `split`. Labels are taken as they stand.

    Args:
        path: ends in .tsv, .txt or .csv, and perhaps .gz.
        split: receives the triples.
        builder: receives labels and triples.
        progress: shows the bytes consumed.

    Raises:
        GraphError: a row is malformed, or there is none.
    """
    commas = path.name.lower().endswith((".csv", ".csv.gz"))
    separator = "comma" if commas else "tab"
    rows = builder.rows(split)
    before = len(rows)
    add, entities, relations = rows.extend, builder.entities, builder.relations
    with opened(path, progress) as source:
        first = True
        for line, row in _comma_rows(source) if commas else ((n, line.split("\t")) for n, line in source.lines()):
            if first and row and not _is_blank(row):
                first = False
                if _is_header(path, line, row):
                    names = ", ".join(row)
                    builder.notes.append(f"{path.name}: the first row ({names}) is taken for a header.")
                    continue
            try:
                head, relation, tail = row
                add((entities[head], relations[relation], entities[tail]))
            except ValueError:
                if not _is_blank(row):
                    raise _bad_row(path, line, row, separator) from None
    if len(rows) == before:
        raise GraphError(path, "holds no triples", f"Each row is head, relation and tail, {separator}-separated.")


def _comma_rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    # strict: a quote that never closes would otherwise swallow the rest of the file as one label.
    reader = csv.reader((line + "\n" for _, line in source.lines()), strict=True)
    start = 1
    try:
        for row in reader:
            yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        advice = 'Put labels that hold commas, quotes or line ends in double quotes, and write a quote as "".'
        raise GraphError(source.path, f"this row is not valid CSV ({error})", advice, start) from None


def _is_blank(row: list[str]) -> bool:
    return len(row) < 2 and not "".join(row).strip()


def _is_header(path: Path, line: int, row: list[str]) -> bool:
    cells = [cell.strip().lower() for cell in row]
    if len(cells) == 3 and all(cell in names for cell, names in zip(cells, _HEADER, strict=True)):
        return True
    # Every column is named, and each other than expected: taken as a fact, all facts would be read askew.
    if len(cells) == 3 and all(any(cell in names for cell in cells) for names in _HEADER):
        problem = f"the header puts the columns in the order {', '.join(row)}"
        raise GraphError(path, problem, "Reorder the columns to head, relation, tail.", line)
    return False


def _bad_row(path: Path, line: int, row: list[str], separator: str) -> GraphError:
    advice = f"Each row needs head, relation and tail, {separator}-separated."
    if len(row) != 3:
        return wrong_columns(path, len(row), advice, line)
    empty = next(
        name for name, cell in zip(("head", "relation", "tail"), row, strict=True) if not cell or cell.isspace()
    )
    return GraphError(path, f"the {empty} of this row is empty", advice, line)

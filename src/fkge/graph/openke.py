"""OpenKE folders: labels with their ids in ``*2id.txt``, triples as ids, each file headed by its count.

Triple files name their columns in the order *head, tail, relation*. The ids the files state only tie
them together; the graph's own ids follow the sorted labels, as with every other reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fkge.errors import GraphError
from fkge.graph.builder import Builder, Ids
from fkge.graph.source import opened, wrong_columns
from fkge.progress import Progress

_COUNT_ADVICE = "The first line must be the number of rows that follow."


def is_openke(folder: Path) -> bool:
    """Return whether `folder` holds triples of ids; label files alone may also belong to plain tables."""
    return (folder / "train2id.txt").is_file()


def read_openke(folder: Path, builder: Builder, progress: Progress) -> None:
    """Read all splits of `folder`; ``test_*2id.txt`` are further test sets.

    Args:
        folder: an OpenKE folder.
        builder: receives labels and triples.
        progress: shows the bytes consumed.

    Raises:
        GraphError: a file is missing or malformed.
    """
    for needed in ("entity2id.txt", "relation2id.txt"):
        if not (folder / needed).is_file():
            raise GraphError(folder, f"has train2id.txt but no {needed}", "An OpenKE folder needs both.")
    _read_labels(folder / "entity2id.txt", builder.entities, progress)
    _read_labels(folder / "relation2id.txt", builder.relations, progress)
    for split in ("train", "valid", "test"):
        if (folder / f"{split}2id.txt").is_file():
            _read_triples(folder / f"{split}2id.txt", split, builder, progress)
    for path in sorted(folder.glob("test_*2id.txt")):
        _read_triples(path, path.name.removesuffix("2id.txt"), builder, progress)


def _read_labels(path: Path, ids: Ids, progress: Progress) -> None:
    taken: set[int] = set()
    with _counted(path, progress) as (count, lines):
        for number, line in lines:
            # The label may hold spaces, so the id is what follows the last tab, or else the last space.
            label, *rest = line.rsplit("\t" if "\t" in line else None, 1)
            if not rest or not label.strip():
                raise GraphError(path, "this row needs a label and an id", "Write label, tab, id.", number)
            stated = _number(path, rest[0], number)
            if not 0 <= stated < count:
                raise _out_of_range(path, f"id {stated}", count, path.name, number)
            if stated in taken:
                raise GraphError(path, f"id {stated} occurs a second time", "Give each label its own id.", number)
            if label in ids:
                raise GraphError(path, f"{label!r} occurs a second time", "Give each label one id.", number)
            taken.add(stated)
            ids[label] = stated


def _read_triples(path: Path, split: str, builder: Builder, progress: Progress) -> None:
    add = builder.rows(split).extend
    entities, relations = len(builder.entities), len(builder.relations)
    with _counted(path, progress) as (count, lines):
        for number, line in lines:
            try:
                head, tail, relation = map(int, line.split())
            except ValueError:
                fields = line.split()
                if len(fields) != 3:
                    advice = "Each row needs three ids: head, tail, relation."
                    raise wrong_columns(path, len(fields), advice, number) from None
                head, tail, relation = (_number(path, field, number) for field in fields)
            if not (0 <= head < entities and 0 <= tail < entities):
                bad = tail if 0 <= head < entities else head
                raise _out_of_range(path, f"entity id {bad}", entities, "entity2id.txt", number)
            if not 0 <= relation < relations:
                raise _out_of_range(path, f"relation id {relation}", relations, "relation2id.txt", number)
            add((head, relation, tail))
    if split == "train" and not count:
        raise GraphError(path, "holds no triples", "A graph needs at least one.")


@contextmanager
def _counted(path: Path, progress: Progress) -> Iterator[tuple[int, Iterator[tuple[int, str]]]]:
    """Yield the count in the first line, and the numbered lines after it: exactly that many, or an error."""
    with opened(path, progress) as source:
        lines = ((number, line) for number, line in source.lines() if line and not line.isspace())
        first, line = next(lines, (0, ""))
        if not first:
            raise GraphError(path, "is empty", _COUNT_ADVICE)
        try:
            count = int(line)
        except ValueError:
            raise GraphError(path, f"{line!r} is not a count", _COUNT_ADVICE, first) from None

        def rows() -> Iterator[tuple[int, str]]:
            seen = 0
            for seen, (number, row) in enumerate(lines, 1):
                if seen > count:
                    problem = f"the count in line {first} is {count:,}, but here is row {seen:,}"
                    raise GraphError(path, problem, _COUNT_ADVICE, number)
                yield number, row
            if seen < count:
                problem = f"the count is {count:,}, but {seen:,} rows follow"
                raise GraphError(path, problem, f"{_COUNT_ADVICE} The file may be cut short.", first)

        yield count, rows()


def _number(path: Path, text: str, line: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise GraphError(path, f"{text!r} is not an id", "Ids are whole numbers from 0.", line) from None


def _out_of_range(path: Path, what: str, size: int, counted_in: str, line: int) -> GraphError:
    advice = "Check the count, and that triples are in the order head, tail, relation."
    return GraphError(path, f"{what} is out of range: {counted_in} counts {size:,}, ids from 0", advice, line)

"""OpenKE folders, and all that can be wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fkge.errors import GraphError
from fkge.graph import read_graph
from tests.unit.graph.conftest import Write

GOOD = {
    "entity2id.txt": "3\nNew York\t2\nathens\t0\npiräus 1\n",
    "relation2id.txt": "2\ntwin of\t1\nnear\t0\n",
    "train2id.txt": "3\n0 1 0\n1\t0\t0\n2 0 1\n",
    "valid2id.txt": "1\n0 2 1\n",
    "test2id.txt": "1\n2 1 0\n",
}


def folder(write: Write, **changes: str | bytes | None) -> Path:
    for name, content in {**GOOD, **{f"{key}2id.txt": value for key, value in changes.items()}}.items():
        if content is not None:
            path = write(f"openke/{name}", content)
    return path.parent


def test_same_graph_as_tables_of_the_same_facts(write: Write) -> None:
    write("t/train.tsv", "athens\tnear\tpiräus\npiräus\tnear\tathens\nNew York\ttwin of\tathens\n")
    write("t/valid.tsv", "athens\ttwin of\tNew York\n")
    tables = write("t/test.tsv", "New York\tnear\tpiräus\n").parent
    assert read_graph(folder(write)).fingerprint == read_graph(tables).fingerprint


def test_stated_ids_do_not_matter(write: Write) -> None:
    expected = read_graph(folder(write)).fingerprint
    renumbered = folder(
        write,
        entity="3\r\npiräus\t0\r\nathens\t2\r\n\r\nNew York\t1\r\n",
        train="3\n1 2 1\n0 2 0\n2 0 0\n\n",
        valid="1\n2 1 1",
        test="1\n1 0 0\n",
    )
    assert read_graph(renumbered).fingerprint == expected


def test_further_test_sets_and_missing_splits(write: Write) -> None:
    path = folder(write)
    (path / "valid2id.txt").unlink()
    write("openke/test_hard2id.txt", "1\n0 2 0\n")
    write("openke/test2id_all.txt", "1-1\n")
    graph = read_graph(path)
    assert {name: len(t) for name, t in graph.splits.items()} == {
        "train": 3,
        "valid": 0,
        "test": 1,
        "test_hard": 1,
    }
    assert any("no valid split" in note for note in graph.notes)


def test_entities_without_triples_are_kept_and_told(write: Write) -> None:
    graph = read_graph(folder(write, entity=GOOD["entity2id.txt"].replace("3\n", "4\n", 1) + "lonely\t3\n"))
    assert "lonely" in graph.entities
    assert "1 of 4 entities occur in no triple; they are kept." in graph.notes


def test_honestly_empty_split(write: Write) -> None:
    assert len(read_graph(folder(write, test="0\n")).test) == 0


@pytest.mark.parametrize(
    ("file", "content", "line", "told"),
    [
        ("entity", "", None, "empty.*number of rows"),
        ("entity", "athens\t0\n", 1, "not a count.*number of rows"),
        ("entity", "3\nathens\t0\nparis\t1\n", 1, "count is 3, but 2 rows.*cut short"),
        ("entity", "2\nathens\t0\nparis\t1\nrome\t2\n", 4, "count in line 1 is 2.*number of rows"),
        ("entity", "3\nathens\t0\nparis\t3\nrome\t2\n", 3, "id 3 is out of range.*Check the count"),
        ("entity", "3\nathens\t0\n\nparis\t-1\nrome\t2\n", 4, "id -1 is out of range"),
        ("entity", "3\nathens\t0\nparis\tone\nrome\t2\n", 3, "'one' is not an id.*whole numbers"),
        ("entity", "3\nathens\t0\nparis\t0\nrome\t2\n", 3, "id 0 occurs a second time.*its own id"),
        ("entity", "3\nathens\t0\nathens\t1\nrome\t2\n", 3, "'athens' occurs a second time.*one id"),
        ("entity", "3\nathens\t0\n1\nrome\t2\n", 3, "needs a label and an id.*tab"),
        ("entity", "3\nathens\t0\n\t1\nrome\t2\n", 3, "needs a label and an id"),
        ("entity", b"3\nathens\t0\npar\xffs\t1\nrome\t2\n", 3, "0xff is not valid UTF-8.*Save"),
        ("relation", "2\nnear\t0\nnear\t1\n", 3, "'near' occurs a second time"),
        ("train", "3\n0 1 0\n0 1\n2 0 1\n", 3, "2 columns.*head, tail, relation"),
        ("train", "3\n0 1 0\n0 1 0 0\n2 0 1\n", 3, "4 columns"),
        ("train", "3\n0 1 0\n0 b 1\n2 0 1\n", 3, "'b' is not an id"),
        ("train", "3\n0 1 0\n0 3 1\n2 0 1\n", 3, "entity id 3 is out of range.*head, tail, relation"),
        ("train", "3\n0 1 0\n-1 0 1\n2 0 1\n", 3, "entity id -1 is out of range"),
        ("train", "3\n0 1 0\n0 1 2\n2 0 1\n", 3, "relation id 2 is out of range.*relation2id.txt counts 2"),
        ("train", "4\n0 1 0\n1 0 0\n2 0 1\n", 1, "count is 4, but 3 rows"),
        ("train", "2\n0 1 0\n1 0 0\n2 0 1\n", 4, "count in line 1 is 2"),
        ("train", "0\n", None, "no triples"),
        ("test", "", None, "empty"),
    ],
)
def test_bad_files(write: Write, file: str, content: str | bytes, line: int | None, told: str) -> None:
    with pytest.raises(GraphError, match=told) as caught:
        read_graph(folder(write, **{file: content}))
    assert caught.value.path.name == f"{file}2id.txt"
    assert caught.value.line == line


@pytest.mark.parametrize("missing", ["entity", "relation"])
def test_missing_label_file(write: Write, missing: str) -> None:
    with pytest.raises(GraphError, match=f"no {missing}2id.txt"):
        read_graph(folder(write, **{missing: None}))

"""Tables of triples: rows, headers, quoting, and errors that name the line."""

from __future__ import annotations

import pytest

from fkge.errors import GraphError
from fkge.graph import read_graph
from tests.unit.graph.conftest import Write, all_labelled


@pytest.mark.parametrize(
    ("name", "content", "line", "told"),
    [
        ("g.tsv", "a\tb\tc\na\tb\n", 2, "2 columns where 3.*tab-separated"),
        ("g.tsv", "a\tb\tc\n\na\tb\tc\td\n", 3, "4 columns where 3"),
        ("g.txt", "a b c\n", 1, "1 column where 3.*tab-separated"),
        ("g.tsv", "a\tb\tc\n\tb\tc\n", 2, "head of this row is empty.*needs head"),
        ("g.tsv", "a\tb\tc\na\t \tc\n", 2, "relation of this row is empty"),
        ("g.tsv", "a\tb\tc\r\na\tb\t\r\n", 2, "tail of this row is empty"),
        ("g.tsv", "a\tb\tc\n\t\t\n", 2, "head of this row is empty"),
        ("g.tsv", "head\trelation\ttail\na\tb\n", 2, "2 columns"),
        ("g.tsv", "subject\tobject\tpredicate\na\tb\tc\n", 1, "order subject, object, predicate.*Reorder"),
        ("g.tsv", "", None, "no triples.*tab-separated"),
        ("g.tsv", "\n \n", None, "no triples"),
        ("g.tsv", "head\trelation\ttail\n", None, "no triples"),
        ("g.tsv.gz", "", None, "no triples"),
        (
            "g.tsv",
            b"a\tb\tc\na\tb\t\xe9t\xe9\nd\te\tf\n",
            2,
            "0xe9 is not valid UTF-8.*Save the file as UTF-8",
        ),
        ("g.tsv", b"a\tb\tc\nd\te\t\xc3", 2, "0xc3 is not valid UTF-8"),
        ("g.csv", "a,b,c\na,b\n", 2, "2 columns where 3.*comma-separated"),
        ("g.csv", 'a,b,"c\nd"\na,b,c,d\n', 3, "4 columns where 3"),
        ("g.csv", "a,b,c\na,,c\n", 2, "relation of this row is empty"),
        ("g.csv", 'a,b,c\na,b,"c\nd,e,f\n', 2, "not valid CSV.*double quotes"),
        ("g.csv", 'a,b,c\na,b,"c"d\n', 2, "not valid CSV"),
        ("g.csv", "", None, "no triples.*comma-separated"),
    ],
)
def test_bad_rows(write: Write, name: str, content: str | bytes, line: int | None, told: str) -> None:
    path = write(name, content)
    with pytest.raises(GraphError, match=told) as caught:
        read_graph(path)
    assert (caught.value.path, caught.value.line) == (path, line)
    assert caught.value.advice in str(caught.value)


def test_csv_quoting(write: Write) -> None:
    graph = read_graph(write("g.csv", '"Doe, Jane","said ""so""","two\nlines"\na,b,c\n'))
    assert all_labelled(graph) == {("Doe, Jane", 'said "so"', "two\nlines"), ("a", "b", "c")}


def test_tsv_labels_are_taken_as_they_stand(write: Write) -> None:
    graph = read_graph(write("g.tsv", '"a\tb,c\t d \u2028\x85e \n'))
    assert all_labelled(graph) == {('"a', "b,c", " d \u2028\x85e ")}


def test_only_the_first_row_can_be_a_header(write: Write) -> None:
    graph = read_graph(write("g.tsv", "a\tb\tc\nhead\trelation\ttail\n"))
    assert ("head", "relation", "tail") in all_labelled(graph)
    assert any("header" in note for note in read_graph(write("h.tsv", "h\tr\tt\na\tb\tc\n")).notes)

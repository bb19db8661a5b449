"""RDF: what becomes an entity, what does not, and blank nodes."""

from __future__ import annotations

import sys

import pytest

from fkge.errors import GraphError
from fkge.graph import Graph, read_graph
from tests.unit.graph.conftest import Write

pytest.importorskip("pyoxigraph", reason="RDF needs pyoxigraph")

SAME_AS = "<http://www.w3.org/2002/07/owl#sameAs>"
FACT = "<http://x/a> <http://x/p> <http://x/b> .\n"


def facts(graph: Graph) -> set[tuple[str, str, str]]:
    return {(graph.entities[h], graph.relations[r], graph.entities[t]) for h, r, t in graph.facts}


def test_same_as_is_not_a_fact(write: Write) -> None:
    graph = read_graph(
        write(
            "g.nt",
            FACT
            + f"<http://x/b> {SAME_AS} <http://y/b> .\n"
            + f"<http://y/a> {SAME_AS} <http://x/a> .\n"
            + f"<http://x/a> {SAME_AS} <http://y/a> .\n"
            + f"<http://y/c> {SAME_AS} <http://z/c> .\n",
        )
    )
    assert facts(graph) == {("http://x/a", "http://x/p", "http://x/b")}
    assert graph.same_as == (("http://x/a", "http://y/a"), ("http://x/b", "http://y/b"))
    assert any("1 owl:sameAs statements without an entity" in note for note in graph.notes)


LITERALS = FACT + '<http://x/a> <http://x/label> "A b"@en .\n<http://x/a> <http://x/age> "7" .\n'


def test_literals_are_skipped_and_counted(write: Write) -> None:
    graph = read_graph(write("g.nt", LITERALS))
    assert list(graph.entities) == ["http://x/a", "http://x/b"]
    assert list(graph.relations) == ["http://x/p"]
    assert "g.nt: 2 statements with literals are skipped." in graph.notes


def test_literals_can_be_kept(write: Write) -> None:
    graph = read_graph(write("g.nt", LITERALS), literals="keep")
    assert ("http://x/a", "http://x/label", '"A b"@en') in facts(graph)
    assert ("http://x/a", "http://x/age", '"7"') in facts(graph)
    assert not any("literals" in note for note in graph.notes)


def test_statements_about_statements_are_skipped(write: Write) -> None:
    graph = read_graph(write("g.nt", FACT + "<http://x/a> <http://x/says> <<( <http://x/b> <http://x/q> _:c )>> .\n"))
    assert len(graph.facts) == 1
    assert "g.nt: 1 statements with nested statements are skipped." in graph.notes


def test_blank_nodes_keep_the_labels_of_the_file(write: Write) -> None:
    # The second label looks like those the parser makes up. N-Triples has no nameless nodes, so it stays.
    made_up = "d2d7fcdc5bcc480402a1869dad4d66a9"
    graph = read_graph(write("g.nt", f"_:b1 <http://x/p> _:{made_up} .\n_:b1 <http://x/p> <http://x/a> .\n"))
    assert facts(graph) == {("_:b1", "http://x/p", f"_:{made_up}"), ("_:b1", "http://x/p", "http://x/a")}


def test_nameless_nodes_get_the_same_name_every_time(write: Write) -> None:
    turtle = "<http://x/a> <http://x/p> [ <http://x/q> <http://x/b> ] , [] , _:named .\n"
    write("g/train.ttl", turtle)
    folder = write("g/test.ttl", "<http://x/a> <http://x/p> [] .\n").parent
    graph = read_graph(folder)
    assert {label for label in graph.entities if label.startswith("_:")} == {
        "_:[1]",
        "_:[2]",
        "_:[3]",  # the node in test is neither of those in train
        "_:named",
    }
    assert {read_graph(folder).fingerprint for _ in range(5)} == {graph.fingerprint}


def test_labelled_blank_nodes_are_the_same_in_every_split(write: Write) -> None:
    write("g/train.nt", "_:b <http://x/p> <http://x/a> .\n")
    graph = read_graph(write("g/test.nt", "<http://x/a> <http://x/p> _:b .\n").parent)
    assert list(graph.entities) == ["_:b", "http://x/a"]


@pytest.mark.parametrize(
    ("name", "content", "line", "told"),
    [
        ("g.nt", FACT + "<http://x/a> <http://x/p>\n" + FACT, 2, "not valid RDF.*Correct the file"),
        ("g.nt", FACT + "<http://x/a> <http://x/p> <http://x/c>\n" + FACT, 2, "followed by a dot"),
        ("g.nt", FACT.encode() + b"\xff\n", 2, "UTF-8"),
        ("g.ttl", FACT + "<http://x/a> <http://x/p> <http://x/c>\n" + FACT, 3, "not valid RDF"),
        ("g.nt", FACT + "\n<http://x/a b> <http://x/p> <http://x/b> .\n", 3, "not valid RDF.*IRI"),
        ("g.nt", FACT.encode() + b'<http://x/a> <http://x/p> "\xff" .\n', 2, "UTF-8"),
        ("g.nt.gz", FACT * 3 + "nonsense\n", 4, "not valid RDF"),
        ("g.ttl", "@prefix x: <http://x/> .\nx:a x:p\n  y:b .\n", 3, "not valid RDF"),
        ("g.rdf", "<rdf", None, "not valid RDF"),
        ("g.nt", "", None, "no triples"),
        ("g.ttl", "# nothing\n", None, "no triples"),
        ("g.nt", LITERALS.removeprefix(FACT), None, r'no triples between entities.*literals="keep"'),
        ("g.nt", f"<http://x/a> {SAME_AS} <http://y/a> .\n", None, "no triples between entities"),
    ],
)
def test_bad_files(write: Write, name: str, content: str | bytes, line: int | None, told: str) -> None:
    with pytest.raises(GraphError, match=told) as caught:
        read_graph(write(name, content))
    assert caught.value.path.name == name
    assert caught.value.line == line


def test_without_pyoxigraph(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(GraphError, match=r"pip install 'fkge\[rdf\]'"):
        read_graph(write("g.nt", FACT))

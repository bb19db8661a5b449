"""`read_graph`: the same facts give the same graph in every format and order."""

from __future__ import annotations

import csv
import gzip
import io
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fkge.errors import GraphError, SettingsError
from fkge.graph import HEAD, TAIL, read_graph
from tests.unit.graph.conftest import Fact, Write, all_labelled, labelled


def tsv(facts: list[Fact]) -> str:
    return "".join("\t".join(fact) + "\n" for fact in facts)


def as_csv(facts: list[Fact]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(facts)
    return text.getvalue()


def nt(facts: list[Fact]) -> str:
    return "".join(f"<{head}> <{relation}> <{tail}> .\n" for head, relation, tail in facts)


def test_single_file_is_split_and_ids_follow_the_labels(write: Write, facts: list[Fact]) -> None:
    graph = read_graph(write("my graph.tsv", tsv(facts)), fractions=(0.7, 0.15, 0.15))
    assert list(graph.entities) == sorted({fact[0] for fact in facts} | {fact[2] for fact in facts})
    assert list(graph.relations) == sorted({fact[1] for fact in facts})
    assert all_labelled(graph) == set(facts)
    assert graph.name == "my graph"
    assert set(graph.train[:, [HEAD, TAIL]].flat) == set(range(len(graph.entities)))
    assert "split 70 / 15 / 15 % with seed 0" in graph.notes[0]


def test_arguments_reach_the_split(write: Write, facts: list[Fact]) -> None:
    path = write("g.tsv", tsv(facts))
    shares = (0.4, 0.3, 0.3)
    sizes = [len(t) for t in read_graph(path, fractions=shares, allow_unseen=True).splits.values()]
    assert sizes == [3, 2, 2]
    fingerprints = {read_graph(path, seed=seed, fractions=shares, allow_unseen=True).fingerprint for seed in range(5)}
    assert len(fingerprints) > 1
    short = read_graph(path, fractions=shares)
    assert any("smaller than asked" in note for note in short.notes)
    with pytest.raises(SettingsError, match="fractions"):
        read_graph(path, fractions=(1, 1, 1))
    with pytest.raises(SettingsError, match="literals"):
        read_graph(path, literals="maybe")  # type: ignore[arg-type]


def test_every_format_gives_the_same_graph(write: Write, facts: list[Fact]) -> None:
    expected = read_graph(write("g.tsv", tsv(facts))).fingerprint
    quads = nt(facts).replace(" .\n", " <http://x/some-graph> .\n")
    xml = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:x="http://x/">'
    for head, relation, tail in facts:
        name = relation.removeprefix("http://x/")
        xml += f'<rdf:Description rdf:about="{head}"><x:{name} rdf:resource="{tail}"/></rdf:Description>\n'
    contents = {
        "g.txt": tsv(facts),
        "g.tsv.gz": tsv(facts),
        "crlf.tsv": tsv(facts).replace("\n", "\r\n"),
        "bom.tsv": "\ufeff" + tsv(facts),
        "blank.tsv": "\n  \n" + tsv(facts).replace("\n", "\n\n") + "\r\n\n",
        "no-final-newline.tsv": tsv(facts).rstrip(),
        "no-final-crlf.tsv": tsv(facts).replace("\n", "\r\n").removesuffix("\n"),
        "header.tsv": "Subject\tPredicate\tObject\n" + tsv(facts),
        "g.csv": as_csv(facts),
        "g.csv.gz": as_csv(facts),
        "bom-header.csv": '\ufeffhead,"relation",tail\n' + as_csv(facts),
        "blank.csv": "\n" + as_csv(facts).replace("\r\n", "\r\n\r\n"),
        "twice.tsv": tsv(facts + facts[:2]),
        "g.nt": nt(facts),
        "g.nt.gz": nt(facts),
        "bom.nt": "\ufeff" + nt(facts),
        "crlf.nt": nt(facts).replace("\n", "\r\n"),
        "g.ttl": "@prefix x: <http://x/> .\n" + nt(facts).replace("<http://x/greece>", "x:greece"),
        "g.ttl.gz": nt(facts),
        "g.nq": quads,
        "g.trig": nt(facts),
        "g.rdf": xml + "</rdf:RDF>",
    }
    got = {name: read_graph(write(name, content)).fingerprint for name, content in contents.items()}
    assert got == dict.fromkeys(contents, expected)


label = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6).filter(str.strip)
fact_lists = st.lists(st.tuples(label, label, label), min_size=1, max_size=25)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(fact_lists, st.randoms(use_true_random=False))
def test_order_and_format_do_not_matter(tmp_path: Path, facts: list[Fact], shuffler: random.Random) -> None:
    facts = [("first", "is a", "fact"), *facts]
    shuffled = facts + facts[::3]
    shuffler.shuffle(shuffled)
    (tmp_path / "g.tsv").write_bytes(tsv([("head", "relation", "tail"), *facts]).encode())
    (tmp_path / "g.csv").write_bytes(as_csv([("h", "r", "t"), *shuffled]).encode())
    one, other = read_graph(tmp_path / "g.tsv"), read_graph(tmp_path / "g.csv")
    assert one.fingerprint == other.fingerprint
    assert all_labelled(one) == set(facts)


def test_file_longer_than_a_chunk(write: Write) -> None:
    """Rows that straddle the pieces a file is read in stay whole, and keep their numbers."""
    facts = [(f"http://x/ε{i:06d}", f"http://x/r{i % 7}", f"http://x/ε{i * 7919 % 40_000:06d}") for i in range(40_000)]
    text = tsv(facts)
    assert len(text) > 1 << 20
    graph = read_graph(write("g.tsv", text))
    assert all_labelled(graph) == set(facts)
    assert read_graph(write("g.tsv.gz", text)).fingerprint == graph.fingerprint
    assert read_graph(write("g.nt", nt(facts))).fingerprint == graph.fingerprint
    with pytest.raises(GraphError) as caught:
        read_graph(write("g.tsv", text + "one\ttwo\n"))
    assert caught.value.line == 40_001


class TestFolders:
    def test_ready_made_splits(self, write: Write, facts: list[Fact]) -> None:
        write("el/train.tsv", tsv(facts[:4]))
        write("el/dev.csv.gz", as_csv(facts[4:5]))
        write("el/test.nt", nt(facts[5:6]))
        write("el/test_leaked.txt", tsv(facts[6:]))
        folder = write("el/README.md", "not a graph").parent
        graph = read_graph(folder)
        assert graph.name == "el"
        assert list(graph.splits) == ["train", "valid", "test", "test_leaked"]
        assert labelled(graph, "train") == set(facts[:4])
        assert labelled(graph, "valid") == set(facts[4:5])
        assert labelled(graph, "test") == set(facts[5:6])
        assert labelled(graph, "test_leaked") == set(facts[6:])
        told = "1 of 1 triples hold an entity or a relation that train does not have; they are kept."
        assert [note for note in graph.notes if "train does not have" in note] == [
            f"test: {told}",
            f"test_leaked: {told}",
        ]

    def test_train_alone_is_split(self, write: Write, facts: list[Fact]) -> None:
        folder = write("g/train.tsv", tsv(facts)).parent
        assert read_graph(folder).fingerprint == read_graph(folder / "train.tsv").fingerprint

    def test_missing_split_is_told(self, write: Write, facts: list[Fact]) -> None:
        write("g/train.tsv", tsv(facts[:5]))
        graph = read_graph(write("g/test.tsv", tsv(facts[5:])).parent)
        assert len(graph.valid) == 0
        assert len(graph.train) == 5
        assert "There is no valid split; it is empty." in graph.notes

    def test_names_in_capitals(self, write: Write, facts: list[Fact]) -> None:
        write("g/Train.TSV", tsv(facts[:5]))
        graph = read_graph(write("g/Test.CSV", as_csv(facts[5:])).parent)
        assert (labelled(graph, "train"), labelled(graph, "test")) == (set(facts[:5]), set(facts[5:]))

    def test_two_files_for_one_split(self, write: Write, facts: list[Fact]) -> None:
        write("g/train.tsv", tsv(facts))
        write("g/val.tsv", tsv(facts))
        with pytest.raises(GraphError, match=r"val\.tsv and valid\.tsv .* Keep one"):
            read_graph(write("g/valid.tsv", tsv(facts)).parent)

    def test_nothing_recognised(self, write: Write) -> None:
        write("g/data.json", "{}")
        with pytest.raises(GraphError, match=r"found data\.json, notes\.txt\. .*entity2id\.txt.*name the file"):
            read_graph(write("g/notes.txt", "hello").parent)

    def test_empty_folder(self, tmp_path: Path) -> None:
        with pytest.raises(GraphError, match="found nothing at all"):
            read_graph(tmp_path)


class Recorder:
    """A `Progress` that remembers."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, int | None, str, list[int]]] = []

    @contextmanager
    def task(self, name: str, total: int | None, unit: str = "") -> Iterator[Recorder]:
        self.tasks.append((name, total, unit, []))
        yield self

    def advance(self, amount: int, **shown: float | str) -> None:
        self.tasks[-1][3].append(amount)


@pytest.mark.parametrize("name", ["g.tsv", "g.tsv.gz", "g.nt", "g.nt.gz", "g.csv"])
def test_progress_adds_up_to_the_bytes_of_the_file(write: Write, facts: list[Fact], name: str) -> None:
    text = {"tsv": tsv, "nt": nt, "csv": as_csv}[name.split(".")[1]](facts * 8000)
    path = write(name, text)
    recorder = Recorder()
    read_graph(path, progress=recorder)
    [(told, total, unit, amounts)] = recorder.tasks
    assert (told, total, unit) == (f"reading {name}", path.stat().st_size, "B")
    assert sum(amounts) == total
    assert len(amounts) < 20


def test_reading_does_not_import_torch() -> None:
    """A fresh interpreter; this one may have it from elsewhere."""
    import subprocess

    code = "import sys, fkge.graph; sys.exit('torch' in sys.modules or 'pyoxigraph' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class TestRealData:
    def test_fb15k237(self, shared_data: Path) -> None:
        graph = read_graph(shared_data / "fb15k237")
        assert (len(graph.entities), len(graph.relations)) == (14541, 237)
        assert [len(t) for t in graph.splits.values()] == [272115, 17535, 20466]
        assert list(graph.entities) == sorted(graph.entities)
        # The first triple of the file, through its own ids.
        assert ("/m/027rn", "/location/country/form_of_government", "/m/06cx9") in labelled(graph, "train")

    def test_dbp5l_greek(self, shared_data: Path) -> None:
        graph = read_graph(shared_data / "dbp5l" / "el")
        assert (len(graph.entities), len(graph.relations)) == (4020, 160)
        assert {name: len(t) for name, t in graph.splits.items()} == {
            "train": 8670,
            "valid": 4152,
            "test": 350,
            "test_leaked": 667,
        }

    @pytest.mark.parametrize("name", ["police", "tharawat", "whisky", "worldlift"])
    def test_lod4_through_openke_and_through_tsv(self, shared_data: Path, tmp_path: Path, name: str) -> None:
        graph = read_graph(shared_data / "lod4" / name)
        for split in graph.splits:
            (tmp_path / f"{split}.tsv.gz").write_bytes(gzip.compress(tsv(sorted(labelled(graph, split))).encode()))
        again = read_graph(tmp_path)
        assert [labelled(again, split) for split in again.splits] == [labelled(graph, split) for split in graph.splits]
        # OpenKE can state entities without triples; a table cannot.
        idle = len(graph.entities) - len(again.entities)
        assert any(f"{idle} of" in note for note in graph.notes) == (idle > 0)
        assert (again.fingerprint == graph.fingerprint) == (idle == 0)

"""Files that are missing, of an unknown kind, truncated or corrupt, and archives."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from fkge.errors import GraphError
from fkge.graph import read_graph
from tests.unit.graph.conftest import Write


def packed_rows(count: int) -> bytes:
    """Rows that gzip cannot shrink to nothing."""
    numbers = random.Random(1)
    return "".join(f"{numbers.random()}\tr\t{numbers.random()}\n" for _ in range(count)).encode()


@pytest.mark.parametrize("name", ["g.tsv.gz", "g.csv.gz"])
def test_truncated_archive_tells_the_line_reached(tmp_path: Path, name: str) -> None:
    text = packed_rows(20_000).replace(b"\t", b"," if "csv" in name else b"\t")
    whole = gzip.compress(text, mtime=0)
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GraphError, match=r"truncated.*again") as caught:
        read_graph(tmp_path / name)
    # Half the archive is about half the rows; the exact one depends on how zlib packs.
    assert caught.value.line is not None
    assert 8_000 < caught.value.line < 12_000


def test_truncated_rdf_archive(tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph", reason="RDF needs pyoxigraph")
    numbers = random.Random(1)
    text = "".join(f"<http://x/{numbers.random()}> <http://x/p> <http://x/a> .\n" for _ in range(20_000))
    whole = gzip.compress(text.encode(), mtime=0)
    (tmp_path / "g.nt.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(GraphError, match=r"truncated") as caught:
        read_graph(tmp_path / "g.nt.gz")
    assert caught.value.line is not None
    assert 8_000 < caught.value.line < 12_000


def test_archive_without_its_trailer(tmp_path: Path) -> None:
    (tmp_path / "g.tsv.gz").write_bytes(gzip.compress(b"a\tb\tc\n")[:-4])
    with pytest.raises(GraphError, match="truncated") as caught:
        read_graph(tmp_path / "g.tsv.gz")
    assert caught.value.line == 2


def test_corrupt_archive(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(packed_rows(20_000), mtime=0))
    whole[len(whole) // 2 : len(whole) // 2 + 50] = b"\xff" * 50
    (tmp_path / "g.tsv.gz").write_bytes(whole)
    with pytest.raises(GraphError, match=r"corrupt.*again") as caught:
        read_graph(tmp_path / "g.tsv.gz")
    # The damage first shows as a garbled row half way, and only the checksum at the end tells why.
    assert caught.value.line is not None
    assert 8_000 < caught.value.line < 12_000


def test_bad_row_in_a_sound_or_truncated_archive(tmp_path: Path) -> None:
    whole = gzip.compress(b"a\tb\tc\na\tb\n" + packed_rows(20_000), mtime=0)
    for kept in (len(whole), len(whole) // 2):
        (tmp_path / "g.tsv.gz").write_bytes(whole[:kept])
        with pytest.raises(GraphError, match="2 columns") as caught:
            read_graph(tmp_path / "g.tsv.gz")
        assert caught.value.line == 2


def test_wrong_checksum(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(b"a\tb\tc\n"))
    whole[-6] ^= 1
    (tmp_path / "g.tsv.gz").write_bytes(whole)
    with pytest.raises(GraphError, match="corrupt"):
        read_graph(tmp_path / "g.tsv.gz")


def test_not_an_archive_at_all(tmp_path: Path) -> None:
    (tmp_path / "g.tsv.gz").write_bytes(b"a\tb\tc\n")
    with pytest.raises(GraphError, match=r"corrupt.*again"):
        read_graph(tmp_path / "g.tsv.gz")


def test_path_that_does_not_exist_names_near_ones(write: Write, tmp_path: Path) -> None:
    write("wn18rr/train.tsv", "a\tb\tc\n")
    with pytest.raises(GraphError, match=r"does not exist; did you mean wn18rr\. Check the path"):
        read_graph(tmp_path / "wn18r")
    with pytest.raises(GraphError, match="nor does its folder"):
        read_graph(tmp_path / "no" / "such" / "file.tsv")


@pytest.mark.parametrize(("name", "told"), [("g.json", "'.json'"), ("graph", "no ending")])
def test_unknown_ending(write: Write, name: str, told: str) -> None:
    with pytest.raises(GraphError, match=rf"{told}.*\.tsv .*\.nt"):
        read_graph(write(name, "{}"))


def test_error_in_one_split_names_its_file(write: Write) -> None:
    write("g/train.tsv", "a\tb\tc\n")
    bad = write("g/valid.tsv", "a\tb\tc\nx\n")
    with pytest.raises(GraphError) as caught:
        read_graph(bad.parent)
    assert (caught.value.path, caught.value.line) == (bad, 2)

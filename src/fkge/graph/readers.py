"""`read_graph` detects the format of a path and reads it with the reader for that format."""

from __future__ import annotations

from pathlib import Path

from fkge.errors import GraphError, SettingsError, did_you_mean
from fkge.graph.builder import Builder
from fkge.graph.bundled import PREFIX, bundled_folder
from fkge.graph.graph import Graph
from fkge.graph.openke import is_openke, read_openke
from fkge.graph.rdf import RDF_ENDINGS, Literals, RdfReader
from fkge.graph.source import unreadable
from fkge.graph.tables import read_table
from fkge.progress import SILENT, Progress

_TABLE_ENDINGS = (".tsv", ".txt", ".csv")
_ENDINGS = f"{' '.join((*_TABLE_ENDINGS, *RDF_ENDINGS))}, each also .gz"
_SPLIT_NAMES = {"train": "train", **dict.fromkeys(("valid", "validation", "val", "dev"), "valid"), "test": "test"}


def read_graph(
    path: str | Path,
    *,
    seed: int = 0,
    fractions: tuple[float, float, float] = (0.9, 0.05, 0.05),
    allow_unseen: bool = False,
    literals: Literals = "skip",
    progress: Progress = SILENT,
) -> Graph:
    """Read the graph at `path`.

    A path is one of

    - a file of triples: ``.tsv``, ``.txt`` (tab-separated), ``.csv``, or RDF (``.nt .ttl .nq .trig
      .rdf``), each also ``.gz``; it is split at random;
    - a folder with ``train``, ``valid`` (or ``val``, ``dev``) and ``test`` in any of these formats, and
      further test sets ``test_*``; with ``train`` alone, that is split;
    - an OpenKE folder (``entity2id.txt``, ``relation2id.txt``, ``train2id.txt``, …);
    - ``pykeen:NAME``, a data set that ships with PyKEEN.

    Triples of ready-made splits are all kept; notes say how many hold an entity that train does not have.

    Args:
        path: what to read.
        seed: of the split, where there is none ready-made; as are the next two, see `split_triples`.
        fractions: shares of train, valid and test.
        allow_unseen: whether valid and test may hold entities or relations that train does not.
        literals: RDF literals are skipped, or kept as entities (``"keep"``).
        progress: shows the bytes consumed.

    Raises:
        GraphError: the input cannot be read; the message names the place and a remedy.
        SettingsError: an argument is out of range.
    """
    if literals not in ("skip", "keep"):
        raise SettingsError(f'literals is {literals!r}; it must be "skip" or "keep"')
    address = str(path)
    path = bundled_folder(address) if address.startswith(PREFIX) else Path(path)
    builder = Builder()
    if not path.exists():
        raise _missing(path)
    name = path.resolve().name if path.is_dir() else _stem_and_ending(path)[0]
    if is_openke(path):
        read_openke(path, builder, progress)
    else:
        rdf = RdfReader(builder, literals, progress)
        for split, file in (_find_splits(path) if path.is_dir() else {"train": path}).items():
            _read_file(file, split, builder, rdf, progress)
    return builder.graph(name, seed=seed, fractions=fractions, allow_unseen=allow_unseen)


def _read_file(path: Path, split: str, builder: Builder, rdf: RdfReader, progress: Progress) -> None:
    ending = _stem_and_ending(path)[1]
    if ending in _TABLE_ENDINGS:
        read_table(path, split, builder, progress)
    elif ending in RDF_ENDINGS:
        rdf.read(path, RDF_ENDINGS[ending], split)
    else:
        problem = f"the ending {ending!r} is not one of a graph" if ending else "the file has no ending"
        raise GraphError(path, problem, f"Graphs end in {_ENDINGS}; rename the file to say what it is.")


def _find_splits(folder: Path) -> dict[str, Path]:
    """Split name → file: train, valid, test, then further test sets by name."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise unreadable(folder, error) from None
    found: dict[str, Path] = {}
    for name in names:
        stem, ending = _stem_and_ending(folder / name.lower())
        split = _SPLIT_NAMES.get(stem) or (stem if stem.startswith("test_") else None)
        if split is None or (ending not in _TABLE_ENDINGS and ending not in RDF_ENDINGS):
            continue
        if split in found:
            problem = f"{found[split].name} and {name} could both be the {split} split"
            raise GraphError(folder, problem, "Keep one of them in the folder.")
        found[split] = folder / name
    if "train" not in found:
        problem = f"nothing here is recognised as a graph; found {_some(names)}"
        advice = (
            "A folder needs train, valid and test files, or entity2id.txt, relation2id.txt and train2id.txt; "
            f"files end in {_ENDINGS}. To read a single file, name the file."
        )
        raise GraphError(folder, problem, advice)
    order = ["train", "valid", "test"]
    return {split: found[split] for split in (*order, *sorted(found.keys() - {*order})) if split in found}


def _stem_and_ending(path: Path) -> tuple[str, str]:
    """Split the name of a file: ``train.tsv.gz`` → ``train``, ``.tsv``."""
    name = path.name.removesuffix(".gz").removesuffix(".GZ")
    return Path(name).stem, Path(name).suffix.lower()


def _some(names: list[str], limit: int = 8) -> str:
    if not names:
        return "nothing at all"
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


def _missing(path: Path) -> GraphError:
    parent = path.parent
    if not parent.is_dir():
        return GraphError(path, "does not exist, nor does its folder", "Check the path.")
    near = did_you_mean(path.name, [entry.name for entry in parent.iterdir()]).rstrip("?")
    return GraphError(path, f"does not exist{near}", f"Check the path, or name a bundled set: {PREFIX}NAME.")

"""Measure reading a large N-Triples file: seconds and memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.child import Clock, call, peak_mb
from benchmarks.report import Options, Report, failure

_BLOCK = 200_000
_RELATIONS = 20
_SPACE = "http://example.org"


def generate(path: str, triples: int) -> dict[str, Any]:
    """Write a file of `triples` statements over a quarter as many entities with heavy-tailed degrees."""
    from benchmarks.data import synthetic

    data = synthetic(max(triples // 4, 10), _RELATIONS, triples, 0)
    with Path(path).open("w", encoding="utf-8") as file:
        for start in range(0, triples, _BLOCK):
            file.writelines(
                f"<{_SPACE}/entity/{h}> <{_SPACE}/relation/{r}> <{_SPACE}/entity/{t}> .\n"
                for h, r, t in data.train[start : start + _BLOCK].tolist()
            )
    return {"mb": Path(path).stat().st_size / 1e6}


def measure(path: str) -> dict[str, Any]:
    """Read the file and split it."""
    import pyoxigraph  # noqa: F401  (reported as missing if it is)

    from fkge.graph import read_graph

    before = peak_mb()
    clock = Clock()
    graph = read_graph(path)
    return {
        "wall_s": clock.wall,
        "cpu_s": clock.cpu,
        "mb_before": before,
        "peak_mb": peak_mb(),
        "entities": len(graph.entities),
        "facts": len(graph.facts),
    }


def run(options: Options, report: Report) -> None:
    """Generate a file, read it, and remove it."""
    triples = min(options.load_triples, 20_000) if options.quick else options.load_triples
    path = options.work / "graph.nt"
    report.progress(f"load: writing {triples:,} triples")
    file = call("load:generate", options.environment, path=str(path), triples=triples)
    report.progress("load: reading them")
    result = {**file, **(call("load:measure", options.environment, path=str(path)) if path.exists() else {})}
    path.unlink(missing_ok=True)
    report.figures["load"] = {"triples": triples, **result}
    if failed := failure(result):
        report.note(f"loading N-Triples: {failed}")
        return
    report.table(
        "Loading N-Triples",
        ["triples", "file MB", "seconds", "CPU s", "triples/s", "peak MB", "of which before reading"],
        [[
            f"{triples:,}", f"{result['mb']:,.0f}", f"{result['wall_s']:.1f}", f"{result['cpu_s']:.1f}",
            f"{triples / result['wall_s']:,.0f}", f"{result['peak_mb']:,.0f}", f"{result['mb_before']:,.0f}",
        ]],
        f"{result['entities']:,} entities, {result['facts']:,} different triples; parsed, numbered, tidied and split.",
    )  # fmt: skip

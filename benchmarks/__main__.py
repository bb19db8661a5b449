"""Run all benchmarks, or some: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import load, steps, tables, training
from benchmarks.child import ROOT, call, program
from benchmarks.report import Options, Report, machine


def ranking(options: Options, report: Report) -> None:
    """Filtered ranking, as a program of its own, which prints its table."""
    arguments = ["--data", str(options.fb)]
    if options.quick:
        folder = options.work / "small"
        call("data:write_tsv", path=str(folder))
        arguments = ["--data", str(folder), "--dim", "16", "--oracle-triples", "16", "--repeats", "1"]
    if importlib.util.find_spec("pykeen") is None:
        report.note("ranking: PyKEEN is not installed")
        arguments += ["--oracle-triples", "0"]
    report.progress("ranking")
    text = program("ranking", *arguments, environment=options.environment)
    report.figures["ranking"] = text.splitlines()
    report.note(f"Filtered ranking\n{text}")


SECTIONS: dict[str, Callable[[Options, Report], None]] = {
    "train": training.run,
    "steps": steps.run,
    "tables": tables.run,
    "load": load.run,
    "ranking": ranking,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that everything runs")
    parser.add_argument("--only", metavar="SECTIONS", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--graphs", default="fb,geo", metavar="GRAPHS", help="what to train on: fb, geo or both")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store all figures and the machine's description")
    parser.add_argument("--fb", type=Path, default=ROOT.parent / "shared/data/fb15k237", help="folder of FB15k-237")
    parser.add_argument("--load-triples", type=int, default=5_000_000, metavar="N", help="size of the file to load")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",") if arguments.only else list(SECTIONS)
    if unknown := sorted(set(chosen) - set(SECTIONS)):
        parser.error(f"--only: there is no section {', '.join(unknown)}; choose from {', '.join(SECTIONS)}")

    graphs = tuple(arguments.graphs.split(","))
    if unknown := sorted(set(graphs) - {"fb", "geo"}):
        parser.error(f"--graphs: there is no graph {', '.join(unknown)}; choose from fb, geo")

    report = Report()
    report.figures["machine"] = about = machine()
    report.figures["quick"] = arguments.quick
    report.note(", ".join(f"{key} {value}" for key, value in about.items()))
    if arguments.quick:
        report.note("Quick run: everything is small, and the figures are meaningless.")
    report.note("")
    with tempfile.TemporaryDirectory(prefix="fkge-benchmarks-") as work:
        options = Options(arguments.quick, arguments.fb, arguments.load_triples, Path(work), graphs)
        for name in SECTIONS:
            if name in chosen:
                SECTIONS[name](options, report)
                if arguments.json:  # after each section, so that an interrupted run leaves what it has measured
                    arguments.json.write_text(json.dumps(report.figures, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()

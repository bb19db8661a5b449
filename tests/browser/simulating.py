"""A tiny simulation in a process of its own, which waits where it is told to: ``python simulating.py RUN [WORKS]``.

After that many pieces of federated work it says "waiting" and goes on when it gets a line. Run again, it resumes.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from fkge.experiment.simulation import Simulation
from fkge.graph import Vocabulary
from tests.conftest import tiny_federation, tiny_settings

UNKIND = "<img src=x onerror=alert(1)>&\"'"


def main(folder: Path, works: int) -> None:
    if (folder / "simulation.json").exists():
        simulation = Simulation.open(folder)
    else:
        federation = tiny_federation()
        ant = federation.members["ant"]
        graph = replace(ant.graph, entities=Vocabulary([UNKIND, *ant.graph.entities[1:]], "entity"))
        members = {**federation.members, "ant": replace(ant, graph=graph)}
        simulation = Simulation.create(folder, replace(federation, members=members), tiny_settings(),
                                       engine="in-process")  # fmt: skip
    seen = 0

    def watch(record: dict[str, Any]) -> None:
        nonlocal seen
        seen += record["event"] == "work" and record["arm"] == "federated"
        if record["event"] == "work" and seen == works:
            print("waiting", flush=True)
            sys.stdin.readline()

    simulation.run(watch=watch)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else -1)

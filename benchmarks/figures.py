"""Time the drawing of figures: the live page draws them again during a run, so it must take milliseconds.

python -m benchmarks.figures RUN
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from fkge.experiment.history import History
from fkge.report.exchange_figures import learned, network
from fkge.report.figures import accuracy, timeline


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the figures of a simulation.")
    parser.add_argument("run", type=Path)
    history = History.read(parser.parse_args().run)
    spans = sum(len(course.spans) for stage in history.stages.values() for course in stage.courses.values())
    print(f"{len(history.stages)} arms, {spans:,} spans; CPU milliseconds, best of 7\n\n| figure | ms |\n|---|---|")
    for draw in (accuracy, timeline, learned, network):
        took = []
        for _ in range(7):
            began = time.process_time()
            draw(history)
            took.append(time.process_time() - began)
        print(f"| {draw.__name__} | {1000 * min(took):.1f} |")


if __name__ == "__main__":
    main()

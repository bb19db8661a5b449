"""Draw what privacy costs: gain over control against the confidential share, and against ε.

    fkge simulate FEDERATION --config RECIPE --confidential 0.2 --baselines control,random --seed 0 --out runs/c20-s0
    fkge simulate FEDERATION --config RECIPE-dp --privacy dp --epsilon 8 --baselines control,random --out runs/dp8-s0
    python -m benchmarks.privacy collect runs/* > points.json        # one line of figures for each owner and arm
    python -m benchmarks.privacy draw docs/figures/privacy.json docs/figures

A point is a mean over owners (of the dense pair, the small host) and seeds, less the control of the same seed; bars are
the 95% interval of Student's t over seeds. Grey: owners that were sent random vectors.
"""

from __future__ import annotations

import argparse
import json
import math
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from fkge.evaluation import mean_interval
from fkge.experiment.simulation import Simulation

Point: TypeAlias = dict[str, Any]
"""federation, against ("confidential" or "epsilon"), x (a share, or ε; null for ∞), seed, arm, owner, part, mrr."""

FEDERATIONS = {"dbp5l": "DBP-5L: five DBpedias", "fb15k237-r3": "FB15k-237 in three", "dense": "a dense pair: its host"}
SHARES = (0.0, 0.2, 0.35, 0.5)
EPSILONS = (None, 16.0, 8.0, 4.0, 2.0)
PARTS = {"strict": "facts nobody else holds", "held": "facts a partner holds"}


def collect(runs: Iterable[Path]) -> Iterator[Point]:
    """Yield the points of finished simulations."""
    for run in runs:
        simulation = Simulation.open(run)
        result = simulation.result
        if result is None:
            raise SystemExit(f"{run}: is not finished; fkge simulate --resume {run}")
        against, x = _place(run, simulation)
        for owner, found in result.owners.items():
            for arm, report in found.arms.items():
                for part, scores in report.test.items():
                    yield {
                        "federation": result.federation, "against": against, "x": x, "seed": result.seed,
                        "arm": arm, "owner": owner, "part": part, "mrr": round(scores.mrr, 5),
                    }  # fmt: skip


def _place(run: Path, simulation: Simulation) -> tuple[str, float | None]:
    privacy = simulation.settings.privacy
    if privacy.mode == "dp":
        return "epsilon", privacy.epsilon
    policy = run / "owners" / simulation.spec.owners[0] / "policy.toml"
    rules = tomllib.loads(policy.read_text(encoding="utf-8")).get("rules", []) if policy.exists() else []
    return "confidential", float(rules[0]["fraction"]) if rules else 0.0


def gains(
    points: Sequence[Point], federation: str, against: str, x: float | None, arm: str, part: str
) -> tuple[float, float, float, int] | None:
    """Mean gain over control, its interval, and the number of seeds; None where nothing was measured."""
    by_seed: dict[int, dict[str, dict[str, float]]] = {}
    for p in points:
        if p["federation"] != federation or p["part"] != part or (federation == "dense" and p["owner"] != "host"):
            continue
        if p["arm"] == "control" or (p["against"] == against and p["x"] == x and p["arm"] == arm):
            by_seed.setdefault(p["seed"], {}).setdefault(p["arm"], {})[p["owner"]] = p["mrr"]
    found = []
    for arms in by_seed.values():
        if arm in arms and "control" in arms:
            found.append(sum(arms[arm][o] - arms["control"][o] for o in arms[arm]) / len(arms[arm]))
    if not found:
        return None
    if len(found) == 1:
        return found[0], math.nan, math.nan, 1
    interval = mean_interval(found)
    return interval.mean, interval.low, interval.high, len(found)


def tables(points: Sequence[Point]) -> Iterator[str]:
    """The same as Markdown."""
    for against, xs in (("confidential", SHARES), ("epsilon", EPSILONS)):
        for part in PARTS:
            yield f"\n**{part}**, gain over control against {against}\n"
            yield "| | " + " | ".join("∞" if x is None else f"{x:g}" for x in xs) + " | random |"
            yield "|---" * (len(xs) + 2) + "|"
            for federation, name in FEDERATIONS.items():
                cells = [_cell(gains(points, federation, against, x, "federated", part)) for x in xs]
                spare = 0.2 if against == "confidential" else 8.0
                cells.append(_cell(gains(points, federation, against, spare, "random", part)))
                if any(cells):
                    yield f"| {name} | " + " | ".join(cells) + " |"


def _cell(gain: tuple[float, float, float, int] | None) -> str:
    if gain is None:
        return ""
    mean, low, high, seeds = gain
    return f"{mean:+.3f} ({low:+.3f} … {high:+.3f})" if seeds > 1 else f"{mean:+.3f} (one seed)"


PANELS = (
    ("dbp5l", "strict", "DBP-5L: facts nobody else holds"),
    ("dbp5l", "held", "DBP-5L: facts a partner holds"),
    ("fb15k237-r3", "strict", "FB15k-237 in three"),
    ("dense", "strict", "a dense pair: its small host"),
)


def draw(points: Sequence[Point], out: Path) -> None:
    """Two figures, a panel for each federation and kind of facts."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams.update({"svg.hashsalt": "fkge", "font.size": 9, "axes.spines.top": False,
                                "axes.spines.right": False, "svg.fonttype": "none"})  # fmt: skip
    for against, xs, label, name in (
        ("confidential", SHARES, "share of all triples that is confidential", "confidential.svg"),
        ("epsilon", EPSILONS, "ε for each triple, over a lifetime (δ = 10⁻⁵)", "epsilon.svg"),
    ):
        figure, panels = plt.subplots(1, len(PANELS), figsize=(11.5, 3.2), layout="constrained")
        for panel, (federation, part, title) in zip(panels, PANELS, strict=True):
            _panel(panel, points, federation, part, against, xs)
            panel.set_title(title, fontsize=9)
            panel.set_xlabel(label, fontsize=8)
        panels[0].set_ylabel("gain in MRR over control")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(out / name, metadata={"Date": None})
        plt.close(figure)


def _panel(
    panel: Any, points: Sequence[Point], federation: str, part: str, against: str, xs: Sequence[float | None]
) -> None:
    places = [float(x or 0) for x in xs] if against == "confidential" else [float(i) for i in range(len(xs))]
    spare = 0.2 if against == "confidential" else 8.0
    lines = (
        ("federated", xs, "#1b6ca8", "o", "federated, less control"),
        ("random", (spare,), "#999999", "s", "peers that send random vectors, less control"),
    )
    for arm, wanted, colour, marker, label in lines:
        found = [
            (places[list(xs).index(x)], gain)
            for x in wanted
            if (gain := gains(points, federation, against, x, arm, part)) is not None
        ]
        if found:
            at, mean = [f[0] for f in found], [f[1][0] for f in found]
            low, high = ([abs(f[1][i] - f[1][0]) for f in found] for i in (1, 2))
            panel.errorbar(at, mean, yerr=[low, high], marker=marker, ms=4, capsize=2, color=colour, label=label)
    panel.axhline(0, color="black", linewidth=0.6)
    panel.set_ylim(min(0.0, panel.get_ylim()[0]))
    if against == "epsilon":
        panel.set_xticks(places, ["∞" if x is None else f"{x:g}" for x in xs])
    else:
        panel.set_xlim(-0.03, 0.53)


def main() -> None:
    parser = argparse.ArgumentParser(description="What privacy costs.")
    parser.add_argument("do", choices=["collect", "draw", "tables"])
    parser.add_argument("paths", nargs="+", type=Path)
    given = parser.parse_args()
    if given.do == "collect":
        print(json.dumps(list(collect(given.paths)), indent=0))
        return
    points = json.loads(given.paths[0].read_text(encoding="utf-8"))
    if given.do == "draw":
        draw(points, given.paths[1])
    else:
        print("\n".join(tables(points)))


if __name__ == "__main__":
    main()

"""Summarise simulations of one federation over several seeds, as Markdown: the tables of docs/explanation/results.md.

    for s in 0 1 2; do
        fkge simulate FEDERATION --config RECIPE --baselines control,permuted,fede --seed $s --out runs/s$s
    done
    python -m benchmarks.federations runs/s0 runs/s1 runs/s2

A cell is the mean over owners, then over seeds. A gain is federated less another arm, seed by seed, with the 95%
interval of Student's t over seeds. An owner's gain has the 95% interval of the paired bootstrap over its test triples,
of each the mean over seeds; it loses, or gains, significantly in a seed if that seed's own interval says so.

A strict fact is one that no other owner states. Another may still relate the same two things: the other way round, or
by a relation that says much the same. A table of its own is of the strict facts for which nobody does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fkge.align import clusters
from fkge.evaluation import mean_interval, paired_bootstrap
from fkge.experiment.owners import SimulatedOwner
from fkge.experiment.results import PARTS, SimulationResult
from fkge.experiment.simulation import ARMS
from fkge.graph.graph import HEAD, TAIL

Masks = dict[str, npt.NDArray[np.bool_]]

METRICS = ("mrr", "hits@10", "accuracy")


def main() -> None:
    parser = argparse.ArgumentParser(description="Summarise simulations over seeds.")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--against", default="control", choices=ARMS)
    options = parser.parse_args()
    results = [SimulationResult.load(run) for run in options.runs]
    arms = [arm for arm in ARMS if all(arm in result.mean for result in results)]
    print(f"{results[0].federation}: seeds {', '.join(str(result.seed) for result in results)}\n")
    for part in PARTS:
        if not any(part in result.mean["federated"] for result in results):
            continue
        print(f"**{part}**\n")
        print("| arm | " + " | ".join(METRICS) + " |\n|---|" + "---|" * len(METRICS))
        for arm in arms:
            cells = [f"{np.mean([result.mean[arm][part][m] for result in results]):.4f}" for m in METRICS]
            print(f"| {arm} | " + " | ".join(cells) + " |")
        for arm in arms:
            if arm != "federated":
                print(f"| *federated less {arm}* | " + " | ".join(_gain(results, arm, part, m) for m in METRICS) + " |")
        print()
        _owners(options.runs, results, options.against, part)
        if part == "strict" and not results[0].private_epochs:
            print("**strict, and no other owner relates the two entities in any way**\n")
            _owners(options.runs, results, options.against, part, _unrelated(options.runs[0], results[0].owners))
    if all("chained" in result.mean["federated"] for result in results):
        _strict_or_chained(options.runs, results, arms)
    print("seconds, all arms:", ", ".join(f"{result.seconds:.0f}" for result in results))


def _gain(results: list[SimulationResult], arm: str, part: str, metric: str) -> str:
    gains = [r.mean["federated"][part][metric] - r.mean[arm][part][metric] for r in results]
    if len(gains) < 2:
        return f"{gains[0]:+.4f}"
    interval = mean_interval(gains)
    return f"{interval.mean:+.4f} ({interval.low:+.4f} … {interval.high:+.4f})"


def _owners(
    runs: list[Path], results: list[SimulationResult], against: str, part: str, among: Masks | None = None
) -> None:
    """Print the gain of each owner on a part of its test triples, or on those of them that are in `among`."""
    print(f"| owner | facts | {against} MRR | federated MRR | gain, 95% | seeds better / worse, significantly |")
    print("|---|---|---|---|---|---|")
    for name in results[0].owners:
        if any(part not in result.owners[name].arms["federated"].test for result in results):
            continue
        theirs, ours = (_ranks(runs, name, arm, part, among) for arm in (against, "federated"))
        found = [paired_bootstrap(*pair, metric="mrr") for pair in zip(theirs, ours, strict=True)]
        theirs, ours = _over_seeds(theirs), _over_seeds(ours)
        gain = paired_bootstrap(theirs, ours, metric="mrr")
        better, worse = sum(f.low > 0 for f in found), sum(f.high < 0 for f in found)
        print(
            f"| {name} | {len(ours):,} | {np.mean(1 / theirs):.3f} | {np.mean(1 / ours):.3f} | "
            f"{gain.difference:+.3f} ({gain.low:+.3f} … {gain.high:+.3f}) | {better} / {worse} of {len(found)} |"
        )
    print()


def _ranks(runs: list[Path], owner: str, arm: str, part: str, among: Masks | None) -> npt.NDArray[np.float64]:
    """Ranks of an owner's test triples of a part, (seeds, n, 2)."""
    found = []
    for run in runs:
        ranks, parts = SimulatedOwner.open(run / "owners" / owner).ranks(arm)
        found.append(ranks[parts[part] if among is None else parts[part] & among[owner]].realistic)
    return np.stack(found)


def _over_seeds(ranks: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The harmonic mean over seeds of the ranks of each test triple, (n, 2): its MRR is the mean of theirs."""
    return np.asarray(1 / np.mean(1 / ranks, axis=0))


def _unrelated(run: Path, owners: Iterable[str]) -> Masks:
    """Masks of test triples, by owner: no training triple of another owner relates the same two entities."""
    stores = {name: SimulatedOwner.open(run / "owners" / name) for name in owners}
    common = {
        name: {p: known.common.ids("entity") for p, known in store.peers.items()} for name, store in stores.items()
    }
    ids, many = clusters(
        {name: len(store.graph.entities) for name, store in stores.items()},
        {(a, b): (common[a][b], common[b][a]) for a in common for b in common[a] if a < b},
    )

    def pairs(name: str, triples: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        ends = np.sort(ids[name][triples[:, [HEAD, TAIL]]], axis=1)
        return np.asarray(ends[:, 0] * many + ends[:, 1])

    out: Masks = {}
    for name, store in stores.items():
        others = np.concatenate([pairs(other, stores[other].graph.train) for other in stores if other != name])
        tests = [pairs(name, triples) for split, triples in store.graph.splits.items() if split.startswith("test")]
        out[name] = ~np.isin(np.concatenate(tests), others)
    return out


def _strict_or_chained(runs: list[Path], results: list[SimulationResult], arms: list[str]) -> None:
    """Print strict and chained together: what would be strict if only direct links counted."""
    print("**strict and chained together**\n\n| arm | mrr | hits@10 |\n|---|---|---|")
    for arm in arms:
        cells = []
        for run, result in zip(runs, results, strict=True):
            for name in result.owners:
                ranks, parts = SimulatedOwner.open(run / "owners" / name).ranks(arm)
                r = ranks[~parts["held"]].realistic
                cells.append(((1 / r).mean(), (r <= 10).mean()))
        mrr, hits = np.mean(cells, axis=0)
        print(f"| {arm} | {mrr:.4f} | {hits:.4f} |")
    print()


if __name__ == "__main__":
    main()

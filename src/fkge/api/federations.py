"""Create or read a federation, simulate it, and compare its arms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from fkge.align import read_links
from fkge.api.folders import interrupted, working_folder
from fkge.api.models import AnyGraph, Trained, frame
from fkge.api.overrides import EngineOptions, FederationOverrides, merge_settings
from fkge.errors import RunError, SettingsError, UnknownLabelError
from fkge.experiment.simulation import Simulation
from fkge.experiment.training_run import Run
from fkge.export import locate
from fkge.federation import Federation as Core
from fkge.federation import FederationSettings, Links, Member, read_federation
from fkge.federation.recommended import recommended_federation
from fkge.federation.source import checked
from fkge.files import whole_or_nothing
from fkge.graph import Graph, read_graph
from fkge.progress import interruptible, show_progress
from fkge.results import METRICS

if TYPE_CHECKING:
    import pandas as pd

AnyLinks = Literal["same"] | Links | str | Path | Iterable[tuple[str, str]]


class Federation:
    """Owners of graphs and the links between them.

    Args:
        owners: by name, a graph, a path or name that `fkge.read_graph` takes, or a `fkge.Member` with a policy, peers
            it refuses or training settings of its own.
        links: ``"same"`` if equal labels mean the same thing to all owners; else by pair of owners ``"same"``, a file
            of links, pairs of entity labels, or `fkge.Links`.
        name: shown in tables and reports.

    Raises:
        SettingsError: owners or links are malformed, or no two owners share anything.
        UnknownLabelError: a link names an owner that is not there.
    """

    def __init__(
        self,
        owners: Mapping[str, AnyGraph | Member],
        links: Literal["same"] | Mapping[tuple[str, str], AnyLinks] = "same",
        *,
        name: str = "federation",
    ) -> None:
        if not isinstance(owners, Mapping) or not all(isinstance(name, str) for name in owners):
            raise SettingsError('owners is a dict of graphs by name, such as {"clinic": "clinic.nt", "genes": graph}')
        if links != "same" and not isinstance(links, Mapping):
            raise SettingsError(f'links is {links!r}; give "same", or the links of each pair of owners')
        members = {
            owner: m if isinstance(m, Member) else Member(m if isinstance(m, Graph) else read_graph(m))
            for owner, m in owners.items()
        }
        if links == "same":
            links = dict.fromkeys(combinations(members, 2), "same")
        pairs: dict[tuple[str, str], Links] = {}
        for pair, given in links.items():
            a, b = _two(pair, "links: the pair of owners")
            for owner in (a, b):
                if owner not in members:
                    raise UnknownLabelError("owner", owner, members)
            if a == b or (b, a) in pairs:
                raise SettingsError(f"links: {a} and {b} are the same owner, or linked already")
            pairs[a, b] = _links(given)
        self.core = checked(name, members, pairs, name)

    @classmethod
    def read(cls, source: str | Path, *, progress: bool = True) -> Federation:
        """Read a federation from a folder or a TOML file, or an embedded one by its name."""
        made = cls.__new__(cls)
        with show_progress(progress) as shown:
            made.core = read_federation(source, shown)
        return made

    @property
    def name(self) -> str:
        """The name shown in tables and reports."""
        return self.core.name

    @property
    def owners(self) -> dict[str, Graph]:
        """Graphs by owner."""
        return self.core.graphs

    def __repr__(self) -> str:
        return f"Federation({self.name}: {', '.join(self.owners)})"

    def shared(self) -> pd.DataFrame:
        """Return what each pair of owners shares, with columns owner, peer, entities, relations."""
        return frame(
            {"owner": a, "peer": b, "entities": len(common.entities), "relations": len(common.relations)}
            for (a, b), (common, _) in self.core.pairs.items()
        )

    def simulate(
        self,
        out: str | Path | None = None,
        *,
        baselines: str | Iterable[str] = ("control",),
        seed: int = 0,
        settings: FederationSettings | FederationOverrides | str | Path | None = None,
        engine: str = "processes",
        engine_options: EngineOptions | None = None,
        resume: bool = False,
        progress: bool = True,
        **overrides: Unpack[FederationOverrides],
    ) -> Result:
        """Run the federation on this machine, together with baselines without it, and compare them.

        Args:
            out: the folder to create; a temporary one if None.
            baselines: further arms, of independent, control, permuted, random, poisoned, fede and unified; names, or
                one text with commas between them.
            seed: seed of all random numbers.
            settings: settings to start from: an object, a dict, a TOML file or the name of a recipe.
            engine: ``"processes"``, one for each owner; ``"in-process"``, with bit-identical repeats; ``"ray"``, on
                many machines; ``"nodes"``, real nodes over TLS.
            engine_options: options of the engine ``"ray"``.
            resume: continue the simulation in `out`, if there is one, of the same owners and settings.
            progress: show a progress bar.
            overrides: keys of `fkge.FederationSettings`; of sections only the keys given change:
                ``train={"dim": 64}``, ``privacy={"mode": "dp", "epsilon": 8}``.

        Raises:
            FkgeError: a setting cannot work, `out` holds something else, or an owner's process died.
            KeyboardInterrupt: after Ctrl-C. Nothing is lost if there is an `out`.
        """
        trains = [member.train for member in self.core.members.values()]
        merged = merge_settings(FederationSettings, settings, overrides)
        wanted = recommended_federation(merged, list(self.core.graphs.values()), trains)
        if isinstance(baselines, str):
            baselines = baselines.split(",")
        folder, keep = working_folder(out)
        with show_progress(progress) as shown:
            if resume and (folder / "simulation.json").exists():
                simulation = Simulation.open(folder)
                _check_same(simulation, self.core, wanted, seed)
            else:
                Simulation.check_free(folder)
                with whole_or_nothing(folder):
                    simulation = Simulation.create(
                        folder, self.core, wanted, baselines=baselines, engine=engine, engine_options=engine_options,
                        seed=seed, progress=shown,
                    )  # fmt: skip
            with interruptible() as stop:
                found = simulation.run(progress=shown, stop=stop, engine_options=engine_options)
        if found is None:
            raise interrupted("federation.simulate(…", out)
        return Result(simulation, keep)


class Result:
    """The result of a finished simulation. ``result["clinic"]`` is that owner's federated model.

    Attributes:
        folder: the simulation's folder, which every command of ``fkge`` takes.
        values: everything that was measured, typed.
        raw: the same as plain data, as in results.json.
        owners: names of the owners.
        arms: names of the arms, in the order they ran.

    Raises:
        RunError: the simulation is not finished.
    """

    def __init__(self, simulation: Simulation, keep: object = None) -> None:
        found = simulation.result
        if found is None:
            raise RunError(
                f"{simulation.folder}: is not finished. Resume it: fkge simulate --resume {simulation.folder}"
            )
        self.folder = simulation.folder
        self.values = found
        self.raw = found.to_json()
        self.owners = list(found.owners)
        self.arms = list(simulation.spec.arms)
        self._keep = keep

    def __repr__(self) -> str:
        return f"Result({self.values.federation}: {', '.join(self.owners)}; {', '.join(self.arms)})"

    def __getitem__(self, owner: str) -> Trained:
        return self.owner(owner)

    def __iter__(self) -> Iterator[str]:
        return iter(self.owners)

    def owner(self, name: str, arm: str = "federated") -> Trained:
        """Return the model that an owner ended with in an arm."""
        return Trained(Run.open(locate(self.folder, name, arm)), self._keep)

    def table(self) -> pd.DataFrame:
        """Return test metrics in long format: owner, arm, part (strict, chained, held), triples, metric, value."""
        return frame(
            {"owner": name, "arm": arm, "part": part, "triples": scores.triples, "metric": m, "value": scores[m]}
            for name, owner in self.values.owners.items()
            for arm, report in owner.arms.items()
            for part, scores in report.test.items()
            for m in METRICS
        )

    def gains(self, over: str = "control") -> pd.DataFrame:
        """Return the difference between the federated arm and another one, with its 95% interval.

        Args:
            over: the arm to compare with.

        Returns:
            A DataFrame with columns owner, part, metric, difference, low, high, p.

        Raises:
            UnknownLabelError: the simulation has no such arm.
        """
        if over not in self.arms or over == "federated":
            raise UnknownLabelError("arm to compare with", over, [arm for arm in self.arms if arm != "federated"])
        return frame(
            {"owner": name, "part": part, "metric": metric, **comparison.to_json()}
            for name, owner in self.values.owners.items()
            for part, metrics in owner.versus[over].items()
            for metric, comparison in metrics.items()
        )

    def report(self, out: str | Path | None = None) -> Path:
        """Write the HTML report of the simulation and return its path; see `fkge.report`."""
        from fkge.report import write_report

        return write_report(self.folder, None if out is None else Path(out))


def _links(given: AnyLinks) -> Links:
    if isinstance(given, Links):
        return given
    if given == "same":
        return Links(same=True)
    if isinstance(given, str | Path):
        return Links(entities=tuple(read_links(Path(given))))
    return Links(entities=tuple(_two(pair, "links: a pair of labels") for pair in given))


def _two(pair: Any, what: str) -> tuple[str, str]:
    """Check that `pair` has two names and is not a text of two letters."""
    if isinstance(pair, str) or len(pair) != 2:
        raise SettingsError(f"{what} is {pair!r}; give it as (first, second)")
    return pair[0], pair[1]


def _check_same(simulation: Simulation, federation: Core, settings: FederationSettings, seed: int) -> None:
    """Raise a RunError if a simulation was started with other owners, settings or another seed."""
    was = {owner.name: owner.graph.fingerprint for owner in simulation.owners}
    now = {name: graph.fingerprint for name, graph in federation.graphs.items()}
    differ = {"owners": was != now, "settings": simulation.settings != settings, "seed": simulation.spec.seed != seed}
    if about := [what for what, differs in differ.items() if differs]:
        raise RunError(f"{simulation.folder}: was started with other {about[0]}; choose another out")

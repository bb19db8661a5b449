"""Several owners: a federation is made or read, simulated, and its gains are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fkge.align import read_links
from fkge.api.models import AnyGraph, Trained
from fkge.api.work import Recipe, interrupted, merged, workplace
from fkge.bars import bars, interruptible
from fkge.errors import RunError, SettingsError, UnknownLabelError, need
from fkge.export import locate
from fkge.federation import Federation as Core
from fkge.federation import FederationSettings, Links, Member, read_federation
from fkge.federation.source import checked
from fkge.graph import Graph, read_graph
from fkge.runs import Run
from fkge.simulations import Simulation
from fkge.trace import whole_or_nothing

if TYPE_CHECKING:
    import pandas as pd

AnyLinks = Literal["same"] | Links | str | Path | Iterable[tuple[str, str]]


class Federation:
    """Owners of graphs and what they share.

    Args:
        owners: by name, a graph, whatever `fkge.read_graph` takes, or a `fkge.Member` with a policy, peers that it
            refuses or training settings of its own.
        links: ``"same"`` if equal labels mean the same thing to everybody; else for each two owners that share
            something ``"same"``, a file of links, pairs of entity labels, or `fkge.Links`.
        name: for people.
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
            raise SettingsError(f'links is {links!r}; say "same", or what links each two owners')
        members = {
            owner: m if isinstance(m, Member) else Member(m if isinstance(m, Graph) else read_graph(m))
            for owner, m in owners.items()
        }
        if links == "same":
            links = {(a, b): "same" for i, a in enumerate(members) for b in list(members)[i + 1 :]}
        pairs: dict[tuple[str, str], Links] = {}
        for pair, given in links.items():
            a, b = _two(pair, "links: what they are between")
            for owner in (a, b):
                if owner not in members:
                    raise UnknownLabelError("owner", owner, members)
            if a == b or (b, a) in pairs:
                raise SettingsError(f"links: {a} and {b} are one owner, or linked already")
            pairs[a, b] = _links(given)
        self.core = checked(name, members, pairs, name)

    @classmethod
    def read(cls, source: str | Path, *, progress: bool = True) -> Federation:
        """The federation in a folder or of a TOML file, or one that comes with the package, by name."""
        made = cls.__new__(cls)
        with bars(progress) as shown:
            made.core = read_federation(source, shown)
        return made

    @property
    def name(self) -> str:
        """For people."""
        return self.core.name

    @property
    def owners(self) -> dict[str, Graph]:
        """Graphs by owner."""
        return self.core.graphs

    def __repr__(self) -> str:
        return f"Federation({self.name}: {', '.join(self.owners)})"

    def shared(self) -> pd.DataFrame:
        """What each two owners share: owner, peer, and how many entities and relations."""
        rows = [
            {"owner": a, "peer": b, "entities": len(common.entities), "relations": len(common.relations)}
            for (a, b), (common, _) in self.core.pairs.items()
        ]
        return need("pandas", "pandas", "a DataFrame").DataFrame(rows)

    def simulate(
        self,
        out: str | Path | None = None,
        *,
        baselines: str | Iterable[str] = ("control",),
        seed: int = 0,
        recipe: Recipe | None = None,
        engine: str = "processes",
        engine_options: Mapping[str, Any] | None = None,
        resume: bool = False,
        progress: bool = True,
        **settings: Any,
    ) -> Result:
        """Let the owners improve each other, on this machine, beside controls.

        Args:
            out: the folder to make; a temporary one if None.
            baselines: further arms, of independent, control, permuted, random, fede and unified; in a text, by commas.
            seed: of everything random.
            recipe: settings to begin with: a recipe's name, a TOML file or a dict.
            engine: ``"processes"``, one for each owner; ``"in-process"``, which repeats to the bit; or ``"ray"``, which
                does the same on many machines.
            engine_options: of Ray: ``address`` of a cluster, ``cpus`` and ``gpus`` for each owner.
            resume: go on with what `out` holds, if it holds a simulation of the same owners and settings.
            progress: draw how far it is.
            settings: of `fkge.FederationSettings`; ``train``, ``privacy`` and other sections are dicts, and change only
                what they name: ``train={"dim": 64}``, ``privacy={"mode": "dp", "epsilon": 8}``.

        Raises:
            KeyboardInterrupt: after Ctrl-C. Nothing is lost if there is an `out`.
        """
        wanted = merged(FederationSettings, recipe, settings)
        if isinstance(baselines, str):
            baselines = baselines.split(",")
        folder, keep = workplace(out)
        with bars(progress) as shown:
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
    """What a finished simulation found. ``result["clinic"]`` is that owner's federated model.

    Attributes:
        folder: where all of it is kept; every command of ``fkge`` takes it.
        raw: its results.json.
        owners, arms: their names.
    """

    def __init__(self, simulation: Simulation, keep: object = None) -> None:
        found = simulation.result
        if found is None:
            raise RunError(f"{simulation.folder}: is not finished. Go on: fkge simulate --resume {simulation.folder}")
        self.folder = simulation.folder
        self.raw = found
        self.owners: list[str] = list(found["owners"])
        self.arms: list[str] = list(simulation.arms)
        self._keep = keep

    def __repr__(self) -> str:
        return f"Result({self.raw['federation']}: {', '.join(self.owners)}; {', '.join(self.arms)})"

    def __getitem__(self, owner: str) -> Trained:
        return self.owner(owner)

    def __iter__(self) -> Iterator[str]:
        return iter(self.owners)

    def owner(self, name: str, arm: str = "federated") -> Trained:
        """What an owner ended with in an arm."""
        return Trained(Run.open(locate(self.folder, name, arm)), self._keep)

    def table(self) -> pd.DataFrame:
        """Test metrics, tidy: owner, arm, part (strict, chained, held), triples, metric, value."""
        rows = [
            {"owner": owner, "arm": arm, "part": part, "triples": scores["triples"], "metric": metric, "value": value}
            for owner, of in self.raw["owners"].items()
            for arm, found in of["arms"].items()
            for part, scores in found["test"].items()
            for metric, value in scores.items()
            if metric != "triples"
        ]
        return need("pandas", "pandas", "a DataFrame").DataFrame(rows)

    def gains(self, over: str = "control") -> pd.DataFrame:
        """The federated owner less another arm: owner, part, metric, difference, low, high (95%), p."""
        if over not in self.arms or over == "federated":
            raise UnknownLabelError("arm to compare with", over, [arm for arm in self.arms if arm != "federated"])
        rows = [
            {"owner": owner, "part": part, "metric": metric, **figures}
            for owner, of in self.raw["owners"].items()
            for part, metrics in of["versus"][over].items()
            for metric, figures in metrics.items()
        ]
        return need("pandas", "pandas", "a DataFrame").DataFrame(rows)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the report of the simulation; see `fkge.report`."""
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
    """Two names, not one that happens to have two letters."""
    if isinstance(pair, str) or len(pair) != 2:
        raise SettingsError(f"{what} is {pair!r}; say it as (first, second)")
    return pair[0], pair[1]


def _check_same(simulation: Simulation, federation: Core, settings: FederationSettings, seed: int) -> None:
    """Refuse to go on with other owners or settings than a simulation was begun with."""
    was = {home.name: home.graph.fingerprint for home in simulation.homes}
    now = {name: graph.fingerprint for name, graph in federation.graphs.items()}
    about = "owners" if was != now else "settings" if simulation.settings != settings else "seed"
    if was != now or simulation.settings != settings or simulation.about["seed"] != seed:
        raise RunError(f"{simulation.folder}: was begun with other {about}; choose another out")

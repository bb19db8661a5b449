"""Federations and their results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fkge
from fkge.errors import FkgeError, RunError, SettingsError
from fkge.experiment.simulation import Simulation
from fkge.federation import Links
from tests.conftest import OWNERS, tiny_federation, tiny_settings
from tests.unit.api.scripts import METRICS, QUICK, interrupting, owners, script


def test_interrupted_simulation_resumes(tmp_path: Path, monkeypatch: Any) -> None:
    federation = fkge.Federation(owners())
    with interrupting(monkeypatch, "control", 2), pytest.raises(KeyboardInterrupt, match=r"simulate\(…, out="):
        federation.simulate(tmp_path / "run", **{**QUICK, "progress": True})
    with pytest.raises(RunError, match="is not finished"):
        fkge.open(tmp_path / "run")
    for other, what in (({"exchanges": 3}, "settings"), ({"seed": 1}, "seed")):
        with pytest.raises(RunError, match=f"started with other {what}"):
            federation.simulate(tmp_path / "run", resume=True, **{**QUICK, **other})
    with pytest.raises(RunError, match="started with other owners"):
        fkge.Federation(owners(OWNERS)).simulate(tmp_path / "run", resume=True, **QUICK)
    assert federation.simulate(tmp_path / "run", resume=True, **QUICK).owners == list(OWNERS[:2])


def test_simulate_equals_simulation_run(result: fkge.Result, tmp_path: Path) -> None:
    settings = tiny_settings(exchanges=2)
    same = Simulation.create(
        tmp_path / "run", tiny_federation(OWNERS[:2]), settings, seed=3, engine="in-process",
        baselines=("independent", "control"),
    ).run()  # fmt: skip
    assert same is not None
    for owner in OWNERS[:2]:
        for arm in ("independent", "control", "federated"):
            assert result.values.owners[owner].arms[arm].test == same.owners[owner].arms[arm].test
        assert result.values.owners[owner].versus == same.owners[owner].versus


def test_results_are_tidy(result: fkge.Result) -> None:
    pytest.importorskip("pandas")
    table = result.table()
    assert list(table.columns) == ["owner", "arm", "part", "triples", "metric", "value"]
    assert not table.duplicated(["owner", "arm", "part", "metric"]).any()
    assert (set(table["owner"]), set(table["arm"])) == (set(result.owners), set(result.arms))
    assert set(table["metric"]) == METRICS
    for row in table.itertuples():
        assert result.raw["owners"][row.owner]["arms"][row.arm]["test"][row.part][row.metric] == row.value
    wide = table[table["metric"] == "mrr"].pivot(index=["owner", "part"], columns="arm", values="value")
    for over in ("control", "independent"):
        gains = result.gains(over)
        assert list(gains.columns) == ["owner", "part", "metric", "difference", "low", "high", "p"]
        found = gains[gains["metric"] == "mrr"].set_index(["owner", "part"])["difference"]
        expected = wide["federated"] - wide[over]
        assert found.to_dict() == pytest.approx(expected.to_dict())
    with pytest.raises(FkgeError, match="no arm to compare with 'controll'; did you mean control"):
        result.gains("controll")


def test_an_owner_of_a_result(result: fkge.Result) -> None:
    assert list(result) == result.owners == list(OWNERS[:2])
    for arm in result.arms:
        owner = result.owner("bee", arm)
        scores = result.raw["owners"]["bee"]["arms"][arm]["valid"]
        found = owner.evaluate(["valid"], accuracy=False)["valid"]
        assert found == pytest.approx({name: scores[name] for name in found})
    assert len(result["bee"].predict(head="place25", relation="one", top=2)) == 2
    with pytest.raises(FkgeError, match="no owner 'bea'; did you mean bee"):
        result["bea"]


def test_an_owner_keeps_a_temporary_result() -> None:
    result = fkge.Federation(owners()).simulate(baselines=(), **QUICK)
    owner, folder = result["ant"], result.folder
    del result
    assert owner.vectors().shape == (40, 8)
    del owner
    assert not folder.exists()


def test_a_result_is_opened_again(tmp_path: Path) -> None:
    made = fkge.Federation(owners()).simulate(tmp_path / "run", **QUICK)
    opened = fkge.open(tmp_path / "run")
    assert isinstance(opened, fkge.Result)
    assert (opened.raw, opened.folder, opened.arms) == (made.raw, made.folder, ["control", "federated"])
    assert isinstance(fkge.open(tmp_path / "run" / "arms" / "control" / "ant"), fkge.Trained)


def test_federation_accepts_every_kind_of_graph_and_links(tmp_path: Path) -> None:
    graphs = owners()
    for name, graph in graphs.items():
        (tmp_path / name).mkdir()
        for split, triples in graph.splits.items():
            rows = [f"{graph.entities[h]}\t{graph.relations[r]}\t{graph.entities[t]}\n" for h, r, t in triples.tolist()]
            (tmp_path / name / f"{split}.tsv").write_text("".join(rows))
    (tmp_path / "links.tsv").write_text("place20\tplace20\nplace21\tplace21\n")
    (tmp_path / "pair.toml").write_text(
        '[owners.ant]\ngraph = "ant"\n[owners.bee]\ngraph = "bee"\n[[links]]\nbetween = ["ant", "bee"]\nsame = true\n'
    )
    read = fkge.Federation.read(tmp_path / "pair.toml", progress=False)
    made = fkge.Federation({"ant": str(tmp_path / "ant"), "bee": fkge.Member(graphs["bee"], refuses=())})
    assert {n: g.fingerprint for n, g in read.owners.items()} == {n: g.fingerprint for n, g in made.owners.items()}
    assert repr(made) == "Federation(federation: ant, bee)"

    def shared(links: Any) -> dict[str, int]:
        row: dict[str, int] = fkge.Federation(graphs, links).shared().iloc[0].to_dict()
        return row

    pytest.importorskip("pandas")
    assert shared("same") == {"owner": "ant", "peer": "bee", "entities": 20, "relations": 4}
    assert shared({("bee", "ant"): "same"})["entities"] == 20
    pairs = [("place20", "place20"), ("place21", "place21")]
    for links in (pairs, tmp_path / "links.tsv", str(tmp_path / "links.tsv"), Links(entities=tuple(pairs))):
        assert shared({("ant", "bee"): links}) == {"owner": "ant", "peer": "bee", "entities": 2, "relations": 0}


def test_federation_errors() -> None:
    graphs = owners()
    with pytest.raises(SettingsError, match="no two owners share"):
        fkge.Federation(graphs, {})
    with pytest.raises(FkgeError, match="no owner 'bea'; did you mean bee"):
        fkge.Federation(graphs, {("ant", "bea"): "same"})
    with pytest.raises(SettingsError, match="linked already"):
        fkge.Federation(graphs, {("ant", "bee"): "same", ("bee", "ant"): "same"})
    with pytest.raises(SettingsError, match=r"pair of owners is 'ab'; give it as \(first, second\)"):
        fkge.Federation(graphs, {"ab": "same"})  # type: ignore[dict-item]
    with pytest.raises(SettingsError, match=r"a pair of labels is \('x', 'y', 'z'\)"):
        fkge.Federation(graphs, {("ant", "bee"): [("x", "y", "z")]})  # type: ignore[list-item]
    with pytest.raises(SettingsError, match='give "same"'):
        fkge.Federation(graphs, "equal")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match='links is None; give "same"'):
        fkge.Federation(graphs, None)  # type: ignore[arg-type]
    for odd in (list(graphs), {1: graphs["ant"], 2: graphs["bee"]}):
        with pytest.raises(SettingsError, match="owners is a dict of graphs by name"):
            fkge.Federation(odd)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="did you mean atlas"):
        fkge.Federation.read("atlass", progress=False)
    with pytest.raises(SettingsError, match="no such file"):
        fkge.Federation.read("nowhere/at-all.toml", progress=False)
    with pytest.raises(SettingsError, match=r"\[train\]: unknown key 'dims'; did you mean dim"):
        fkge.Federation(graphs).simulate(train={"dims": 3})
    with pytest.raises(SettingsError, match="there is no arm 'contrl'"):
        fkge.Federation(graphs).simulate(baselines=["contrl"], progress=False)
    with pytest.raises(SettingsError, match="there is no arm 'contrl'"):
        fkge.Federation(graphs).simulate(baselines="control,contrl", progress=False)


def test_a_plain_script_with_processes(tmp_path: Path) -> None:
    """No ``if __name__ == "__main__"``: owners' processes do not run the script again, and need no terminal."""
    settings = {k: v for k, v in QUICK.items() if k not in ("engine", "progress")}
    done = script(
        "import fkge\nfrom fkge.graph import Graph, Vocabulary\nimport numpy as np\nprint('once')\n"
        f"import sys\nsys.path.insert(0, {str(Path(__file__).resolve().parents[3])!r})\n"
        "from tests.conftest import arc\n"
        f"result = fkge.Federation({{'ant': arc('ant', 0), 'bee': arc('bee', 20)}}).simulate('run', **{settings!r})\n"
        "print(sorted(result.gains()['owner'].unique()))\n",
        tmp_path,
    )
    assert done.stdout == "once\n['ant', 'bee']\n"
    assert isinstance(fkge.open(tmp_path / "run"), fkge.Result)


def test_a_report(result: fkge.Result, tmp_path: Path) -> None:
    written = result.report(tmp_path / "report.html")
    assert all(owner in written.read_text(encoding="utf-8") for owner in result.owners)

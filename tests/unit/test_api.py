"""The package from Python: what it offers, that it does what the rooms below do, and that it loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conftest import OWNERS, arc, tiny_federation, tiny_settings

import fkge
from fkge import bars
from fkge.api.work import merged
from fkge.errors import FkgeError, MissingLibraryError, RunError, SettingsError
from fkge.evaluation import evaluate, neighbors, predict, score_triples
from fkge.federation import Links
from fkge.graph import Graph
from fkge.runs import Run
from fkge.simulations import Simulation
from fkge.trace import SILENT

SMALL: dict[str, Any] = {"dim": 6, "batch": 50, "negatives": 4, "epochs": 3, "validate_every": 1, "device": "cpu"}
QUICK: dict[str, Any] = {**tiny_settings(exchanges=2).model_dump(), "engine": "in-process", "progress": False}
METRICS = {"mr", "mrr", "hits@1", "hits@3", "hits@10", "accuracy"}


def owners(names: tuple[str, ...] = OWNERS[:2]) -> dict[str, Graph]:
    return {name: arc(name, 20 * i) for i, name in enumerate(names)}


def script(text: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    (cwd / "script.py").write_text(text)
    done = subprocess.run([sys.executable, "script.py"], cwd=cwd, text=True, capture_output=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


# -- the surface -----------------------------------------------------------------------------------


def test_what_the_package_offers() -> None:
    offered = {
        "Answers", "Federation", "FederationSettings", "FkgeError", "Graph", "Links", "Member", "Policy", "Result",
        "TrainSettings", "Trained", "evaluate", "open", "read_graph", "train",
    }  # fmt: skip
    assert {*fkge.__all__, "open"} == offered <= set(dir(fkge))
    for name in offered:
        found = getattr(fkge, name)
        assert found.__name__ == name
        assert found.__doc__
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        fkge.tarin  # noqa: B018


def test_the_checker_sees_what_python_sees() -> None:
    """What is imported for type checkers only is what `__getattr__` finds."""
    source = Path(fkge.__file__).read_text(encoding="utf-8")
    imported = {line.split(" as ")[1] for line in source.splitlines() if line.startswith("    from fkge.")}
    assert imported == {*fkge.__all__, "open"}
    for name in (*fkge.__all__, "open"):
        assert f"from {fkge._WHERE[name]} import {name} as {name}" in source


def test_importing_the_package_is_light(tmp_path: Path) -> None:
    script(
        "import sys, fkge\nheavy = {'torch', 'numpy', 'pandas', 'numba', 'rich', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\nfkge.FkgeError\nassert 'torch' not in sys.modules\n"
        "fkge.train\nassert 'torch' in sys.modules and 'pandas' not in sys.modules\n",
        tmp_path,
    )


# -- one owner -------------------------------------------------------------------------------------


def test_training_and_asking(ring: Graph, tmp_path: Path) -> None:
    model = fkge.train(ring, out=tmp_path / "run", progress=False, **{**SMALL, "epochs": 30})
    run = Run.open(tmp_path / "run")
    tables = run.load("cpu")
    assert (model.folder, model.settings, model.result) == (run.folder, run.settings, run.result)
    assert fkge.evaluate(model) == fkge.evaluate(model.folder) == model.evaluate() == evaluate(tables, ring)
    assert model.evaluate(["test"], ties="optimistic") == evaluate(tables, ring, ["test"], ties="optimistic")
    assert model.evaluate("test") == evaluate(tables, ring, ["test"])
    assert model.predict(head="place00", relation="one", top=3) == predict(
        tables, ring, head="place00", relation="one", top=3
    )
    assert model.predict("place00", tail="place01", exclude_known=False) == predict(
        tables, ring, head="place00", tail="place01", exclude_known=False
    )
    assert model.neighbors("place03", top=2) == neighbors(tables, ring, "place03", top=2)
    assert (model.entities, model.relations) == (list(ring.entities), list(ring.relations))
    triples = [(model.entities[h], model.relations[r], model.entities[t]) for h, r, t in ring.test]
    np.testing.assert_array_equal(model.score(triples), score_triples(tables, ring.test))
    assert model.score([]).shape == (0,)
    for kind in ("entity", "relation"):
        np.testing.assert_array_equal(model.vectors(kind), tables[kind])
    model.vectors()[:] = 0  # a copy
    assert model.tables["entity"].abs().sum() > 0
    assert repr(model).startswith("Trained(TransE on Graph(ring: 12 entities")


def test_mistakes_in_questions(ring: Graph) -> None:
    model = fkge.train(ring, progress=False, **SMALL)
    with pytest.raises(FkgeError, match="no entity 'plaice01'; did you mean place01"):
        model.score([("plaice01", "one", "place02")])
    with pytest.raises(SettingsError, match="two of head, relation and tail"):
        model.predict(head="place01")
    with pytest.raises(SettingsError, match="not 'relations'; did you mean relation"):
        model.vectors("relations")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="unknown key 'epoch'; did you mean epochs"):
        fkge.train(ring, epoch=3)


def test_settings_come_from_a_recipe_too(ring: Graph, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('model = "DistMult"\ndim = 5\nepochs = 1\n')
    for recipe in (tmp_path / "mine.toml", {"model": "DistMult", "dim": 5, "epochs": 1}):
        settings = fkge.train(ring, recipe=recipe, dim=4, device="cpu", progress=False).settings
        assert (settings.model, settings.dim, settings.epochs) == ("DistMult", 4, 1)
    assert fkge.train(ring, recipe="rotate", dim=4, epochs=0, device="cpu", progress=False).settings.model == "RotatE"


def test_a_graph_by_its_address() -> None:
    pytest.importorskip("pykeen")
    model = fkge.train("pykeen:nations", model="DistMult", dim=32, epochs=40, device="cpu", progress=False)
    assert len(model.entities) == 14
    assert model.evaluate()["test"]["mrr"] > 0.55
    assert len(model.predict(head="uk", relation="treaties", top=3)) == 3


def test_a_temporary_folder_lives_as_long_as_the_model(ring: Graph) -> None:
    model = fkge.train(ring, progress=False, **SMALL)
    folder = model.folder
    assert (folder / "result.json").exists()
    assert model.neighbors("place03")
    del model
    assert not folder.exists()


def test_a_run_is_opened_again(ring: Graph, tmp_path: Path) -> None:
    model = fkge.train(ring, out=tmp_path / "run", progress=False, **SMALL)
    again = fkge.open(tmp_path / "run")
    assert isinstance(again, fkge.Trained)
    np.testing.assert_array_equal(again.vectors(), model.vectors())
    with pytest.raises(RunError, match="is there already"):
        fkge.train(ring, out=tmp_path / "run", progress=False, **SMALL)
    with pytest.raises(RunError, match="no run folder"):
        fkge.open(tmp_path)


def test_answers_as_frames(ring: Graph) -> None:
    pytest.importorskip("pandas")
    model = fkge.train(ring, progress=False, **SMALL)
    answers = model.predict(head="place00", relation="one", top=4)
    table = answers.to_frame()
    assert list(table.columns) == ["label", "score", "known"]
    assert table["label"].tolist() == [answer.label for answer in answers]
    assert list(model.neighbors("place00").to_frame().columns) == ["label", "similarity"]
    assert model.to_frame().loc["test", "mrr"] == model.evaluate()["test"]["mrr"]
    np.testing.assert_array_equal(
        model.frame("relation").loc["two"], model.vectors("relation")[ring.relations.id("two")]
    )


def test_without_pandas(ring: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fkge.train(ring, progress=False, **SMALL)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingLibraryError, match=r"a DataFrame needs pandas, .* pip install 'fkge\[pandas\]'"):
        model.to_frame()


def test_export_from_a_model(ring: Graph, tmp_path: Path) -> None:
    model = fkge.train(ring, progress=False, **SMALL)
    with np.load(model.export(tmp_path / "v.npz", "numpy")) as file:
        np.testing.assert_array_equal(file["entity"], model.vectors())


# -- interrupts ------------------------------------------------------------------------------------


@contextmanager
def interrupting(monkeypatch: pytest.MonkeyPatch, during: str, after: int = 1) -> Iterator[None]:
    """A real Ctrl-C to this process after so many reports of one task."""

    class Impatient:
        reports = 0

        @contextmanager
        def task(self, name: str, total: int | None, unit: str = "") -> Iterator[Any]:
            with SILENT.task(name, total, unit) as nobody:
                yield self if name == during else nobody

        def advance(self, amount: int, **shown: float | str) -> None:
            self.reports += 1
            if self.reports == after:
                os.kill(os.getpid(), signal.SIGINT)

    @contextmanager
    def drawn(shown: bool) -> Iterator[Any]:
        yield Impatient()

    with monkeypatch.context() as patch:
        for room in ("models", "federations"):
            patch.setattr(f"fkge.api.{room}.bars", drawn)
        yield


def test_an_interrupted_training_goes_on_to_the_same_bits(ring: Graph, tmp_path: Path, monkeypatch: Any) -> None:
    wanted, before = {**SMALL, "epochs": 12}, signal.getsignal(signal.SIGINT)
    whole = fkge.train(ring, progress=False, **wanted)
    with (
        interrupting(monkeypatch, "training TransE", 5),
        pytest.raises(KeyboardInterrupt, match=r"nothing is lost.*resume=True"),
    ):
        fkge.train(ring, out=tmp_path / "run", **wanted)
    assert Run.open(tmp_path / "run").result is None
    with pytest.raises(RunError, match=r"was started with dim = 6, not 7"):
        fkge.train(ring, out=tmp_path / "run", resume=True, **{**wanted, "dim": 7})
    again = fkge.train(ring, out=tmp_path / "run", resume=True, progress=False, **wanted)
    np.testing.assert_array_equal(again.vectors(), whole.vectors())
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupted_temporary_training_says_what_is_lost(ring: Graph, monkeypatch: Any) -> None:
    with (
        interrupting(monkeypatch, "training TransE", 2),
        pytest.raises(KeyboardInterrupt, match=r"temporary folder.*Say out="),
    ):
        fkge.train(ring, **SMALL)


def test_an_interrupted_simulation_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    federation = fkge.Federation(owners())
    with interrupting(monkeypatch, "control", 2), pytest.raises(KeyboardInterrupt, match=r"simulate\(…, out="):
        federation.simulate(tmp_path / "run", **{**QUICK, "progress": True})
    with pytest.raises(RunError, match="is not finished"):
        fkge.open(tmp_path / "run")
    for other, what in (({"exchanges": 3}, "settings"), ({"seed": 1}, "seed")):
        with pytest.raises(RunError, match=f"begun with other {what}"):
            federation.simulate(tmp_path / "run", resume=True, **{**QUICK, **other})
    with pytest.raises(RunError, match="begun with other owners"):
        fkge.Federation(owners(OWNERS)).simulate(tmp_path / "run", resume=True, **QUICK)
    assert federation.simulate(tmp_path / "run", resume=True, **QUICK).owners == list(OWNERS[:2])


def test_a_folder_interrupted_while_it_is_made_is_gone(tmp_path: Path, monkeypatch: Any) -> None:
    federation = fkge.Federation(owners())
    made: list[str] = []

    def interrupted(home: Path, *rest: object) -> None:
        made.extend(p.name for p in tmp_path.iterdir())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fkge.federation.home._save_whole", interrupted)
        with pytest.raises(KeyboardInterrupt):
            federation.simulate(tmp_path / "run", **QUICK)
    assert made == ["run"]
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.doc").write_text("years of work")
    with pytest.raises(RunError, match="is there already"):
        federation.simulate(tmp_path / "mine", **QUICK)
    assert (tmp_path / "mine" / "thesis.doc").exists()


def test_training_in_a_thread(ring: Graph) -> None:
    found: list[fkge.Trained] = []
    thread = threading.Thread(target=lambda: found.append(fkge.train(ring, progress=False, **SMALL)))
    thread.start()
    thread.join()
    assert found[0].evaluate()["test"]["mrr"] > 0


# -- several ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result() -> fkge.Result:
    return fkge.Federation(owners(), name="circle").simulate(seed=3, baselines=("independent", "control"), **QUICK)


def test_a_simulation_is_that_of_the_rooms_below(result: fkge.Result, tmp_path: Path) -> None:
    settings = tiny_settings(exchanges=2)
    same = Simulation.create(
        tmp_path / "run", tiny_federation(OWNERS[:2]), settings, seed=3, engine="in-process",
        baselines=("independent", "control"),
    ).run()  # fmt: skip
    assert same is not None
    for owner in OWNERS[:2]:
        for arm in ("independent", "control", "federated"):
            assert result.raw["owners"][owner]["arms"][arm]["test"] == same["owners"][owner]["arms"][arm]["test"]
        assert result.raw["owners"][owner]["versus"] == same["owners"][owner]["versus"]


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


def test_federations_are_made_of_anything_readable(tmp_path: Path) -> None:
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


def test_federations_that_make_no_sense() -> None:
    graphs = owners()
    with pytest.raises(SettingsError, match="no two owners share"):
        fkge.Federation(graphs, {})
    with pytest.raises(FkgeError, match="no owner 'bea'; did you mean bee"):
        fkge.Federation(graphs, {("ant", "bea"): "same"})
    with pytest.raises(SettingsError, match="linked already"):
        fkge.Federation(graphs, {("ant", "bee"): "same", ("bee", "ant"): "same"})
    with pytest.raises(SettingsError, match=r"between is 'ab'; say it as \(first, second\)"):
        fkge.Federation(graphs, {"ab": "same"})  # type: ignore[dict-item]
    with pytest.raises(SettingsError, match=r"a pair of labels is \('x', 'y', 'z'\)"):
        fkge.Federation(graphs, {("ant", "bee"): [("x", "y", "z")]})  # type: ignore[list-item]
    with pytest.raises(SettingsError, match='say "same"'):
        fkge.Federation(graphs, "equal")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match='links is None; say "same"'):
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


def test_a_section_changes_only_what_it_names() -> None:
    recipe = {"exchanges": 7, "train": {"dim": 9, "lr": 0.5}}
    settings = merged(fkge.FederationSettings, recipe, {"train": {"dim": 4}, "epochs": 2})
    assert (settings.exchanges, settings.epochs, settings.train.dim, settings.train.lr) == (7, 2, 4, 0.5)
    assert recipe == {"exchanges": 7, "train": {"dim": 9, "lr": 0.5}}


def test_a_plain_script_with_processes(tmp_path: Path) -> None:
    """No ``if __name__ == "__main__"``: owners' processes do not run the script again, and need no terminal."""
    settings = {k: v for k, v in QUICK.items() if k not in ("engine", "progress")}
    done = script(
        "import fkge\nfrom fkge.graph import Graph, Vocabulary\nimport numpy as np\nprint('once')\n"
        f"import sys\nsys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})\n"
        "from tests.conftest import arc\n"
        f"result = fkge.Federation({{'ant': arc('ant', 0), 'bee': arc('bee', 20)}}).simulate('run', **{settings!r})\n"
        "print(sorted(result.gains()['owner'].unique()))\n",
        tmp_path,
    )
    assert done.stdout == "once\n['ant', 'bee']\n"
    assert isinstance(fkge.open(tmp_path / "run"), fkge.Result)


def test_a_script_with_a_model_of_its_own(tmp_path: Path) -> None:
    """Owners' processes know a model that the script defines, as they must."""
    settings = {k: v for k, v in QUICK.items() if k not in ("engine", "progress")}
    settings["train"] = {**settings["train"], "model": "Mine"}
    done = script(
        "import fkge\nfrom fkge.embed import MODELS\nfrom fkge.embed.models import TransE\n"
        "class Mine(TransE):\n    name = 'Mine'\nMODELS['Mine'] = Mine\n"
        f"import sys\nsys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})\n"
        "from tests.conftest import arc\n"
        "if __name__ == '__main__':\n"
        "    owners = {'ant': arc('ant', 0), 'bee': arc('bee', 20)}\n"
        f"    print(fkge.Federation(owners).simulate(baselines=(), **{settings!r})['ant'].settings.model)\n",
        tmp_path,
    )
    assert done.stdout == "Mine\n"


def test_a_report(result: fkge.Result, tmp_path: Path) -> None:
    written = result.report(tmp_path / "report.html")
    assert all(owner in written.read_text(encoding="utf-8") for owner in result.owners)


# -- what is drawn ---------------------------------------------------------------------------------


def test_a_line_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(text: str) -> Any:
        shown.append(text)
        return shown.append

    line = bars._Line(display)
    with line.task("over at once", 4) as task:
        task.advance(4)
    assert shown == []
    monkeypatch.setattr(bars, "_SECONDS_BEFORE_FIRST_LOOK", 0.0)
    with line.task("training", 4) as task:
        task.advance(1, mrr=0.25)
        with line.task("ranking", 10) as inner:
            inner.advance(10)
        task.advance(3)
    assert shown[0].startswith("training  ██████░░░")
    assert shown[-1].startswith(f"training  {'█' * 24} 100%")
    assert shown[-1].endswith("mrr 0.2500")
    assert not any("ranking" in text for text in shown)
    with line.task("reading", None) as task:
        task.advance(5)
    assert shown[-1].split() == ["reading", "0:00"]


def test_a_log_gets_a_line_for_each_validation(capsys: pytest.CaptureFixture[str]) -> None:
    with bars.bars() as progress, progress.task("training", 10) as task:
        task.advance(5)
        task.advance(0, mrr=0.5)
    assert capsys.readouterr().err == "training: mrr 0.5000\n"
    with bars.bars(False) as progress:
        assert progress is SILENT

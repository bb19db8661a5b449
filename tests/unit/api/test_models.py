"""Training a model and asking it."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fkge
from fkge.errors import FkgeError, MissingLibraryError, RunError, SettingsError
from fkge.evaluation import evaluate, neighbors, predict, score_triples
from fkge.experiment.training_run import Run
from fkge.graph import Graph
from tests.unit.api.scripts import QUICK, SMALL, interrupting, script


def test_train_and_query(ring: Graph, tmp_path: Path) -> None:
    model = fkge.train(ring, out=tmp_path / "run", progress=False, **{**SMALL, "epochs": 30})
    run = Run.open(tmp_path / "run")
    tables = run.load("cpu")
    assert run.result is not None
    assert (model.folder, model.settings, model.result) == (run.folder, run.settings, run.result.to_json())
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
        np.testing.assert_array_equal(model.vectors(kind), tables.vectors(kind))
    model.vectors()[:] = 0  # a copy
    assert model.tables["entity"].abs().sum() > 0
    assert repr(model).startswith("Trained(TransE on Graph(ring: 12 entities")


def test_query_errors(ring: Graph) -> None:
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
        settings = fkge.train(ring, settings=recipe, dim=4, device="cpu", progress=False).settings
        assert (settings.model, settings.dim, settings.epochs) == ("DistMult", 4, 1)
    assert fkge.train(ring, settings="rotate", dim=4, epochs=0, device="cpu", progress=False).settings.model == "RotatE"


def test_graph_by_name() -> None:
    pytest.importorskip("pykeen")
    model = fkge.train("pykeen:nations", model="DistMult", dim=32, epochs=40, device="cpu", progress=False)
    assert len(model.entities) == 14
    assert model.evaluate()["test"]["mrr"] > 0.55
    assert len(model.predict(head="uk", relation="treaties", top=3)) == 3


def test_a_run_is_opened_again(ring: Graph, tmp_path: Path) -> None:
    model = fkge.train(ring, out=tmp_path / "run", progress=False, **SMALL)
    again = fkge.open(tmp_path / "run")
    assert isinstance(again, fkge.Trained)
    np.testing.assert_array_equal(again.vectors(), model.vectors())
    with pytest.raises(RunError, match="exists already"):
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
    assert model.metrics_frame().loc["test", "mrr"] == model.evaluate()["test"]["mrr"]
    np.testing.assert_array_equal(
        model.vectors_frame("relation").loc["two"], model.vectors("relation")[ring.relations.id("two")]
    )


def test_without_pandas(ring: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fkge.train(ring, progress=False, **SMALL)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingLibraryError, match=r"a DataFrame needs pandas, .* pip install 'fkge\[pandas\]'"):
        model.metrics_frame()


def test_export_from_a_model(ring: Graph, tmp_path: Path) -> None:
    model = fkge.train(ring, progress=False, **SMALL)
    with np.load(model.export(tmp_path / "v.npz", "numpy")) as file:
        np.testing.assert_array_equal(file["entity"], model.vectors())


def test_resumed_training_gives_the_same_bits(ring: Graph, tmp_path: Path, monkeypatch: Any) -> None:
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


def test_training_in_a_thread(ring: Graph) -> None:
    found: list[fkge.Trained] = []
    thread = threading.Thread(target=lambda: found.append(fkge.train(ring, progress=False, **SMALL)))
    thread.start()
    thread.join()
    assert found[0].evaluate()["test"]["mrr"] > 0


def test_a_script_with_a_model_of_its_own(tmp_path: Path) -> None:
    """Owners' processes know a model that the script defines, as they must."""
    settings = {k: v for k, v in QUICK.items() if k not in ("engine", "progress")}
    settings["train"] = {**settings["train"], "model": "Mine"}
    done = script(
        "import fkge\nfrom fkge.embed import MODELS\nfrom fkge.embed.models import TransE\n"
        "class Mine(TransE):\n    name = 'Mine'\nMODELS['Mine'] = Mine\n"
        f"import sys\nsys.path.insert(0, {str(Path(__file__).resolve().parents[3])!r})\n"
        "from tests.conftest import arc\n"
        "if __name__ == '__main__':\n"
        "    owners = {'ant': arc('ant', 0), 'bee': arc('bee', 20)}\n"
        f"    print(fkge.Federation(owners).simulate(baselines=(), **{settings!r})['ant'].settings.model)\n",
        tmp_path,
    )
    assert done.stdout == "Mine\n"

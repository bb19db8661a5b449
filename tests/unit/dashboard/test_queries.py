"""Labels, answers, neighbours and examples on the live page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the live page needs fkge[dashboard]")
pytest.importorskip("httpx2", reason="FastAPI's test client needs httpx2")
from fastapi.testclient import TestClient

from fkge.evaluation import neighbors, predict
from fkge.experiment.simulation import Simulation
from fkge.experiment.training_run import Run
from tests.conftest import tiny_federation, tiny_settings
from tests.unit.dashboard.clients import client_of, get_json


def test_labels_are_found_by_any_part_the_nearest_first(client: TestClient) -> None:
    def found(**given: Any) -> list[str]:
        labels: list[str] = get_json(client, "/api/labels", owner="bee", **given)["labels"]
        return labels

    assert found(kind="entity", prefix="PLACE2")[0] == "place20"
    assert found(kind="entity", prefix="59") == ["place59"]
    assert found(kind="relation") == ["one", "two", "four", "three"]
    assert len(found(kind="entity")) == 12
    assert found(kind="entity", prefix="nowhere") == []


def test_labels_are_data_and_come_back_as_they_are(client: TestClient, unkind: str) -> None:
    assert get_json(client, "/api/labels", owner="ant", kind="entity", prefix="<IMG")["labels"] == [unkind]
    answer = client.get("/api/labels", params={"owner": "ant", "kind": "entity", "prefix": "<img"})
    assert answer.headers["content-type"] == "application/json"
    near = get_json(client, "/api/neighbors", owner="ant", entity=unkind)
    assert near["arms"]["federated"]["answers"]
    wrong = client.get("/api/neighbors", params={"owner": "ant", "entity": "<script>"})
    assert wrong.status_code == 404
    assert wrong.headers["content-type"] == "application/json"


def test_answers_are_the_models_and_test_facts_are_marked(client: TestClient, simulated: Path) -> None:
    runs = {arm: Run.open(simulated / "arms" / arm / "bee") for arm in ("control", "federated")}
    graph = runs["control"].graph
    h, r, t = graph.test[0].tolist()
    asked = {"head": graph.entities[h], "relation": graph.relations[r]}
    arms = get_json(client, "/api/predict", owner="bee", top=50, **asked)["arms"]
    assert list(arms) == ["control", "federated"]
    for arm, run in runs.items():
        every = predict(run.load("cpu"), graph, **asked, top=99, exclude_known=False)
        answers = arms[arm]["answers"]
        scores = {a.label: a.score for a in every}
        assert all(a["score"] == scores[a["label"]] for a in answers)
        assert [a["place"] for a in answers] == list(range(1, len(answers) + 1))
        marked = {a["label"]: a["split"] for a in answers if a["split"]}
        assert marked[graph.entities[t]] == "test"
        assert set(marked.values()) == {"test"}  # what it was trained on is left out
        place = next(a["place"] for a in answers if a["label"] == graph.entities[t])
        assert {"place": place, "label": graph.entities[t]} in arms[arm]["true"]
    stated = get_json(client, "/api/predict", owner="bee", top=50, stated=True, **asked)["arms"]["control"]["answers"]
    known = {graph.entities[x] for y, s, x in graph.train.tolist() if (y, s) == (h, r)}
    assert {a["label"] for a in stated if a["split"] == "train"} == known


def test_neighbours_are_the_models(client: TestClient, simulated: Path) -> None:
    run = Run.open(simulated / "arms" / "federated" / "bee")
    arms = get_json(client, "/api/neighbors", owner="bee", entity="place30", top=3)["arms"]
    assert [a["label"] for a in arms["federated"]["answers"]] == [
        near.label for near in neighbors(run.load("cpu"), run.graph, "place30", top=3)
    ]


def test_examples_are_test_facts(client: TestClient, simulated: Path) -> None:
    graph = Run.open(simulated / "arms" / "federated" / "bee").graph
    asked = {(graph.entities[h], graph.relations[r]) for h, r, _ in graph.test.tolist()}
    examples = get_json(client, "/api/examples", owner="bee")["examples"]
    assert len(examples) == 4
    assert all((one["head"], one["relation"]) in asked for one in examples)


def test_where_models_are_not_there_yet_it_says_so(tmp_path: Path) -> None:
    Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(), engine="in-process")
    with client_of(tmp_path / "run", None) as client:
        arms = get_json(client, "/api/predict", owner="ant", head="place00", relation="one")["arms"]
        assert "no model in control yet" in arms["control"]["missing"]
        assert "no model in federated yet" in arms["federated"]["missing"]
        assert get_json(client, "/api/ledger/ant")["ledger"] is None


@pytest.mark.parametrize(
    ("path", "asked", "why"),
    [
        ("/api/predict", {"head": "place20"}, "two of head, relation and tail"),
        ("/api/predict", {"head": "place20", "relation": "one", "tail": "place21"}, "two of head"),
        ("/api/predict", {"head": "place200", "relation": "one"}, "did you mean place20"),
        ("/api/predict", {"head": "place20", "relation": "one", "top": 51}, "top"),
        ("/api/predict", {"head": "place20", "relation": "one", "top": 0}, "top"),
        ("/api/predict", {"head": "x" * 2001, "relation": "one"}, "head"),
        ("/api/labels", {"kind": "entity", "prefix": "x" * 101}, "prefix"),
        ("/api/labels", {"kind": "secret"}, "kind"),
        ("/api/neighbors", {}, "entity"),
        ("/api/neighbors", {"entity": "place20", "top": 1000}, "top"),
    ],
)
def test_explains_what_is_wrong_with_a_query(client: TestClient, path: str, asked: dict[str, Any], why: str) -> None:
    answer = client.get(path, params={"owner": "bee", **asked})
    assert answer.status_code in (400, 404)
    assert why in answer.json()["error"]

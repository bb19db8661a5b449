"""The live page's server: who is let in, what is told, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the live page needs fkge[dashboard]")
pytest.importorskip("httpx2", reason="FastAPI's test client needs httpx2")

from fastapi.testclient import TestClient
from tests.conftest import tiny_federation, tiny_settings

from fkge import dashboard
from fkge.dashboard import make_app
from fkge.errors import FkgeError, RunError
from fkge.evaluation import neighbors, predict
from fkge.runs import Run
from fkge.simulations import Simulation

TOKEN = "open-sesame"
OURS = "http://127.0.0.1"
PATHS = ("/", "/static/app.js", "/theme.css", "/events", "/api/state", "/api/owner/ant", "/api/labels?owner=ant")


def client_of(run: Path, token: str | None = TOKEN, base: str = OURS) -> TestClient:
    return TestClient(make_app(run, token), base_url=base, follow_redirects=False)


@pytest.fixture
def client(simulated: Path) -> Iterator[TestClient]:
    """One that has shown the token."""
    with client_of(simulated) as client:
        assert client.get("/", params={"token": TOKEN}).status_code == 303
        yield client


def told(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


# -- who is let in -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_told(simulated: Path, path: str) -> None:
    with client_of(simulated) as client:
        for headers in ({}, {"cookie": "fkge=open-sesame"}):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 401
            assert "the command printed" in answer.text
            assert "ant" not in re.sub(r"[a-z]*want[a-z]*", "", answer.text)


@pytest.mark.parametrize("wrong", ["", "open", "open-sesame2", "OPEN-SESAME", "öpen"])
def test_a_wrong_token_opens_nothing(simulated: Path, wrong: str) -> None:
    with client_of(simulated) as client:
        answer = client.get("/", params={"token": wrong})
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


def test_the_token_is_shown_once_and_leaves_the_address(simulated: Path) -> None:
    with client_of(simulated) as client:
        answer = client.get("/", params={"token": TOKEN})
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert client.get("/").status_code == 200
        assert client.get("/api/state").status_code == 200


def test_two_servers_of_one_machine_have_cookies_of_their_own(simulated: Path) -> None:
    names = []
    for token in ("one", "two"):
        with client_of(simulated, token) as client:
            names.append(client.get("/", params={"token": token}).headers["set-cookie"].split("=")[0])
    assert names[0] != names[1]


def test_without_a_token_everybody_here_is_let_in_and_an_empty_one_is_refused(simulated: Path) -> None:
    with client_of(simulated, None) as client:
        assert client.get("/api/state").status_code == 200
    with pytest.raises(FkgeError, match="empty token"):
        make_app(simulated, "")


@pytest.mark.parametrize(
    "name", ["127.0.0.1", "127.0.0.1:8765", "localhost:1", "LOCALHOST", "[::1]:8765", "10.0.0.7:80"]
)
def test_addresses_and_localhost_are_ours(simulated: Path, name: str) -> None:
    with client_of(simulated, None) as client:
        assert client.get("/api/state", headers={"host": name}).status_code == 200


@pytest.mark.parametrize(
    "name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8765", "", "[evil]"]
)
def test_a_foreign_name_that_points_here_is_turned_away(simulated: Path, name: str) -> None:
    with client_of(simulated) as client:
        for path in ("/", f"/?token={TOKEN}", "/api/state", "/events"):
            answer = client.get(path, headers={"host": name})
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/theme.css", "/api/state", "/api/owner/nobody", "/nothing"])
def test_every_answer_keeps_the_page_to_itself(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


def test_the_page_needs_no_inline_script_or_style_and_nothing_from_outside(client: TestClient) -> None:
    page = client.get("/").text
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son[a-z]+=", page)
    sources = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert sources
    for source in sources:
        assert source.startswith("/")
        assert client.get(source).status_code == 200
    for path in (Path(dashboard.__file__).parent / "static").glob("*.*s"):
        assert "http" not in path.read_text(encoding="utf-8")
        assert client.get(f"/static/{path.name}").status_code == 200
    assert "--accent" in client.get("/theme.css").text


@pytest.mark.parametrize(
    "path",
    ["/static/../server.py", "/static/%2e%2e/server.py", "/static/..%2f..%2ferrors.py", "/static//etc/passwd",
     "/api/owner/..%2f..%2fsettings.toml", "/api/ledger/%2e%2e", "/api/owner/", "/docs", "/openapi.json"],
)  # fmt: skip
def test_no_path_leads_out(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (404, 405)


@pytest.mark.parametrize("name", ["nobody", "..", "ant/../bee", "ANT", "ant\0"])
def test_owners_are_those_of_the_simulation(client: TestClient, name: str) -> None:
    for path in ("/api/labels", "/api/predict", "/api/neighbors", "/api/examples"):
        answer = client.get(path, params={"owner": name, "kind": "entity", "entity": "place20"})
        assert answer.status_code == 404
        assert "no owner" in answer.json()["error"]


# -- what is told --------------------------------------------------------------------------------------


def test_state_and_owner(client: TestClient) -> None:
    state = told(client, "/api/state")
    assert state["status"] == "finished"
    assert [owner["name"] for owner in state["owners"]] == ["ant", "bee", "<b>cat"]
    owner = told(client, "/api/owner/ant")
    assert set(owner["arms"]) == {"control", "federated"}
    assert owner["policy"].startswith("default") or "default" in owner["policy"]
    assert owner["figure"]["wide"].startswith("<svg")
    assert told(client, "/api/owner/bee")["policy"] is None


def test_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    with client_of(tmp_path / "later", None) as client:
        assert told(client, "/api/state")["status"] == "waiting"
        assert client.get("/api/owner/ant").status_code == 404
        assert client.get("/").status_code == 200
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(RunError, match="single owner"):
        make_app(tmp_path, None)


def test_the_ledger_is_told_and_left_as_it_was(client: TestClient, simulated: Path) -> None:
    folder = simulated / "arms" / "federated" / "ant"
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("ledger*")}
    ledger = told(client, "/api/ledger/ant")["ledger"]
    assert ledger["graph"] == "ant"
    assert {line["peer"] for line in ledger["unprotected"]} <= {"bee", "<b>cat"}
    assert ledger["unprotected"]
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("ledger*")} == before


def test_labels_are_found_by_any_part_the_nearest_first(client: TestClient) -> None:
    def found(**given: Any) -> list[str]:
        labels: list[str] = told(client, "/api/labels", owner="bee", **given)["labels"]
        return labels

    assert found(kind="entity", prefix="PLACE2")[0] == "place20"
    assert found(kind="entity", prefix="59") == ["place59"]
    assert found(kind="relation") == ["one", "two", "four", "three"]
    assert len(found(kind="entity")) == 12
    assert found(kind="entity", prefix="nowhere") == []


def test_labels_are_data_and_come_back_as_they_are(client: TestClient, unkind: str) -> None:
    assert told(client, "/api/labels", owner="ant", kind="entity", prefix="<IMG")["labels"] == [unkind]
    answer = client.get("/api/labels", params={"owner": "ant", "kind": "entity", "prefix": "<img"})
    assert answer.headers["content-type"] == "application/json"
    near = told(client, "/api/neighbors", owner="ant", entity=unkind)
    assert near["arms"]["federated"]["answers"]
    wrong = client.get("/api/neighbors", params={"owner": "ant", "entity": "<script>"})
    assert wrong.status_code == 404
    assert wrong.headers["content-type"] == "application/json"


def test_figures_escape_the_names_they_show(client: TestClient) -> None:
    assert "<b>" not in told(client, "/api/owner/%3Cb%3Ecat")["figure"]["wide"]
    assert "&lt;b&gt;cat" in told(client, "/api/owner/%3Cb%3Ecat")["figure"]["wide"]


def test_answers_are_the_models_and_test_facts_are_marked(client: TestClient, simulated: Path) -> None:
    runs = {arm: Run.open(simulated / "arms" / arm / "bee") for arm in ("control", "federated")}
    graph = runs["control"].graph
    h, r, t = graph.test[0].tolist()
    asked = {"head": graph.entities[h], "relation": graph.relations[r]}
    arms = told(client, "/api/predict", owner="bee", top=50, **asked)["arms"]
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
    stated = told(client, "/api/predict", owner="bee", top=50, stated=True, **asked)["arms"]["control"]["answers"]
    known = {graph.entities[x] for y, s, x in graph.train.tolist() if (y, s) == (h, r)}
    assert {a["label"] for a in stated if a["split"] == "train"} == known


def test_neighbours_are_the_models(client: TestClient, simulated: Path) -> None:
    run = Run.open(simulated / "arms" / "federated" / "bee")
    arms = told(client, "/api/neighbors", owner="bee", entity="place30", top=3)["arms"]
    assert [a["label"] for a in arms["federated"]["answers"]] == [
        near.label for near in neighbors(run.load("cpu"), run.graph, "place30", top=3)
    ]


def test_examples_are_test_facts(client: TestClient, simulated: Path) -> None:
    graph = Run.open(simulated / "arms" / "federated" / "bee").graph
    asked = {(graph.entities[h], graph.relations[r]) for h, r, _ in graph.test.tolist()}
    examples = told(client, "/api/examples", owner="bee")["examples"]
    assert len(examples) == 4
    assert all((one["head"], one["relation"]) in asked for one in examples)


def test_where_models_are_not_there_yet_it_says_so(tmp_path: Path) -> None:
    Simulation.create(tmp_path / "run", tiny_federation(), tiny_settings(), engine="in-process")
    with client_of(tmp_path / "run", None) as client:
        arms = told(client, "/api/predict", owner="ant", head="place00", relation="one")["arms"]
        assert "no model in control yet" in arms["control"]["missing"]
        assert "no model in federated yet" in arms["federated"]["missing"]
        assert told(client, "/api/ledger/ant")["ledger"] is None


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
def test_what_is_badly_asked_gets_a_sentence(client: TestClient, path: str, asked: dict[str, Any], why: str) -> None:
    answer = client.get(path, params={"owner": "bee", **asked})
    assert answer.status_code in (400, 404)
    assert why in answer.json()["error"]


def test_nothing_can_be_changed_from_here(client: TestClient) -> None:
    for method in ("post", "put", "patch", "delete"):
        for path in ("/", "/api/state", "/api/owner/ant", "/events"):
            assert getattr(client, method)(path).status_code == 405


def test_what_is_told_is_json_that_any_reader_takes(client: TestClient) -> None:
    assert "NaN" not in json.dumps(told(client, "/api/owner/ant"), allow_nan=False)

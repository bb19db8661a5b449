"""The live page's server: who is let in, what is told, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the live page needs fkge[dashboard]")
pytest.importorskip("httpx2", reason="FastAPI's test client needs httpx2")

from fastapi.testclient import TestClient

from fkge import dashboard
from fkge.dashboard import make_app
from fkge.errors import RunError
from tests.unit.dashboard.clients import client_of, get_json


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


def test_state_and_owner(client: TestClient) -> None:
    state = get_json(client, "/api/state")
    assert state["status"] == "finished"
    assert [owner["name"] for owner in state["owners"]] == ["ant", "bee", "<b>cat"]
    owner = get_json(client, "/api/owner/ant")
    assert set(owner["arms"]) == {"control", "federated"}
    assert owner["policy"].startswith("default") or "default" in owner["policy"]
    assert owner["figure"]["wide"].startswith("<svg")
    assert get_json(client, "/api/owner/bee")["policy"] is None


def test_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    with client_of(tmp_path / "later", None) as client:
        assert get_json(client, "/api/state")["status"] == "waiting"
        assert client.get("/api/owner/ant").status_code == 404
        assert client.get("/").status_code == 200
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(RunError, match="single owner"):
        make_app(tmp_path, None)


def test_the_ledger_is_told_and_left_as_it_was(client: TestClient, simulated: Path) -> None:
    folder = simulated / "arms" / "federated" / "ant"
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("ledger*")}
    ledger = get_json(client, "/api/ledger/ant")["ledger"]
    assert ledger["graph"] == "ant"
    assert {line["peer"] for line in ledger["unprotected"]} <= {"bee", "<b>cat"}
    assert ledger["unprotected"]
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("ledger*")} == before


def test_figures_escape_the_names_they_show(client: TestClient) -> None:
    assert "<b>" not in get_json(client, "/api/owner/%3Cb%3Ecat")["figure"]["wide"]
    assert "&lt;b&gt;cat" in get_json(client, "/api/owner/%3Cb%3Ecat")["figure"]["wide"]


def test_nothing_can_be_changed_from_here(client: TestClient) -> None:
    for method in ("post", "put", "patch", "delete"):
        for path in ("/", "/api/state", "/api/owner/ant", "/events"):
            assert getattr(client, method)(path).status_code == 405


def test_what_is_told_is_json_that_any_reader_takes(client: TestClient) -> None:
    assert "NaN" not in json.dumps(get_json(client, "/api/owner/ant"), allow_nan=False)


def test_the_style_sheet_has_light_and_dark(client: TestClient) -> None:
    text = client.get("/theme.css").text
    assert text.count("--accent:") >= 2
    assert "prefers-color-scheme: dark" in text
    assert ".fig .federated" in text

"""Clients of the live page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the live page needs fkge[dashboard]")
pytest.importorskip("httpx2", reason="FastAPI's test client needs httpx2")

from fastapi.testclient import TestClient

from fkge.dashboard import make_app

TOKEN = "open-sesame"
OURS = "http://127.0.0.1"
PATHS = ("/", "/static/app.js", "/theme.css", "/events", "/api/state", "/api/owner/ant", "/api/labels?owner=ant")


def client_of(run: Path, token: str | None = TOKEN, base: str = OURS) -> TestClient:
    return TestClient(make_app(run, token), base_url=base, follow_redirects=False)


def get_json(client: TestClient, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()

"""Who may see the live page: the token, its cookie, and names that lead here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the live page needs fkge[dashboard]")
pytest.importorskip("httpx2", reason="FastAPI's test client needs httpx2")
from fkge.dashboard import make_app
from fkge.errors import FkgeError
from tests.unit.dashboard.clients import PATHS, TOKEN, client_of


@pytest.mark.parametrize("path", PATHS)
def test_refuses_requests_without_the_token(simulated: Path, path: str) -> None:
    with client_of(simulated) as client:
        for headers in ({}, {"cookie": "fkge=open-sesame"}):
            answer = client.get(path, headers=headers)
            assert answer.status_code == 401
            assert "the command printed" in answer.text
            assert "ant" not in re.sub(r"[a-z]*want[a-z]*", "", answer.text)


@pytest.mark.parametrize("wrong", ["", "open", "open-sesame2", "OPEN-SESAME", "öpen"])
def test_refuses_a_wrong_token(simulated: Path, wrong: str) -> None:
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
def test_accepts_addresses_and_localhost(simulated: Path, name: str) -> None:
    with client_of(simulated, None) as client:
        assert client.get("/api/state", headers={"host": name}).status_code == 200


@pytest.mark.parametrize(
    "name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8765", "", "[evil]"]
)
def test_refuses_a_foreign_host_name(simulated: Path, name: str) -> None:
    with client_of(simulated) as client:
        for path in ("/", f"/?token={TOKEN}", "/api/state", "/events"):
            answer = client.get(path, headers={"host": name})
            assert answer.status_code == 403
            assert "set-cookie" not in answer.headers

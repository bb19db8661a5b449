"""What is looked at before a node starts: each mistake is found by name, with a way out, and nothing is changed."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="needs the extra node")

from fkge.node.ops.preflight import Finding, preflight
from tests.conftest import tiny_federation, tiny_settings
from tests.consortium import Consortium

SITE = Path("sites") / "ant"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of two owners, neither of which runs."""
    folder = tmp_path_factory.mktemp("consortium")
    Consortium(folder, tiny_federation(("ant", "bee")).graphs, tiny_settings(), addresses={"ant": "", "bee": ""})
    (folder / SITE / "peers.toml").write_text("[peers.bee]\nsame = true\n")
    return folder


@pytest.fixture
def site(made: Path, tmp_path: Path) -> Path:
    """The folder of one of them, to change."""
    return Path(shutil.copytree(made, tmp_path / "consortium")) / SITE


def looked(site: Path) -> dict[str, Finding]:
    return {found.what: found for found in preflight(site / "node.toml")}


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_a_sound_site_is_good_and_stays_as_it_is(site: Path) -> None:
    before = sorted(site.rglob("*"))
    found = looked(site)
    assert {look.verdict for look in found.values()} == {"good", "mind"}
    assert [what for what, look in found.items() if look.verdict == "mind"] == ["privacy"]  # mode none
    assert found["state"].sentence.endswith("starts from nothing")
    assert found["peer bee"].sentence == "it connects to this node; nothing to probe"
    assert "40 entities" in found["graph"].sentence
    assert sorted(site.rglob("*")) == before


def test_without_a_configuration_nothing_else_is_looked_at(site: Path) -> None:
    (site / "node.toml").unlink()
    (found,) = preflight(site / "node.toml")
    assert (found.what, found.verdict) == ("configuration", "bad")
    assert "node.toml" in found.sentence


MISTAKES: dict[str, tuple[str, str, str, Callable[[Path], object]]] = {
    "no links": ("links", "mind", "bee has no links", lambda site: edit(site / "peers.toml", "same = true", "")),
    "no member": (
        "peers", "mind", "did you mean bee", lambda site: edit(site / "peers.toml", "[peers.bee]", "[peers.beee]")
    ),
    "no key": ("certificate", "bad", "key.pem", lambda site: (site / "key.pem").unlink()),
    "another's": ("certificate", "bad", "it is ant's", lambda site: edit(site / "node.toml", '"ant"', '"eel"')),
    "no graph": ("graph", "bad", "does not exist", lambda site: shutil.rmtree(site / "graph")),
    "open to others": ("state", "mind", "chmod 700", lambda site: (site / "state").mkdir(mode=0o755)),
    "rehearsal": (
        "rehearsal", "mind", "never with real data",
        lambda site: edit(site / "node.toml", 'graph = "graph"', 'graph = "graph"\nrehearsal = true'),
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_by_name(mistake: str, site: Path) -> None:
    what, verdict, sentence, make = MISTAKES[mistake]
    make(site)
    found = looked(site)[what]
    assert found.verdict == verdict
    assert sentence in found.sentence


def test_one_that_cannot_be_identified_probes_nobody(site: Path) -> None:
    (site / "key.pem").unlink()
    assert not [what for what in looked(site) if what.startswith("peer ")]


def test_a_damaged_audit_log_is_found(site: Path) -> None:
    folder = site / "state" / "audit"
    folder.mkdir(parents=True)
    (folder / "audit-000001.log").write_text('{"seq": 1}\n')
    assert looked(site)["audit log"].verdict == "bad"


@pytest.mark.parametrize("key", ["listen", "metrics"])
def test_a_port_that_is_taken_is_found_and_a_free_one_is_left_free(site: Path, key: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        edit(site / "node.toml", f'{key} = ""', f'{key} = "127.0.0.1:{port}"')
        found = looked(site)["port" if key == "listen" else "metrics"]
        assert found.verdict == "bad"
        assert f"see {key} in node.toml" in found.sentence
    assert looked(site)["port" if key == "listen" else "metrics"].verdict == "good"
    socket.create_server(("127.0.0.1", port)).close()


def test_a_peer_that_is_not_there_may_come_later_and_another_program_is_no_peer(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        edit(site / "peers.toml", "same = true", f'same = true\naddress = "{address}"')
        monkeypatch.setattr("fkge.node.ops.preflight.TIMEOUT", 0.5)
        look = looked(site)["peer bee"]
        assert (look.verdict, "not as a node does" in look.sentence) == ("bad", True)
    look = looked(site)["peer bee"]
    assert look.verdict == "mind"
    assert "cannot be reached (connection refused): fine if it starts later" in look.sentence

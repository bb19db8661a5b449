"""`fkge provision` and `fkge cert`, as people type them: both ways to an identity, and the mistakes on them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs cryptography: pip install 'fkge[node]'")

from fkge.cli import exit_codes as exits
from fkge.cli import main
from fkge.pki.site import Identity

PLAN = """\
name = "trial"
[members.clinic]
address = "clinic.example:7443"
[members.genes]
address = "genes.example:7443"
"""


class Shell:
    """Types commands, and keeps what they print."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys
        self.error = ""

    def __call__(self, *words: str, code: int = exits.DONE) -> str:
        self._monkeypatch.setattr(sys, "argv", ["fkge", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, self.error = self._capsys.readouterr()
        assert ended.value.code == code, (words, out, self.error)
        if code:
            assert len([line for line in self.error.splitlines() if line.startswith("error: ")]) == 1
        return out

    def json(self, *words: str) -> dict[str, Any]:
        told = json.loads(self(*words, "--json").splitlines()[-1])
        assert isinstance(told, dict)
        return told


@pytest.fixture
def fkge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    monkeypatch.chdir(tmp_path)
    Path("consortium.toml").write_text(PLAN)
    return Shell(monkeypatch, capsys)


def joined(fkge: Shell, name: str) -> Path:
    """A site of the authority in ``authority``, whose fingerprints were compared."""
    asked = fkge.json("cert", "request", "--name", name, "--consortium", "trial", "--out", name)
    told = fkge.json(
        "cert", "approve", asked["request"], "--authority", "authority", "--address", f"{name}.example:7443",
        "--fingerprint", asked["spoken"],
    )  # fmt: skip
    fkge("cert", "install", told["kit"], "--into", name, "--fingerprint", told["authority"])
    return Path(name)


def test_provisioning_warns_that_the_folder_holds_private_keys(fkge: Shell) -> None:
    said = fkge("provision", "consortium.toml", "--out", "out")
    assert "This folder holds 2 private keys" in said
    assert "fkge cert request" in said
    for name in ("clinic", "genes"):
        assert Identity.load(Path("out/kits") / name).name == name
        assert Path("out/kits", name, "key.pem").stat().st_mode & 0o777 == 0o600
    for name in ("clinic", "genes"):
        Path("out/kits", name).rename(name)  # it is its owner's now
    after = fkge("provision", "consortium.toml", "--out", "out")
    assert "clinic: its key is not here" in after
    assert "its owner renews it. Send it out/authority/kits/clinic.kit.json" in after
    assert "private keys" not in after
    fkge("cert", "install", "out/authority/kits/clinic.kit.json", "--into", "clinic")
    Path("consortium.toml").write_text(PLAN.partition("[members.genes]")[0])
    again = fkge("provision", "consortium.toml", "--out", "out")
    assert (
        "genes: is no longer in consortium.toml but still has a certificate. To revoke it: fkge cert revoke genes"
        in again
    )


def test_request_approve_install_renew_and_revoke(fkge: Shell) -> None:
    fkge("cert", "authority", "--name", "trial", "--out", "authority")
    clinic, genes = joined(fkge, "clinic"), joined(fkge, "genes")
    told = fkge.json("cert", "show", str(genes))
    assert [line.split(",")[0] for line in told["members"]] == ["clinic", "genes"]
    said = fkge("cert", "install", "authority/kits/clinic.kit.json", "--into", "clinic")
    assert "genes is a member now" in said

    was = Identity.load(clinic)
    fkge("cert", "renew", "clinic")
    fkge("cert", "approve", "clinic/request.csr", "--authority", "authority", "--yes")
    fkge("cert", "install", "authority/kits/clinic.kit.json", "--into", "clinic")
    now = Identity.load(clinic)
    assert now.fingerprint != was.fingerprint
    said = fkge("cert", "revoke", "clinic", "--old", "--authority", "authority")
    assert f"revoked: clinic, serial {was.serial}" in said
    assert "list 2" in said
    fkge("cert", "install", "authority/revoked.pem", "--into", "genes")
    assert "1 revoked" in fkge("cert", "show", "genes")
    assert was.serial in fkge("cert", "show", "authority/revoked.pem")
    assert fkge.json("cert", "install", "authority/revoked.pem", "--into", "genes")["new"] is False
    fkge("cert", "revoke", "genes", "--authority", "authority")
    assert "genes" not in fkge.json("cert", "show", "authority")["members"]


def test_an_authority_can_know_the_members_beforehand(fkge: Shell) -> None:
    fkge("cert", "authority", "--members", "consortium.toml", "--out", "authority")
    fkge("cert", "request", "--name", "clinic", "--consortium", "trial", "--out", "clinic")
    said = fkge("cert", "approve", "clinic/request.csr", "--authority", "authority", "--yes")
    assert "No --address" not in said
    fkge("cert", "install", "authority/kits/clinic.kit.json", "--into", "clinic", "--yes")
    assert 'address = "genes.example:7443"' in Path("clinic/peers.toml").read_text()
    Path("consortium.toml").write_text(PLAN.replace("genes.example", "genes.other"))
    assert "All kits were rewritten" in fkge("cert", "authority", "--members", "consortium.toml", "--out", "authority")
    fkge("cert", "install", "authority/kits/clinic.kit.json", "--into", "clinic")
    assert 'address = "genes.example:7443"' in Path("clinic/peers.toml").read_text()
    assert 'address = "genes.other:7443"' in Path("clinic/peers.toml.new").read_text()


def test_refuses_what_was_not_compared(fkge: Shell) -> None:
    fkge("cert", "authority", "--name", "trial", "--out", "authority")
    asked = fkge.json("cert", "request", "--name", "clinic", "--consortium", "trial", "--out", "clinic")
    approve = ("cert", "approve", "clinic/request.csr", "--authority", "authority")
    fkge(*approve, code=exits.USAGE)
    assert "--fingerprint" in fkge.error
    assert asked["spoken"] in fkge.error
    wrong = ("0000-" * 8)[:-1]
    fkge(*approve, "--fingerprint", wrong, code=exits.IDENTITY)
    assert "replaced it in transit" in fkge.error
    assert fkge.json("cert", "show", "authority")["certificates"] == []
    fkge(*approve, "--fingerprint", asked["fingerprint"])
    install = ("cert", "install", "authority/kits/clinic.kit.json", "--into", "clinic")
    fkge(*install, code=exits.USAGE)
    fkge(*install, "--fingerprint", wrong, code=exits.IDENTITY)
    assert not Path("clinic/authority.pem").exists()
    fkge(*install, "--yes")
    fkge(*install)
    fkge(*install, "--fingerprint", wrong, code=exits.IDENTITY)


def at_a_terminal(answer: bytes, *words: str) -> tuple[int, str]:
    """Run a command at a terminal, where somebody answers its question."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "fkge", *words], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        os.write(ours, answer)
        said, _ = process.communicate()
        return process.returncode, said.decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_asks_a_person_at_a_terminal(fkge: Shell) -> None:
    fkge("cert", "authority", "--name", "trial", "--out", "authority")
    asked = fkge.json("cert", "request", "--name", "clinic", "--consortium", "trial", "--out", "clinic")
    approve = ("cert", "approve", "clinic/request.csr", "--authority", "authority")
    code, said = at_a_terminal(b"n\n", *approve)
    assert (code, asked["spoken"] in said, "nothing was done" in said) == (exits.IDENTITY, True, True)
    assert not Path("authority/kits/clinic.kit.json").exists()
    code, said = at_a_terminal(b"y\n", *approve)
    assert code == exits.DONE, said
    assert Path("authority/kits/clinic.kit.json").exists()


MISTAKES = [
    ("cert authority --out x", exits.USAGE, "which consortium?"),
    ("cert authority --name other --members consortium.toml --out x", exits.USAGE, "leave --name out"),
    ("cert authority --name trial --out authority", exits.RUN, "exists already"),
    ("cert request --name Clinic --consortium trial --out x", exits.IDENTITY, "clinic would do"),
    ("cert request --name clinic --consortium trial --out clinic", exits.RUN, "fkge cert renew"),
    ("cert approve nowhere.csr --authority authority --yes", exits.IDENTITY, "nowhere.csr: does not exist"),
    ("cert approve consortium.toml --authority authority --yes", exits.IDENTITY, "is not a request"),
    ("cert approve mallory/request.csr --authority clinic --yes", exits.IDENTITY, "is not an authority's folder"),
    ("cert approve mallory/request.csr --authority authority", exits.IDENTITY, "the name clinic is taken"),
    ("cert approve other/request.csr --authority authority --yes", exits.IDENTITY, "the authority of trial"),
    ("cert approve genes/request.csr --authority authority --yes --address here", exits.SETTINGS, "expected host:port"),
    ("cert install authority/kits/clinic.kit.json --into authority/kits", exits.IDENTITY, "not a site's folder"),
    ("cert install authority/kits/clinic.kit.json --into mallory --yes", exits.IDENTITY, "is for clinic's key"),
    ("cert install consortium.toml --into clinic", exits.IDENTITY, "is not a kit"),
    ("cert install authority --into clinic", exits.IDENTITY, "is a folder"),
    ("cert install elsewhere/revoked.pem --into clinic", exits.IDENTITY, "another authority"),
    ("cert renew genes", exits.IDENTITY, "is not a site's folder"),
    ("cert revoke clinik --authority authority", exits.IDENTITY, "did you mean clinic"),
    ("cert revoke clinic --old --authority authority", exits.IDENTITY, "one certificate only"),
    ("cert show nowhere", exits.IDENTITY, "does not exist"),
    ("cert show clinic/key.pem", exits.IDENTITY, "is a private key"),
    ("provision nowhere.toml --out x", exits.SETTINGS, "no such file"),
    ("provision consortium.toml --out clinic/key.pem", exits.FILES, "key.pem"),
]


def test_reports_a_mistake_in_one_sentence_and_changes_nothing(fkge: Shell) -> None:
    fkge("cert", "authority", "--name", "trial", "--out", "authority")
    fkge("cert", "authority", "--name", "elsewhere", "--out", "elsewhere")
    joined(fkge, "clinic")
    for folder, name, consortium in (
        ("mallory", "clinic", "trial"), ("genes", "genes", "trial"), ("other", "genes", "elsewhere"),
    ):  # fmt: skip
        fkge("cert", "request", "--name", name, "--consortium", consortium, "--out", folder)
    before = everything()
    for words, code, says in MISTAKES:
        fkge(*words.split(), code=code)
        assert says in " ".join(fkge.error.split()), words
        assert everything() == before, words


def everything() -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}

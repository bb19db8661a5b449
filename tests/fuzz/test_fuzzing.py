"""The fuzzer finds a fault where there is one, and tells; and a little of what it does, for who cannot run it."""

from __future__ import annotations

import importlib
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz import mutations
from tests.fuzz.__main__ import ROOT, TARGETS


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tests.fuzz", *arguments], cwd=ROOT, text=True, capture_output=True)


def test_a_fault_is_found_told_in_hex_and_kept(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="atheris is not installed")
    done = fuzz("--seconds=60", f"--out={tmp_path}", "planted")  # it takes a moment; the seconds are for a slow machine
    assert done.returncode == 1
    (kept,) = (tmp_path / "planted" / "found").iterdir()
    assert b"\x03" in kept.read_bytes()
    assert f"\n{kept.read_bytes().hex()}\n" in done.stdout
    again = fuzz("--again", "planted", str(kept))
    assert again.returncode == 1
    assert "ValueError: three" in again.stderr


def test_a_target_that_is_not_there() -> None:
    done = fuzz("codecs")
    assert done.returncode == 2
    assert "there is no target 'codecs'; there are codec, frames, psi, sessions" in done.stderr


def test_every_target_has_its_module() -> None:
    assert all((ROOT / "tests" / "fuzz" / f"{name}.py").exists() for name in TARGETS)


@pytest.mark.parametrize("name", ["frames", "psi", "sessions"])
def test_what_was_made_up_is_refused_or_read(name: str) -> None:
    """For `codec`, tests/unit/federation/test_codec.py has more of it."""
    if name == "frames":
        pytest.importorskip("grpc", reason="fkge[node] is not installed")
    target = importlib.import_module(f"tests.fuzz.{name}")
    pick = random.Random(5)

    def leaf(data: bytes) -> bytes:
        place = pick.randrange(len(data) + 1)
        return data[:place] + pick.randbytes(pick.randrange(3)) + data[place + pick.randrange(3) :]

    seeds = target.seeds()
    for data in [b"", *seeds]:
        target.check(data)
    for _ in range(600):
        data = pick.choice(seeds)
        for _ in range(pick.randint(1, 3)):
            data = target.mutate(data, pick, leaf)
        target.check(data)


def test_mutations_keep_the_form_of_most_messages() -> None:
    pick = random.Random(5)
    inner = mutations.join([(8, 300), (18, b"\xff")])
    data = mutations.join([(8, 1), (18, inner)])
    assert mutations.split(data) == [(8, 1), (18, inner)]
    assert mutations.split(b"\xff\xff") is None
    changed = [mutations.mutate(data, pick, lambda part: part + b"\xff") for _ in range(300)]
    assert len(set(changed)) > 50
    assert sum(mutations.split(one) is not None for one in changed) > 200

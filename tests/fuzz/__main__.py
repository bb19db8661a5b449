"""Fuzzes decoders with atheris: libFuzzer, guided by the lines of the decoder that an input reaches.

    python -m tests.fuzz [--seconds N] [TARGET ...]     all targets, or those named, one after the other
    python -m tests.fuzz --again TARGET FILE ...        what was found before, without atheris

A target is a module of this folder with `check(data)`, which raises whatever is worth a look, `seeds()`, real inputs to
begin with, and `mutate(data, random, leaf)`, which changes an input and keeps its form; `leaf` changes plain bytes.
What is found is printed in hex and kept under build/fuzz/TARGET.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

TARGETS: dict[str, tuple[str, ...]] = {
    "codec": ("fkge.federation.codec",),
    "frames": ("fkge.node.frames",),
    "psi": ("fkge.align.psi",),
    "sessions": ("fkge.node.session",),
}
"""By name, the modules whose lines guide the search."""

ROOT = Path(__file__).parents[2]
LONGEST = 1 << 12
"""Bytes of an input. Longer ones find nothing more in decoders that look at lengths, and take longer."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; with --again, one and files")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "fuzz")
    parser.add_argument("--again", action="store_true", help="check files that were found before")
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    for name in asked.targets[:1] if asked.again else asked.targets:
        if not Path(__file__).with_name(f"{name}.py").exists():
            parser.error(f"there is no target {name!r}; there are {', '.join(TARGETS)}")
    if asked.again:
        for file in asked.targets[1:]:
            _module(asked.targets[0]).check(Path(file).read_bytes())
        return 0
    if asked.within:
        _fuzz(asked.targets[0], asked.seconds, asked.out)
    return max([_run(name, asked.seconds, asked.out) for name in asked.targets or TARGETS])


def _module(name: str) -> Any:
    return importlib.import_module(f"tests.fuzz.{name}")


def _run(name: str, seconds: int, out: Path) -> int:
    """Fuzz in a process of its own, since libFuzzer ends the one it is in; show what it found."""
    found = out / name / "found"
    found.mkdir(parents=True, exist_ok=True)
    before = set(found.iterdir())
    print(f"== {name}: {seconds} s", flush=True)
    command = [sys.executable, "-m", "tests.fuzz", "--within", f"--seconds={seconds}", f"--out={out}", name]
    code = subprocess.run(command, cwd=ROOT).returncode
    for file in sorted(set(found.iterdir()) - before):
        print(f"== {name}: {file.name} in hex, kept as {file}\n{file.read_bytes().hex()}", flush=True)
    print(f"== {name}: {'nothing found' if code == 0 else f'ended with {code}'}", flush=True)
    return 1 if code else 0


def _fuzz(name: str, seconds: int, out: Path) -> None:
    import atheris

    guides = TARGETS.get(name, ())
    for guide in guides:  # whatever else these import is loaded as it is, or all of it would be instrumented
        importlib.import_module(guide)
        del sys.modules[guide]
    with atheris.instrument_imports(include=list(guides)):
        target = _module(name)
    corpus = out / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / hashlib.sha1(seed).hexdigest()).write_bytes(seed)

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        changed = target.mutate(data, random.Random(seed), lambda part: atheris.Mutate(part, len(part) + 16))
        return bytes(changed[:longest])

    options = [
        f"-max_total_time={seconds}", f"-max_len={LONGEST}", "-timeout=20", "-rss_limit_mb=4096", "-len_control=0",
        "-verbosity=0", "-print_final_stats=1", f"-artifact_prefix={out / name / 'found'}/", str(corpus),
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options], target.check, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())

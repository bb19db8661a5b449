"""Run each measurement in a process of its own: a fresh heap for the peak memory, one thread, no shared caches.

``python -m benchmarks.child module:function`` reads keyword arguments as JSON from stdin and answers with JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_THREADS = ("OMP", "MKL", "OPENBLAS", "NUMBA")
_SECONDS_AT_MOST = 3600


def call(function: str, environment: Mapping[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    """Call ``module:function`` of this package in a process of its own; returns the dict that it returns.

    A library that is not installed comes back as ``{"missing": name}``, any other failure as ``{"error": line}``.
    """
    try:
        done = _python("child", f"benchmarks.{function}", environment=environment, text=json.dumps(arguments))
    except subprocess.TimeoutExpired:
        return {"error": f"not finished after {_SECONDS_AT_MOST} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer
    return {"error": _error_line(done)}


def program(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a module of this package as a program; returns what it prints, or what went wrong."""
    done = _python(module, *arguments, environment=environment)
    return done.stdout + ("" if done.returncode == 0 else f"{_error_line(done)}\n")


def _python(
    module: str, *arguments: str, environment: Mapping[str, str] | None, text: str = ""
) -> subprocess.CompletedProcess[str]:
    threads = {f"{name}_NUM_THREADS": "1" for name in _THREADS}
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{module}", *arguments],
        input=text, capture_output=True, text=True, cwd=ROOT, timeout=_SECONDS_AT_MOST,
        env={**os.environ, **threads, "CUDA_VISIBLE_DEVICES": "", **(environment or {})},
    )  # fmt: skip


def _error_line(done: subprocess.CompletedProcess[str]) -> str:
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return f"exit status {done.returncode}: {last}"


def peak_mb() -> float:
    """Peak resident memory of this process so far, in MB.

    Linux lets a process start with its parent's peak; the parent here imports nothing large, so it does not matter.
    """
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


class Clock:
    """CPU seconds of this process (all threads), and wall time, since the clock was made."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    @property
    def cpu(self) -> float:
        return time.process_time() - self._cpu

    @property
    def wall(self) -> float:
        return time.perf_counter() - self._wall


def _main() -> None:
    answer_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not part of the answer
    module, _, function = sys.argv[1].partition(":")
    try:
        answer = getattr(importlib.import_module(module), function)(**json.load(sys.stdin))
    except ModuleNotFoundError as error:
        answer = {"missing": error.name}
    json.dump(answer, answer_to)
    answer_to.close()


if __name__ == "__main__":
    _main()

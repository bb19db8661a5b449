"""Compare messages between nodes with the same bytes over gRPC alone: ``python -m benchmarks.nodes``.

Two processes of this machine: a node that answers at once and, within the same process, two bare echoes (gRPC streams
of raw bytes, one without TLS, one with the same certificates); and callers of all three. A node's step goes through
codec, session, frame and stream, and back. Arms take turns in short rounds, so that other load of the machine is
the same for all; ratios are taken within a round, and the median over rounds is printed.

- ``steps``: round trip of a step of 32 × 100 numbers.
- ``many``: a hundred peers at once, each with its own certificate and session.
- ``flat``: the node's memory over many steps and reconnects.
- ``offer``: 100 MB at once.
- ``beside``: a step's round trip while other peers read nothing, or are dead.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.child import ROOT
from benchmarks.desk import DESK, Caller, Desk, found, site
from benchmarks.report import Report, machine
from fkge.federation.codec import encode
from fkge.federation.egress import Egress
from fkge.node.frames import PART
from fkge.node.transport import library
from fkge.pki.site import Identity
from fkge.ppat import Candidate, Samples

ROWS, WIDTH = 32, 100
MANY = 100
_ROOM: list[tuple[str, Any]] = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_Step = Callable[[], Awaitable[None]]


# -- the process that is called ------------------------------------------------------------------------


async def _echo(_: Any, context: Any) -> None:
    end = library().aio.EOF
    while (data := await context.read()) is not end:
        await context.write(data)


def _tensor(data: bytes) -> torch.Tensor:
    """As plainly as it can be done: somebody who knows the shape, and trusts the sender."""
    return torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(ROWS, WIDTH)


async def _tensors(_: Any, context: Any) -> None:
    """Answers numbers with numbers."""
    end = library().aio.EOF
    while (data := await context.read()) is not end:
        await context.write(_tensor(data).numpy().tobytes())


async def _sink(_: Any, context: Any) -> None:
    """Takes in as many bytes as the first message says, then answers, and so on."""
    end = library().aio.EOF
    while (data := await context.read()) is not end:
        due = int(data)
        while due > 0:
            due -= len(await context.read())
        await context.write(b"heard")


_METHODS = {"Echo": _echo, "Sink": _sink, "Tensors": _tensors}


async def _bare(identity: Identity | None) -> tuple[Any, int]:
    grpc = library()
    server = grpc.aio.server(options=_ROOM)
    methods = {name: grpc.stream_stream_rpc_method_handler(do) for name, do in _METHODS.items()}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Bare", methods),))
    if identity is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        pair = [(identity.key_pem, identity.certificate_pem)]
        credentials = grpc.ssl_server_credentials(pair, identity.authority_pem, require_client_auth=True)
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    return server, int(port)


async def _serve(folder: Path, callers: Sequence[str]) -> None:
    identity = Identity.load(site(folder, DESK))
    plain, plain_port = await _bare(None)
    secure, secure_port = await _bare(identity)
    desk = Desk(folder, callers)
    life = asyncio.create_task(desk.run())
    opened = asyncio.create_task(desk.open.wait())
    await asyncio.wait([life, opened], return_when=asyncio.FIRST_COMPLETED)
    if life.done():
        await life
    print(json.dumps({"node": desk.port, "plain": plain_port, "secure": secure_port}), flush=True)
    await life
    for server in (plain, secure):
        await server.stop(None)


class Served:
    """The process that is called, from outside.

    Attributes:
        ports: of the node, and of the plain and the secure echo.
    """

    def __init__(self, folder: Path, callers: Sequence[str]) -> None:
        self.folder, self.callers = folder, list(callers)
        found(folder, callers)
        self._process = _python("--serve", str(folder), ",".join(callers))
        assert self._process.stdout is not None
        self.ports: dict[str, int] = json.loads(self._process.stdout.readline())
        self.pid = self._process.pid

    @property
    def memory(self) -> float:
        """Resident memory, in MB."""
        return _memory(self.pid, "VmRSS")

    def lost(self) -> int:
        """Streams that ended, by the node's own log."""
        return (self.folder / "state" / "node.log").read_text().count('"peer lost"')

    def close(self) -> None:
        """End it."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def serving(callers: Sequence[str]) -> Iterator[Served]:
    """A process to call."""
    with tempfile.TemporaryDirectory(prefix="fkge-benchmarks-") as folder:
        served = Served(Path(folder), callers)
        try:
            yield served
        finally:
            served.close()


def _python(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.nodes", *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def _memory(pid: int, what: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what)) / 1e3


# -- callers -------------------------------------------------------------------------------------------


def _names(count: int) -> list[str]:
    return [f"peer-{i}" for i in range(count)]


def _channel(served: Served, kind: str) -> Any:
    grpc = library()
    address = f"127.0.0.1:{served.ports[kind]}"
    if kind == "plain":
        return grpc.aio.insecure_channel(address, options=_ROOM)
    identity = Identity.load(site(served.folder, served.callers[0]))
    credentials = grpc.ssl_channel_credentials(identity.authority_pem, identity.key_pem, identity.certificate_pem)
    options = [*_ROOM, ("grpc.ssl_target_name_override", DESK)]
    return grpc.aio.secure_channel(address, credentials, options=options)


async def _callers(served: Served) -> list[Caller]:
    callers = [Caller(served.folder, name, served.ports["node"]) for name in served.callers]
    for caller in callers:
        await caller.call()
    return callers


def body(message: Any) -> bytes:
    """A message of an exchange, as the codec writes it."""
    return encode(Egress(Desk.settings).release(message, DESK, 1), 1)


def _percentile(times: Sequence[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


def _turn(arms: Iterable[str], number: int) -> list[str]:
    """The arms, each time another one first."""
    names = list(arms)
    return names[number % len(names) :] + names[: number % len(names)]


async def _times(step: _Step, count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter()
        await step()
        times.append(time.perf_counter() - start)
    return times


# -- sections ------------------------------------------------------------------------------------------


async def steps(report: Report, quick: bool) -> None:
    """Round trips of a step."""
    rounds, count = (3, 20) if quick else (200, 30)
    vectors = torch.randn(ROWS, WIDTH)
    data = body(Samples(1, vectors))
    with serving(_names(1)) as served:
        (caller,) = await _callers(served)
        channels = {kind: _channel(served, kind) for kind in ("plain", "secure")}

        def bare(stream: Any) -> _Step:
            async def step() -> None:
                await stream.write(data)
                assert len(await stream.read()) == len(data)

            return step

        arms: dict[str, _Step] = {
            kind: bare(channel.stream_stream("/Bare/Echo")()) for kind, channel in channels.items()
        }

        numbers = channels["secure"].stream_stream("/Bare/Tensors")()

        async def tensors() -> None:
            await numbers.write(vectors.numpy().tobytes())
            assert _tensor(await numbers.read()).shape == vectors.shape

        async def echo() -> None:
            assert len(await caller.echo(data)) == len(data)

        arms |= {"tensors": tensors, "session": echo, "node": lambda: caller.step(vectors)}
        for step in arms.values():
            await _times(step, count)
        taken: dict[str, list[list[float]]] = {name: [] for name in arms}
        for number in range(rounds):
            for name in _turn(arms, number):
                taken[name].append(await _times(arms[name], count))
        await caller.cut()
        for channel in channels.values():
            await channel.close()
    figures, rows = {}, []
    titles = {
        "plain": "gRPC alone, bytes", "secure": "gRPC alone, mTLS, bytes", "tensors": "gRPC alone, mTLS, tensors",
        "session": "node, bytes", "node": "node, tensors",
    }  # fmt: skip
    others = ("plain", "secure", "tensors")
    for name, title in titles.items():
        figure: dict[str, Any] = {}
        for part in (0.5, 0.9):
            by_round = [_percentile(times, part) for times in taken[name]]
            figure[f"p{part * 100:.0f}_us"] = statistics.median(by_round) * 1e6
            for other in others:
                ratios = [a / _percentile(b, part) for a, b in zip(by_round, taken[other], strict=True)]
                figure[f"p{part * 100:.0f}_to_{other}"] = statistics.median(ratios)
        figures[name] = figure
        rows.append([
            title, f"{figure['p50_us']:,.0f}", f"{figure['p90_us']:,.0f}",
            *(f"{figure[f'p{part}_to_{other}']:.2f}" for other in reversed(others) for part in (50, 90)),
        ])  # fmt: skip
    report.figures["steps"] = figures
    report.table(
        f"Round trip of a step, {ROWS} × {WIDTH} numbers ({len(data):,} bytes) there and back",
        ["", "p50 µs", "p90 µs", "p50 / tensors", "p90", "p50 / mTLS bytes", "p90", "p50 / plain bytes", "p90"],
        rows,
        f"{rounds} rounds of {count} steps for each; medians over rounds, of the percentiles and of their ratios.",
    )


async def many(report: Report, quick: bool) -> None:
    """A hundred peers at once."""
    count, seconds = (8, 1.0) if quick else (MANY, 20.0)
    vectors = torch.randn(ROWS, WIDTH)
    start = time.perf_counter()
    with serving(_names(count)) as served:
        before = served.memory
        made = time.perf_counter()
        callers = await _callers(served)
        called = time.perf_counter()

        async def go_on(caller: Caller, end: float) -> None:
            while time.perf_counter() < end:
                await caller.step(vectors)

        for during in (seconds / 10, seconds):
            done = {caller.name: caller.steps for caller in callers}
            began = time.perf_counter()
            await asyncio.gather(*(go_on(caller, began + during) for caller in callers))
            took = time.perf_counter() - began
        each = [caller.steps - done[caller.name] for caller in callers]
        alone = callers[0].steps
        await go_on(callers[0], time.perf_counter() + seconds / 10)
        alone = callers[0].steps - alone
        after, lost = served.memory, served.lost()
        here = sum(caller.peer.here for caller in callers)
        for caller in callers:
            await caller.cut()
    figures = {
        "peers": count, "here": here, "lost": lost, "steps_per_s": sum(each) / took, "slowest": min(each),
        "fastest": max(each), "alone_per_s": alone / (seconds / 10), "mb_before": before, "mb_after": after,
        "founding_s": made - start, "calling_s": called - made,
    }  # fmt: skip
    report.figures["many"] = figures
    report.table(
        f"{count} peers at once",
        ["peers", "lost", "steps/s", "one alone, steps/s", "slowest / fastest", "MB before", "MB a peer"],
        [[
            f"{here}", f"{lost}", f"{figures['steps_per_s']:,.0f}", f"{figures['alone_per_s']:,.0f}",
            f"{min(each) / max(each):.3f}", f"{before:.0f}", f"{(after - before) / count:.2f}",
        ]],
        f"Every peer has a step under way at all times, for {seconds:g} s; all callers share one process.",
    )  # fmt: skip


async def flat(report: Report, quick: bool) -> None:
    """Memory over a long run."""
    total, count, between = (400, 4, 0.5) if quick else (1_000_000, 20, 8.0)
    vectors = torch.randn(ROWS, WIDTH)
    seen: list[tuple[float, int, int, float]] = []
    reconnects = 0
    with serving(_names(count)) as served:
        callers = await _callers(served)
        began = time.perf_counter()

        def done() -> int:
            return sum(caller.steps for caller in callers)

        async def go_on(number: int, caller: Caller) -> None:
            nonlocal reconnects
            due = time.perf_counter() + between * (1 + number / count)
            while done() < total:
                await caller.step(vectors)
                if time.perf_counter() > due:
                    await caller.cut()
                    assert await caller.call(), "the session did not go on"
                    reconnects += 1
                    due = time.perf_counter() + between

        async def look() -> None:
            while True:
                seen.append((time.perf_counter() - began, done(), reconnects, served.memory))
                await asyncio.sleep(0.2 if quick else 30.0)

        looking = asyncio.create_task(look())
        await asyncio.gather(*(go_on(number, caller) for number, caller in enumerate(callers)))
        looking.cancel()
        seen.append((time.perf_counter() - began, done(), reconnects, served.memory))
        for caller in callers:
            await caller.cut()
    warm = [row for row in seen if row[1] > total / 4] if len(seen) > 4 else seen
    x, y = [row[1] / 1e5 for row in warm], [row[3] for row in warm]
    slope = statistics.linear_regression(x, y).slope if len(set(x)) > 1 else 0.0
    report.figures["flat"] = {"rows": seen, "mb_per_100k_steps": slope}
    report.table(
        "The node's memory over time",
        ["seconds", "steps", "reconnects", "MB"],
        [[f"{at:.0f}", f"{n:,}", f"{r}", f"{mb:.1f}"] for at, n, r, mb in seen],
        f"{count} peers. After the first quarter: {slope:+.2f} MB for 100,000 steps.",
    )


async def offer(report: Report, quick: bool) -> None:
    """Something long."""
    rounds, rows = (2, 2_500) if quick else (7, 250_000)
    vectors = torch.randn(rows, WIDTH)
    data = memoryview(body(Candidate(1, vectors)))
    with serving(_names(1)) as served:
        (caller,) = await _callers(served)
        channels = {kind: _channel(served, kind) for kind in ("plain", "secure")}

        def bare(stream: Any) -> _Step:
            async def send() -> None:
                await stream.write(str(len(data)).encode())
                for start in range(0, len(data), PART):
                    await stream.write(bytes(data[start : start + PART]))
                await stream.read()

            return send

        arms: dict[str, _Step] = {
            kind: bare(channel.stream_stream("/Bare/Sink")()) for kind, channel in channels.items()
        }
        arms["node"] = lambda: caller.offer(vectors)
        taken: dict[str, list[float]] = {name: [] for name in arms}
        peak: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
        for number in range(rounds):
            for name in _turn(arms, number):
                base = [_memory(pid, "VmRSS") for pid in (served.pid, os.getpid())]
                for pid in (served.pid, os.getpid()):
                    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
                taken[name] += await _times(arms[name], 1)
                above = [_memory(p, "VmHWM") - b for p, b in zip((served.pid, os.getpid()), base, strict=True)]
                peak[name].append((above[0], above[1]))
        await caller.cut()
        for channel in channels.values():
            await channel.close()
    figures, table = {}, []
    for name, title in (("plain", "gRPC alone"), ("secure", "gRPC alone, mTLS"), ("node", "node")):
        figure = {
            "mb_per_s": len(data) / 1e6 / statistics.median(taken[name]),
            "to_secure": statistics.median(a / b for a, b in zip(taken[name], taken["secure"], strict=True)),
            "called_peak_mb": max(there for there, _ in peak[name]), "caller_peak_mb": max(h for _, h in peak[name]),
        }  # fmt: skip
        figures[name] = figure
        table.append([
            title, f"{figure['mb_per_s']:,.0f}", f"{figure['to_secure']:.2f}", f"{figure['caller_peak_mb']:,.0f}",
            f"{figure['called_peak_mb']:,.0f}",
        ])  # fmt: skip
    report.figures["offer"] = figures
    report.table(
        f"An offer of {len(data) / 1e6:,.0f} MB",
        ["", "MB/s", "time / mTLS", "caller, peak MB", "called, peak MB"],
        table,
        f"Median of {rounds}; the most memory beyond what each process held before. gRPC alone sends prepared bytes in "
        "pieces of 1 MiB and throws them away; a node encodes a tensor, keeps what is not confirmed, and decodes it.",
    )


async def beside(report: Report, quick: bool) -> None:
    """Others that are slow, or dead."""
    rounds, count = (2, 20) if quick else (8, 300)
    vectors = torch.randn(ROWS, WIDTH)
    p50, p90 = [], []
    with serving(_names(3)) as served:
        caller = Caller(served.folder, served.callers[0], served.ports["node"])
        await caller.call()
        await _times(lambda: caller.step(vectors), count)
        for _ in range(rounds):
            free = await _times(lambda: caller.step(vectors), count)
            others = [deaf(served, name) for name in served.callers[1:]]
            for other in others:
                assert other.stdout is not None
                assert await asyncio.to_thread(other.stdout.readline) == "deaf\n"
            others[1].send_signal(signal.SIGSTOP)
            held = await _times(lambda: caller.step(vectors), count)
            for other in others:
                other.kill()
                other.wait()
                assert other.stdout is not None
                other.stdout.close()
            p50.append(_percentile(held, 0.5) / _percentile(free, 0.5))
            p90.append(_percentile(held, 0.9) / _percentile(free, 0.9))
        await caller.cut()
    report.figures["beside"] = {"p50": p50, "p90": p90}
    report.table(
        "A step beside a peer that reads nothing and one whose process is stopped",
        ["", "p50", "p90"],
        [["round trip with them / without", f"{statistics.median(p50):.2f}", f"{statistics.median(p90):.2f}"]],
        f"Median over {rounds} rounds of {count} steps; 32 MB of answers wait for each of the two.",
    )


def deaf(served: Served, name: str) -> subprocess.Popen[str]:
    """A process that asks, and never hears the answers; it says so when it has asked for 32 MB."""
    return _python("--deaf", str(served.folder), name, str(served.ports["node"]))


async def _deaf(folder: Path, name: str, port: int) -> None:
    """A peer that asks, and never hears the answers."""
    caller = Caller(folder, name, port)
    await caller.deafen([body(Samples(i + 1, torch.randn(2500, WIDTH))) for i in range(32)])
    print("deaf", flush=True)
    await asyncio.Event().wait()


SECTIONS: dict[str, Callable[[Report, bool], Coroutine[Any, Any, None]]] = {
    "steps": steps, "many": many, "flat": flat, "offer": offer, "beside": beside,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nodes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    parser.add_argument("--only", metavar="SECTIONS", help=f"some of {','.join(SECTIONS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="store all figures and the machine's description")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--deaf", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.serve:
        asyncio.run(_serve(Path(arguments.serve[0]), arguments.serve[1].split(",")))
        return
    if arguments.deaf:
        folder, name, port = arguments.deaf
        asyncio.run(_deaf(Path(folder), name, int(port)))
        return
    chosen = arguments.only.split(",") if arguments.only else list(SECTIONS)
    if unknown := sorted(set(chosen) - set(SECTIONS)):
        parser.error(f"--only: there is no section {', '.join(unknown)}; choose from {', '.join(SECTIONS)}")
    report = Report()
    report.figures["machine"] = about = machine()
    report.note(", ".join(f"{key} {value}" for key, value in about.items()))
    for name in chosen:
        report.progress(name)
        asyncio.run(SECTIONS[name](report, arguments.quick))
        if arguments.json:
            arguments.json.write_text(json.dumps(report.figures, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()

"""Many peers at once, for a long time, some of them slow or dead: a node holds, and its memory does."""

from __future__ import annotations

import asyncio
import gc
import signal
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

if find_spec("grpc") is None or find_spec("cryptography") is None:  # gRPC itself is loaded by the node alone
    pytest.skip("needs the extra fkge[node]", allow_module_level=True)
from benchmarks.desk import Caller, Desk, found
from benchmarks.nodes import Served, body, deaf, serving

from fkge.node import frames_pb2 as pb
from fkge.node.session import encode_part
from fkge.ppat import Samples

SECONDS = 120.0
"""After which a test has hung."""

VECTORS = torch.linspace(-1, 1, 32 * 100).reshape(32, 100)
FEW = torch.linspace(-1, 1, 16 * 4).reshape(16, 4)


def run(work: Awaitable[None]) -> None:
    """Run, and fail rather than hang."""

    async def at_most() -> None:
        async with asyncio.timeout(SECONDS):
            await work

    asyncio.run(at_most())


@asynccontextmanager
async def desk(folder: Path, names: Sequence[str]) -> AsyncIterator[Desk]:
    """A node in this process and loop, whose objects can be counted."""
    found(folder, names)
    made = Desk(folder, names)
    life, opened = asyncio.create_task(made.run()), asyncio.create_task(made.open.wait())
    await asyncio.wait([life, opened], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield made
    finally:
        opened.cancel()
        made.stop()
        await life


def names(count: int) -> list[str]:
    return [f"peer-{i}" for i in range(count)]


def lost(folder: Path) -> int:
    """Streams that ended, by the node's own log."""
    return (folder / "state" / "node.log").read_text().count('"peer lost"')


@pytest.mark.long
def test_a_hundred_peers_hold_their_sessions_and_none_is_starved() -> None:
    steps = 40

    async def all_of_them() -> None:
        with serving(names(100)) as served:
            callers = [Caller(served.folder, name, served.ports["node"]) for name in served.callers]
            assert not any(await asyncio.gather(*(caller.call() for caller in callers)))
            behind: list[int] = []

            async def go_on(caller: Caller) -> None:
                for _ in range(steps):
                    await caller.step(VECTORS)
                if not behind:  # the first that is done
                    behind.extend(steps - other.steps for other in callers)

            await asyncio.gather(*(go_on(caller) for caller in callers))
            assert [caller.steps for caller in callers] == [steps] * 100
            assert all(caller.peer.here for caller in callers)
            assert lost(served.folder) == 0
            assert max(behind) < steps / 2
            for caller in callers:
                assert await caller.cut() is None

    run(all_of_them())


@pytest.mark.long
def test_steps_and_reconnects_leave_nothing_behind(tmp_path: Path) -> None:
    """What a node holds after a thousand steps more, and after twelve reconnects more, is what it held before."""

    async def grow() -> None:
        async with desk(tmp_path, names(2)) as node:
            callers = [Caller(tmp_path, name, node.port) for name in names(2)]
            for caller in callers:
                await caller.call()

            async def steps(count: int) -> None:
                for _ in range(count):
                    for caller in callers:
                        await caller.step(FEW)

            async def reconnects(count: int) -> None:
                for _ in range(count):
                    for caller in callers:
                        assert await caller.cut() is None
                        assert await caller.call(), "the session did not go on"
                        await caller.step(FEW)

            await steps(200)
            assert await growth(lambda: steps(500)) < 60_000  # bytes; to keep each message would take 300,000
            await reconnects(3)
            assert await growth(lambda: reconnects(6)) < 12 * 4_000
            assert lost(tmp_path) == 2 * (3 + 2 * 6)
            for caller in callers:
                await caller.cut()

    run(grow())


async def growth(work: Callable[[], Awaitable[None]]) -> int:
    """Bytes that Python holds more after some work, when it has been done twice and swept up."""
    tracemalloc.start()
    try:
        await work()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        await work()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


@given(
    step=st.integers(1, 2**64 - 1), heard=st.integers(0, 2**64 - 1), channel=st.integers(0, 2**32 - 1),
    more=st.booleans(), body=st.binary(max_size=300) | st.integers(0, 20_000).map(bytes),
)  # fmt: skip
def test_a_part_is_written_as_protobuf_writes_it(step: int, heard: int, channel: int, more: bool, body: bytes) -> None:
    part = pb.Part(step=step, heard=heard, channel=channel, more=more, body=body)
    assert encode_part(step, heard, channel, more, memoryview(body)) == pb.Frame(part=part).SerializeToString()


@pytest.mark.long
def test_a_leak_would_show() -> None:
    kept: list[bytes] = []

    async def leak() -> None:
        kept.extend(bytes(100) for _ in range(1000))

    async def measured() -> None:
        assert await growth(leak) > 20_000

    run(measured())


@contextmanager
def stopped(served: Served, name: str) -> Iterator[None]:
    """A peer whose process is stopped, with 32 MB of answers on their way to it."""
    other = deaf(served, name)
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == "deaf\n"
        other.send_signal(signal.SIGSTOP)
        yield
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


@pytest.mark.long
def test_one_that_reads_nothing_and_one_that_is_stopped_hold_up_nobody() -> None:
    async def beside() -> None:
        with serving(names(3)) as served:
            caller, deaf = (Caller(served.folder, name, served.ports["node"]) for name in served.callers[:2])
            await caller.call()
            await deaf.deafen([body(Samples(i + 1, torch.zeros(2500, 100))) for i in range(32)])
            with stopped(served, served.callers[2]):
                for _ in range(200):
                    await caller.step(VECTORS)
                assert caller.steps == 200
                assert lost(served.folder) == 0, "they are slow, not gone"
            await caller.cut()
            await deaf.hang_up()

    run(beside())


def test_a_stream_that_breaks_within_a_step_loses_no_answer(tmp_path: Path) -> None:
    async def broken() -> None:
        async with desk(tmp_path, names(1)) as node:
            caller = Caller(tmp_path, "peer-0", node.port)
            await caller.call()
            for _ in range(10):
                step = asyncio.create_task(caller.ask(Samples(caller.steps, VECTORS)))
                await asyncio.sleep(0)
                await caller.cut()
                assert not step.done()
                assert await caller.call()
                assert torch.equal((await step).vectors, VECTORS)
            assert caller.steps == 10
            await caller.cut()

    run(broken())

"""A role of an intersection, in this process or in one of its own: the same, whatever the peer sends."""

from __future__ import annotations

import asyncio
import multiprocessing
import struct

import pytest

from fkge.align import PsiSettings
from fkge.align.psi import OverlapError
from fkge.errors import PeerError
from fkge.node import psi_worker as module
from fkge.node.frames import Refused
from fkge.node.psi_worker import Intersection

HERE, THERE = ["ant", "bee", "cat"], ["bee", "cat", "dog", "eel"]


def roles(minimum: int = 0, announced: int = 3) -> tuple[Intersection, Intersection]:
    settings = PsiSettings(min_overlap=minimum)
    return (
        Intersection(True, HERE, len(THERE), settings, "entity"),
        Intersection(False, THERE, announced, settings, "entity"),
    )


@pytest.fixture(params=["here", "elsewhere"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "elsewhere":
        monkeypatch.setattr(module, "FEW", 0)
    return str(request.param)


async def converse(client: Intersection, host: Intersection) -> tuple[list[str] | None, list[str] | None]:
    said, turn = await client.turn(), host
    found: dict[Intersection, list[str] | None] = {}
    while said.frame is not None:
        said = await turn.turn(said.frame)
        found[turn] = said.found
        if said.refused is not None:
            raise said.refused
        turn = client if turn is host else host
    return found[client], found[host]


def test_both_find_what_both_hold(where: str) -> None:
    client, host = roles()
    try:
        assert asyncio.run(converse(client, host)) == (["bee", "cat"], ["bee", "cat"])
    finally:
        client.close()
        host.close()


def test_too_little_in_common(where: str) -> None:
    client, host = roles(minimum=3)
    try:
        with pytest.raises(OverlapError, match="2 entity keys in common"):
            asyncio.run(converse(client, host))
    finally:
        client.close()
        host.close()


def test_nothing_at_all_is_refused_and_the_run_goes_on(where: str) -> None:
    """An empty frame is no request to begin."""
    client, host = roles()

    async def go() -> None:
        asked = (await client.turn()).frame
        assert asked is not None
        for role in (client, host):
            for junk in (b"", b"PSI1", bytes(100)):
                with pytest.raises(PeerError, match="not a message"):
                    await role.turn(junk)
        answer = await host.turn(asked)
        assert answer.frame is not None
        assert (await client.turn(answer.frame)).frame is not None

    try:
        asyncio.run(go())
    finally:
        client.close()
        host.close()


@pytest.mark.parametrize("announced", [2, 4])
def test_a_peer_puts_in_as_many_as_it_announced(announced: int) -> None:
    client, host = roles(announced=announced)
    try:
        with pytest.raises(PeerError, match=f"puts in 3 keys after it had announced {announced}"):
            asyncio.run(converse(client, host))
    finally:
        client.close()
        host.close()


def test_a_proof_that_does_not_hold_ends_it(where: str) -> None:
    client, host = roles()

    async def go() -> None:
        said = (await client.turn()).frame
        assert said is not None
        answer = (await host.turn(said)).frame
        assert answer is not None
        claim = (await client.turn(answer)).frame
        assert claim is not None
        with pytest.raises(PeerError, match="could not prove"):
            await host.turn(claim[:-1] + bytes([claim[-1] ^ 1]))
        with pytest.raises(PeerError, match="nothing more"):
            await host.turn(claim)

    try:
        asyncio.run(go())
    finally:
        client.close()
        host.close()


def test_where_the_count_stands_is_where_the_roles_put_it() -> None:
    client, _ = roles()
    said = asyncio.run(client.turn()).frame
    assert said is not None
    assert struct.unpack_from("<4xB17xI", said) == (3, 3)  # ASK, three items


def test_a_process_that_dies_is_one_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW", 0)
    others = multiprocessing.active_children()
    client, host = roles()
    try:
        for process in multiprocessing.active_children():
            if process not in others:
                process.kill()
                process.join()
        with pytest.raises(Refused, match="died"):
            asyncio.run(client.turn())
    finally:
        client.close()
        host.close()

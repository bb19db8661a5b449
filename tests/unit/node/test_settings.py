"""What operators write into node.toml and peers.toml: every mistake is one sentence, at the start."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.errors import SettingsError
from fkge.node.settings import NodeSettings, PeerSettings, address, read_peers


def at(minute: int) -> datetime:
    return datetime(2024, 5, 1, tzinfo=UTC) + timedelta(minutes=minute)


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [
        ("08:00-18:30", ("08:00", "18:29"), ("07:59", "18:30", "00:00")),
        ("22:00-06:00", ("22:00", "23:59", "00:00", "05:59"), ("06:00", "21:59")),
        ("00:00-24:00", ("00:00", "12:00", "23:59"), ()),
        ("24:00-06:00", ("00:00", "05:59"), ("06:00", "23:59")),
        ("23:59-00:00", ("23:59",), ("00:00", "23:58")),
    ],
)
def test_hours(hours: str, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    settings = PeerSettings(hours=hours)
    for times, due in ((inside, True), (outside, False)):
        for time in times:
            assert settings.open_at(at(60 * int(time[:2]) + int(time[3:]))) is due, time


@given(st.integers(0, 1439), st.integers(0, 1439), st.integers(0, 1439))
def test_hours_and_the_rest_of_the_day_are_a_day(begin: int, end: int, now: int) -> None:
    if begin == end:
        return
    a, b = (f"{minute // 60:02}:{minute % 60:02}" for minute in (begin, end))
    assert PeerSettings(hours=f"{a}-{b}").open_at(at(now)) != PeerSettings(hours=f"{b}-{a}").open_at(at(now))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hours", "12:75-13:00"), ("hours", "24:01-02:00"), ("hours", "8:00-18:00"), ("hours", "09:00-09:00"),
        ("bandwidth", "fast"), ("bandwidth", "-1"), ("bandwidth", "1e9"), ("bandwidth", "15k"), ("bandwidth", "0.001"),
        ("address", "nowhere"), ("address", "host:"), ("address", "host:70000"), ("address", "::1:7443"),
        ("address", "unix:/tmp/x:1"), ("address", "dns:///host:1"), ("address", "host:²"),
        ("certificate", "sha256:abc"), ("ratio", 0), ("epsilon", -1), ("items", 0),
    ],
)  # fmt: skip
def test_values_that_cannot_be(field: str, value: object) -> None:
    with pytest.raises(SettingsError, match=field):
        PeerSettings.build({field: value}, "peers.toml: [peers.bee]")


@pytest.mark.parametrize(
    ("text", "rate"), [("0", 0), ("16k", 16e3), ("500 kB/s", 5e5), ("2M", 2e6), ("1.5G", 1.5e9), ("20000", 2e4)]
)
def test_bandwidths(text: str, rate: float) -> None:
    assert PeerSettings(bandwidth=text).rate == rate


@pytest.mark.parametrize(
    ("text", "apart"),
    [("host.example:7443", ("host.example", 7443)), ("[::1]:80", ("::1", 80)), (":7443", ("0.0.0.0", 7443)),
     ("10.0.0.1:0", ("10.0.0.1", 0)), ("[fe80::1]:65535", ("fe80::1", 65535))],
)  # fmt: skip
def test_addresses(text: str, apart: tuple[str, int]) -> None:
    assert address(text) == apart


@pytest.mark.parametrize("text", ["", "host", "[host]:1", "[::1:1", "::1", "a b:1", "h:1:2", "h:-1", "h:" + "9" * 5000])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(SettingsError, match="an address is HOST:PORT"):
        address(text)


def test_peers(tmp_path: Path) -> None:
    path = tmp_path / "peers.toml"
    path.write_text('[peers.bee]\naddress = "bee.example:7443"\n[peers.cat]\n')
    assert read_peers(path, "ant")["bee"].address == "bee.example:7443"
    with pytest.raises(SettingsError, match="this node itself"):
        read_peers(path, "bee")
    for text, words in (
        ("[peers.Bee]\n", "small letters"),
        ("x = 1\n", "and nothing else"),
        ("peers = 1\n", "nothing"),
    ):
        path.write_text(text)
        with pytest.raises(SettingsError, match=words):
            read_peers(path, "ant")


@pytest.mark.parametrize("name", ["", "Ant", "a_b", "-a", "a" * 64, "a.b"])
def test_names_that_no_certificate_can_have(name: str) -> None:
    with pytest.raises(SettingsError, match="name"):
        NodeSettings.build({"name": name, "graph": "g"}, "node.toml")

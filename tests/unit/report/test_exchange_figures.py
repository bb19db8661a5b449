"""Who learned from whom, and the federation: drawn within their frame for any number of owners, whatever they do."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from fkge.experiment.history import History
from fkge.report.exchange_figures import STATES, learned, network
from tests.unit.report.made import history
from tests.unit.report.test_figures import check_within, parsed, words

START = {"event": "arm", "arm": "federated", "time": 0.0, "epochs": 9, "owners": ["ant", "bee"]}


def of(*records: dict[str, Any]) -> History:
    return History.of([START, *({"arm": "federated", **record} for record in records)])


def translated(owner: str, peer: str, count: int = 1) -> list[dict[str, Any]]:
    hosting = {"owner": owner, "peer": peer, "t": 1.0}
    return [
        record for _ in range(count) for record in ({"event": "hosting", **hosting}, {"event": "translated", **hosting})
    ]


def worked(owner: str, peers: list[str], score: float | None, improved: bool = False) -> dict[str, Any]:
    return {"event": "work", "owner": owner, "t": 2.0, "since": 1.0, "peers": peers, "epoch": 2, "score": score,
            "improved": improved}  # fmt: skip


def test_what_is_missing_is_said_in_words() -> None:
    assert "nothing was translated yet" in learned(History())
    assert "nothing was translated yet" in learned(of())
    assert "translated, but not validated" in learned(of(*translated("ant", "bee")))
    assert "nothing was translated yet" in learned(history(["ant", "bee"], arms=("control",)))
    assert "no owner has started yet" in network(History())
    assert "no owner has started yet" in network(of(), arm="control")


def test_the_area_of_a_disc_is_the_share_of_updates_learned_from() -> None:
    made = of(
        *translated("ant", "bee", 4),
        worked("ant", ["bee"], 0.5, True),
        worked("ant", ["bee"], 0.4),
        *translated("bee", "ant"),
        worked("bee", ["ant"], 0.4),
    )
    root = check_within(learned(made))
    assert [text for text in ("1/4", "0/1") if text in words(root)] == ["1/4", "0/1"]
    (ring,) = (
        e for e in root.iter("circle") if e.get("class") == "track" and "4 updates" in (e.findtext("title") or "")
    )
    (disc,) = (e for e in root.iter("circle") if e.get("class") == "update")
    assert float(disc.attrib["r"]) == pytest.approx(float(ring.attrib["r"]) * math.sqrt(1 / 4), abs=0.1)


def test_more_learned_than_translated_is_all_of_it() -> None:
    """A resumed run may have translated before its trace begins."""
    made = of(*translated("ant", "bee"), worked("ant", ["bee"], 0.5, True), worked("ant", ["bee"], 0.6, True))
    assert "1/1" in learned(made)
    assert "ant from bee: 1 of 1" in learned(made)


def test_many_owners_make_the_figure_wider_and_their_names_stand_upright() -> None:
    few, many = history(["ant", "bee", "cat"], 3), history([f"the owner of a long name {i}" for i in range(40)], 3)
    sizes = []
    for made in (few, many):
        root = check_within(learned(made))
        sizes.append(float(root.get("viewBox", "").split()[2]))
    assert sizes[0] <= 361
    assert sizes[1] > 500
    assert "rotate(-90" not in learned(few)
    assert "rotate(-90" in learned(many)
    assert not re.search(r">\d+/\d+<", learned(many))  # too small for numbers


def test_every_state_of_an_owner_has_a_shape() -> None:
    for state in ("ready", "sleep", "private", "lone", "scoring", "busy"):
        made = of({"event": "state", "owner": "ant", "t": 1.0, "state": state})
        assert made.stages["federated"].courses["ant"].state in STATES
    dead = check_within(network(of({"event": "died", "owner": "ant", "t": 1.0, "why": "out of memory"})))
    assert "out of memory" in words(dead)


def test_what_is_shared_is_an_edge_as_thick_as_it_is_much() -> None:
    shares = {"ant": {"bee": 900, "cat": 100}, "bee": {"ant": 900, "gone": 5}, "cat": {"ant": 100}}
    root = check_within(network(history(["ant", "bee", "cat"], 1), shares))
    edges = {
        e.findtext("title"): e for e in root.iter("line") if e.get("class") == "edge" and e.find("title") is not None
    }
    assert set(edges) == {"ant and bee share 900 entities", "ant and cat share 100 entities"}
    widths = [
        float(edge.get("stroke-width") or re.findall(r"[\d.]+", edge.get("style", ""))[0]) for edge in edges.values()
    ]
    assert widths[0] > 1.5 * widths[1]


def test_without_shares_those_that_exchanged_are_linked() -> None:
    assert "ant and bee have exchanged updates" in network(of(*translated("ant", "bee")))
    assert "have exchanged" not in network(of())


def test_one_owner_alone_stands_in_the_middle() -> None:
    root = check_within(network(history(["ant"], 1)))
    width, height = (float(part) for part in root.get("viewBox", "").split()[2:])
    (x,) = {e.get("cx") for e in root.iter("circle") if e.get("class") == "inverse"}
    assert float(x or 0) == pytest.approx(width / 2, abs=1)
    assert height > 0


def test_an_arrow_points_to_the_one_that_translates() -> None:
    made = of({"event": "hosting", "owner": "ant", "peer": "bee", "t": 1.0})
    told = words(check_within(network(made)))
    assert "bee → ant: translation running" in told
    assert "ant: translating with bee" in told
    assert "translation running" not in network(of(*translated("ant", "bee"), worked("ant", [], None)))


def test_the_figure_keeps_its_size_when_states_change() -> None:
    sizes = set()
    for state in ("ready", "sleep", "scoring"):
        svg = network(of({"event": "state", "owner": "ant", "t": 1.0, "state": state}))
        sizes.add(tuple(parsed(svg).get("viewBox", "").split()))
    assert len(sizes) == 1


def test_crowded_owners_have_their_states_in_the_legend() -> None:
    names = [f"owner{i}" for i in range(11)]
    records = [
        {**START, "owners": names},
        {"event": "state", "arm": "federated", "owner": names[0], "t": 1.0, "state": "scoring"},
    ]
    told = words(check_within(network(History.of(records))))
    assert told.count("scoring") >= 2
    assert all(name in told for name in names)

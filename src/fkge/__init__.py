"""Federated knowledge-graph embedding between peers, with privacy that holds.

`train` a graph and ask the model; make a `Federation` and simulate it; `open` what an earlier run left: `fkge.api` has
an example. Importing the package is quick: what it names is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fkge.api import Answers as Answers
    from fkge.api import Federation as Federation
    from fkge.api import Result as Result
    from fkge.api import Trained as Trained
    from fkge.api import evaluate as evaluate
    from fkge.api import open as open
    from fkge.api import train as train
    from fkge.errors import FkgeError as FkgeError
    from fkge.federation import FederationSettings as FederationSettings
    from fkge.federation import Links as Links
    from fkge.federation import Member as Member
    from fkge.graph import Graph as Graph
    from fkge.graph import Policy as Policy
    from fkge.graph import read_graph as read_graph
    from fkge.settings import TrainSettings as TrainSettings

_HOMES = {
    "fkge.api": ("Answers", "Federation", "Result", "Trained", "evaluate", "open", "train"),
    "fkge.errors": ("FkgeError",),
    "fkge.federation": ("FederationSettings", "Links", "Member"),
    "fkge.graph": ("Graph", "Policy", "read_graph"),
    "fkge.settings": ("TrainSettings",),
}
_WHERE = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [name for name in _WHERE if name != "open"]  # a star must not take Python's own `open` away


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'fkge' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_WHERE[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})

"""Federated knowledge-graph embedding between peers, with privacy.

`train` a graph and query the model; create a `Federation` and simulate it; `open` an earlier run. `fkge.api` has an
example. Names are imported on first use, so that importing the package is quick.
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

    __version__: str

_NAMES = {
    "fkge.api": ("Answers", "Federation", "Result", "Trained", "evaluate", "open", "train"),
    "fkge.errors": ("FkgeError",),
    "fkge.federation": ("FederationSettings", "Links", "Member"),
    "fkge.graph": ("Graph", "Policy", "read_graph"),
    "fkge.settings": ("TrainSettings",),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [name for name in _MODULE_OF if name != "open"]  # `from fkge import *` must not hide the builtin `open`


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = importlib.import_module("importlib.metadata").version("fkge")
    elif name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    else:
        raise AttributeError(f"module 'fkge' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF, "__version__"})

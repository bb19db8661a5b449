"""fkge from Python: train a graph, ask it; make a federation, simulate it, look at what it gained.

    import fkge

    model = fkge.train("pykeen:nations", model="DistMult", dim=32, epochs=40)
    model.predict(head="uk", relation="treaties", top=3)
    fkge.evaluate(model)["test"]["mrr"]

    federation = fkge.Federation({"clinic": "clinic.nt", "genes": "genes.tsv"}, links="same")
    result = federation.simulate(out="RUN", train={"dim": 64})
    result.gains()
    result["clinic"].neighbors("aspirin")

Whatever has a folder (`out`) can be taken up again after an interrupt (``resume=True``) and opened later (`open`).
Without one it lives in a temporary folder, as long as the object does.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fkge.api.federations import Federation as Federation
from fkge.api.federations import Result as Result
from fkge.api.models import Answers as Answers
from fkge.api.models import Trained as Trained
from fkge.api.models import train as train
from fkge.errors import RunError
from fkge.runs import Run
from fkge.simulations import Simulation


def evaluate(
    model: Trained | str | Path, splits: str | Sequence[str] = ("valid", "test"), **options: Any
) -> dict[str, Any]:
    """Metrics of a trained model, or of the one in a folder; see `Trained.evaluate`."""
    if not isinstance(model, Trained):
        found = open(model)
        if isinstance(found, Result):
            raise RunError(
                f"{model}: holds a simulation of several models; evaluate one owner's: {model}/arms/federated/OWNER"
            )
        model = found
    return model.evaluate(splits, **options)


def open(folder: str | Path) -> Trained | Result:
    """What a folder holds: a trained model, or a finished simulation."""
    folder = Path(folder)
    if (folder / "simulation.json").exists():
        return Result(Simulation.open(folder))
    return Trained(Run.open(folder))

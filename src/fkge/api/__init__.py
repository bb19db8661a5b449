"""fkge from Python: train a graph, ask it; make a federation, simulate it, look at what it gained.

    import fkge

    model = fkge.train("pykeen:nations", model="DistMult", dim=32, epochs=40)
    model.predict(head="uk", relation="treaties", top=3)

    federation = fkge.Federation({"clinic": "clinic.nt", "genes": "genes.tsv"}, links="same")
    result = federation.simulate(out="RUN", train={"dim": 64})
    result.gains()
    result["clinic"].neighbors("aspirin")

Whatever has a folder (`out`) can be taken up again after an interrupt (``resume=True``) and opened later (`open`).
Without one it lives in a temporary folder, as long as the object does.
"""

from __future__ import annotations

from pathlib import Path

from fkge.api.federations import Federation as Federation
from fkge.api.federations import Result as Result
from fkge.api.models import Answers as Answers
from fkge.api.models import Trained as Trained
from fkge.api.models import train as train
from fkge.runs import Run
from fkge.simulations import Simulation


def open(folder: str | Path) -> Trained | Result:
    """What a folder holds: a trained model, or a finished simulation."""
    folder = Path(folder)
    if (folder / "simulation.json").exists():
        return Result(Simulation.open(folder))
    return Trained(Run.open(folder))

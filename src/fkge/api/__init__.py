"""The Python API: train a graph and query the model; simulate a federation and compare its arms.

    import fkge

    model = fkge.train("pykeen:nations", model="DistMult", dim=32, epochs=40)
    model.predict(head="uk", relation="treaties", top=3)
    fkge.evaluate(model)["test"]["mrr"]

    federation = fkge.Federation({"clinic": "clinic.nt", "genes": "genes.tsv"}, links="same")
    result = federation.simulate(out="RUN", train={"dim": 64})
    result.gains()
    result["clinic"].neighbors("aspirin")

With a folder (`out`), work can be resumed after an interrupt (``resume=True``) and opened later (`open`). Without one
it is kept in a temporary folder, which is removed with the object.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from fkge.api.federations import Federation as Federation
from fkge.api.federations import Result as Result
from fkge.api.models import Answers as Answers
from fkge.api.models import Trained as Trained
from fkge.api.models import train as train
from fkge.api.overrides import EvaluationOptions
from fkge.errors import RunError
from fkge.evaluation import Metrics
from fkge.experiment.simulation import Simulation
from fkge.experiment.training_run import Run


def evaluate(
    model: Trained | str | Path, splits: str | Sequence[str] = ("valid", "test"), **options: Unpack[EvaluationOptions]
) -> dict[str, Metrics]:
    """Compute the metrics of a trained model, or of the one in a folder; see `Trained.evaluate`.

    Raises:
        RunError: the folder holds no trained model.
    """
    if not isinstance(model, Trained):
        found = open(model)
        if isinstance(found, Result):
            raise RunError(
                f"{model}: holds a simulation of several models; evaluate one owner's: {model}/arms/federated/OWNER"
            )
        model = found
    return model.evaluate(splits, **options)


def open(folder: str | Path) -> Trained | Result:
    """Open a run folder: a trained model, or a finished simulation.

    Raises:
        RunError: the folder holds neither, or the simulation is not finished.
    """
    folder = Path(folder)
    if (folder / "simulation.json").exists():
        return Result(Simulation.open(folder))
    return Trained(Run.open(folder))

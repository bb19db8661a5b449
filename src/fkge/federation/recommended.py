"""The settings of a federation where the user names none; see `fkge.embed.recommended` for those of a training.

Owners start together, exchange every 3 epochs and then train once more without their peers, so that joining costs
nothing (`fkge.federation.owner.blend`). While they exchange, the regulariser has half its weight: more facts support a
shared row than one owner has. Privacy modes, the paper's translation and owners that start alone keep the
defaults of the fields: cross-entropy over all entities has no clipped gradient and its model no free rotation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fkge.embed.recommended import METHOD, recommended_settings, too_large, with_defaults
from fkge.federation.settings import FederationSettings
from fkge.graph import Graph
from fkge.settings import SettingValues

SCHEDULE: dict[str, Any] = {
    "initial_epochs": 0, "exchanges": 20, "epochs": 3, "test_every": 1, "validate_means": True, "lone_epochs": 40,
    "regularization_factor": 0.5,
}  # fmt: skip


def recommended_federation(
    settings: FederationSettings, graphs: Sequence[Graph] = (), trains: Iterable[SettingValues] = ()
) -> FederationSettings:
    """`settings` with what was not given chosen for the owners' graphs.

    Args:
        settings: those that were given. If they name a method (`METHOD`), nothing is added to them.
        graphs: of the owners. A node does not know those of others, and must come to the same model as they do: without
            graphs, batches are those of a graph of usual size, and no graph is too large.
        trains: training settings that owners have of their own; one that names a method counts as if all did.
    """
    other = settings.privacy.mode != "none" or settings.translate != "frame" or settings.start != "together"
    named = settings.train.model_fields_set.union(*trains) & METHOD
    if other or named or too_large(graphs):
        return settings
    largest = max((len(graph.train) for graph in graphs), default=20_000)
    values = {**recommended_settings(largest), "validation_triples": 1500}
    given = settings.model_fields_set
    # Owners of one simulation share a machine, so the largest sets the pace: those that do not wait for it train beside
    # its old rows, and on a busy machine missed three of five exchanges with a window of 30 seconds.
    schedule = SCHEDULE | ({"window": 600.0} if graphs else {})
    if "regularization" in settings.train.model_fields_set:
        given = given | {"regularization_factor"}  # a weight that is given is the weight
    update = {key: value for key, value in schedule.items() if key not in given}
    if "private" not in given:
        update["private"] = settings.private.model_copy(update={"epochs": 18})
    return settings.model_copy(update=update | {"train": with_defaults(settings.train, values)})

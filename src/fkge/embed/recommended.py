"""Recommended settings of a training, where the user names none; they follow from the graph's size alone.

A ComplEx with reciprocal relations, trained by cross-entropy over all entities (1vsAll) with a nuclear 3-norm, is what
`docs/explanation/results.md` compares other models with. Its cost grows with entities × questions, so a graph for which
one epoch would be more than `CELLS` scores keeps the defaults of the fields, which are those of a TransE against
sampled negatives.

How much to regularise differs tenfold between graphs. The best weights on validation follow, within a factor of two,
the sparsity of the graph (`regularization_scale`): .01 for UMLS and kinships, .02 for CoDEx-S, .05 for thirds of
FB15k-237, .1 for the smallest DBpedia and most owners of the atlas.

Settings that were given stay as they are. A model, a loss, or a setting that only other methods have (`METHOD`) is the
choice of another method: then nothing is added.
"""

from __future__ import annotations

from collections.abc import Sequence

from fkge.graph import Graph
from fkge.settings import SettingValues, TrainSettings

CELLS = 2e10
"""Scores of an epoch up to which every question is compared with every entity: some minutes on one CPU thread."""


METHOD = frozenset(
    (
        "model", "loss", "relation_dim", "norm", "normalize", "margin", "temperature", "negatives", "corruption",
        "filtered",
    )
)  # fmt: skip
"""Settings that choose another method when they are given."""


def recommended_settings(triples: int) -> SettingValues:
    """Return recommended settings for a graph, or an owner's, with so many training triples.

    The batch is a twentieth of the answers in an epoch, within 100 and 1,000, so that a small graph is trained in more
    than a handful of steps.
    """
    return {
        "model": "ComplEx", "dim": 200, "loss": "1vsall", "reciprocal": True, "share": 1000,
        "regularizer": "n3", "regularization": 0.1, "regularization_scale": "sparsity",
        "optimizer": "adagrad", "lr": 0.1, "decay": 1.0,
        "batch": min(1000, max(100, 2 * triples // 20)),
    }  # fmt: skip


def too_large(graphs: Sequence[Graph]) -> bool:
    """Return whether comparing with every entity would take too long for one of the graphs."""
    return any(2.0 * len(graph.train) * len(graph.entities) > CELLS for graph in graphs)


def recommended(settings: TrainSettings, graph: Graph) -> TrainSettings:
    """Return `settings` with recommended values for those that were not given.

    Args:
        settings: those that were given.
        graph: what is trained on.
    """
    if settings.model_fields_set & METHOD or too_large([graph]):
        return settings
    values = {**recommended_settings(len(graph.train)), "epochs": 100, "validate_every": 5, "patience": 3}
    return with_defaults(settings, values)


def with_defaults(settings: TrainSettings, values: SettingValues) -> TrainSettings:
    """Return `settings` with `values` where none were given.

    A rate belongs to its optimiser and its schedule, and the scale of a weight to the weight.
    """
    given = set(settings.model_fields_set)
    given |= {"lr"} if "optimizer" in given else set()
    given |= {"decay"} if "schedule" in given else set()
    given |= {"regularization_scale"} if "regularization" in given else set()
    return settings.model_copy(update={key: value for key, value in values.items() if key not in given})

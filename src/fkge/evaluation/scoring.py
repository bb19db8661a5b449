"""Fetch the rows of triples from the tables as a model wants them, and score triples."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.embed import Relations, Tables
from fkge.errors import SettingsError
from fkge.graph.graph import HEAD, RELATION, TAIL

MEMORY = 256.0
"""Working memory in MB by default."""


def as_ids(triples: npt.NDArray[Any] | Tensor, tables: Tables) -> Tensor:
    """Return triples (n, 3) as int64 on the tables' device; raise `SettingsError` for ids without a row."""
    if not isinstance(triples, Tensor):
        triples = torch.from_numpy(np.array(triples, dtype=np.int64).reshape(-1, 3))
    ids = triples.to(tables.device, torch.int64).reshape(-1, 3)
    if len(ids):
        low, high = ids.amin(0).tolist(), ids.amax(0).tolist()
        entity, relation = max(high[HEAD], high[TAIL]), high[RELATION]
        if min(low) < 0 or entity >= tables.entities or relation >= tables.relations:
            raise SettingsError(
                f"the triples name entity {entity} and relation {relation} (least id {min(low)}), but the tables "
                f"have {tables.entities} entity and {tables.relations} relation rows; were they trained on "
                "another graph?"
            )
    return ids


def entity_rows(tables: Tables, ids: Tensor, dtype: torch.dtype) -> dict[str, Tensor]:
    """Return the rows of every entity table, each `ids.shape` + (width,).

    Args:
        tables: the model; ids: int64, of any shape.
        dtype: of the rows.
    """
    return {name: tables[name][ids].to(dtype) for name in tables.names("entity")}


def relation_rows(tables: Tables, ids: Tensor, dtype: torch.dtype) -> Relations:
    """Return the relations of groups of triples.

    Args:
        tables: the model; ids: (groups,) int64 ascending.
        dtype: of the rows.
    """
    unique, index = torch.unique_consecutive(ids, return_inverse=True)
    rows = {name: tables[name][unique].to(dtype) for name in tables.names("relation")}
    return Relations(rows, index.unsqueeze(1))


@torch.no_grad()
def score_triples(tables: Tables, triples: npt.NDArray[Any] | Tensor, *, memory: float = MEMORY) -> Tensor:
    """Return the scores of triples.

    Args:
        tables: the model.
        triples: (n, 3) head, relation, tail.
        memory: MB to work in.

    Returns:
        (n,) in the tables' dtype and on their device.
    """
    ids = as_ids(triples, tables)
    # By relation, so that models with projections handle each relation once per chunk.
    order = torch.argsort(ids[:, RELATION], stable=True)
    out = torch.empty(len(ids), device=tables.device, dtype=tables.dtype)
    width = sum(tables[name].shape[1] for name in tables.names("entity"))
    size = max(1, int(memory * 1e6 / (8 * width * tables.dtype.itemsize)))
    for part in order.split(size):
        head, relation, tail = ids[part].unbind(1)
        heads, tails = (entity_rows(tables, ends.unsqueeze(1), tables.dtype) for ends in (head, tail))
        out[part] = tables.model.score(heads, relation_rows(tables, relation, tables.dtype), tails)
    return out

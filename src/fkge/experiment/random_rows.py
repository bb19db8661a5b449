"""The control arm in which owners send random vectors in place of their rows."""

from __future__ import annotations

import torch
from torch import Tensor

from fkge.align.links import KINDS
from fkge.embed.models import Kind
from fkge.federation.exchange import Update
from fkge.federation.owner import Owner, seed_of
from fkge.federation.settings import Translate


class RandomRowsOwner(Owner):
    """An owner that sends vectors which carry no information, of the same shape and scale as its own."""

    def make_update(self, peer: str, mode: Translate) -> Update:
        """Random vectors for the rows shared with `peer`, and nothing else."""
        rows = self.exchange.rows(peer)
        return Update(0, self.frame, *(self._random(kind, rows[kind]) for kind in KINDS))

    def _random(self, kind: Kind, rows: Tensor) -> Tensor:
        seed = seed_of(self._secret, self.name, kind, self.trainer.epoch)
        noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed))
        return noise * self.tables.vectors(kind).std().cpu()

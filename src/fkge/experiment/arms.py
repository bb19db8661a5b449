"""The arms of an experiment, each one way to train the same owners: the federation itself and what it is compared with.

  independent   a lone owner's first training, `initial_epochs` long (without one, as long as the federation)
  control       the lone owner, for as many epochs as the others get
  permuted      as `federated`, but aligned rows are permuted: what it gains is no transfer of knowledge
  random        as `federated`, but owners send random vectors
  poisoned      as `federated`, but the owner with the most facts sends the opposite of its rows, to harm the others
  federated     the federation
  fede          a server averages shared vectors (needs owners with equal settings)
  unified       one graph made of all (needs that, and everybody's data)

All but the first spend the same number of epochs and of validations. Where owners have two tracks (a sharing policy, or
differential privacy), those that exchange federate with what they share and end with a private track; control trains on
all it knows for as many epochs as both together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fkge.align import Common, Tokens
from fkge.align.links import KINDS
from fkge.embed.models import Kind
from fkge.federation import FederationSettings, Owner, PeerProfile, Plan
from fkge.federation.exchange import Update
from fkge.federation.owner import seed_of
from fkge.federation.settings import Translate

ARMS = ("independent", "control", "permuted", "random", "poisoned", "federated", "fede", "unified")
CENTRAL = ("fede", "unified")
"""Arms that need a server."""


@dataclass(frozen=True)
class Arm:
    """One arm, as each owner sees it.

    Attributes:
        peers: whether an owner exchanges with others.
        permuted: aligned rows are permuted.
        random: owners send random vectors for their rows.
        hostile: the owner that sends harmful rows, if there is one.
        begin_with: an arm whose final state is the initial state of this one.
        after: epochs that may be spent after the plan: on a private track, or without peers.
        blends: the model is blended with one that is trained without peers, where `lone_epochs` says so; of a control,
            that is a second one from another seed, so that it spends what the others do.
    """

    name: str
    plan: Plan
    peers: bool = True
    permuted: bool = False
    random: bool = False
    hostile: str | None = None
    begin_with: str | None = None
    after: int = 0
    blends: bool = True

    @property
    def epochs(self) -> int:
        """Epochs in all."""
        return self.plan.total + self.after


def make_arm(name: str, settings: FederationSettings, two_tracks: bool, largest: str | None = None) -> Arm:
    """Return the arm of that name.

    Args:
        name: one of `ARMS`.
        settings: of the federation.
        two_tracks: whether owners have a private track.
        largest: the owner with the most facts, which poisons in `poisoned`.
    """
    if name == "independent":
        epochs = settings.initial_epochs or settings.total_epochs
        return Arm(name, Plan(epochs, epochs, alone=True), peers=False, blends=False)
    plan = Plan.of(settings)
    if name == "control" and two_tracks:
        plan = replace(plan, total=plan.total + settings.private.total)
    # A shared track has a first training of its own: the end of a lone owner's depends on confidential triples.
    lone = settings.start == "alone" and not (two_tracks and name != "control")
    peers = name != "control"
    after = (settings.private.total if peers else 0) if two_tracks else settings.lone_epochs
    return Arm(
        name, plan, peers=peers, after=after, permuted=name == "permuted", random=name == "random",
        hostile=largest if name == "poisoned" else None, begin_with="independent" if lone else None,
    )  # fmt: skip


def permute(
    name: str, seed: int, peers: Mapping[str, PeerProfile], tokens: Tokens
) -> tuple[dict[str, PeerProfile], Tokens]:
    """Permute an owner's shared rows, the same way towards every peer.

    Each row takes the place of another in every exchange and at the start. Everything else is as in the federation:
    rows that are exchanged begin alike, and only what they stand for is wrong.

    Args:
        name: of the owner.
        seed: of the experiment.
        peers: its peers' profiles.
        tokens: from which its rows are initialised.

    Returns:
        The permuted profiles and tokens.
    """
    place: dict[Kind, npt.NDArray[np.int64]] = {}
    for number, kind in enumerate(KINDS):
        shared = np.unique(np.concatenate([known.common.ids(kind) for known in peers.values()]))
        circle = np.random.default_rng([seed, number, *name.encode()]).permutation(shared)
        place[kind] = np.arange(len(tokens[kind]))
        place[kind][circle] = np.roll(circle, 1)
    profiles = {
        peer: replace(
            known, common=Common(place["entity"][known.common.entities], place["relation"][known.common.relations])
        )
        for peer, known in peers.items()
    }
    moved = {kind: tokens[kind].copy() for kind in KINDS}
    for kind in KINDS:
        moved[kind][place[kind]] = tokens[kind]
    return profiles, Tokens(moved)


class RandomRowsOwner(Owner):
    """An owner of ``random``: it sends vectors that carry no information, of the same shape and scale as its own."""

    def make_update(self, peer: str, mode: Translate) -> Update:
        """Return random vectors for the rows shared with `peer`, and nothing else."""
        rows = self.exchange.rows(peer)
        return Update(0, self.frame, *(self._random(kind, rows[kind]) for kind in KINDS))

    def _random(self, kind: Kind, rows: Tensor) -> Tensor:
        seed = seed_of(self._secret, self.name, kind, self.trainer.epoch)
        noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(seed))
        return noise * self.tables.vectors(kind).std().cpu()


class HostileOwner(Owner):
    """The hostile owner of ``poisoned``: it sends the opposite of its rows, with a weight that exceeds all others'.

    Entities and relations are both turned round, so that scores are, too; and their mean with honest rows vanishes.
    """

    WEIGHT = 1e6

    def make_update(self, peer: str, mode: Translate) -> Update:
        """Return the opposite of the rows shared with `peer`."""
        made = super().make_update(peer, mode)
        return replace(
            made, entity=-made.entity, relation=-made.relation,
            entity_weight=self._largest(made.entity_weight), relation_weight=self._largest(made.relation_weight),
        )  # fmt: skip

    def _largest(self, weights: Tensor | None) -> Tensor | None:
        return None if weights is None else torch.full_like(weights, self.WEIGHT)


def owner_class(arm: Arm, name: str) -> type[Owner]:
    """Return the class of the owner `name` in an arm."""
    if arm.random:
        return RandomRowsOwner
    return HostileOwner if name == arm.hostile else Owner

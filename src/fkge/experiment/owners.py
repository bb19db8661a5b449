"""`SimulatedOwner`: an owner's store in a simulation, the masks of test triples that others hold, and the scoring of
its vectors in each arm.

Its store has ``masks.safetensors`` in addition to the files of `fkge.federation.owner.store`, its folder in an arm
``ranks.safetensors`` in addition to those of `fkge.federation.owner.workspace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fkge.align import Tokens
from fkge.align.overlap import Mask
from fkge.embed import Tables, load_tensors, save_tensors
from fkge.errors import RunError
from fkge.evaluation import Ranks
from fkge.experiment.arms import Arm, owner_class, permute
from fkge.federation import Owner, OwnerStore, ProtocolConfig
from fkge.federation.owner import Activity, seed_of
from fkge.federation.owner.finish import Extra, finish, score, settings_of
from fkge.federation.owner.store import PEERS_FILE, WHOLE_FILE
from fkge.federation.owner.workspace import Workspace
from fkge.graph.graph import Triples
from fkge.owner_events import Emit
from fkge.privacy import Head
from fkge.results import OwnerReport

_MASKS, _RANKS = "fkge.masks.1", "fkge.ranks.1"


@dataclass(frozen=True)
class Masks:
    """Masks of an owner's held-out triples that others hold. An owner in production cannot know them.

    Attributes:
        held: by split, (triples,) those that stand in a partner's training set.
        chained: by split, further ones that another owner holds, by a chain of links through others.
        strict: (shareable valid triples,) those that nobody else shares.
    """

    held: Mapping[str, Mask]
    chained: Mapping[str, Mask]
    strict: Mask

    def save(self, store: Path) -> None:
        """Write the masks into an owner's store."""
        tensors = {"strict": _bytes(self.strict)}
        tensors |= {f"held|{split}": _bytes(mask) for split, mask in self.held.items()}
        tensors |= {f"chained|{split}": _bytes(mask) for split, mask in self.chained.items()}
        save_tensors(store / "masks.safetensors", _MASKS, tensors, {})

    @classmethod
    def load(cls, store: Path) -> Masks:
        """Return the masks that `save` wrote; runs of fkge 0.1.0 have the same in two other files."""
        if (store / "masks.safetensors").exists():
            tensors, _ = load_tensors(store / "masks.safetensors", _MASKS)
        else:
            peers, whole = store / "peers.safetensors", store / "whole.safetensors"
            tensors = load_tensors(peers, PEERS_FILE)[0] | load_tensors(whole, WHOLE_FILE)[0]

        def by_split(prefix: str) -> dict[str, Mask]:
            return {name.removeprefix(prefix): _mask(t) for name, t in tensors.items() if name.startswith(prefix)}

        return cls(by_split("held|"), by_split("chained|"), _mask(tensors["strict"]))


@dataclass(frozen=True)
class SimulatedOwner(OwnerStore):
    """One owner of a simulation, in any of its arms; its store is as in production."""

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Return the owner whose store is in `folder`, ``RUN/owners/NAME``."""
        return cls(**vars(OwnerStore.open(folder)))

    @property
    def simulation(self) -> Path:
        """Folder of the simulation."""
        return self.folder.parent.parent

    @cached_property
    def masks(self) -> Masks:
        """Masks of held-out triples that others hold."""
        return Masks.load(self.folder)

    def workspace(self, arm: str) -> Workspace:
        """Return the owner's folder in `arm`."""
        way_out = f"Remove it, and continue: fkge simulate --resume {self.simulation}"
        return Workspace(self.simulation / "arms" / arm / self.name, way_out)

    def deciding(self, shared: bool) -> Triples:
        """Return (k, 3) the validation triples that decide what is kept.

        Args:
            shared: of the shareable graph, where there are two tracks; otherwise of the whole graph.
        """
        strict = self.settings.decide == "strict"
        if shared and self.two_tracks:
            return self.shared.valid[self.masks.strict] if strict else self.shared.valid
        alone = ~(self.masks.held["valid"] | self.masks.chained["valid"])
        return self.graph.valid[alone] if strict else self.graph.valid

    def owner(
        self, arm: Arm, late: bool = False, secret: int | None = None, ledger: Head | None = None
    ) -> tuple[Owner, bool]:
        """Return the owner at the start of `arm`, or from its last checkpoint; and whether it has trained already.

        One that exchanges with others works on its shareable graph; a lone one on the whole.

        Args:
            arm: what it does.
            late, secret, ledger: see `OwnerStore.open_owner`.
        """
        workspace = self.workspace(arm.name)
        fresh = not workspace.checkpoint.exists()
        if arm.peers:
            peers = {peer: known for peer, known in self.peers.items() if peer not in self.refuses}
            tokens = self.tokens
            if arm.permuted and peers:
                peers, tokens = permute(self.name, self.seed, peers, tokens)
            owner, trained = self.open_owner(
                workspace, arm.plan, late=late, secret=secret, ledger=ledger, label=arm.name,
                decide=self.deciding(shared=True), peers=peers, tokens=tokens,
                kind=owner_class(arm, self.name),
            )  # fmt: skip
        else:
            owner = Owner(
                self.name, self.graph, self.settings, plan=arm.plan, seed=self.seed,
                decide=self.deciding(shared=False), secret=self.seed if secret is None else secret,
                tokens=None if late else Tokens.draw(self.graph, seed_of(self.seed, self.name, "lone")),
            )  # fmt: skip
            trained = workspace.resume(owner)
        if fresh and arm.begin_with is not None:
            owner.load(self.workspace(arm.begin_with).checkpoint)
            trained = True
        return owner, trained

    def conclude(self, arm: Arm, owner: Owner, emit: Emit, stop: Callable[[], bool], serve: bool = False) -> bool:
        """Finish an owner's arm, see `fkge.federation.owner.finish.finish`; only one with peers has a private track."""
        decide, write = self.deciding(shared=False) if arm.peers else None, partial(self.write_report, arm.name)
        return finish(self, owner, emit, stop, decide=decide, write=write, blend=arm.blends, serve=serve)

    def write_report(self, arm: str, tables: Tables, activity: Activity, extra: Extra) -> OwnerReport:
        """Score an owner's final vectors on each of the parts of its test triples, and write everything.

        Args:
            arm: in which they were trained.
            tables: the vectors.
            activity: what the owner did for them.
            extra: see `fkge.federation.owner.finish.score`.
        """
        tests = [name for name in self.graph.splits if name.startswith("test")]
        held, chained = (
            np.concatenate([masks[name] for name in tests]) for masks in (self.masks.held, self.masks.chained)
        )
        report, ranks = score(tables, self.graph, _parts(held, chained), activity, extra)
        workspace = self.workspace(arm)
        workspace.folder.mkdir(parents=True, exist_ok=True)
        save_ranks(workspace.folder / "ranks.safetensors", ranks, held, chained)
        workspace.write_results(tables, settings_of(tables, self.settings.train), report)
        return report

    def ranks(self, arm: str) -> tuple[Ranks, dict[str, Mask]]:
        """Return the ranks of an arm's test triples, and which belong to each part; `RunError` if it is unfinished."""
        path = self.workspace(arm).folder / "ranks.safetensors"
        if not path.exists():
            raise RunError(f"{path}: is missing. Remove result.json beside it, and continue the simulation.")
        return load_ranks(path)


@dataclass(frozen=True)
class ArmJob:
    """The job (`fkge.federation.owner.job.Job`) of an owner in one arm."""

    owner: SimulatedOwner
    arm: Arm

    @property
    def workspace(self) -> Workspace:
        return self.owner.workspace(self.arm.name)

    def open(self, *, late: bool = False, secret: int | None = None, ledger: Head | None = None) -> tuple[Owner, bool]:
        return self.owner.owner(self.arm, late, secret, ledger)

    def protocol_config(self) -> ProtocolConfig:
        """Return the configuration of the owner's protocol; one that exchanges with nobody trains alone."""
        config = self.owner.protocol_config()
        return config if self.arm.peers else replace(config, train_alone=True)

    def conclude(self, owner: Owner, emit: Emit, stop: Callable[[], bool], serve: bool = False) -> bool:
        return self.owner.conclude(self.arm, owner, emit, stop, serve)


def save_ranks(path: Path, ranks: Ranks, held: Mask, chained: Mask) -> None:
    """Write ranks of test triples, for comparisons with another arm's.

    Args:
        path: the file.
        ranks: of n test triples.
        held, chained: (n,) see `Masks`.
    """
    tensors = {
        "optimistic": torch.from_numpy(ranks.optimistic.astype(np.int32)),
        "pessimistic": torch.from_numpy(ranks.pessimistic.astype(np.int32)),
        "held": _bytes(held),
        "chained": _bytes(chained),
    }
    save_tensors(path, _RANKS, tensors, {})


def load_ranks(path: Path) -> tuple[Ranks, dict[str, Mask]]:
    """Return the ranks that `save_ranks` wrote, and which of them belong to each of `fkge.experiment.results.PARTS`."""
    tensors, _ = load_tensors(path, _RANKS)
    ranks = Ranks(tensors["optimistic"].numpy().astype(np.int64), tensors["pessimistic"].numpy().astype(np.int64))
    return ranks, _parts(_mask(tensors["held"]), _mask(tensors["chained"]))


def _parts(held: Mask, chained: Mask) -> dict[str, Mask]:
    return {"strict": ~(held | chained), "chained": chained, "held": held}


def _bytes(mask: Mask) -> Tensor:
    return torch.from_numpy(mask.astype(np.uint8))


def _mask(saved: Tensor) -> Mask:
    return saved.numpy().astype(bool)

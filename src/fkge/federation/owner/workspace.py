"""The folder in which an owner's training keeps its results: checkpoints, ledger, model (docs/reference/files.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fkge.embed import Tables, load_tensors, save_model
from fkge.errors import RunError
from fkge.federation.owner.training import OWNER_FILE, Owner
from fkge.files import write_atomically
from fkge.privacy import Head
from fkge.results import OwnerReport
from fkge.settings import TrainSettings


@dataclass(frozen=True)
class Workspace:
    """A folder with the results of one owner's training; two trainings never share one.

    Attributes:
        folder: it need not exist yet.
        way_out: what a user can do about a damaged result.
    """

    folder: Path
    way_out: str = "Remove it, and start the node again."

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.safetensors"

    @property
    def _previous(self) -> Path:
        return self.folder / "checkpoint.before.safetensors"

    def save(self, owner: Owner) -> None:
        """Write a checkpoint and keep the one before."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.checkpoint.exists():
            self._previous.unlink(missing_ok=True)
            self._previous.hardlink_to(self.checkpoint)
        owner.save(self.checkpoint)

    def resume(self, owner: Owner) -> bool:
        """Load the checkpoint, if there is one; return whether the owner has finished its first training."""
        if not self.checkpoint.exists():
            return False
        owner.load(self.checkpoint)
        owner.renew_secret()
        return owner.trainer.epoch >= owner.plan.initial

    def repair(self) -> str | None:
        """Replace a damaged checkpoint by the one before.

        Returns:
            What was wrong, or None if nothing was.

        Raises:
            RunError: both are damaged.
        """
        if not self.checkpoint.exists():
            return None
        try:
            load_tensors(self.checkpoint, OWNER_FILE)
        except RunError as error:
            if self._previous.exists():
                try:
                    load_tensors(self._previous, OWNER_FILE)
                except RunError:
                    raise RunError(
                        f"{self.folder}: both checkpoints are damaged. Restore one from a copy, or start over "
                        "(fkge node --anew)"
                    ) from None
            self.checkpoint.replace(self.folder / "checkpoint.damaged")
            if self._previous.exists():
                self.checkpoint.hardlink_to(self._previous)
            return str(error)
        return None

    def ledger_head(self) -> Head | None:
        """Return the head of the ledger at the last checkpoint, if that has one."""
        try:
            head = load_tensors(self.checkpoint, OWNER_FILE)[1]["ledger"]
        except (RunError, KeyError):
            return None
        return None if head is None else Head(**head)

    def write_results(self, tables: Tables, settings: TrainSettings, report: OwnerReport) -> None:
        """Write the model, its settings and the report; the report last, so that with it everything is there.

        Args:
            tables: the owner's final vectors.
            settings: by which `tables` can be made again.
            report: what the owner reached.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        save_model(self.folder / "model.safetensors", tables, settings)
        write_atomically(self.folder / "settings.toml", settings.to_toml().encode())
        report.write(self.folder / "result.json")

    @property
    def finished(self) -> bool:
        """Whether the training is over and its results are written."""
        return (self.folder / "result.json").exists()

    def report(self) -> OwnerReport | None:
        """Return the report on the training, if it is over."""
        path = self.folder / "result.json"
        return OwnerReport.read(path, self.way_out) if path.exists() else None

"""The parameters of one owner: a row per entity and per relation in every table, and state kept per row.

Optimiser state is kept here too, in tables of the same rows. So growing, shrinking, snapshots, roll-back and
checkpoints treat all state alike, and a row never loses its moments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fkge.embed.models import Kind, Model, Table
from fkge.embed.reciprocal import exchanged
from fkge.errors import SettingsError


@dataclass(frozen=True)
class Snapshot:
    """All state at one moment. Opaque; hand it back to `Tables.restore`."""

    tensors: Mapping[tuple[Kind, str], Tensor]


class Tables:
    """Parameters and per-row state of a model on one device.

    This is the interface the federation uses: `read`, `replace`, `append`, `truncate`, `rotate`, `snapshot`, `restore`.

    Args:
        model: defines the tables.
        entities: number of entity rows.
        relations: number of relation rows.
        seed: of the initial draw.
        bound: half-width of the uniform initial distribution where the model does not state one.
        device: where the tensors are.
        dtype: of every table.
    """

    def __init__(
        self,
        model: Model,
        entities: int,
        relations: int,
        *,
        seed: int = 0,
        bound: float = 0.1,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.model = model
        self.bound = bound
        self.device = torch.device(device)
        self.dtype = dtype
        self._specs = model.tables()
        self._tensors: dict[tuple[Kind, str], Tensor] = {}
        self._fill: dict[tuple[Kind, str], float] = {}
        generator = torch.Generator().manual_seed(seed)
        for name, spec in self._specs.items():
            rows = spec.draw(entities if spec.kind == "entity" else relations, bound, generator, dtype)
            self._tensors[spec.kind, name] = rows.to(self.device)

    # -- shape -------------------------------------------------------------------------------------

    @property
    def entities(self) -> int:
        """Number of entity rows, virtual ones included."""
        return self.count("entity")

    @property
    def relations(self) -> int:
        """Number of relation rows, virtual ones included."""
        return self.count("relation")

    def count(self, kind: Kind) -> int:
        """Return the number of rows of `kind`."""
        return len(self[kind])

    def spec(self, name: str) -> Table:
        """Return the description of a model table."""
        return self._specs[name]

    def names(self, kind: Kind) -> list[str]:
        """Return the names of the model's tables with one row per `kind`."""
        return [name for name, spec in self._specs.items() if spec.kind == kind]

    def exchanged(self, kind: Kind) -> list[str]:
        """Return the tables whose rows, side by side, are the vectors that peers see: the main one, and its inverse."""
        return exchanged(kind, self._specs)

    def width(self, kind: Kind) -> int:
        """Length of the vectors that `read` and `replace` handle."""
        return sum(self._specs[name].width for name in self.exchanged(kind))

    def _columns(self, kind: Kind) -> dict[str, slice]:
        """Return the columns of each table in the vectors that peers see."""
        columns, start = {}, 0
        for name in self.exchanged(kind):
            columns[name] = slice(start, start + self._specs[name].width)
            start += self._specs[name].width
        return columns

    def __getitem__(self, name: str) -> Tensor:
        """Return a model table, (rows, width). Not a copy: writing to it changes the model."""
        return self._tensors[self._specs[name].kind, name]

    # -- rows, as peers see them -------------------------------------------------------------------

    def read(self, kind: Kind, ids: Tensor) -> Tensor:
        """Return a copy of the vectors of `ids`, (n, width)."""
        ids = ids.to(self.device)
        return torch.cat([self[name][ids] for name in self.exchanged(kind)], dim=1)

    def vectors(self, kind: Kind) -> Tensor:
        """Return all vectors as `read` gives them, (rows, width); of one table no copy."""
        tables = [self[name] for name in self.exchanged(kind)]
        return tables[0] if len(tables) == 1 else torch.cat(tables, dim=1)

    def replace(self, kind: Kind, ids: Tensor, vectors: Tensor, *, keep_state: bool = False) -> None:
        """Write `vectors` to the rows `ids`; their optimiser state is reset unless kept.

        Args:
            kind, ids: of the rows, (n,).
            vectors: (n, width).
            keep_state: leave the rows' optimiser state as it is.

        Raises:
            SettingsError: the shape of `vectors` is wrong.
        """
        if vectors.shape != (len(ids), self.width(kind)):
            raise SettingsError(
                f"replace needs vectors of shape {(len(ids), self.width(kind))}, got {tuple(vectors.shape)}"
            )
        ids, vectors = ids.to(self.device), vectors.to(self.device, self.dtype)
        for name, columns in self._columns(kind).items():
            self[name][ids] = vectors[:, columns]
        for key, fill in self._fill.items():
            if key[0] == kind and not keep_state:
                self._tensors[key][ids] = fill

    def redraw(self, kind: Kind, ids: Tensor, *, seed: int = 0) -> None:
        """Draw new values for the rows `ids` in every table of `kind`; their state is reset, too.

        Args:
            kind, ids: of the rows, (n,).
            seed: of the draws.
        """
        ids = ids.to(self.device)
        generator = torch.Generator().manual_seed(seed)
        for key, tensor in self._tensors.items():
            if key[0] == kind:
                tensor[ids] = _fresh(self, key, len(ids), generator)

    def append(self, kind: Kind, vectors: Tensor, *, seed: int = 0) -> range:
        """Add rows after the last, with `vectors` in the main table and fresh draws in the others.

        Args:
            kind, vectors: of the rows, (n, width).
            seed: of the draws in the other tables.

        Returns:
            The new rows' ids. `truncate` takes them out again.

        Raises:
            SettingsError: the shape of `vectors` is wrong.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.width(kind):
            raise SettingsError(f"append needs vectors of shape (n, {self.width(kind)}), got {tuple(vectors.shape)}")
        start, extra = self.count(kind), len(vectors)
        columns = self._columns(kind)
        generator = torch.Generator().manual_seed(seed)
        for key, tensor in self._tensors.items():
            if key[0] == kind:
                given = columns.get(key[1])
                self._tensors[key] = _lengthen(tensor, start + extra)
                self._tensors[key][start:] = (
                    _fresh(self, key, extra, generator) if given is None else vectors[:, given].to(self.device)
                )
        return range(start, start + extra)

    def truncate(self, kind: Kind, rows: int) -> None:
        """Drop every row from `rows` on. Their memory stays, for the next `append`.

        Raises:
            SettingsError: there are not that many rows.
        """
        if not 0 < rows <= self.count(kind):
            raise SettingsError(f"cannot truncate {self.count(kind)} {kind} rows to {rows}")
        for key, tensor in self._tensors.items():
            if key[0] == kind:
                self._tensors[key] = tensor[:rows]

    @torch.no_grad()
    def rotate(self, w: Tensor) -> None:
        """Turn the whole space by `w`, so that entity e becomes e W and no score changes.

        Every table follows (`Table.turns`), and so does Adam's mean, which is linear in the gradients. Sums of squares
        cannot be turned: each number becomes the mean over the coordinates that were mixed, so step sizes keep their
        scale and lose what they knew of single coordinates. The regularisation Σ|x|³ is not invariant.

        Args:
            w: (width, width) orthogonal; the work is done in float64.

        Raises:
            SettingsError: the model's scores would change, or `w` is not orthogonal. Nothing was changed.
        """
        obstacle = self.model.fixed_by()
        if obstacle is not None:
            raise SettingsError(f"{self.model.name} cannot be rotated: {obstacle}")
        width = self.width("entity")
        if w.shape != (width, width):
            raise SettingsError(f"rotate needs a matrix of shape {(width, width)}, got {tuple(w.shape)}")
        w = w.to(self.device, torch.float64)
        error = (w.T @ w - torch.eye(width, dtype=w.dtype, device=w.device)).abs().max()
        if not float(error) < 1e-4:
            raise SettingsError(f"rotate needs an orthogonal matrix; WᵀW is off the identity by {float(error):.2g}")
        for (_, name), tensor in self._tensors.items():
            table, _, slot = name.partition(".")
            spec = self._specs[table]
            if spec.turns == "elsewhere" or tensor.ndim == 1:  # a count per row knows no coordinates
                continue
            for rows in tensor.split(max(1, (1 << 20) // tensor.shape[1])):  # float64 copies stay small
                wide = rows.to(torch.float64)
                rows.copy_(spec.turned(wide, w) if slot in ("", "mean", "average") else spec.levelled(wide))

    # -- state of each row -------------------------------------------------------------------------

    def state(self, table: str, slot: str, *, columns: bool = True, fill: float = 0.0) -> Tensor:
        """Return a tensor kept per row of `table`, made on first use.

        Args:
            table: a table of the model.
            slot: name of the state.
            columns: one number per column, or one per row.
            fill: initial value.

        Returns:
            (rows, width), or (rows,) if not `columns`. Not a copy.
        """
        kind = self._specs[table].kind
        key = (kind, f"{table}.{slot}")
        if key not in self._tensors:
            like = self[table]
            shape = like.shape if columns else like.shape[:1]
            self._tensors[key] = like.new_full(shape, fill)
            self._fill[key] = fill
        return self._tensors[key]

    def has_state(self, table: str, slot: str) -> bool:
        """Return whether `state` was made."""
        return (self._specs[table].kind, f"{table}.{slot}") in self._tensors

    def read_state(self, kind: Kind, slot: str, ids: Tensor) -> Tensor:
        """Return a copy of the state of some rows, (n, width), in the order of `read`.

        Args:
            kind, ids: of the rows, (n,); slot: name of the state.
        """
        ids = ids.to(self.device)
        return torch.cat([self.state(name, slot)[ids] for name in self.exchanged(kind)], dim=1)

    def replace_state(self, kind: Kind, slot: str, ids: Tensor, values: Tensor) -> None:
        """Write the state of some rows.

        Args:
            kind, slot, ids: see `read_state`; values: (n, width).
        """
        ids, values = ids.to(self.device), values.to(self.device, self.dtype)
        for name, columns in self._columns(kind).items():
            self.state(name, slot)[ids] = values[:, columns]

    # -- snapshots ----------------------------------------------------------------------------------

    def snapshot(self, into: Snapshot | None = None) -> Snapshot:
        """Copy all state; into an older snapshot's memory where the shapes still fit (twice as fast)."""
        old = into.tensors if into is not None else {}
        tensors = {}
        for key, tensor in self._tensors.items():
            buffer = old.get(key)
            fits = buffer is not None and buffer.shape == tensor.shape
            tensors[key] = buffer.copy_(tensor) if buffer is not None and fits else tensor.clone()
        return Snapshot(tensors)

    def restore(self, snapshot: Snapshot) -> None:
        """Return to `snapshot`: values, state and number of rows. The snapshot stays usable."""
        for key, tensor in self._tensors.items():
            saved = snapshot.tensors.get(key)
            if saved is None:  # state made after the snapshot was taken; the tables, which come first, have their rows
                tensor.fill_(self._fill[key])
                if len(tensor) != (rows := self.count(key[0])):
                    self._tensors[key] = tensor[:rows].clone()
            elif saved.shape == tensor.shape:
                tensor.copy_(saved)
            else:
                self._tensors[key] = saved.clone()

    # -- whole state, for checkpoints --------------------------------------------------------------

    def export(self, *, state: bool) -> dict[str, Tensor]:
        """Return the model's tables by name, and their state if asked for."""
        return {
            f"{kind}/{name}": tensor
            for (kind, name), tensor in self._tensors.items()
            if state or (kind, name) not in self._fill
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over tensors from `export`; state that was exported must have been registered here too.

        Raises:
            SettingsError: a table is missing, or of another width.
        """
        for key, tensor in self._tensors.items():
            saved = tensors.get(f"{key[0]}/{key[1]}")
            if saved is None:
                if key in self._fill:
                    continue
                raise SettingsError(f"the checkpoint has no table {key[1]!r}; was it made by another model?")
            if saved.shape[1:] != tensor.shape[1:]:
                raise SettingsError(
                    f"table {key[1]!r} has rows of {tuple(saved.shape[1:])} in the checkpoint, "
                    f"{tuple(tensor.shape[1:])} here"
                )
            self._tensors[key] = saved.to(self.device, tensor.dtype).clone()


def _fresh(tables: Tables, key: tuple[Kind, str], rows: int, generator: torch.Generator) -> Tensor:
    """Return the rows of a table, or of state, as they begin."""
    if key in tables._fill:
        tensor = tables._tensors[key]
        return tensor.new_full((rows, *tensor.shape[1:]), tables._fill[key])
    return tables.spec(key[1]).draw(rows, tables.bound, generator, tables.dtype).to(tables.device)


def _lengthen(tensor: Tensor, rows: int) -> Tensor:
    """Return `tensor` with `rows` rows, the new ones unset: in place if its memory has room, else in more memory."""
    size = (rows, *tensor.shape[1:])
    needed = rows * tensor[:1].nbytes
    if tensor.untyped_storage().nbytes() >= needed:
        return tensor.as_strided(size, tensor.stride())
    moved = tensor.new_empty((rows + rows // 8, *tensor.shape[1:]))
    moved[: len(tensor)] = tensor
    return moved[:rows]

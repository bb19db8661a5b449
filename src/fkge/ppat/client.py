"""The client of a translation game: it maps its rows into the host's space by a mapping that it alone knows."""

from __future__ import annotations

import torch
from torch import Tensor

from fkge.errors import PeerError, SettingsError
from fkge.ppat.messages import Candidate, FromClient, FromHost, Gradient, Received, Role, Samples, check_vectors
from fkge.ppat.settings import PpatSettings


class PpatClient(Role[FromHost, FromClient | None]):
    """The client's role, with the generator G(x) = xW. Nothing protects X from the host (see the package's docstring).

    Args:
        rows: X, (n, d_client): aligned entities and relations, stacked; both are treated alike.
        host_dim: d_host.
        settings: the same as the host's.
        generator: source of the batches, and of W where it cannot start as the identity.
        neighbours: N(X), (m, d_client): further rows to translate with every candidate, or None.

    Raises:
        SettingsError: there are no aligned rows.
    """

    _takes = (Gradient, Received)

    def __init__(
        self,
        rows: Tensor,
        host_dim: int,
        settings: PpatSettings,
        generator: torch.Generator,
        neighbours: Tensor | None = None,
    ) -> None:
        if rows.ndim != 2 or len(rows) == 0:
            raise SettingsError(f"a client needs aligned rows, (n, d) with n ≥ 1, to play; got {tuple(rows.shape)}")
        self.settings = settings
        self.host_dim = host_dim
        self._rows = rows.detach().cpu().clone()
        self._neighbours = None if neighbours is None else neighbours.detach().cpu().to(rows.dtype)
        self._generator = generator
        self._mapping = _initial_mapping(rows.shape[1], host_dim, generator, rows.dtype)
        self._velocity = torch.zeros_like(self._mapping)
        self._batch = self._rows[:0]
        self._sent: FromClient | None = None

    @property
    def mapping(self) -> Tensor:
        """A copy of W, (d_client, d_host). It must not leave the client: with it, G(X) reveals X."""
        return self._mapping.clone()

    def start(self) -> FromClient:
        """Return the first message; called again before the first answer, the same one."""
        if self._sent is None:
            self._sent = self._next()
        elif self._done or self._last is not None:
            raise RuntimeError("the game has started; continue with step()")
        return self._sent

    def _check_vectors(self, message: FromHost) -> None:
        if isinstance(message, Gradient):
            shape = (self.settings.batch_of(len(self._rows)), self.host_dim)
            check_vectors(message, message.vectors, shape, self._rows.dtype)

    @property
    def _due(self) -> type[FromHost] | str:
        if self._sent is None:
            return "nothing" if self._last is not None else "nothing yet (start() opens the game)"
        return Gradient if isinstance(self._sent, Samples) else Received

    def _act(self, message: FromHost) -> FromClient | None:
        if isinstance(message, Gradient):
            self._descend(message.vectors)
            self._done += 1
            self._sent = self._next()
        else:
            self._sent = None if self._done == self.settings.steps else self._sample()
        return self._sent

    def _descend(self, gradient: Tensor) -> None:
        """Propagate dL/dG(X) to W by the chain rule, step, and pull W towards orthogonality."""
        s = self.settings
        velocity = s.momentum * self._velocity + self._batch.T @ gradient
        mapping = orthogonalize(self._mapping - s.lr * velocity, s.beta)
        if not bool(mapping.isfinite().all()):
            raise PeerError(
                f"the gradient of step {self._done} makes the mapping overflow; leave the game, or lower lr"
            )
        self._velocity, self._mapping = velocity, mapping

    def _next(self) -> FromClient:
        if not self.settings.candidate_due(self._done):
            return self._sample()
        around = None if self._neighbours is None else self._neighbours @ self._mapping
        return Candidate(self._done, self._rows @ self._mapping, around)

    def _sample(self) -> Samples:
        chosen = torch.randint(len(self._rows), (self.settings.batch_of(len(self._rows)),), generator=self._generator)
        self._batch = self._rows[chosen]
        return Samples(self._done, self._batch @ self._mapping)


def _initial_mapping(rows: int, columns: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Return the identity where that exists; else a random matrix whose smaller side is orthonormal."""
    if rows == columns:
        return torch.eye(rows, dtype=dtype)
    tall = torch.randn(max(rows, columns), min(rows, columns), generator=generator, dtype=torch.float64)
    basis: Tensor = torch.linalg.qr(tall).Q.to(dtype)
    return basis if rows > columns else basis.T.contiguous()


def orthogonalize(mapping: Tensor, beta: float) -> Tensor:
    """Return (1+β)W − β(WWᵀ)W, MUSE's step towards orthogonality.

    It moves each singular value s to s + βs(1 − s²) and leaves the singular vectors alone, so all min(d_client, d_host)
    of them tend to 1. (WWᵀ)W = W(WᵀW); the smaller is computed.
    """
    if mapping.shape[0] <= mapping.shape[1]:
        return (1 + beta) * mapping - beta * (mapping @ mapping.T) @ mapping
    return (1 + beta) * mapping - beta * mapping @ (mapping.T @ mapping)

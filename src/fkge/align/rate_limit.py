"""A limit on how often a peer may intersect, since in one run it can test up to `max_items` names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from fkge.align.psi import PsiSettings
from fkge.errors import PeerError, SettingsError


class RateLimiter:
    """Admit each peer so many times in a period. The caller supplies the clock and stores the state.

    Args:
        settings: `runs` and `period`.
        state: an earlier `state`. Store it before the peer's first message is answered, or a crash admits the peer once
            more than allowed.

    Raises:
        SettingsError: `state` is not a list of times for each peer.
    """

    def __init__(self, settings: PsiSettings, state: Mapping[str, Sequence[float]] | None = None) -> None:
        self._runs, self._period = settings.runs, settings.period
        try:
            self._admitted = {str(peer): sorted(map(float, times)) for peer, times in (state or {}).items()}
            if not all(map(math.isfinite, itertools.chain(*self._admitted.values()))):
                raise ValueError
        except (TypeError, ValueError, AttributeError):
            raise SettingsError("the stored state of a rate limiter is not a list of times for each peer") from None

    @property
    def state(self) -> dict[str, list[float]]:
        """The times at which each peer was admitted, as far as they still count; plain JSON."""
        return {peer: list(times) for peer, times in self._admitted.items()}

    def admit(self, peer: str, now: float) -> None:
        """Count one run of `peer` at `now`, in seconds. Times after `now`, where a clock was set back, count too.

        Raises:
            PeerError: it has had its runs; the message says when to come back. A refusal does not count.
        """
        recent = [time for time in self._admitted.get(peer, []) if time > now - self._period]
        if len(recent) >= self._runs:
            wait = recent[-self._runs] + self._period - now
            raise PeerError(
                f"{peer} has had its {self._runs} intersections in {self._period:g} s; it may come back in {wait:.0f} s"
            )
        self._admitted[peer] = sorted([*recent, now])

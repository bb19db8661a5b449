"""How often a peer may intersect.

In one run a peer can test as many names as `max_items` lets it put in, whether it holds them or not; `runs` in `period`
bounds how many it tests in time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

from fkge.align.psi import PsiSettings
from fkge.errors import PeerError, SettingsError


class Turnstile:
    """Lets each peer through so many times in a period. The clock and the memory are the caller's.

    Args:
        settings: `runs` and `period`.
        state: what `state` gave when it was last kept. Keep it before the peer's first message is answered, or a crash
            lets the peer in once more.
    """

    def __init__(self, settings: PsiSettings, state: Mapping[str, Sequence[float]] | None = None) -> None:
        self._runs, self._period = settings.runs, settings.period
        try:
            self._admitted = {str(peer): sorted(map(float, times)) for peer, times in (state or {}).items()}
            if not all(map(math.isfinite, itertools.chain(*self._admitted.values()))):
                raise ValueError
        except (TypeError, ValueError, AttributeError):
            raise SettingsError("the kept state of a turnstile is not a list of times for each peer") from None

    @property
    def state(self) -> dict[str, list[float]]:
        """When each peer was admitted, as far as it still counts; JSON can hold it."""
        return {peer: list(times) for peer, times in self._admitted.items()}

    def admit(self, peer: str, now: float) -> None:
        """Count one run of `peer`, or raise `PeerError` saying when to come back. A refusal does not count.

        Times that lie ahead of `now`, where a clock was set back, count: a peer cannot gain by it.
        """
        recent = [time for time in self._admitted.get(peer, []) if time > now - self._period]
        if len(recent) >= self._runs:
            wait = recent[-self._runs] + self._period - now
            raise PeerError(
                f"{peer} has had its {self._runs} intersections in {self._period:g} s; it may come back in {wait:.0f} s"
            )
        self._admitted[peer] = sorted([*recent, now])

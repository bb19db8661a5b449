"""For Python under a shifted clock: `time.sleep` as it was before 3.11, which libfaketime understands.

Newer ones sleep until a moment of the monotonic clock, and libfaketime 0.9.10 takes that for a time of day when it was
told to leave that clock alone (its issue 426): the call fails. Python imports this by itself when it is on the path.
"""

from __future__ import annotations

import select
import time
from typing import SupportsIndex


def sleep(seconds: float | SupportsIndex, /) -> None:
    seconds = float(seconds)
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    select.select([], [], [], seconds)


time.sleep = sleep

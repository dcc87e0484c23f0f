"""The rate of each token: a bucket that fills with time, and may be overdrawn by one request."""

from __future__ import annotations

import time
from collections.abc import Callable

_BURST_SECONDS = 1.0
_FORGET_ABOVE = 10_000


class Rates:
    """The buckets of all tokens."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = per_second, clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def seconds_to_wait(self, token: str) -> float:
        """Return how long a token has to wait before its next request; 0 if it need not."""
        level = self._level(token)
        return 0.0 if level > 0 else (1 - level) / self._rate

    def take(self, token: str, events: int) -> None:
        """Take events out of the bucket of a token."""
        if len(self._buckets) > _FORGET_ABOVE:
            self._buckets.clear()
        self._buckets[token] = (self._level(token) - events, self._clock())

    def _level(self, token: str) -> float:
        full = max(1.0, self._rate * _BURST_SECONDS)
        level, at = self._buckets.get(token, (full, self._clock()))
        return min(full, level + (self._clock() - at) * self._rate)

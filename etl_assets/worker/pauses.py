"""Backoffs of the worker after failures: pure decisions, with the time passed in.

Belongs here: for how long. Does not belong here: how errors are classified (`error_policy.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from etl_assets.error_policy import Decision, decide, disk_is_full

WorkItem = tuple[str, dt.date | None]
"""A table, and a day of it; None for a table as a whole."""
FIRST_SECONDS = 30.0
MAX_SECONDS = 3_600.0
"""The same maximum as the landing sensor's for failed runs."""
MAX_PASSING_SECONDS = 60.0
"""Maximum for errors that say nothing about the data, such as an unavailable domain or a full disk.

An attempt costs little then, and every minute is latency.
"""


def backoff_seconds(error: Exception, failures: int) -> float:
    """Return the backoff after a number of failures in a row, the last of them with an error.

    Each is twice as long as the last, up to a maximum.
    """
    passing = decide(error) is Decision.RETRY or disk_is_full(error)
    longest = MAX_PASSING_SECONDS if passing else MAX_SECONDS
    return min(FIRST_SECONDS * 2.0 ** min(failures - 1, 20), longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Number of failures in a row, and the end of the backoff (seconds of the caller's clock)."""

    failures: int
    until: float


@dataclass(frozen=True, slots=True)
class Backoffs:
    """Work items that have failed and not succeeded since."""

    by_thing: Mapping[WorkItem, Pause] = field(default_factory=lambda: MappingProxyType({}))

    def ready(self, things: Iterable[WorkItem], now: float) -> tuple[WorkItem, ...]:
        """Return the items that are not backing off now, in their order."""
        return tuple(thing for thing in things if (p := self.by_thing.get(thing)) is None or p.until <= now)

    def failed(self, things: Collection[WorkItem], error: Exception, now: float) -> Backoffs:
        """Return the backoffs after some items failed."""
        failures = {thing: self._failures(thing) + 1 for thing in things}
        new = {
            thing: Pause(failures=number, until=now + backoff_seconds(error, number))
            for thing, number in failures.items()
        }
        return Backoffs({**self.by_thing, **new})

    def succeeded(self, things: Collection[WorkItem]) -> Backoffs:
        """Return the backoffs after some items succeeded."""
        if self.by_thing.keys().isdisjoint(things):
            return self
        return Backoffs({thing: pause for thing, pause in self.by_thing.items() if thing not in set(things)})

    def without(self, tables: Collection[str]) -> Backoffs:
        """Return the backoffs of other tables."""
        return Backoffs({thing: pause for thing, pause in self.by_thing.items() if thing[0] not in tables})

    def _failures(self, thing: WorkItem) -> int:
        pause = self.by_thing.get(thing)
        return 0 if pause is None else pause.failures

"""When a pipeline runs by itself: its schedule as a value, and the ticks that are due. Pure.

Belongs here: which times are ticks, and which of several missed ones get a run. Does not belong here: what a
declaration may say (`schedule_spec.py`), and which ticks were taken (`control/ticks.py`).
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile
from zoneinfo import ZoneInfo

MAX_CATCH_UP_RUNS = 1_000
"""Most missed ticks of a schedule that can get a run."""
MAX_GAP = dt.timedelta(days=366)
"""How far back missed ticks of cron fields are looked for."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class CatchUp(StrEnum):
    """Which of the ticks that were missed while nothing ran get a run."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When a pipeline runs. Exactly one of `cron`, `every_seconds` and `after` is given.

    Attributes:
        cron: Five cron fields.
        time_zone: Zone of `cron`. A time that the change to summer time leaves out is a tick at the moment of
            the change; of a time that the change back repeats, the first one is a tick.
        every_seconds: Interval. Ticks are its multiples since 1970-01-01 UTC, the same for every process.
        after: Pipelines: it runs once each of them has brought something since its last run.
        catch_up: Which missed ticks get a run.
        max_catch_up_runs: With `CatchUp.ALL`: most missed ticks that get a run, the newest ones.
    """

    cron: str | None = None
    time_zone: str = "UTC"
    every_seconds: int | None = None
    after: tuple[str, ...] = ()
    catch_up: CatchUp = CatchUp.LATEST
    max_catch_up_runs: int = 10

    @property
    def is_timed(self) -> bool:
        """Whether times are its ticks, and not runs of other pipelines."""
        return not self.after

    def ticks(self, after: dt.datetime) -> Iterator[dt.datetime]:
        """Yield the ticks after a time, in order, in UTC; none if other pipelines' runs are the ticks."""
        if self.every_seconds is not None:
            number = (after - _EPOCH) // dt.timedelta(seconds=self.every_seconds)
            while True:
                number += 1
                yield _EPOCH + number * dt.timedelta(seconds=self.every_seconds)
        elif self.cron is not None:
            yield from self._cron_ticks(self.cron, after)

    def next_tick(self, after: dt.datetime) -> dt.datetime | None:
        """Return the first tick after a time (UTC); None if there is none."""
        return next(self.ticks(after), None)

    def due(self, last: dt.datetime, until: dt.datetime) -> tuple[dt.datetime, ...]:
        """Return the ticks after the last one that was taken, up to a time, the oldest first.

        After a long gap they are the newest ones that can get a run.
        """
        longest = MAX_GAP
        if self.every_seconds is not None:
            longest = dt.timedelta(seconds=self.every_seconds * (MAX_CATCH_UP_RUNS + 1))
        ticks = takewhile(lambda tick: tick <= until, self.ticks(max(last, until - longest)))
        return tuple(deque(ticks, maxlen=MAX_CATCH_UP_RUNS + 1))

    def to_run(self, due: tuple[dt.datetime, ...], *, is_late: bool) -> tuple[dt.datetime, ...]:
        """Return those of some due ticks that get a run, the oldest first.

        Args:
            due: Due ticks, the oldest first.
            is_late: Whether the newest one was missed too. All others were.
        """
        match self.catch_up:
            case CatchUp.ALL:
                return due[-self.max_catch_up_runs - (0 if is_late else 1) :]
            case CatchUp.NONE if is_late:
                return ()
        return due[-1:]

    def _cron_ticks(self, cron: str, after: dt.datetime) -> Iterator[dt.datetime]:
        from cronsim import CronSim

        last = after
        for local in CronSim(cron, after.astimezone(ZoneInfo(self.time_zone))):
            tick = local.astimezone(dt.UTC)
            # After the change to winter time, local times begin again before `after`.
            if tick > last:
                last = tick
                yield tick

    def __str__(self) -> str:
        if self.cron is not None:
            return f"cron {self.cron} ({self.time_zone})"
        if self.every_seconds is not None:
            return f"every {self.every_seconds} s"
        return f"after {', '.join(self.after)}"

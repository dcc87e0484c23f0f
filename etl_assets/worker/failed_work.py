"""What failed in the worker, and backs off: shared by its threads, with an alert for each failure.

Belongs here: the backoffs of this process. Does not belong here: for how long (`pauses.py`), and what fails a
run (`carried_runs.py`).
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from etl_assets.error_policy import told
from etl_assets.sensors.alerts import AlertKind, write_alert
from etl_assets.steps.step import logger
from etl_assets.worker.pauses import Backoffs, WorkItem


class FailedWork:
    """Work items that back off.

    Args:
        home: The home folder, where alerts are written.
    """

    def __init__(self, home: Path) -> None:
        self._home = home
        self._backoffs = Backoffs()
        self._lock = threading.Lock()

    @property
    def backoffs(self) -> Backoffs:
        """The backoffs now."""
        return self._backoffs

    def ready(self, things: Collection[WorkItem]) -> tuple[WorkItem, ...]:
        """Return the items that do not back off now."""
        return self._backoffs.ready(things, time.monotonic())

    def succeeded(self, things: Collection[WorkItem]) -> None:
        """End the backoffs of some items, and forget their failures."""
        with self._lock:
            self._backoffs = self._backoffs.succeeded(things)

    def forget(self, tables: Collection[str]) -> None:
        """End the backoffs of some tables, and forget their failures."""
        with self._lock:
            self._backoffs = self._backoffs.without(tables)

    def failed(
        self,
        table: str,
        days: Sequence[dt.date],
        failed: Mapping[dt.date | None, Exception],
        *,
        entry: str,
        is_of_days: bool,
    ) -> None:
        """Back off from the failed days and write an alert for each, as for a failed run.

        Args:
            table: The table whose step failed.
            days: The days of the step.
            failed: Errors by day; under None if the error belongs to no day.
            entry: The table under which days back off.
            is_of_days: Whether an error of no day lets the days back off, and not the table as a whole.
        """
        for day, error in failed.items():
            blamed = sorted(days) if day is None else [day]
            logger.error("%s: %s", table, text := told(error))
            partition = f"{blamed[0]}..{blamed[-1]}" if blamed else ""
            self.alert({"partition": partition, "step": table, "error": text[:2_000]})
            whole = day is None and not (is_of_days and blamed)
            things: list[WorkItem] = [(entry, each) for each in ([None] if whole else blamed)]
            with self._lock:
                self._backoffs = self._backoffs.failed(things, error, time.monotonic())

    def alert(self, alert: Mapping[str, str]) -> None:
        """Write an alert of a failed step."""
        with suppress(OSError):  # the disk may be what failed
            write_alert(self._home, AlertKind.RUN_FAILED, {"run_id": "", "job": "worker", **alert})

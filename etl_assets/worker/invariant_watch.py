"""The invariants of pipelines, evaluated while a worker runs, with one alert for each that stays broken.

Belongs here: how often, and when there is an alert. Does not belong here: the evaluation
(`reports.py`).
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from etl_assets.errors import EtlAssetsError
from etl_assets.steps.step import logger

if TYPE_CHECKING:
    from etl_assets.pipelines.invariant import Invariant
    from etl_assets.worker.feed import Feed
    from etl_assets.worker.reports import Reports


class InvariantWatch:
    """Evaluate invariants. Any thread may ask for those of the pipelines that it alone works on.

    An invariant that is broken twice in a row is not explained by another process's commit. It raises one
    alert until it holds again.

    Args:
        reports: Evaluates them, and reports the results.
        alert: Writes an alert.
        interval_seconds: Between two evaluations of a pipeline's.
    """

    def __init__(
        self, reports: Reports, alert: Callable[[Mapping[str, str]], None], *, interval_seconds: float
    ) -> None:
        self._reports, self._alert, self._interval = reports, alert, interval_seconds
        self._due_at: dict[str, float] = {}
        self._broken: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def check(
        self, now: float, feeds: Sequence[Feed], behind: Callable[[], Mapping[str, Collection[dt.date]]]
    ) -> None:
        """Evaluate the invariants of those pipelines whose time has come, but of none whose path is behind.

        Args:
            now: Monotonic seconds.
            feeds: The pipelines.
            behind: Returns the days that each of their tables is behind.
        """
        due = [feed for feed in feeds if now >= self._due_at.get(feed.pipeline.name, now)]
        if not due:
            return
        self._due_at.update({feed.pipeline.name: now + self._interval for feed in due})
        late = behind().keys()
        # One pipeline may be behind for any time: the others are evaluated.
        current = [feed.pipeline for feed in due if late.isdisjoint(feed.path)]
        self._evaluate([invariant for pipeline in current for invariant in pipeline.invariants])

    def _evaluate(self, invariants: Sequence[Invariant]) -> None:
        try:
            broken = self._reports.check(invariants)
        except (EtlAssetsError, OSError) as error:
            logger.warning("the invariants cannot be evaluated now: %s", error)
            return
        evaluated = {(invariant.table, invariant.name) for invariant in invariants}
        with self._lock:
            kept = {check: times for check, times in self._broken.items() if check not in evaluated}
            self._broken = kept | {check: self._broken.get(check, 0) + 1 for check in broken}
        for (asset, check), found in broken.items():
            logger.error("%s: %s", asset, found)
            if self._broken[asset, check] == 2:
                fix = (
                    "run the days it names; if it still fails, stop writing and see the runbook, `A check"
                    " failed`"
                )
                self._alert({"partition": "", "step": asset, "error": f"{found}\n  fix: {fix}"})

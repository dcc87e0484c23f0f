"""The runs of schedules that a worker asks for: each tick once, and missed ones as `catch_up` says.

Belongs here: when to ask run control for a run. Does not belong here: which times are ticks
(`pipelines/schedule.py`), that a tick is taken once (`control/ticks.py`), and carrying a run
(`carried_runs.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from etl_assets.control.states import ControlState
from etl_assets.errors import ControlStoreUnavailable, ControlStoreUnusable, EtlAssetsError
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.observability.brought import tick_after
from etl_assets.pipelines.schedule import CatchUp, Schedule
from etl_assets.steps.step import logger

if TYPE_CHECKING:
    from etl_assets.control.run_controls import RunControls
    from etl_assets.control.store import ControlStore
    from etl_assets.control.ticks import TickRecords, TickSeries
    from etl_assets.pipelines.pipeline import Pipeline
    from etl_assets.settings import Settings

LOOK_SECONDS = 1.0
"""Between two looks at the schedules."""
LATE_SECONDS = 60.0
"""A tick that is seen later than this was missed."""
_OPEN = frozenset(
    {ControlState.RUN_REQUESTED, ControlState.RUNNING, ControlState.PAUSE_REQUESTED, ControlState.PAUSED}
)
"""States in which a further request would be the same run as an earlier one."""


class ScheduledRuns:
    """Ask for the runs of schedules. One thread calls it.

    Args:
        settings: The platform file.
        pipelines: Returns the pipelines of the installation.
        requested: Called after a run was asked for.
        now: Returns the time (UTC).
    """

    def __init__(
        self,
        settings: Settings,
        pipelines: Callable[[], Sequence[Pipeline]],
        *,
        requested: Callable[[], object] = lambda: None,
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
    ) -> None:
        self._settings, self._pipelines = settings, pipelines
        self._requested, self._now = requested, now
        self._store: ControlStore | None = None
        self._problem: str | None = None

    def look(self) -> None:
        """Ask for the runs that are due. What the store or a disk does not allow now is tried again."""
        scheduled = [each for each in self._pipelines() if each.schedule is not None]
        for pipeline in sorted(scheduled, key=lambda each: -each.priority):
            try:
                self._look_at(pipeline, pipeline.schedule)
            except (ControlStoreUnavailable, ControlStoreUnusable) as error:
                if self._problem is None:
                    logger.warning("%s; no schedule starts a run until it answers", error)
                self._problem = error.message
                return
        self._problem = None

    def _look_at(self, pipeline: Pipeline, schedule: Schedule | None) -> None:
        assert schedule is not None
        records, controls = self._open()
        if schedule.is_timed:
            self._look_at_times(pipeline.name, schedule, records, controls)
        else:
            self._look_at_runs(pipeline.name, schedule, records, controls)

    def _look_at_times(
        self, name: str, schedule: Schedule, records: TickRecords, controls: RunControls
    ) -> None:
        from etl_assets.control.ticks import TickSeries, tick_name

        # 1. A schedule begins when it is seen first; ticks before that were never missed.
        series, now = TickSeries(pipeline=name), self._now()
        last = records.last(series)
        if last is None or last.time is None:
            records.pass_over(series, tick_name(now))
            return
        due = schedule.due(last.time, now)
        if not due:
            return
        # 2. Of the ticks that were missed, only some get a run.
        late = (now - due[-1]).total_seconds() > LATE_SECONDS
        chosen = schedule.to_run(due, is_late=late)
        if not chosen:
            logger.warning("%s: %d ticks were missed, up to %s, and get no run", name, len(due), due[-1])
            records.pass_over(series, tick_name(due[-1]))
            return
        # 3. Each of several gets a run of its own: the next one is asked for once the one before has ended.
        if schedule.catch_up is CatchUp.ALL and controls.state_of(name).state in _OPEN:
            return
        self._request(records, series, tick_name(chosen[0]))

    def _look_at_runs(
        self, name: str, schedule: Schedule, records: TickRecords, controls: RunControls
    ) -> None:
        from etl_assets.control.ticks import TickSeries

        if any(controls.state_of(each).state.has_runner for each in schedule.after):
            return
        series = TickSeries(pipeline=name, after=schedule.after)
        last = records.last(series)
        try:
            tick = tick_after(self._settings, schedule.after, None if last is None else last.tick)
        except (EtlAssetsError, OSError) as error:
            logger.warning(
                "%s: what the pipelines before it have brought cannot be told now: %s", name, error
            )
            return
        if tick is None:
            return
        if last is None:
            records.pass_over(series, tick)
        else:
            self._request(records, series, tick)

    def _request(self, records: TickRecords, series: TickSeries, tick: str) -> None:
        failpoint(Failpoint.RUN_BEFORE_REQUEST, table=series.pipeline)
        run = records.request_run(series, tick)
        failpoint(Failpoint.RUN_AFTER_REQUEST, table=series.pipeline)
        if run is not None:
            logger.warning("%s: run %s for the tick %s", series.pipeline, run.id, tick)
            self._requested()

    def _open(self) -> tuple[TickRecords, RunControls]:
        from etl_assets.control.run_controls import RunControls
        from etl_assets.control.store import open_store
        from etl_assets.control.ticks import TickRecords

        if self._store is None:
            self._store = open_store(self._settings)
        return TickRecords(self._store), RunControls(self._store)

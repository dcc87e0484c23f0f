"""Ticks of schedules in the control store: each is taken once, by a worker or by Dagster, whichever is first.

A tick is a key among the keys of requests for runs: `schedule/<pipeline>/<time>`, or
`after/<pipeline>/<versions>` for schedules by other pipelines' runs. So the run of a tick and
its key are one transaction. Ticks of a pipeline are taken in their order: one before the newest that was
taken is never taken.

Belongs here: taking a tick, and the last one. Does not belong here: which ticks are due
(`pipelines/schedule.py`), and who asks when (`worker/scheduled_runs.py`, `sensors/schedules.py`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from etl_assets.control import rows
from etl_assets.control.run_controls import RunControls
from etl_assets.control.schema import RUN_KEYS

if TYPE_CHECKING:
    from etl_assets.control.records import PipelineRun
    from etl_assets.control.store import ControlStore

ACTOR = "schedule"
BY_DAGSTER = "dagster:"
"""Begins what stands in place of the id of a run if Dagster has run the tick."""
PASSED = "passed"
"""What stands there if no run was asked for: the schedule began, or the tick was missed."""
KEPT_TICKS = 100
"""Keys that stay of each series; more than processes that take ticks at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TickSeries:
    """The ticks of a schedule: names that rise from tick to tick.

    Attributes:
        pipeline: The pipeline that runs.
        after: The pipelines whose runs are its ticks; empty if times are.
    """

    pipeline: str
    after: tuple[str, ...] = ()

    def key(self, tick: str) -> str:
        """Return the key of a tick."""
        of_runs = f"after/{self.pipeline}/{'+'.join(self.after)}"
        return f"{of_runs if self.after else f'schedule/{self.pipeline}'}/{tick}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenTick:
    """A tick that was taken.

    Attributes:
        tick: Its name: a time, or versions of tables.
        run_id: The run; empty if Dagster has run it, or if it was passed over.
        is_dagsters: Whether Dagster has run it.
        at: When it was taken.
    """

    tick: str
    run_id: str
    is_dagsters: bool
    at: dt.datetime

    @property
    def time(self) -> dt.datetime | None:
        """The time of the tick; None if it is none of time."""
        try:
            return dt.datetime.fromisoformat(self.tick)
        except ValueError:
            return None


class TickRecords:
    """Ticks of all schedules in one store. Thread-safe.

    Every method raises `ControlStoreUnavailable` while the store does not answer, and can be repeated then.
    """

    def __init__(self, store: ControlStore) -> None:
        self._store, self._controls = store, RunControls(store)

    def last(self, series: TickSeries) -> TakenTick | None:
        """Return the newest tick that was taken; None if there is none."""
        with self._store.reading() as connection:
            row = connection.execute(_keys(series).limit(1)).mappings().first()
        if row is None:
            return None
        marker = str(row["run_id"])
        return TakenTick(
            tick=str(row["key"]).removeprefix(series.key("")),
            run_id="" if marker.startswith((BY_DAGSTER, PASSED)) else marker,
            is_dagsters=marker.startswith(BY_DAGSTER),
            at=row["at"],
        )

    def request_run(self, series: TickSeries, tick: str) -> PipelineRun | None:
        """Take a tick and ask for its run, in one transaction; None if it was taken already."""
        if self._is_over(series, tick):
            return None
        try:
            run = self._controls.request_run(series.pipeline, ACTOR, f"tick {tick}", key=series.key(tick))
        except rows.KeyTaken:
            return None
        self._tidy(series)
        return run

    def take_for_dagster(self, series: TickSeries, tick: str, evaluation: str) -> bool:
        """Take a tick for an evaluation of Dagster; return whether it was free."""
        return self._mark(series, tick, f"{BY_DAGSTER}{evaluation}")

    def of_dagster(self, series: TickSeries, evaluation: str) -> tuple[str, ...]:
        """Return the ticks that an evaluation of Dagster has taken, the oldest first.

        Dagster repeats an evaluation if its daemon ended before it launched the runs.
        """
        query = _keys(series).where(RUN_KEYS.c.run_id == f"{BY_DAGSTER}{evaluation}")
        with self._store.reading() as connection:
            found = connection.execute(query.with_only_columns(RUN_KEYS.c.key)).scalars().all()
        return tuple(key.removeprefix(series.key("")) for key in reversed(found))

    def pass_over(self, series: TickSeries, tick: str) -> bool:
        """Take a tick that gets no run; return whether it was free."""
        return self._mark(series, tick, PASSED)

    def _mark(self, series: TickSeries, tick: str, marker: str) -> bool:
        if self._is_over(series, tick):
            return False
        try:
            with self._store.writing() as connection:
                now = self._store.now(connection)
                rows.write_run_key(connection, series.key(tick), marker, now)
        except rows.KeyTaken:
            return False
        self._tidy(series)
        return True

    def _is_over(self, series: TickSeries, tick: str) -> bool:
        last = self.last(series)
        return last is not None and last.tick >= tick

    def _tidy(self, series: TickSeries) -> None:
        older = _keys(series).offset(KEPT_TICKS).with_only_columns(RUN_KEYS.c.key)
        with self._store.writing() as connection:
            found = connection.execute(older).scalars().all()
            connection.execute(sa.delete(RUN_KEYS).where(RUN_KEYS.c.key.in_(found)))


def tick_name(time: dt.datetime) -> str:
    """Return the name of a tick of time: in UTC, so that names sort as times do."""
    return time.astimezone(dt.UTC).replace(microsecond=0).isoformat()


def _keys(series: TickSeries) -> sa.Select[Any, Any, Any]:
    """Return the query of the ticks that were taken, the newest first."""
    start, key = series.key(""), RUN_KEYS.c.key
    query = sa.select(key, RUN_KEYS.c.run_id, RUN_KEYS.c.at)
    return query.where(sa.func.substr(key, 1, len(start)) == start).order_by(key.desc())

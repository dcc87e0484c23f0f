"""Schedules as people see them: the next tick, the last one, and its outcome."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.control.run_controls import RunControls
from etl_assets.control.ticks import TickRecords, TickSeries
from etl_assets.errors import NotFound

if TYPE_CHECKING:
    from etl_assets.control.store import ControlStore
    from etl_assets.control.ticks import TakenTick
    from etl_assets.pipelines.pipeline import Pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleView:
    """A schedule at a moment.

    Attributes:
        pipeline: Its pipeline.
        schedule: It in words.
        priority: Priority of the pipeline.
        next_tick: The next tick (UTC); None if other pipelines' runs are its ticks.
        last_tick: When the last tick was due, or taken if it is none of time; None before the first.
        outcome: What became of it.
    """

    pipeline: str
    schedule: str
    priority: int
    next_tick: dt.datetime | None
    last_tick: dt.datetime | None
    outcome: str


def schedule_views(
    pipelines: Iterable[Pipeline], store: ControlStore, now: dt.datetime
) -> Iterator[ScheduleView]:
    """Yield the schedules of those of some pipelines that have one."""
    records, controls = TickRecords(store), RunControls(store)
    for pipeline in pipelines:
        if (schedule := pipeline.schedule) is None:
            continue
        last = records.last(TickSeries(pipeline=pipeline.name, after=schedule.after))
        yield ScheduleView(
            pipeline=pipeline.name,
            schedule=str(schedule),
            priority=pipeline.priority,
            next_tick=schedule.next_tick(now),
            last_tick=None if last is None else last.time or last.at,
            outcome=_outcome(last, controls),
        )


def _outcome(last: TakenTick | None, controls: RunControls) -> str:
    if last is None:
        return "not seen yet by the worker or Dagster"
    if last.is_dagsters:
        return "run by Dagster"
    if not last.run_id:
        return "no run: the schedule began, or ticks were missed"
    try:
        run = controls.run(last.run_id)
    except NotFound:
        return f"run {last.run_id}"
    return f"run {run.id}: {run.status}" + ("" if run.error is None else f", {run.error}")

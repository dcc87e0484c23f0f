"""Schedules of pipelines in Dagster: a schedule for `cron` and `every_seconds`, a sensor for `after`.

Both leave the ticks to a worker that is alive. Without one they take each tick in the control store, so that
no other process runs it too.

Belongs here: which runs an evaluation asks for. Does not belong here: which times are ticks
(`pipelines/schedule.py`), and that a tick is taken once (`control/ticks.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import dagster as dg

from etl_assets.control.known_states import look_at_states
from etl_assets.control.states import fix_of
from etl_assets.control.store import open_store
from etl_assets.control.ticks import TickRecords, TickSeries, tick_name
from etl_assets.errors import EtlAssetsError
from etl_assets.observability.brought import tick_after
from etl_assets.observability.pending import watch_source
from etl_assets.partitions import ranges
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.schedule import Schedule
from etl_assets.sensors.source_pauses import paused_sources
from etl_assets.sensors.sources import MAX_DAYS_PER_TICK, assets_of_runs, days_request
from etl_assets.settings import Settings
from etl_assets.sources.unread_days import WatchCursor
from etl_assets.worker.lease import running_worker
from etl_assets.worker.scheduled_runs import LATE_SECONDS

_EVERY_MINUTE = "* * * * *"
_FIRST_LOOK = dt.timedelta(minutes=61)
"""How far before its first evaluation a schedule looks for its tick: times that a clock change repeats."""
Now = Callable[[], dt.datetime]


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def pipeline_schedules(
    settings: Settings, pipelines: Sequence[Pipeline], now: Now = _utc_now
) -> list[dg.ScheduleDefinition]:
    """Build the schedule `<pipeline>_schedule` of each pipeline that runs at times."""
    return [
        _schedule(settings, each, each.schedule, now)
        for each in pipelines
        if each.schedule is not None and each.schedule.is_timed
    ]


def after_sensors(settings: Settings, pipelines: Sequence[Pipeline]) -> list[dg.SensorDefinition]:
    """Build the sensor `<pipeline>_after` of each pipeline that runs after others."""
    return [
        _after_sensor(settings, each, each.schedule)
        for each in pipelines
        if each.schedule is not None and not each.schedule.is_timed
    ]


def wake_up(schedule: Schedule) -> str:
    """Return the cron fields by which Dagster evaluates a schedule, at least once for each tick.

    Intervals that cron fields cannot express are looked at once a minute.
    """
    if schedule.cron is not None:
        return schedule.cron
    minutes, rest = divmod(schedule.every_seconds or 1, 60)
    if rest == 0 and minutes and 60 % minutes == 0:
        return f"*/{minutes} * * * *" if minutes < 60 else "0 * * * *"
    if rest == 0 and minutes % 60 == 0 and minutes and 24 % (minutes // 60) == 0:
        return f"0 */{minutes // 60} * * *" if minutes < 24 * 60 else "0 0 * * *"
    return _EVERY_MINUTE


def _schedule(settings: Settings, pipeline: Pipeline, schedule: Schedule, now: Now) -> dg.ScheduleDefinition:
    series = TickSeries(pipeline=pipeline.name)
    path = assets_of_runs(settings.catalog(), pipeline)

    def evaluate(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        # 1. Leave the tick to a worker that is alive, or to a person who paused the pipeline.
        if (why := _left_alone(settings, pipeline)) is not None:
            yield dg.SkipReason(why)
            return
        # 2. Take the ticks that are due; an evaluation that Dagster repeats gets those of the first time.
        planned = context.scheduled_execution_time.astimezone(dt.UTC)
        with closing(open_store(settings)) as store:
            records = TickRecords(store)
            ticks = records.of_dagster(series, tick_name(planned))
            if not ticks:
                late = (now() - planned).total_seconds() > LATE_SECONDS
                ticks = _take(records, series, schedule, planned, is_late=late)
        if not ticks:
            following = schedule.next_tick(planned)
            yield dg.SkipReason(
                "No tick is due: it is not time, another process has taken it, or it was missed and"
                f" `catch_up` is `{schedule.catch_up}`. The next one is at {following}."
            )
            return
        # 3. Ask for the runs.
        for tick in ticks:
            yield from _requests(settings, pipeline, path, series.key(tick), planned)

    def build(cron: str) -> dg.ScheduleDefinition:
        return dg.ScheduleDefinition(
            name=f"{pipeline.name}_schedule",
            cron_schedule=cron,
            execution_timezone=schedule.time_zone,
            target=dg.AssetSelection.assets(*path),
            execution_fn=evaluate,
            default_status=dg.DefaultScheduleStatus.RUNNING,
            description=f"Runs {pipeline.name}: {schedule}. On by default.",
        )

    try:
        return build(wake_up(schedule))
    except dg.DagsterInvalidDefinitionError:  # its own reading of cron fields differs in rare cases
        return build(_EVERY_MINUTE)


def _take(
    records: TickRecords, series: TickSeries, schedule: Schedule, planned: dt.datetime, *, is_late: bool
) -> tuple[str, ...]:
    last = records.last(series)
    begins = planned - _FIRST_LOOK if last is None or last.time is None else last.time
    due = schedule.due(begins, planned)
    if last is None:
        due = due[-1:]
    chosen = schedule.to_run(due, is_late=is_late)
    if due and not chosen:
        records.pass_over(series, tick_name(due[-1]))
    evaluation = tick_name(planned)
    names = [tick_name(each) for each in chosen]
    return tuple(each for each in names if records.take_for_dagster(series, each, evaluation))


def _after_sensor(settings: Settings, pipeline: Pipeline, schedule: Schedule) -> dg.SensorDefinition:
    series = TickSeries(pipeline=pipeline.name, after=schedule.after)
    path = assets_of_runs(settings.catalog(), pipeline)

    @dg.sensor(
        name=f"{pipeline.name}_after",
        target=dg.AssetSelection.assets(*path),
        minimum_interval_seconds=settings.runs.sensor_interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Runs {pipeline.name} {schedule} has brought something. On by default.",
    )
    def after(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if (why := _left_alone(settings, pipeline)) is not None:
            return dg.SensorResult(skip_reason=why)
        # The cursor is the tick whose runs were asked for last: one that an evaluation took before it ended
        # early is asked for again, under the same run key.
        try:
            with closing(open_store(settings)) as store:
                records = TickRecords(store)
                last = records.last(series)
                tick = tick_after(settings, schedule.after, None if last is None else last.tick)
                if last is not None and last.is_dagsters and last.tick != context.cursor:
                    tick = last.tick
                elif tick is not None and last is None:
                    records.pass_over(series, tick)
                    tick = None
                elif tick is not None and not records.take_for_dagster(series, tick, tick):
                    tick = None
        except (EtlAssetsError, OSError) as error:
            return dg.SensorResult(skip_reason=str(error))
        if tick is None:
            names = ", ".join(schedule.after)
            return dg.SensorResult(
                skip_reason=f"not all of {names} have brought something since the last run"
            )
        requests = [*_requests(settings, pipeline, path, series.key(tick), _utc_now())]
        return dg.SensorResult(run_requests=requests, cursor=tick)

    return after


def _left_alone(settings: Settings, pipeline: Pipeline) -> str | None:
    """Return why a pipeline is not run by Dagster now; None if it may be."""
    worker = running_worker(settings.home)
    if worker is not None and not worker.is_silent:
        return f"{worker} keeps the schedules"
    state = look_at_states(settings).left_out([pipeline.name]).get(pipeline.name)
    return None if state is None else f"{pipeline.name} is {state}: {fix_of(pipeline.name, state)}"


def _requests(
    settings: Settings, pipeline: Pipeline, path: Sequence[str], request: str, now: dt.datetime
) -> Iterator[dg.RunRequest]:
    """Yield the requests of a tick: a run for each range of days with something unread, or one for its day.

    For Dagster, later days do not exist in an evaluation that it makes up for; the next tick reads them.
    """
    source = pipeline.path[0]
    paused = paused_sources(settings, now).get(pipeline.name)
    chosen = None if paused is None else [name for name in path if name != source.name]
    found = watch_source(source, settings, WatchCursor(), now=_utc_now(), most_days=MAX_DAYS_PER_TICK)
    days = {day for day in found.ready if day <= now.date()} if paused is None else set()
    runs = ranges(
        days or {now.date()},
        settings.runs.max_days_per_run,
        sizes={day: size for day, size in found.sizes.items() if day in days},
        small_bytes=settings.runs.small_run_bytes,
    )
    for number, (first, last) in enumerate(runs):
        yield days_request(first, last, request, number, chosen, pipeline.priority)

"""The sensors of sources: each requests runs of its pipeline for days with unread files."""

import datetime as dt
import time
from collections.abc import Collection, Mapping, Sequence

import dagster as dg

from etl_assets import tags
from etl_assets.control.known_states import look_at_states
from etl_assets.control.states import fix_of
from etl_assets.dagster_internals import ASSET_PARTITION_RANGE_END_TAG, ASSET_PARTITION_RANGE_START_TAG
from etl_assets.errors import EtlAssetsError
from etl_assets.ingest.pending_plan import committed_batch
from etl_assets.observability.days_behind import days_behind
from etl_assets.observability.lag_limits import FIX
from etl_assets.observability.pending import source_of, watch_source
from etl_assets.partitions import ranges
from etl_assets.pipelines.catalog import Catalog
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.pipelines.stage import Stage
from etl_assets.placement.domains import FailureDomain
from etl_assets.sensors.attempts import Attempt, next_attempt
from etl_assets.sensors.source_pauses import paused_sources
from etl_assets.settings import Settings
from etl_assets.sources.unread_days import WatchCursor
from etl_assets.steps.placing import place
from etl_assets.steps.step import ReadMode, platform_table
from etl_assets.worker.lease import found_done, left_undone, running_worker

MAX_DAYS_PER_TICK = 1_000
MAX_ATTEMPTS_LOOKED_AT = 10
"""Number of newest runs of a request that decide whether one is under way and how long to pause.

More runs would not lengthen the pause.
"""


def source_sensors(settings: Settings, pipelines: Sequence[Pipeline]) -> list[dg.SensorDefinition]:
    """Build a sensor for each source of some pipelines that have no schedule.

    Its runs materialize its pipeline, and what is made from that.
    """
    catalog = settings.catalog()
    sensors = []
    for pipeline in pipelines:
        if pipeline.schedule is not None:
            continue  # its schedule starts its runs
        path = assets_of_runs(catalog, pipeline)
        sensors += [
            source_sensor(settings, stage, path, name=pipeline.sensor or f"{pipeline.name}_files")
            for stage in pipeline.stages
            if stage.source is not None
        ]
    return sensors


def assets_of_runs(catalog: Catalog, pipeline: Pipeline) -> list[str]:
    """Return the assets that runs of a pipeline materialize: its own, and what is made from them.

    Pipelines with a schedule of their own are left out.
    """
    names = set(catalog.downstream_of(pipeline.names))
    for each in catalog.pipelines:
        if each.schedule is not None and each.name != pipeline.name:
            names -= set(each.names)
    return [stage.name for stage in catalog.stages if stage.name in names]


def source_sensor(settings: Settings, stage: Stage, path: Sequence[str], *, name: str) -> dg.SensorDefinition:
    """Build the sensor of a source.

    Args:
        settings: The platform file.
        stage: The stage that reads the source.
        path: Names of the assets its runs materialize; all their checks are evaluated.
        name: Name of the sensor.
    """
    tables = set(path)
    pipeline = settings.catalog().pipeline_of(stage.name)
    priority = 0 if pipeline is None else pipeline.priority

    @dg.sensor(
        name=name,
        # By name: Dagster shows any other selection as Python code.
        target=dg.AssetSelection.assets(*path),
        minimum_interval_seconds=settings.runs.sensor_interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Starts a run for the days that have files unread by {stage.name}. On by default.",
    )
    def look_for_files(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        # 1. Leave the files to a worker that is alive.
        worker = running_worker(settings.home)
        if worker is not None and not worker.is_silent:
            return dg.SensorResult(skip_reason=f"{worker} reads new files as they come")
        # 2. Leave them if run control says so, or if a sink is over its lag limit, and have it delivered to.
        controlled = _controlled(settings)
        if (waiting := _left_alone(context, settings, stage, controlled)) is not None:
            return waiting
        # 3. Find the days with unread files, and those that an ended worker left unfinished.
        try:
            domain = place(settings.placement(), stage.name)
            source = source_of(stage, settings, domain)
            batch_id = committed_batch(platform_table(stage.name, domain))
            found = watch_source(
                stage,
                settings,
                WatchCursor.load(context.cursor),
                now=dt.datetime.now(dt.UTC),
                most_days=MAX_DAYS_PER_TICK,
            )
            undone = _left_undone(settings, domain, tables - controlled.keys())
        except EtlAssetsError as error:
            return dg.SensorResult(skip_reason=str(error))
        remarks = found.remarks(first_day=settings.start_date, settle_seconds=source.settle_seconds)
        requests, reasons = [], list(remarks)
        if worker is not None:
            reasons.append(f"{worker} has given no sign of life for {worker.silent_seconds:.0f} s")
        # 4. Request a run per range of days, unless one is under way or has failed too recently.
        runs = ranges(
            {*found.ready, *undone},
            settings.runs.max_days_per_run,
            sizes={day: size for day, size in found.sizes.items() if day not in undone},
            small_bytes=settings.runs.small_run_bytes,
        )
        for first, last in runs:
            request = f"{stage.name}:{first}..{last}@{batch_id}"
            decision = next_attempt(*_earlier(context.instance, request))
            if decision.number is None:
                reasons.append(f"{first} to {last}: {decision.reason}")
                continue
            chosen = [name for name in path if name not in controlled]
            requests.append(
                days_request(first, last, request, decision.number, chosen if controlled else None, priority)
            )
        if requests:
            for reason in reasons:
                context.log.warning(reason)
            return dg.SensorResult(run_requests=requests, cursor=found.cursor.dump())
        reason = "; ".join(reasons) or f"no unread {source.units} in {source.label}"
        return dg.SensorResult(skip_reason=reason, cursor=found.cursor.dump())

    return look_for_files


def _left_alone(
    context: dg.SensorEvaluationContext, settings: Settings, stage: Stage, controlled: Mapping[str, str]
) -> dg.SensorResult | None:
    """Return the result of a tick that leaves a source alone; None if it may be read."""
    if stage.name in controlled:
        return dg.SensorResult(skip_reason=controlled[stage.name])
    return _waiting_for_sinks(context, settings, stage)


def _waiting_for_sinks(
    context: dg.SensorEvaluationContext, settings: Settings, stage: Stage
) -> dg.SensorResult | None:
    """Request a run of each sink that a source waits for, unless one is under way or has failed too recently.

    Nothing else starts one: what a source does not read changes no table. None if the source may be read.
    """
    pipeline = settings.catalog().pipeline_of(stage.name)
    try:
        pauses = paused_sources(settings, dt.datetime.now(dt.UTC))
    except (EtlAssetsError, OSError) as error:
        return dg.SensorResult(skip_reason=str(error))
    pause = None if pipeline is None else pauses.get(pipeline.name)
    if pause is None:
        return None
    requests, reasons = [], [f"{pause}; {FIX}"]
    for excess in pause.excesses:
        sink = excess.lag.deliveries
        request = f"{sink}:{excess.lag.version}"
        decision = next_attempt(*_earlier(context.instance, request))
        if decision.number is None:
            reasons.append(f"{sink}: {decision.reason}")
            continue
        requests.append(
            dg.RunRequest(
                run_key=f"{request}#{decision.number}",
                asset_selection=[dg.AssetKey(sink)],
                tags={tags.READ_MODE: ReadMode.INCREMENTAL.value, tags.REQUEST: request},
            )
        )
    if not requests:
        return dg.SensorResult(skip_reason="; ".join(reasons))
    context.log.warning("; ".join(reasons))
    return dg.SensorResult(run_requests=requests)


def _left_undone(settings: Settings, domain: FailureDomain, tables: Collection[str]) -> set[dt.date]:
    """Return the days of some tables that an ended worker read but did not finish; empty once all are
    finished.

    A run for a day does nothing for the tables of other pipelines: one that fails must not start runs of all.
    """
    if left_undone(settings.home) is None:
        return set()
    behind = days_behind(domain, settings.start_date)
    if not behind:
        found_done(settings.home)
    return {day for table, days in behind.items() if table in tables for day in days}


def _controlled(settings: Settings) -> dict[str, str]:
    """Return the tables of pipelines that run control keeps from being followed, each with the reason."""
    catalog = settings.catalog()
    states = look_at_states(settings).left_out(pipeline.name for pipeline in catalog.pipelines)
    return {
        table: f"{pipeline.name} is {state}: {fix_of(pipeline.name, state)}"
        for pipeline in catalog.pipelines
        if (state := states.get(pipeline.name)) is not None
        for table in pipeline.names
    }


def days_request(
    first: dt.date,
    last: dt.date,
    request: str,
    attempt: int,
    chosen: Sequence[str] | None,
    priority: int = 0,
) -> dg.RunRequest:
    """Return the request of a run over some days, of all assets of its sensor or schedule, or of some."""
    key = f"{request}#{attempt}"
    run_tags = {tags.READ_MODE: ReadMode.INCREMENTAL.value, tags.REQUEST: request}
    if priority:
        run_tags[tags.PRIORITY] = str(priority)
    keys = None if chosen is None else [dg.AssetKey(name) for name in chosen]
    if first == last:
        return dg.RunRequest(
            run_key=key, partition_key=first.isoformat(), tags=run_tags, asset_selection=keys
        )
    days = {
        ASSET_PARTITION_RANGE_START_TAG: first.isoformat(),
        ASSET_PARTITION_RANGE_END_TAG: last.isoformat(),
    }
    return dg.RunRequest(run_key=key, tags={**run_tags, **days}, asset_selection=keys)


def _earlier(instance: dg.DagsterInstance, request: str) -> tuple[list[Attempt], int]:
    """Return the newest runs for a request, and the number of all of them."""
    now = time.time()
    of_request = dg.RunsFilter(tags={tags.REQUEST: request})
    # Count first: a run that starts in between is then under way in the records, and no other is requested.
    number = instance.get_runs_count(of_request)
    records = instance.get_run_records(of_request, limit=MAX_ATTEMPTS_LOOKED_AT)
    newest = [
        Attempt(
            ended=record.dagster_run.is_finished,
            succeeded=record.dagster_run.is_success,
            # A run that never started has no end; it was last touched when it ended.
            ended_seconds_ago=now - (record.end_time or record.update_timestamp.timestamp()),
        )
        for record in records
    ]
    return newest, number

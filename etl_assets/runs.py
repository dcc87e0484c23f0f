"""Runs of the platform's assets from a command: in this process, on the installation's Dagster instance."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import dagster as dg

from etl_assets import tags
from etl_assets.build import build_definitions
from etl_assets.dagster_internals import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    event_databases_open,
)
from etl_assets.errors import InputError, RunFailed
from etl_assets.partitions import ranges
from etl_assets.pipelines.catalog import Catalog
from etl_assets.resources.failures import failed_partitions
from etl_assets.sensors.alerts import AlertKind, write_alert
from etl_assets.settings import Settings
from etl_assets.steps.step import ReadMode


def materialize_days(
    settings: Settings,
    instance: dg.DagsterInstance,
    days: Collection[dt.date],
    *,
    mode: ReadMode,
    assets: Sequence[str] | None = None,
    max_days: int | None = None,
    sizes: Mapping[dt.date, int] | None = None,
) -> list[dg.ExecuteInProcessResult]:
    """Materialize assets for days, one run per range of days, and evaluate their checks.

    If a step fails for some days of a run, Dagster skips the later steps for all its days. So the run's other
    days run again without the failed ones: finished steps find nothing to do, and these days reach the end of
    the path. Likewise the other pipelines run again without the one that failed, where there are any: each
    reaches its end, and so do the tables that are made from several pipelines.

    Args:
        settings: The platform file.
        instance: Dagster instance that records runs and materializations.
        days: Days of arrival.
        mode: Whether to read incrementally or whole partitions.
        assets: Names of the assets; all by default.
        max_days: Length of the longest run in days, including gaps between `days`; by default the platform
            file's, and no run spans a gap.
        sizes: Bytes to read of each day, where known: a run that reads little may have more days
            (`runs.small_run_bytes`), unless `max_days` is given.

    Raises:
        RunFailed: a run failed. All other pipelines are done, but for those that look values up in its
            tables. If it failed for some of its days, all other days are done; if not, the runs before it
            are. `alerts.jsonl` has a line for each failed run.
        InputError: some days have not come yet, and have no partition: Dagster would leave them out without a
            word. The other days are done.
    """
    today = dt.datetime.now(dt.UTC).date()
    ahead = sorted(day for day in days if day > today)
    days = [day for day in days if day <= today]
    definitions = build_definitions(settings)
    catalog = settings.catalog()
    names = tuple(assets or (stage.name for stage in catalog.stages))
    cut = partial(
        ranges,
        max_days=max_days or settings.runs.max_days_per_run,
        bridge_gaps=max_days is not None,
        sizes=sizes,
        small_bytes=settings.runs.small_run_bytes if max_days is None else 0,
    )
    results, failures = [], []
    waiting = [(first, last, names) for first, last in cut(days)]
    while waiting:
        first, last, chosen = waiting.pop(0)
        run_id = str(uuid.uuid4())
        with event_databases_open(instance, run_id):
            result = _job(definitions, chosen).execute_in_process(
                instance=instance,
                run_id=run_id,
                raise_on_error=False,
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                # The daemon cannot restart a run of this process; the user can repeat the command.
                tags={tags.READ_MODE: mode.value, tags.MAX_RETRIES: "0", **_days(first, last)},
            )
        results.append(result)
        if result.success:
            continue
        failures.append((result, first, last))
        _write_alert(settings, result, first, last)
        failed, others = _failed_days(result), _of_other_pipelines(catalog, chosen, _failed_steps(result))
        if failed:
            left = cut(day for day in days if first <= day <= last and day not in failed)
            again = [(*span, chosen) for span in left]
            if others:
                again += [(*span, others) for span in cut(day for day in failed if first <= day <= last)]
        elif others:
            again = [(first, last, others)]
            # It would fail again: what it has not read of the other days waits for the next command.
            waiting = [(*span, tuple(n for n in of_span if n in others)) for *span, of_span in waiting]
        else:
            break
        waiting[:0] = again
    if failures:
        raise _failed(failures, [each for result in results for each in _materializations(instance, result)])
    if ahead:
        raise InputError(
            f"{ahead[0]}{f' to {ahead[-1]}' if len(ahead) > 1 else ''} cannot be materialized: partitions end"
            f" today, {today} (UTC)",
            fix="check the clock of this machine; on a later day, run again",
            value=str(ahead[0]),
        )
    return results


def _job(definitions: dg.Definitions, names: Sequence[str]) -> dg.JobDefinition:
    job = dg.define_asset_job("platform", selection=dg.AssetSelection.assets(*names))
    return dg.Definitions.merge(definitions, dg.Definitions(jobs=[job])).resolve_job_def("platform")


def _failed_steps(result: dg.ExecuteInProcessResult) -> set[str]:
    return {event.step_key or "" for event in result.all_events if event.is_step_failure}


def _of_other_pipelines(catalog: Catalog, names: Sequence[str], failed: Collection[str]) -> tuple[str, ...]:
    """Return those of some assets that can go on without the pipelines of the failed ones.

    A pipeline that looks values up in a table that is not up to date waits too: a later change of the table
    makes no row of it again.

    Returns:
        The names; none if no pipeline among them reads a source.
    """
    left_out = {pipeline.name for name in failed for pipeline in [catalog.pipeline_of(name)] if pipeline}
    if not left_out:
        return ()
    while True:
        behind = {table for each in catalog.pipelines if each.name in left_out for table in each.names}
        waiting = {
            each.name
            for each in catalog.pipelines
            if any(not behind.isdisjoint(stage.lookups) for stage in each.stages)
        }
        if waiting <= left_out:
            break
        left_out |= waiting
    going_on = {
        name: pipeline
        for name in names
        for pipeline in [catalog.pipeline_of(name)]
        if pipeline is not None and pipeline.name not in left_out
    }
    return tuple(going_on) if any(each.path for each in going_on.values()) else ()


def _failed_days(result: dg.ExecuteInProcessResult) -> set[dt.date]:
    """Return the days for which a run failed; empty if it failed for another reason."""
    failures: list[Any] = [event.step_failure_data for event in result.all_events if event.is_step_failure]
    named = [failed_partitions(failure.user_failure_data) for failure in failures]
    return {dt.date.fromisoformat(key) for keys in named for key in keys} if all(named) else set()


def _days(first: dt.date, last: dt.date) -> dict[str, str]:
    return {
        ASSET_PARTITION_RANGE_START_TAG: first.isoformat(),
        ASSET_PARTITION_RANGE_END_TAG: last.isoformat(),
    }


def _write_alert(
    settings: Settings, result: dg.ExecuteInProcessResult, first: dt.date, last: dt.date
) -> None:
    """Write the alert of a failed run.

    The failure sensor writes the same for launched runs, but a command's run may have no daemon.
    """
    alert = {
        "run_id": result.run_id,
        "job": result.job_def.name,
        "partition": f"{first}..{last}",
        "step": next((event.step_key or "" for event in result.all_events if event.is_step_failure), ""),
        "error": "; ".join(_causes(result))[:2_000] or "the run failed",
    }
    write_alert(settings.home, AlertKind.RUN_FAILED, alert)


def _failed(
    failures: Sequence[tuple[dg.ExecuteInProcessResult, dt.date, dt.date]],
    materializations: Sequence[dg.AssetMaterialization],
) -> RunFailed:
    result = failures[0][0]
    return RunFailed(
        "; ".join(
            f"the run {failed.run_id} over {first} to {last} failed:"
            f" {'; '.join(_causes(failed)) or 'see its log'}"
            for failed, first, last in failures
        ),
        fix=f"open the run in the Dagster UI (`etl-assets dev`, /runs/{result.run_id})",
        run_id=result.run_id,
        materializations=materializations,
    )


def _materializations(
    instance: dg.DagsterInstance, result: dg.ExecuteInProcessResult
) -> Iterator[dg.AssetMaterialization]:
    """Yield the materializations of a run from the event log. The result lacks those of a failed step."""
    for record in instance.all_logs(result.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION):
        if record.asset_materialization is not None:
            yield record.asset_materialization


def _causes(result: dg.ExecuteInProcessResult) -> Iterator[str]:
    for event in result.all_events:
        if event.is_step_failure:
            data: Any = event.step_failure_data
            failure = data.user_failure_data
            text = failure.description if failure is not None else (data.error.message if data.error else "")
            yield f"{event.step_key}: {text.strip()}"

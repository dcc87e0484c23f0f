"""Runs of the platform's assets from a command: in this process, on the installation's Dagster instance."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import dagster as dg

from etl_assets import tags
from etl_assets.build import build_definitions
from etl_assets.dagster_internals import (
    ASSET_PARTITION_RANGE_END_TAG,
    ASSET_PARTITION_RANGE_START_TAG,
    event_databases_open,
)
from etl_assets.delta.table import Table
from etl_assets.errors import InputError, RunFailed
from etl_assets.partitions import ranges
from etl_assets.pipelines.catalog import Catalog
from etl_assets.resources.failures import failed_partitions
from etl_assets.sensors.alerts import AlertKind, write_alert
from etl_assets.settings import Settings
from etl_assets.steps.changes import read_changes
from etl_assets.steps.step import ReadMode, platform_table


def materialize_days(
    settings: Settings,
    instance: dg.DagsterInstance,
    days: Collection[dt.date],
    *,
    mode: ReadMode,
    assets: Sequence[str] | None = None,
    max_days: int | None = None,
    sizes: Mapping[dt.date, int] | None = None,
    paused: Callable[[], Collection[str]] = tuple,
) -> list[dg.ExecuteInProcessResult]:
    """Materialize assets for days, one run per range of days, and evaluate their checks.

    If a step fails for some days of a run, Dagster skips the later steps for all its days. So the run's other
    days run again without the failed ones: finished steps find nothing to do, and these days reach the end of
    the path. Likewise the other pipelines run again without the one that failed, where there are any: each
    reaches its end, and so do the tables that are made from several pipelines. A delivery that failed ends
    nothing else: later runs leave it out, and the next command tries it again.

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
        paused: Returns the assets that must not be materialized now. It is called before each run.

    Raises:
        RunFailed: a run failed. All other pipelines are done, but for those that look values up in its
            tables. If it failed for some of its days, all other days are done; if not, the runs before it
            are. If only deliveries failed, everything else is done. `alerts.jsonl` has a line for each failed
            run.
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
    waiting = [_Range(*span, names) for span in cut(days)]
    collected = not any(stage.delivers and stage.name in names for stage in catalog.stages)
    while waiting or not collected:
        if not waiting:
            # A target rejects rows on the day of their delivery, whichever days they are of.
            # A replay has the day of its dead letter.
            rejected, collected = _rejected_by_targets(settings, names, settings.start_date), True
            waiting = [_Range(*span, (name,)) for name, found in rejected for span in cut(found)]
            continue
        first, last, chosen = waiting.pop(0)
        if not (chosen := _without(chosen, paused())):
            continue
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
        of_range = [day for day in days if first <= day <= last]
        waiting = _left_after(result, _Range(first, last, chosen), waiting, cut, of_range, catalog)
    if failures:
        made = [each for result in results for each in _materializations(instance, result)]
        raise _failed(failures, made, catalog)
    if ahead:
        raise InputError(
            f"{ahead[0]}{f' to {ahead[-1]}' if len(ahead) > 1 else ''} cannot be materialized: partitions end"
            f" today, {today} (UTC)",
            fix="check the clock of this machine; on a later day, run again",
            value=str(ahead[0]),
        )
    return results


class _Range(NamedTuple):
    """Days to run, with the assets."""

    first: dt.date
    last: dt.date
    names: tuple[str, ...]


def _left_after(
    result: dg.ExecuteInProcessResult,
    done: _Range,
    waiting: Sequence[_Range],
    cut: Callable[[Iterable[dt.date]], Iterable[tuple[dt.date, dt.date]]],
    days: Collection[dt.date],
    catalog: Catalog,
) -> list[_Range]:
    """Return what is to run after a run has failed: what it kept from running, then the ranges after it.

    Args:
        result: The run.
        done: Its days, with its assets.
        waiting: The ranges after it.
        cut: Cuts days into ranges.
        days: Those of the range that were asked for.
        catalog: The catalog.
    """
    steps = _failed_steps(result)
    # 1. No asset depends on a delivery, so nothing was kept from running by one that failed.
    sinks = {name for name in steps if _only_sinks([name], catalog)}
    left = [
        _Range(each.first, each.last, names) for each in waiting if (names := _without(each.names, sinks))
    ]
    if steps and steps == sinks:
        return left
    chosen, failed = _without(done.names, sinks), _failed_days(result, steps - sinks)
    others = _of_other_pipelines(catalog, chosen, steps - sinks)
    # 2. The other days, and the other pipelines on the days that failed.
    if failed:
        again = [_Range(*span, chosen) for span in cut(day for day in days if day not in failed)]
        if others:
            again += [_Range(*span, others) for span in cut(day for day in days if day in failed)]
        return [*again, *left]
    # 3. It would fail again: what it has not read of the other days waits for the next command.
    if others:
        rest = [_Range(each.first, each.last, _among(each.names, others)) for each in left]
        return [_Range(done.first, done.last, others), *rest]
    return []


def _only_sinks(steps: Collection[str], catalog: Catalog) -> bool:
    """Return whether all of some steps deliver to a sink."""
    stages = [catalog.stage_of(name) for name in steps]
    return bool(stages) and all(stage is not None and stage.delivers for stage in stages)


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


def _rejected_by_targets(
    settings: Settings, names: Sequence[str], since: dt.date
) -> list[tuple[str, list[dt.date]]]:
    """Return which of some assets lack what deliveries rejected or replayed since a day, with the days."""
    domain = settings.placement().reader()
    found = []
    for stage in domain.catalog.stages:
        rejects = {
            each for each in stage.inputs for by in [domain.catalog.stage_of(each)] if by and by.delivers
        }
        if stage.name in names and rejects:
            made = platform_table(stage.name, domain)
            days = [day for name in rejects for day in _days_of(platform_table(name, domain)) if day >= since]
            news = (
                read_changes(platform_table(name, domain), made, sorted(set(days)), ReadMode.INCREMENTAL).days
                for name in rejects
            )
            if concerned := sorted({day for of_table in news for day in of_table}):
                found.append((stage.name, concerned))
    return found


def _days_of(table: Table) -> list[dt.date]:
    snapshot = table.snapshot() if table.version() >= 0 else None
    filled = {} if snapshot is None else snapshot.rows_by("partition_date")
    return [dt.date.fromisoformat(day) for (day,) in filled]


def _among(names: Sequence[str], others: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in others)


def _without(names: Sequence[str], left_out: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name not in left_out)


def _failed_days(result: dg.ExecuteInProcessResult, steps: Collection[str]) -> set[dt.date]:
    """Return the days for which some steps of a run failed; empty if one failed for another reason."""
    failures: list[Any] = [
        event.step_failure_data
        for event in result.all_events
        if event.is_step_failure and event.step_key in steps
    ]
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
    catalog: Catalog,
) -> RunFailed:
    steps = {step for failed, *_ in failures for step in _failed_steps(failed)}
    # Name the run whose failure needs more than its target back.
    others = [failed for failed, *_ in failures if not _only_sinks(_failed_steps(failed), catalog)]
    result = (others or [failures[0][0]])[0]
    look = f"open the run in the Dagster UI (`etl-assets dev`, /runs/{result.run_id})"
    return RunFailed(
        "; ".join(
            f"the run {failed.run_id} over {first} to {last} failed:"
            f" {'; '.join(_causes(failed)) or 'see its log'}"
            for failed, first, last in failures
        ),
        fix=(
            f"everything else is done; bring back what {', '.join(sorted(steps))} delivers to, then"
            f" `etl-assets run` delivers all that it lacks; or {look}"
            if not others
            else look
        ),
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

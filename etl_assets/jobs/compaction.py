"""The compaction job, which keeps the number of data files small, and its schedule.

Belongs here: when tables are compacted, and what is reported. Does not belong here: which files are worth
compacting (`delta/maintenance/compaction.py`), and one table's compaction (`steps/compact.py`).
"""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Never

import dagster as dg

from etl_assets.delta.maintenance.compaction import CROWDED_FILES
from etl_assets.errors import EtlAssetsError
from etl_assets.markdown_table import markdown_table
from etl_assets.resources.failures import as_failure
from etl_assets.resources.platform import PlatformResource
from etl_assets.settings import Settings
from etl_assets.steps.compact import Compact, Extent
from etl_assets.steps.placing import place, take_up
from etl_assets.steps.step import StepContext, domain_watched
from etl_assets.steps.table_queue import TableQueue

JOB = "compact_tables"
EVERY_HOUR = "17 * * * *"
"""Not at the full hour, when most other jobs of a machine start."""
UNDER_WAY = [
    status
    for status in dg.DagsterRunStatus
    if status not in (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
]


def compaction_job(settings: Settings) -> dg.JobDefinition:
    """Build the job. A table that fails does not keep the others from being compacted.

    The compaction of a table that has an asset is observed on the asset.
    """
    shown = {stage.name for stage in settings.catalog().stages}

    @dg.op(
        description="Rewrites the small files of each table as few larger ones. Without any it starts no"
        " Spark.",
        retry_policy=dg.RetryPolicy(
            max_retries=settings.runs.max_retries,
            delay=settings.runs.retry_delay_seconds,
            backoff=dg.Backoff.EXPONENTIAL,
            jitter=dg.Jitter.FULL,
        ),
        out=dg.Out(dg.Nothing),
    )
    def compact(
        context: dg.OpExecutionContext, platform: PlatformResource
    ) -> Iterator[dg.AssetObservation | dg.Output[None]]:
        done: dict[str, tuple[Extent, Extent]] = {}
        failures: dict[str, dg.Failure] = {}
        catalog = settings.placement().catalog
        for why in catalog.unlisted():
            context.log.warning("%s; tables of users' assets may be missing here", why)
        for table in catalog.every_name():
            if _is_being_written(context.instance, table):
                context.log.info("%s: a run is writing it; left for the next time", table)
                continue
            try:
                before, after = _compact(platform, table)
            except Exception as error:  # noqa: BLE001 - raised below, after the other tables
                failures[table] = as_failure(error)
                context.log.error("%s: %s", table, failures[table].description)
                continue
            if after.version == before.version:
                continue
            done[table] = before, after
            context.log.info("%s: %s, now %s in version %d", table, before, after, after.version)
            if table in shown:
                yield dg.AssetObservation(table, metadata=_figures([(before, after)]))
        if failures:
            raise _failed(failures)
        yield dg.Output(
            None, metadata={**_figures(done.values()), "tables": dg.MetadataValue.md(_told(done))}
        )

    @dg.job(
        name=JOB,
        description="Few larger files in place of many small ones, in every table that needs it. No row"
        " changes.",
    )
    def compact_tables() -> None:
        compact()

    return compact_tables


def compaction_schedule(settings: Settings, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Build the schedule. It reads the logs first, and requests a run only if there is something to do."""

    @dg.schedule(
        name=JOB,
        job=job,
        cron_schedule=EVERY_HOUR,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description="Asks once an hour for a run, if any table has many small files. On by default.",
    )
    def compact_hourly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        under_way = dg.RunsFilter(job_name=JOB, statuses=UNDER_WAY)
        if context.instance.get_runs_count(under_way):
            return dg.SkipReason("the run before is under way")
        try:
            due = list(_due(settings))
        except EtlAssetsError as error:
            return dg.SkipReason(str(error))
        if not due:
            return dg.SkipReason("no table has many small files")
        return dg.RunRequest(tags={"etl_assets/compact": ",".join(due)})

    return compact_hourly


def _is_being_written(instance: dg.DagsterInstance, table: str) -> bool:
    """Return whether a run holds the table's pool.

    Such a run has planned on the current version; another commit would waste its work.
    """
    storage = instance.event_log_storage
    return storage.supports_global_concurrency_limits and bool(
        storage.get_concurrency_info(table).claimed_slots
    )


def _compact(platform: PlatformResource, table: str) -> tuple[Extent, Extent]:
    settings = platform.settings
    placement = settings.placement()
    domain = place(placement, table)
    context = StepContext(
        session=lambda: platform.spark.spark_session,
        domain=domain,
        lock_wait_seconds=settings.runs.lock_wait_seconds,
        domain_problem=lambda: placement.problem(domain),
        take_up=partial(take_up, placement),
        turns=TableQueue(folder=settings.turns_path),
    )
    with domain_watched(context):
        return Compact(context=context, table=table, undated_files=CROWDED_FILES).run()


def _due(settings: Settings) -> Iterator[str]:
    """Yield the tables that a run would change."""
    context = StepContext(session=_no_spark, domain=settings.placement().reader())
    for table in settings.placement().catalog.every_name():
        if Compact(context=context, table=table, undated_files=CROWDED_FILES).is_due():
            yield table


def _no_spark() -> Never:
    raise AssertionError("looking at the logs needs no Spark")


def _failed(failures: dict[str, dg.Failure]) -> dg.Failure:
    return dg.Failure(
        description="\n".join(f"{table}: {failure.description}" for table, failure in failures.items()),
        metadata={table: failure.description or "" for table, failure in failures.items()},
        allow_retries=any(failure.allow_retries for failure in failures.values()),
    )


def _figures(done: Collection[tuple[Extent, Extent]]) -> dict[str, int]:
    return {
        "files_before": sum(before.files for before, _ in done),
        "files_after": sum(after.files for _, after in done),
        "bytes_before": sum(before.bytes for before, _ in done),
        "bytes_after": sum(after.bytes for _, after in done),
    }


def _told(done: Mapping[str, tuple[Extent, Extent]]) -> str:
    rows = [[table, str(before), str(after), str(after.version)] for table, (before, after) in done.items()]
    return (
        "\n".join(markdown_table(["table", "before", "after", "version"], rows)) if rows else "nothing to do"
    )

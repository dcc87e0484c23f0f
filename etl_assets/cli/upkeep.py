"""`etl-assets tables compact`, `vacuum` and `clean-log`: fewer files, and none that are no longer needed."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from etl_assets.delta.replicated.replication import Replication
    from etl_assets.delta.table import Table
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings


@click.command()
@click.argument("table")
def compact(table: str) -> None:
    """Rewrite the small files of a table's closed days as few larger ones.

    An ordinary commit: readers go on, and see no new rows. The old files stay until `vacuum`. Running it
    again changes nothing.
    """
    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.settings import load_installation
    from etl_assets.steps.compact import Compact
    from etl_assets.steps.step import StepContext
    from etl_assets.steps.table_queue import TableQueue

    settings = load_installation()
    spark = SparkResource(spark_config=spark_config(settings.spark))
    context = StepContext(
        session=lambda: spark.spark_session,
        domain=_where_written(settings, table),
        lock_wait_seconds=settings.runs.lock_wait_seconds,
        turns=TableQueue(folder=settings.turns_path),
    )
    before, after = Compact(context=context, table=table).run()
    if after.version == before.version:
        click.echo(f"{table}: {before}; nothing to compact")
    else:
        click.echo(f"{table}: {before}, now {after} in version {after.version}")


@click.command()
@click.argument("table")
@click.option(
    "--retention-days",
    type=click.IntRange(min=1),
    default=7,
    show_default=True,
    help="Keep what any version of so many days needs.",
)
@click.option("--delete", is_flag=True, help="Remove the files; without it they are only counted.")
def vacuum(table: str, retention_days: int, delete: bool) -> None:
    """Remove data files that no version of the last days needs, in every domain, and what killed writers left
    behind.

    Without --delete it says what would be removed. Versions older than the retention can then not be read any
    more, nor can those that are no longer in the log (`upkeep.keep_log_versions`), whose files are removed as
    well. A domain that is behind keeps others from removing what it is still to get; one that does not
    answer, from removing anything.

    Folders of replicas that were rebuilt since are marked, and removed by the first vacuum after the
    retention.
    """
    from etl_assets.delta.maintenance.vacuum import find_unneeded
    from etl_assets.delta.write.writing import writing
    from etl_assets.settings import load_installation
    from etl_assets.steps.step import platform_table

    settings = load_installation()
    found = platform_table(table, _where_written(settings, table))
    retention = dt.timedelta(days=retention_days)
    # Under the lock, unneeded files stay unneeded until they are removed. Another domain may become leader
    # meanwhile; files that an undo restores there get other names.
    with writing(found, wait_seconds=settings.runs.lock_wait_seconds, driver_pid=None):
        for unneeded in find_unneeded(found, retention, dt.datetime.now(dt.UTC)):
            if delete:
                unneeded.remove()
            what = "removed" if delete else "would be removed (--delete)"
            files = f"{len(unneeded):,} files of {unneeded.bytes:,} bytes"
            click.echo(f"{table} in {unneeded.holding.domain}: {files} {what}")


@click.command("clean-log")
@click.argument("table")
@click.option(
    "--keep-versions",
    type=click.IntRange(min=100),
    help="Versions that stay readable; default `upkeep.keep_log_versions` of the platform file.",
)
@click.option("--delete", is_flag=True, help="Remove them; without it they are only counted.")
def clean_log(table: str, keep_versions: int | None, delete: bool) -> None:
    """Remove a table's older log entries and checkpoints, in every domain.

    Without --delete it says what would be removed. Versions from before can then not be read or restored any
    more. Rows, cursors and the newest versions are as before. It is done by itself as well, now and then:
    with one domain by commits, with several by the sensor `failure_domains`, and a domain that is away or
    further behind gets a snapshot once it is back.
    """
    from etl_assets.settings import load_installation
    from etl_assets.steps.step import platform_table

    settings = load_installation()
    keep = settings.upkeep.keep_log_versions if keep_versions is None else keep_versions
    found = platform_table(table, _where_written(settings, table))
    if (mirrored := found.replication) is None:
        _clean_one_log(found, keep, delete=delete, wait_seconds=settings.runs.lock_wait_seconds)
    else:
        _clean_logs(mirrored, keep, delete=delete)


def _clean_one_log(table: Table, keep: int, *, delete: bool, wait_seconds: float) -> None:
    from etl_assets.delta.log.log_truncation import find_old_log, remove_old_log
    from etl_assets.delta.write.writing import writing

    if table.version() < 0:
        click.echo(f"{table.name} is not there yet")
        return
    with writing(table, wait_seconds=wait_seconds, driver_pid=None):
        old = find_old_log(table.path, keep)
        if delete:
            remove_old_log(table.path, old, table=table.name)
    _say_where_it_begins(table.name, old.first, delete=delete)
    what = "removed" if delete else "would be removed"
    click.echo(f"{table.name} in {table.domain.name}: {_files(len(old.names))} {what}")


def _clean_logs(mirrored: Replication, keep: int, *, delete: bool) -> None:
    if not mirrored.exists():
        click.echo(f"{mirrored.name} is not there yet")
        return
    if not delete:
        first, outdated = mirrored.outdated(keep)
        _say_where_it_begins(mirrored.name, first, delete=False)
        for each in outdated:
            click.echo(f"{mirrored.name} in {each.domain}: {_files(len(each.keys))} would be removed")
        return
    mirrored.lead()
    removed: Counter[str] = Counter()
    while True:
        first, outdated = mirrored.shorten(keep)
        removed.update({each.domain: len(each.keys) for each in outdated})
        if not any(each.keys for each in outdated):
            break
    _say_where_it_begins(mirrored.name, first, delete=True)
    for domain, files in sorted(removed.items()):
        click.echo(f"{mirrored.name} in {domain}: {_files(files)} removed")


def _say_where_it_begins(table: str, first: int, *, delete: bool) -> None:
    begins = "begins" if delete else "would begin"
    click.echo(f"{table}: the log {begins} at version {first:,}{'' if delete else ' (--delete)'}")


def _files(number: int) -> str:
    return f"{number:,} {'file' if number == 1 else 'files'} of the log"


def _where_written(settings: Settings, table: str) -> FailureDomain:
    from etl_assets.steps.placing import place

    return place(settings.placement(), table)

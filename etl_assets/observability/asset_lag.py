"""How far each asset is behind its input: rows, and the age of the oldest that it lacks. No Spark.

Belongs here: the figures of tables and sources. Does not belong here: those of sinks (`delivery_lag.py`) and
replicas (`lag.py`), which work a run has to do (`pending.py`), and limits (`lag_limits.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.delta.log.cursor import read_cursors
from etl_assets.delta.log.entries import entry_path
from etl_assets.observability.delivery_lag import delivery_lags
from etl_assets.observability.pending import watch_source
from etl_assets.sources.unread_days import WatchCursor
from etl_assets.steps.changes import read_changes
from etl_assets.steps.step import ReadMode, platform_table

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.pipelines.stage import Stage
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings

_EVERY_DAY = 1_000_000
_Cursors = Mapping[dt.date | None, int]
"""The version consumed by day; under None for all days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetLag:
    """How far an asset is behind its input.

    Attributes:
        rows: New and changed rows that it lacks, or unread records; None if the input cannot say. A file that
            was compacted with rows that were read counts as a whole.
        seconds: Age of the oldest commit, record or file that it lacks; 0 if it lacks nothing, None if it is
            not known.
        files: Unread files of a source; None for other assets.
    """

    rows: int | None
    seconds: float | None
    files: int | None = None

    @property
    def is_current(self) -> bool:
        """Whether it lacks nothing."""
        return not self.rows and not self.files and self.seconds == 0

    def __str__(self) -> str:
        counted = [f"{self.files:,} files"] if self.files else []
        counted += [f"{self.rows:,} rows"] if self.rows else []
        age = "" if self.seconds is None else f"the oldest for {dt.timedelta(seconds=round(self.seconds))}"
        return "nothing" if self.is_current else ", ".join(filter(None, [" and ".join(counted), age]))


_CURRENT = AssetLag(rows=0, seconds=0.0)


def table_lag(stage: Stage, domain: FailureDomain, now: dt.datetime) -> AssetLag | None:
    """Return the lag of a table or a sink behind the tables that it reads; None for the table of a source."""
    if stage.delivers:
        for lag in delivery_lags(domain, now, among=(stage.name,)):
            # A replay of dead letters is to be delivered too, and is no lag.
            return AssetLag(rows=lag.rows, seconds=lag.seconds) if lag.commits else _CURRENT
        return _CURRENT
    if not stage.inputs:
        return None
    table = platform_table(stage.name, domain)
    inputs = {name: platform_table(name, domain) for name in stage.inputs}
    unread = {name: _cursors(table, source) for name, source in inputs.items()}
    if stage.driving_inputs and (snapshot := table.snapshot()) is not None:
        # Days that no driving input starts, and that the table does not have, are not made.
        made = {dt.date.fromisoformat(day) for (day,) in snapshot.rows_by("partition_date")}
        made |= {day for name in stage.driving_inputs for day in unread[name] if day is not None}
        unread = {
            name: {day: cursor for day, cursor in of.items() if day in made} for name, of in unread.items()
        }
    lags = [_behind(source, unread[name], now) for name, source in inputs.items()]
    ages = [lag.seconds for lag in lags]
    return AssetLag(
        rows=sum(lag.rows or 0 for lag in lags),
        seconds=None if None in ages else max(age for age in ages if age is not None),
    )


def source_lag(stage: Stage, settings: Settings, now: dt.datetime) -> AssetLag:
    """Return the lag of the table of a source: unread files, and records where the source counts them.

    Raises:
        SourceUnavailable, SourceRefused: the source does not answer.
    """
    found = watch_source(
        stage,
        settings,
        WatchCursor(),
        now=now,
        most_days=_EVERY_DAY,
        domain=settings.placement().reader(),  # nothing is placed, and nothing written
    )
    ages = [] if found.oldest_ns is None else [now.timestamp() - found.oldest_ns / 1e9]
    lag = found.lag
    if lag is not None and lag.oldest is not None:
        ages.append((now - lag.oldest).total_seconds())
    is_unknown = lag is not None and lag.records != 0 and lag.oldest is None
    records = 0 if lag is None else lag.records
    return AssetLag(
        rows=None if found.files and not records else records,
        seconds=None if is_unknown and not ages else max(0.0, *ages, 0.0),
        files=found.files,
    )


def _behind(source: Table, cursors: _Cursors, now: dt.datetime) -> AssetLag:
    rows, oldest = 0, None
    for number, low in _unread_files(source, cursors):
        rows += number
        oldest = low if oldest is None else min(oldest, low)
    return AssetLag(rows=rows, seconds=0.0 if oldest is None else _age(source, oldest, now))


def _cursors(table: Table, source: Table) -> _Cursors:
    """Return the cursors of what has not been read: by day, or under None if the table has one for all."""
    if table.contract is not None and table.contract.is_daily:
        snapshot = source.snapshot()
        days = [] if snapshot is None else sorted(snapshot.newest_batch_by_day())
        news = read_changes(source, table, days, ReadMode.INCREMENTAL)
        return {day: news.cursors[day] for day in news.days}
    cursor = read_cursors(table, source.name, [None])[None]
    return {None: -1 if cursor > source.version() else cursor}


def _unread_files(source: Table, cursors: _Cursors) -> Iterator[tuple[int, int]]:
    """Yield the rows and the oldest unread batch of each file with unread rows, by file statistics."""
    snapshot, contract = source.snapshot(), source.contract
    if snapshot is None or contract is None or not cursors:
        return
    column = contract.batch_column  # without one, every file counts as this version
    for file in snapshot.add_actions():
        day = None if None in cursors else file.get("partition.partition_date")
        if day not in cursors or not (rows := file.get("num_records")):
            continue
        newest, oldest = file.get(f"max.{column}"), file.get(f"min.{column}")
        newest = snapshot.version if newest is None else newest
        if newest > cursors[day]:
            yield rows, max(cursors[day] + 1, newest if oldest is None else oldest)


def _age(table: Table, version: int, now: dt.datetime) -> float | None:
    """Return the age of a commit; None if the log no longer has it."""
    try:
        return max(0.0, now.timestamp() - entry_path(table.path, version).stat().st_mtime)
    except FileNotFoundError:
        return None

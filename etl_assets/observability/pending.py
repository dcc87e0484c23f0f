"""Pending work: unread files, input not consumed, replays not processed, rows missing. No Spark."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from etl_assets.errors import SourceRefused, SourceUnavailable, SourceUnreadable
from etl_assets.observability.days_behind import days_behind
from etl_assets.observability.dead_letters import read_dead_letters
from etl_assets.sources.ledger import Ledger
from etl_assets.sources.positions import read_positions
from etl_assets.sources.replays import replay_attempts
from etl_assets.sources.unread_days import WatchCursor, Watched, watch
from etl_assets.steps.placing import place
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.ingest.file_source import FileSource
    from etl_assets.pipelines.stage import Stage
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.settings import Settings
    from etl_assets.sources.ranges import Lag

_EVERY_DAY = 1_000_000
_SHOWN_DAYS = 5
RUN_COMPLETES = "`etl-assets run` completes it"
"""The fix for most unfinished work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadFiles:
    """Files of all sources that no run has read.

    Attributes:
        by_source: What was found in each source, by the name of its table.
        settle_seconds: Settling time of each.
        first_day: The first partition.
    """

    by_source: Mapping[str, Watched]
    settle_seconds: Mapping[str, float]
    first_day: dt.date

    @property
    def ready(self) -> tuple[dt.date, ...]:
        """Days with closed, unread files."""
        return tuple(sorted({day for found in self.by_source.values() for day in found.ready}))

    def without(self, tables: Collection[str]) -> UnreadFiles:
        """Return the files of the other sources."""
        return replace(
            self, by_source={name: found for name, found in self.by_source.items() if name not in tables}
        )

    @property
    def sizes(self) -> Mapping[dt.date, int]:
        """Bytes of the unread files of each ready day."""
        total: Counter[dt.date] = Counter()
        for found in self.by_source.values():
            total.update(found.sizes)
        return total

    @property
    def unsettled(self) -> int:
        """Number of files that are still being written."""
        return sum(found.unsettled for found in self.by_source.values())

    @property
    def longest_settle_seconds(self) -> float:
        """Longest settling time of a source with files that are still being written."""
        waiting = [self.settle_seconds[name] for name, found in self.by_source.items() if found.unsettled]
        return max(waiting, default=0.0)

    @property
    def unreadable(self) -> bool:
        """Whether a folder cannot be listed."""
        return any(found.unreadable for found in self.by_source.values())

    def remarks(self, *, unsettled: bool = True) -> Iterator[str]:
        """Yield sentences about files that are not ready, with the source's name if there are several.

        Args:
            unsettled: Whether to include files that are still being written.
        """
        for name, found in self.by_source.items():
            shown = found if unsettled else replace(found, unsettled=0)
            for remark in shown.remarks(first_day=self.first_day, settle_seconds=self.settle_seconds[name]):
                yield remark if len(self.by_source) == 1 else f"{name}: {remark}"


def unread(settings: Settings, *, now: dt.datetime, settle_seconds: float | None = None) -> UnreadFiles:
    """Return every partition with closed, unread files, and the other findings in the folders of all sources.

    Args:
        settings: The platform file.
        now: The time.
        settle_seconds: How long a file must have been unchanged; by default what its source says.
    """
    placement = settings.placement()
    found, settling = {}, {}
    for stage in settings.catalog().sources:
        domain = place(placement, stage.name)
        seconds = source_of(stage, settings, domain).settle_seconds
        settling[stage.name] = seconds if settle_seconds is None else settle_seconds
        found[stage.name] = watch_source(
            stage,
            settings,
            WatchCursor(),
            now=now,
            settle_seconds=settling[stage.name],
            most_days=_EVERY_DAY,
            raises=False,
        )
    return UnreadFiles(by_source=found, settle_seconds=settling, first_day=settings.start_date)


def source_of(stage: Stage, settings: Settings, domain: FailureDomain) -> FileSource:
    """Return the files that a stage reads."""
    assert stage.source is not None  # asked of stages that have one
    return stage.source(settings, domain)


def watch_source(
    stage: Stage,
    settings: Settings,
    cursor: WatchCursor,
    *,
    now: dt.datetime,
    most_days: int,
    settle_seconds: float | None = None,
    raises: bool = True,
    domain: FailureDomain | None = None,
) -> Watched:
    """Find the unread files of one source, or the days with unread records of one that is read in ranges.

    Looks into `domain`; by default into the one that the stage is placed in now.

    Raises:
        SourceUnavailable, SourceRefused: a source outside the platform does not answer. Unless `raises`,
            it is among the days that cannot be read.
    """
    domain = domain or place(settings.placement(), stage.name)
    source = source_of(stage, settings, domain)
    table = platform_table(stage.name, domain)
    try:
        found = watch(
            source.folders,
            Ledger.of(table),
            cursor,
            first_day=settings.start_date,
            now=now,
            settle_seconds=source.settle_seconds if settle_seconds is None else settle_seconds,
            most_days=most_days,
        )
    except (SourceUnavailable, SourceRefused, SourceUnreadable) as error:
        if raises:
            raise
        return Watched(
            ready=(),
            unsettled=0,
            left=0,
            outside=(),
            strangers=(),
            cursor=cursor,
            folder=source.folders[0],
            unreadable={now.date(): f"{error.message}; {error.fix}"},
        )
    if source.ranges is None:
        return found
    try:
        positions = read_positions(table)
        with closing(source.ranges.open()) as opened:
            lag = opened.lag(positions)
    except (SourceUnavailable, SourceRefused) as error:
        if raises:
            raise
        return replace(found, unreadable={**found.unreadable, now.date(): f"{error.message}; {error.fix}"})
    days = _days_of_lag(lag, settings.start_date, now.date())
    return replace(found, ready=tuple(sorted({*found.ready, *days})), lag=lag, positions=positions)


def _days_of_lag(lag: Lag, first_day: dt.date, today: dt.date) -> tuple[dt.date, ...]:
    """Return the days from the oldest unread record's to today; none if there is no unread record."""
    if lag.records == 0:
        return ()
    oldest = lag.first_day
    if oldest is None:
        oldest = today if lag.oldest is None else lag.oldest.astimezone(dt.UTC).date()
    day = min(max(oldest, first_day), today)
    return tuple(day + dt.timedelta(days=number) for number in range((today - day).days + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """Work that runs have left unfinished in the tables, whether or not Dagster knows of the runs.

    Attributes:
        behind: Days of its inputs that each table has not consumed, from the first partition on.
        replays: Days of dead letters submitted to a stage that takes them itself, and has not processed them
            since, by the stage's table.
        before_start: Days not consumed that have no partition, because they precede the platform file's
            `start_date`.
        missing: Rows that each table lacks by day although it has consumed its input: another program removed
            them.
    """

    behind: Mapping[str, tuple[dt.date, ...]]
    replays: Mapping[str, tuple[dt.date, ...]] = field(default_factory=dict)
    before_start: tuple[dt.date, ...] = ()
    missing: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def days(self) -> tuple[dt.date, ...]:
        """Days that a run completes."""
        return tuple(
            sorted({day for of in (self.replays, self.behind) for days in of.values() for day in days})
        )

    def sentences(self) -> Iterator[tuple[str, str]]:
        """Yield what is unfinished and how to complete it; nothing if all is complete."""
        tables = [f"{name} ({_counted(len(of), 'day')})" for name, of in self.behind.items()]
        if self.replays:
            days = {day for of_table in self.replays.values() for day in of_table}
            tables.append(f"dead letters that were handed in ({_counted(len(days), 'day')})")
        if tables:
            yield f"left undone: {', '.join(tables)}", RUN_COMPLETES
        if self.before_start:
            first, number = self.before_start[0], _counted(len(self.before_start), "day")
            yield (
                f"left undone: {number} before start_date, from {first} on, which have no partitions",
                f"set start_date to {first} or earlier in the platform file, then `etl-assets run`",
            )
        for table, rows in self.missing.items():
            days = sorted(rows)
            wrong = ", ".join(f"{day}: {rows[day]:,}" for day in days[:_SHOWN_DAYS])
            more = "" if len(days) <= _SHOWN_DAYS else f" and {len(days) - _SHOWN_DAYS} days more"
            yield (
                f"{table} lacks rows that it had (by day {wrong}{more}): another program removed or added"
                " some",
                f"stop it, then `etl-assets reprocess --from {days[0]} --to {days[-1]} --tables {table}"
                " --yes`",
            )


def find_unfinished(domain: FailureDomain, first_day: dt.date) -> Unfinished:
    """Find the work that runs have left unfinished.

    Reads logs, and the dead letters if some were replayed; starts no Spark.
    """
    behind = days_behind(domain, dt.date.min)
    early = {day for days in behind.values() for day in days if day < first_day}
    missing = {
        table: rows
        for pipeline in domain.catalog.pipelines
        if pipeline.missing_rows is not None
        for table, rows in pipeline.missing_rows(domain).items()
    }
    return Unfinished(
        behind=_not_before(behind, first_day),
        replays=_not_before(_days_with_replays(domain), first_day),
        before_start=tuple(sorted(early)),
        missing={table: rows for table, rows in missing.items() if rows},
    )


def _not_before(
    behind: Mapping[str, tuple[dt.date, ...]], first_day: dt.date
) -> dict[str, tuple[dt.date, ...]]:
    kept = {name: tuple(day for day in days if day >= first_day) for name, days in behind.items()}
    return {name: days for name, days in kept.items() if days}


def _days_with_replays(domain: FailureDomain) -> dict[str, tuple[dt.date, ...]]:
    """Return the days of dead letters submitted to a stage more often than it has processed them, by its
    table.
    """
    found = {}
    for stage in domain.catalog.stages:
        attempts = replay_attempts(domain, stage.name_in_rejects) if stage.takes_replays else {}
        letters = read_dead_letters(domain, dead_letter_id=list(attempts)) if attempts else ()
        found[stage.name] = tuple(
            sorted(
                {
                    letter.partition_date
                    for letter in letters
                    if letter.is_open and letter.attempts < attempts[letter.dead_letter_id]
                }
            )
        )
    return found


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"

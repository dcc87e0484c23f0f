"""Which days of its inputs each table has not consumed. No Spark.

A worker asks every few seconds, and most tables have not changed since: to compare versions costs a fraction
of reading cursors and file statistics (`UpToDate`).

Belongs here: what is left undone between tables, and when that has to be asked again. Does not belong here:
files and records that no table has (`pending.py`), and deliveries to sinks (`undelivered.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etl_assets.delta.log.cursor import read_cursors
from etl_assets.ingest.pending_plan import pending_plan
from etl_assets.observability.undelivered import has_undelivered, replays_of
from etl_assets.steps.changes import read_changes
from etl_assets.steps.step import ReadMode, platform_table

if TYPE_CHECKING:
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table, VersionIdentity
    from etl_assets.pipelines.stage import Stage
    from etl_assets.placement.domains import FailureDomain

_DAY_COLUMN = "partition_date"


@dataclass(frozen=True, slots=True)
class _Basis:
    """What an answer depends on.

    Attributes:
        stage: The stage as it is declared. The catalog has other objects once a declaration has changed.
        first_day: The first partition.
        tables: The versions of the tables that are read for it; None: unknown.
    """

    stage: Stage
    first_day: dt.date
    tables: tuple[VersionIdentity | None, ...]

    def gives_the_same(self, other: _Basis) -> bool:
        """Return whether the answer on another basis is the same."""
        return (
            self.stage is other.stage
            and self.first_day == other.first_day
            and None not in self.tables
            and self.tables == other.tables
        )


@dataclass(slots=True)
class UpToDate:
    """Tables that were found to be up to date, until something that this depends on changes.

    Several threads may use it.
    """

    _found: dict[str, _Basis] = field(default_factory=dict)

    def bases(
        self, stages: Iterable[Stage], domain: FailureDomain, first_day: dt.date
    ) -> Mapping[str, _Basis]:
        """Return what the answer for each stage depends on. To be read before what the answer says."""
        identities: dict[str, VersionIdentity | None] = {}
        found = {}
        for stage in stages:
            names = _tables_read_for(stage, domain)
            for name in names:
                if name not in identities:
                    identities[name] = platform_table(name, domain).identity()
            found[stage.name] = _Basis(stage, first_day, tuple(identities[name] for name in names))
        return found

    def has(self, name: str, basis: _Basis) -> bool:
        """Return whether a table was up to date, and nothing has changed."""
        before = self._found.get(name)
        return before is not None and before.gives_the_same(basis)

    def add(self, bases: Mapping[str, _Basis]) -> None:
        """Add tables that are up to date."""
        self._found.update(bases)


def _tables_read_for(stage: Stage, domain: FailureDomain) -> Sequence[str]:
    """Return the tables that say what a stage has not consumed."""
    found = [stage.name, *stage.inputs]
    if stage.rejects is not None:
        found.append(stage.rejects.name)
    # Rejects of a batch count once the table of its source has its rows.
    sources = map(domain.catalog.rejects_of_source, stage.inputs)
    found += [each.name for each in sources if each is not None]
    return found


def days_behind(
    domain: FailureDomain,
    first_day: dt.date,
    *,
    tables: Collection[str] | None = None,
    known: UpToDate | None = None,
) -> dict[str, tuple[dt.date, ...]]:
    """Return the days of its inputs that each table has not consumed.

    Tables that are up to date are left out. The tables alone show what a killed run left unfinished,
    whichever process ran it and whatever Dagster knows.

    Args:
        domain: Failure domain of the tables.
        first_day: The first partition; earlier days are left out.
        tables: The tables that are asked about; None: all.
        known: Tables that are left out unless something has changed; gets those that are up to date.
            Deliveries are left out then: `undelivered` has those.
    """
    stages = [each for each in domain.catalog.stages if tables is None or each.name in tables]
    if known is None:
        return _behind_among(stages, domain, first_day)
    stages = [each for each in stages if not each.delivers]
    bases = known.bases(stages, domain, first_day)
    asked = [each for each in stages if not known.has(each.name, bases[each.name])]
    found = _behind_among(asked, domain, first_day)
    known.add({each.name: bases[each.name] for each in asked if each.name not in found})
    return found


def _behind_among(
    stages: Sequence[Stage], domain: FailureDomain, first_day: dt.date
) -> dict[str, tuple[dt.date, ...]]:
    inputs = {name: platform_table(name, domain) for stage in stages for name in stage.inputs}
    daily = [table for table in inputs.values() if table.contract is None or table.contract.is_daily]
    days = sorted({day for table in daily for day in _days_of(table) if day >= first_day})
    # An unfinished batch is no table's input. Its own step completes it or removes the rows it rejected.
    of_sources = {
        stage.name: tuple(day for day in _days_of_plan(stage, domain) if day >= first_day)
        for stage in stages
        if not stage.inputs
    }
    replays = replays_of(domain) if any(stage.delivers for stage in stages) else None
    found = of_sources | {
        stage.name: _behind(stage, platform_table(stage.name, domain), inputs, days, replays)
        for stage in stages
        if stage.inputs
    }
    return {name: behind for name, behind in found.items() if behind}


def _days_of_plan(stage: Stage, domain: FailureDomain) -> tuple[dt.date, ...]:
    """Return the days of a source's batch whose rejected rows were committed and whose rows were not."""
    if stage.rejects is None:
        return ()
    left = pending_plan(platform_table(stage.rejects.name, domain), platform_table(stage.name, domain))
    return () if left is None else tuple(left.plan.days)


def _behind(
    stage: Stage,
    table: Table,
    inputs: Mapping[str, Table],
    days: list[dt.date],
    replays: Snapshot | None,
) -> tuple[dt.date, ...]:
    if stage.delivers:
        return tuple(days[-1:]) if has_undelivered(table, inputs[stage.inputs[0]], replays) else ()
    if not stage.table.is_daily:
        behind = {day for name in stage.inputs for day in _behind_as_a_whole(table, inputs[name])}
        return tuple(sorted(behind.intersection(days)))
    news = {name: read_changes(inputs[name], table, days, ReadMode.INCREMENTAL).days for name in stage.inputs}
    concerned = {day for found in news.values() for day in found}
    if stage.driving_inputs:
        driven = {day for name in stage.driving_inputs for day in news[name]}
        concerned &= driven | set(_days_of(table))
    return tuple(sorted(concerned))


def _behind_as_a_whole(table: Table, source: Table) -> tuple[dt.date, ...]:
    """Return the days of its source that an unpartitioned table has not consumed.

    Such a table has one cursor, on the whole source.
    """
    if (version := source.version()) < 0:
        return ()
    cursor = read_cursors(table, source.name, [None])[None]
    if cursor == version or (snapshot := source.snapshot()) is None:
        return ()
    newest = snapshot.newest_batch_by_day()
    return tuple(sorted(day for day, batch in newest.items() if cursor > version or batch > cursor))


def _days_of(table: Table) -> Iterable[dt.date]:
    snapshot = table.snapshot()
    return (
        () if snapshot is None else (dt.date.fromisoformat(day) for (day,) in snapshot.rows_by(_DAY_COLUMN))
    )

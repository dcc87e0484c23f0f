"""State of every table: version, rows, cursors on its inputs. From the logs alone, no JVM."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from etl_assets.delta.asset_record import record_in
from etl_assets.delta.log.cursor import ALL_DAYS, cursor_name, read_cursors, taken_back
from etl_assets.delta.snapshot_cache import snapshot_in
from etl_assets.delta.table import Table
from etl_assets.ingest.pending_plan import FILES, committed_batch
from etl_assets.observability.asset_lag import AssetLag, table_lag
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.sources.captures.table_view import TableView


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """State of one table.

    Attributes:
        name: Name of the table.
        domain: Failure domain of the replica.
        root: Folder of that domain's tables.
        uri: Folder to open the table by, also for other readers.
        version: The newest version; None if the table does not exist.
        rows: Rows of that version.
        cursor: Version consumed of each input, by `<input>/<day>` (or `<input>/*`). A table that reads files
            has `files`, its last batch of files.
        last_commit_at: Time of that version's commit.
        taken_back: Days of its first input that an undo removed and no run has rebuilt (`*`: all).
        lag: How far it is behind the tables that it reads; None for one that reads a source, for one that no
            stage writes, and for a table of rejected rows.
        asset: Key of the user's asset whose table it is; None for a table of the platform, and for one that
            does not say.
        captured: The table as one of a capture; None for another one.
    """

    name: str
    domain: str
    root: str
    uri: str
    version: int | None = None
    rows: int = 0
    cursor: Mapping[str, int]
    last_commit_at: dt.datetime | None = None
    taken_back: tuple[str, ...] = ()
    lag: AssetLag | None = None
    asset: str | None = None
    captured: TableView | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the state as a JSON object."""
        at = self.last_commit_at
        return {
            "name": self.name,
            "domain": self.domain,
            "uri": self.uri,
            "version": self.version,
            "rows": self.rows,
            "cursor": dict(self.cursor),
            "last_commit_at": None if at is None else at.isoformat(),
            "taken_back": list(self.taken_back),
            "lag_rows": None if self.lag is None else self.lag.rows,
            "lag_seconds": None if self.lag is None else self.lag.seconds,
            "asset": self.asset,
            "captured": None if self.captured is None else self.captured.as_json(),
        }


def table_states(
    domain: FailureDomain,
    now: dt.datetime,
    names: Collection[str] | None = None,
    *,
    captured: Mapping[str, TableView] | None = None,
) -> list[TableState]:
    """Return the state of tables in a domain: in the order of the data path, then those of users' assets.

    Args:
        domain: Failure domain to read the tables in.
        now: The time, for the lag.
        names: The tables; None: all.
        captured: Those of captures, by name.
    """
    lags = {
        stage.name: table_lag(stage, domain, now)
        for stage in domain.catalog.stages
        if stage.inputs and (names is None or stage.name in names)
    }
    return [
        replace(_state(platform_table(name, domain)), lag=lags.get(name), captured=(captured or {}).get(name))
        for name in (domain.catalog.every_name() if names is None else domain.catalog.names)
        if names is None or name in names
    ]


def _state(table: Table) -> TableState:
    pinned = table.pin()
    absent = TableState(
        name=table.name,
        domain=table.domain.name,
        root=str(table.domain.root / "tables"),
        uri=str(table.path),
        cursor={},
    )
    if pinned is None:
        return absent
    from deltalake import DeltaTable

    snapshot = snapshot_in(pinned.path, pinned.version)
    last = DeltaTable(str(pinned.path), version=pinned.version).history(1)[0]
    return replace(
        absent,
        domain=pinned.domain,
        root=str(pinned.path.parents[1]),
        uri=str(pinned.path),
        version=pinned.version,
        rows=snapshot.row_count(),
        cursor=_cursor(table),
        last_commit_at=dt.datetime.fromtimestamp(last["timestamp"] / 1000, dt.UTC),
        taken_back=_taken_back(table),
        asset=None if (record := record_in(snapshot)) is None else record.asset,
    )


def _cursor(table: Table) -> dict[str, int]:
    if table.contract is None:
        return {}
    batch = committed_batch(table)
    cursors = {FILES: batch} if batch >= 0 else {}
    for name in table.domain.catalog.inputs_of(table.name):
        days = _days(table, platform_table(name, table.domain))
        for day, version in read_cursors(table, name, days).items():
            if version >= 0:
                cursors[cursor_name(name, day)] = version
    return cursors


def _taken_back(table: Table) -> tuple[str, ...]:
    """Return the days that an undo removed, by the first input.

    Days for which that input has no rows are left out: no run can rebuild them.
    """
    for name in table.domain.catalog.inputs_of(table.name)[:1]:
        source = platform_table(name, table.domain)
        snapshot = source.snapshot()
        filled = {} if snapshot is None else snapshot.rows_by("partition_date")
        there = {day for (day,), rows in filled.items() if rows}
        return tuple(
            sorted(day for day in taken_back(table, source) if day in there or (day == ALL_DAYS and there))
        )
    return ()


def _days(consumer: Table, source: Table) -> list[dt.date | None]:
    """Return the days a consumer keeps cursors on; [None], for the whole source, if the consumer has no days
    itself.
    """
    if consumer.contract is not None and not consumer.contract.is_daily:
        return [None]
    snapshot = source.snapshot()
    rows = {} if snapshot is None else snapshot.rows_by("partition_date")
    return [dt.date.fromisoformat(day) for (day,) in sorted(rows)]

"""Plan an undo: restore an older version of a table, or take days out of it.

An undo also removes everything derived from the rows that it removes.

Plans are computed from logs and statistics; nothing is written, and no Spark is needed. The steps recompute
the rows, from the cursors.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import or_
from types import MappingProxyType
from typing import Any

from etl_assets.delta.log.cursor import ALL_DAYS, cursor_name, read_cursors
from etl_assets.delta.log.entries import commit_notes, read_entry
from etl_assets.delta.log.gate import expect
from etl_assets.delta.log.new_entry import missing_files
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write.content import KeptRows, StoredFile, content_of, day_in, one_of, rows_kept
from etl_assets.delta.write.offsets import DEALT, RETIRED, next_offset
from etl_assets.delta.write.replacement import Replacement, undo_access
from etl_assets.errors import FilesGone, InputError, NotFound
from etl_assets.steps.step import platform_table
from etl_assets.undo.undeclared import appends_after_restore, expect_of_an_asset
from etl_assets.undo.undo import Day, Domains, TableRollback, Undo


def version_at(table: Table, at: dt.datetime) -> int:
    """Return the newest version that was committed at a time or before it.

    Raises:
        NotFound: the table did not exist then, or the log does not reach back so far.
    """
    first: dt.datetime | None = None
    version = table.version()  # before `table.path`, which depends on this read
    for note in commit_notes(table.path, version):
        if note.at <= at:
            return note.version
        first = note.at
    raise NotFound(
        f"the table {table.name} has no version of {_time(at)} or before"
        + ("" if first is None else f": its log begins at {_time(first)}"),
        fix="name a later time, or a version (`--to-version`)",
        table=table.name,
    )


def plan_restore(domains: Domains, name: str, version: int) -> Undo:
    """Plan to restore the content of an older version of a table, and to have everything after it recomputed.

    A day counts as changed if its files differ, or if the table has read further of it since, even if that
    changed no row. A day whose input was undone since is not restored but taken out: its old rows were made
    from rows that the input no longer has.

    Args:
        domains: Where tables are.
        name: The table.
        version: The version.

    Raises:
        InputError: the table is not one that can be restored.
        NotFound: there is no such table or version.
        FilesGone: the version can no longer be read in full.
        FeatureUnsupported: the table, or one after it, uses a feature of Delta that an undo does not know.
    """
    table = existing(domains, name)
    now, then = table.snapshot(), older(table, version)
    assert now is not None
    expect(name, now, undo_access(table))
    before, wanted = content_of(now), content_of(then)
    changed = _changed_since(table, version, now)
    stale = _undone_upstream(table, version, now)
    removed, restored = _without(before, wanted, changed), _without(wanted, before, changed - stale)
    if missing := missing_files(table.path, restored):
        raise FilesGone(
            f"version {version} of {name} cannot be restored: {len(missing)} of its files are gone"
            f" ({missing[0]})",
            fix="choose a newer version; files that are out of use are removed when a table is vacuumed",
            table=name,
            missing=missing,
        )
    days = {file.day for file in (*removed, *restored)} | _read_since(table, version, domains)
    undo = {"kind": "restore", "table": name, "from": now.version, "to": version}
    if not days:
        return Undo(tables=())
    downstream = table.domain.catalog.downstream_of([name])
    ordered = tuple(sorted(days, key=lambda day: day or dt.date.min))
    of_stale, kept = _keep(table, stale, tuple(file for file in removed if file.day in stale))
    removed = (*(file for file in removed if file.day not in stale), *of_stale)
    head = take_back(
        table,
        now,
        ordered,
        undo,
        removed=removed,
        restored=restored,
        kept=kept,
        transactions=appends_after_restore(table, now, then),
    )
    after = [_without_days(domains, each, ordered, undo) for each in downstream if each != name]
    return Undo(tables=(head, *(each for each in after if each is not None)))


def plan_days(domains: Domains, names: Sequence[str], days: Sequence[dt.date]) -> Undo:
    """Plan to take days out of some tables and of everything after them, so that the steps recompute them.

    Args:
        domains: Where tables are.
        names: One or more of the tables that can be recomputed.
        days: The days.

    Raises:
        FeatureUnsupported: one of the tables uses a feature of Delta that an undo does not know.
    """
    downstream = domains(names[0]).catalog.downstream_of(names)
    undo = {"kind": "reprocess", "tables": sorted(names), "days": [day.isoformat() for day in days]}
    found = (_without_days(domains, name, tuple(days), undo) for name in downstream)
    return Undo(tables=tuple(each for each in found if each is not None))


def existing(domains: Domains, name: str) -> Table:
    """Return a table that exists and may be restored.

    Raises:
        InputError: the table is not one that can be restored.
        NotFound: the platform has no such table, or it has not been created yet.
    """
    table = platform_table(name, domains(name))
    policy = table.domain.catalog.undo_of(name)
    if policy.refusal is not None:
        raise InputError(f"{name} is not restored: {policy.refusal}", fix=policy.fix, table=name)
    if (snapshot := table.snapshot()) is None:
        raise NotFound(
            f"the table {name} has not been made yet", fix="there is nothing to restore", table=name
        )
    expect_of_an_asset(table, snapshot)
    return table


def older(table: Table, version: int) -> Snapshot:
    """Return the snapshot of a version that can be restored.

    Raises:
        NotFound: the table has no such version.
        FilesGone: the version can no longer be read.
        FeatureUnsupported: the version uses a feature of Delta that an undo does not know.
    """
    from deltalake.exceptions import DeltaError

    newest = table.version()
    if version > newest:
        raise NotFound(
            f"the table {table.name} has no version {version}: its newest is {newest}",
            fix="`etl-assets tables` shows versions; `--to-time` finds one by its time",
            table=table.name,
        )
    try:
        snapshot = table.snapshot(version)
    except DeltaError as error:
        raise FilesGone(
            f"version {version} of {table.name} cannot be read any more: {error}",
            fix="choose a newer version; log entries that are more versions back than"
            " `upkeep.keep_log_versions`, or with one domain older than 30 days, are removed",
            table=table.name,
            missing=[],
        ) from error
    assert snapshot is not None  # the newest version exists
    expect(table.name, snapshot, undo_access(table))
    _expect_columns(table, snapshot)
    return snapshot


def _expect_columns(table: Table, older: Snapshot) -> None:
    """Refuse a version whose files the table's present columns do not describe.

    Raises:
        InputError: the table has been given other columns since.
    """
    now = table.snapshot()
    assert now is not None
    types = {field["name"]: field["type"] for field in now.fields()}
    wider = "typeWidening" in now.named_features
    changed = [
        field["name"]
        for field in older.fields()
        if field["name"] not in types or (types[field["name"]] != field["type"] and not wider)
    ]
    if changed or older.partition_columns() != now.partition_columns():
        raise InputError(
            f"version {older.version} of {table.name} has other columns than the table has now"
            f" ({', '.join(changed) or 'its files are laid out in another way'})",
            fix="choose a newer version, or make its rows again: "
            + (
                "materialize its asset's partitions"
                if table.contract is None
                else f"`etl-assets reprocess --tables {table.name}`"
            ),
            table=table.name,
        )


def _without(
    some: Mapping[str, StoredFile], others: Mapping[str, StoredFile], days: Collection[Day]
) -> tuple[StoredFile, ...]:
    """Return the files of some days whose content is not among others.

    Files are compared by origin: a file that an undo restored has its content under another name.
    """
    origins = {file.origin for file in others.values()}
    return tuple(file for file in some.values() if file.origin not in origins and file.day in days)


def _changed_since(table: Table, version: int, now: Snapshot) -> set[Day]:
    """Return the days whose rows may have changed since a version.

    Files that were only compacted since stay compacted.
    """
    # The log has every entry after a version that can be read.
    entries = (read_entry(table.path, each) for each in range(version + 1, now.version + 1))
    files = (file for entry in entries for file in (*entry.added, *entry.removed) if file.changes_rows)
    return {day_in(file.partition) for file in files}


def _read_since(table: Table, version: int, domains: Domains) -> set[Day]:
    """Return the days of which a table has read more of its inputs than it had at a version."""
    days: set[Day] = set()
    for source in table.domain.catalog.inputs_of(table.name):
        asked = _days_of_cursors(table, platform_table(source, domains(source)))
        now, then = read_cursors(table, source, asked), read_cursors(table, source, asked, version)
        days |= {day for day in asked if now[day] > then[day]}
    return days


def _undone_upstream(table: Table, version: int, now: Snapshot) -> set[Day]:
    """Return the days that undos of tables before this one have taken out of it since a version."""
    days: set[Day] = set()
    for note in commit_notes(table.path, now.version):
        if note.version <= version:
            break
        undo = note.user_metadata.get("undo") or {}
        began_in = undo.get("tables") or [name for name in [undo.get("table")] if name is not None]
        if any(table.name in _after(table, name) for name in began_in):
            named = (name.rpartition("/")[2] for name in note.user_metadata.get("cursors") or {})
            days |= {None if day == ALL_DAYS else dt.date.fromisoformat(day) for day in named}
    return days


def _after(table: Table, name: str) -> set[str]:
    """Return the tables that are made from another one."""
    return set(table.domain.catalog.downstream_of([name])) - {name}


def _days_of_cursors(table: Table, source: Table) -> list[Day]:
    if not _has_days(table):
        return [None]
    snapshot = source.snapshot()
    rows = {} if snapshot is None else snapshot.rows_by("partition_date")
    return [dt.date.fromisoformat(day) for day in sorted({day for (day,) in rows})]


def _without_days(
    domains: Domains, name: str, days: tuple[Day, ...], undo: Mapping[str, Any]
) -> TableRollback | None:
    """Plan to take days out of a table. None if the table does not exist.

    The plan commits even if the table has no rows of these days: a run that has already read the days can
    then no longer commit them.
    """
    table = platform_table(name, domains(name))
    snapshot = table.snapshot()
    if snapshot is None:
        return None
    expect(name, snapshot, undo_access(table))
    if not _has_days(table):
        days = (None,)
    removed = tuple(file for file in content_of(snapshot).values() if file.day in days)
    removed, kept = _keep(table, days, removed)
    return take_back(table, snapshot, days, undo, removed=removed, kept=kept)


def take_back(
    table: Table,
    snapshot: Snapshot,
    days: tuple[Day, ...],
    undo: Mapping[str, Any],
    *,
    removed: tuple[StoredFile, ...],
    restored: tuple[StoredFile, ...] = (),
    kept: tuple[KeptRows, ...] = (),
    cursors: Mapping[str, int] | None = None,
    transactions: Mapping[str, int] = MappingProxyType({}),
    facts_of: int | None = None,
) -> TableRollback:
    """Return the commit that undoes some days of one table.

    Args:
        table: The table.
        snapshot: Its newest version.
        days: The days to undo.
        undo: Description of the undo, for the commit's metadata.
        removed: Files to remove.
        restored: Files to restore.
        kept: Rows of removed files that stay in the table.
        cursors: Cursors to set; default: the cursors on the days, to nothing read.
        transactions: Other transaction ids to set.
        facts_of: The version whose facts are kept with the commit; default: the newest.
    """
    if cursors is None:
        sources = table.domain.catalog.inputs_of(table.name)
        cursors = {cursor_name(source, day): -1 for source in sources for day in days}
    replacement = Replacement(
        table=table,
        base_version=snapshot.version,
        removed=removed,
        restored=restored,
        kept=kept,
        cursors=cursors,
        transactions={**_offsets(table, snapshot, removed, restored), **transactions},
        undo=undo,
        facts=_facts(table, snapshot.version if facts_of is None else facts_of),
    )
    return TableRollback(replacement=replacement, days=days, before=tuple(content_of(snapshot).values()))


def _offsets(
    table: Table, snapshot: Snapshot, removed: Sequence[StoredFile], restored: Sequence[StoredFile]
) -> dict[str, int]:
    """Return the transactions that keep offsets from being assigned twice.

    They are needed when rows with the highest offsets may be removed.

    Tables without an offset column have none.
    """
    if table.contract is None or table.contract.offset_column is None:
        return {}
    dealt = next_offset(snapshot)
    rows = snapshot.row_count() - sum(file.rows for file in removed) + sum(file.rows for file in restored)
    return {DEALT: dealt, RETIRED: dealt - rows}


def _keep(
    table: Table, days: Collection[Day], removed: tuple[StoredFile, ...]
) -> tuple[tuple[StoredFile, ...], tuple[KeptRows, ...]]:
    """Keep rows of removed files: those that operators decided on, and those that no step makes again.

    Returns:
        The files that are still removed, and the rows of these that stay. A file with only such rows is not
        removed.
    """
    keep_rows = table.domain.catalog.undo_of(table.name).keep_rows
    if keep_rows is None:
        return removed, ()
    asked = [day for day in days if day is not None]
    stays = [one_of(each.column, each.values) for each in keep_rows(table.domain, asked) if each.values]
    found = [(file, rows_kept(table.path, file, reduce(or_, stays))) for file in removed] if stays else []
    whole = {file.name for file, kept in found if kept.rows.num_rows == file.rows}
    return (
        tuple(file for file in removed if file.name not in whole),
        tuple(kept for file, kept in found if kept.rows.num_rows and file.name not in whole),
    )


def _facts(table: Table, version: int) -> Mapping[str, Any]:
    keep_facts = table.domain.catalog.undo_of(table.name).keep_facts
    return {} if keep_facts is None else keep_facts(table, version)


def _has_days(table: Table) -> bool:
    return table.contract is not None and table.contract.is_daily


def _time(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

"""Plan to put tables back to their state before an undo whose days could not be recomputed.

Plans are computed from logs and statistics, like the undo itself (`plan.py`); no Spark is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS
from etl_assets.delta.log.cursor import cursor_name, read_cursors
from etl_assets.delta.log.entries import recent_user_metadata
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write.content import StoredFile, content_of
from etl_assets.steps.discard_dead_letters import DISCARDED
from etl_assets.steps.step import platform_table
from etl_assets.undo.plan import older, plan_days, take_back
from etl_assets.undo.undo import Day, Domains, TableRollback, Undo


def plan_put_back(domains: Domains, before: Mapping[str, int], days: Mapping[str, tuple[Day, ...]]) -> Undo:
    """Plan to put back the rows that tables had of some days at a version, with the cursors of that version.

    Rows that other writers committed to these days since are removed as well; the cursors are before them, so
    that they are read again. Dead letters that an operator discarded since stay discarded: the days of the
    dead_letters table are then taken out as an undo does, and the next run recomputes them from the restored
    tables.

    Args:
        domains: Where tables are.
        before: The version of each table, in the order of the data path.
        days: The days of each table to put back.

    Raises:
        FilesGone: files of a version no longer exist.
    """
    undo = {"kind": "put back", "to": dict(before)}
    found = (_planned(domains, name, version, days[name], undo) for name, version in before.items())
    return Undo(tables=tuple(each for tables in found for each in tables))


def _planned(
    domains: Domains, name: str, version: int, days: tuple[Day, ...], undo: Mapping[str, Any]
) -> tuple[TableRollback, ...]:
    table = platform_table(name, domains(name))
    if name == DEAD_LETTERS.name and _discarded_since(table, version):
        return plan_days(domains, [name], [day for day in days if day is not None]).tables
    return (_back(table, version, days, undo),)


def _discarded_since(table: Table, version: int) -> bool:
    newest = table.version()
    notes = recent_user_metadata(table.path, newest, newest - version)
    return any(DISCARDED in (note.get("facts") or {}) for note in notes)


def _back(table: Table, version: int, days: tuple[Day, ...], undo: Mapping[str, Any]) -> TableRollback:
    now, then = table.snapshot(), older(table, version)
    assert now is not None  # The table had the version, so it exists.
    before, wanted = _of_days(now, days), _of_days(then, days)
    return take_back(
        table,
        now,
        days,
        undo,
        removed=tuple(file for name, file in before.items() if name not in wanted),
        restored=tuple(file for name, file in wanted.items() if name not in before),
        cursors={
            cursor_name(source, day): cursor
            for source in table.domain.catalog.inputs_of(table.name)
            for day, cursor in read_cursors(
                table, platform_table(source, table.domain).name, days, version
            ).items()
        },
        facts_of=version,
    )


def _of_days(snapshot: Snapshot, days: tuple[Day, ...]) -> dict[str, StoredFile]:
    return {file.origin: file for file in content_of(snapshot).values() if file.day in days}

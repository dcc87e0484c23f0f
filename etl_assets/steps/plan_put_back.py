"""Planning to put tables back to what they had before an undo, whose days could not be made again.

Decided from logs and statistics, like the undo itself (`plan_undo.py`); no Spark is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from etl_assets.delta.content import StoredFile, content_of
from etl_assets.delta.cursor import cursor_name, read_cursors
from etl_assets.delta.table import Snapshot, Table
from etl_assets.steps.inputs import INPUTS
from etl_assets.steps.plan_undo import older, take_back
from etl_assets.steps.step import platform_table
from etl_assets.steps.undo import Day, Domains, TakeBack, Undo


def plan_put_back(domains: Domains, before: Mapping[str, int], days: Mapping[str, tuple[Day, ...]]) -> Undo:
    """Plan to give tables the rows of some days that they had at a version, with the cursors of that version.

    What other writers committed to these days since goes as well; the cursors are behind it, so that it is read again.

    Args:
        domains: Where tables are.
        before: The version of each table, in the order of the data path.
        days: The days of each that it is about.

    Raises:
        FilesGone: files of a version are not there any more.
    """
    undo = {"kind": "put back", "to": dict(before)}
    tables = (platform_table(name, domains(name)) for name in before)
    return Undo(tables=tuple(_back(table, before[table.name], days[table.name], undo) for table in tables))


def _back(table: Table, version: int, days: tuple[Day, ...], undo: Mapping[str, Any]) -> TakeBack:
    now, then = table.snapshot(), older(table, version)
    assert now is not None  # it had the version
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
            for source in INPUTS.get(table.name, ())
            for day, cursor in read_cursors(
                table, platform_table(source, table.domain).name, days, version
            ).items()
        },
        facts_of=version,
    )


def _of_days(snapshot: Snapshot, days: tuple[Day, ...]) -> dict[str, StoredFile]:
    return {file.origin: file for file in content_of(snapshot).values() if file.day in days}

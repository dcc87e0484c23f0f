"""Records of changes that lack values of their row: which columns these are, and that they are not missing.

Belongs here: what follows from the declaration. Does not belong here: where the values come from
(`delta/write/completed_changes.py`).
"""

from __future__ import annotations

import json

from etl_assets.contracts.rules import NotNull
from etl_assets.contracts.sql_text import identifier, string_literal
from etl_assets.delta.write.completed_changes import LackingColumns
from etl_assets.pipelines.debezium_spec import UNAVAILABLE_COLUMN
from etl_assets.pipelines.declared import OFFSET, DeclaredTables
from etl_assets.pipelines.log_changes import log_of
from etl_assets.transforms.typed_records import Partial


def lacking_columns(tables: DeclaredTables) -> LackingColumns | None:
    """Return the columns of changes that may lack values; None if the source's changes are whole."""
    spec, log = tables.spec, log_of(tables.spec.source)
    if log is None or UNAVAILABLE_COLUMN not in spec.columns or spec.transforms:
        return None
    others = {*spec.table.keys, *log.columns, *spec.table.except_column_list}
    return LackingColumns(
        keys=spec.table.keys,
        sequence=tables.order[0],
        arrival=OFFSET,
        lacks=UNAVAILABLE_COLUMN,
        fields={name: each.from_ or name for name, each in spec.columns.items() if name not in others},
        key_fields=tuple(spec.columns[name].from_ or name for name in spec.table.keys),
    )


def lacking_records(tables: DeclaredTables) -> list[Partial]:
    """Return which records do not need the value of a column, because they lack it."""
    lacking = lacking_columns(tables)
    if lacking is None:
        return []
    columns = tables.parsed_columns
    judged = [
        each for each in columns if not each.nullable or any(not isinstance(r, NotNull) for r in each.rules)
    ]
    names = frozenset(each.name for each in columns)
    marks = {
        each.name: lacked_mark(lacking.fields[each.name]) for each in judged if each.name in lacking.fields
    }
    lacks = identifier(lacking.lacks)
    return [
        Partial(condition=f"contains({lacks}, {string_literal(mark)})", needs=names - {name})
        for name, mark in marks.items()
    ]


def lacked_mark(field: str) -> str:
    """Return a text that what a record lacks has in it if it lacks a field."""
    return json.dumps(field) + ":"

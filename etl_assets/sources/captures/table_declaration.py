"""The declaration of a captured table's pipeline, from the table's columns.

Belongs here: names and types. Does not belong here: asking the server (`discovery.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from etl_assets.pipelines.capture_spec import CaptureSpec
from etl_assets.pipelines.change_history import OPERATION_COLUMN, SEQUENCE_COLUMN, TIME_COLUMN
from etl_assets.pipelines.postgres_cdc_spec import CHANGE_COLUMN, LSN_COLUMN, POSTGRES_CDC
from etl_assets.sources.captures.table_states import CapturedTableState
from etl_assets.sources.postgres_cdc.column_changes import Columns
from etl_assets.sources.postgres_cdc.source_table import SourceTable
from etl_assets.sources.postgres_cdc.types import PostgresType, ValuePolicies, value_type

if TYPE_CHECKING:
    import pyarrow as pa

_TAKEN = frozenset({CHANGE_COLUMN, LSN_COLUMN, "batch_id", "partition_date"})
_TAKEN_BY_HISTORY = frozenset({OPERATION_COLUMN, SEQUENCE_COLUMN, TIME_COLUMN})


def table_declaration(
    capture: CaptureSpec, state: CapturedTableState, table: SourceTable, types: Mapping[int, PostgresType]
) -> dict[str, Any]:
    """Return the declaration of a table's pipeline, as JSON.

    Args:
        capture: The capture.
        state: The table's state, which has the name of its pipeline.
        table: The table.
        types: Types of the server that its columns have.
    """
    columns: dict[str, Any] = {}
    names: dict[str, str] = {}
    taken = _TAKEN | _TAKEN_BY_HISTORY if capture.history else _TAKEN
    stored = stored_types(table.relation.columns, types)
    for each in table.relation.columns:
        name = _free_name(each.name, taken | columns.keys())
        names[each.name] = name
        columns[name] = {"type": stored[each.name]} | ({"from": each.name} if name != each.name else {})
    found: dict[str, Any] = {
        "name": state.pipeline,
        "description": f"{state.table} of the connection {capture.connection}, by the capture {capture.name}",
        "source": {
            "type": POSTGRES_CDC,
            "connection": capture.connection,
            "table": state.table,
            "publication": capture.publication,
            "slot": capture.slot,
            "on_lost": capture.on_lost.value,
            "max_batch_records": capture.max_batch_records,
            "max_transaction_records": capture.max_transaction_records,
            "capture": capture.name,
        },
        "columns": columns,
        "table": {"keys": [names[key] for key in table.keys]}
        | ({"history": True} if capture.history else {}),
    }
    if not capture.keep_records:
        found["source"]["keep_records"] = False
    if capture.sinks:
        found["sinks"] = [dict(each) for each in capture.sinks]
    if capture.owners:
        found["owners"] = list(capture.owners)
    return found


def stored_types(columns: Columns, types: Mapping[int, PostgresType]) -> dict[str, str]:
    """Return what columns of a table are stored as, by name, as a declaration has it.

    Args:
        columns: The columns.
        types: Types of the server that they have.
    """
    return {
        each.name: delta_type(value_type(each.type_oid, each.type_modifier, types, ValuePolicies()).arrow)
        for each in columns
    }


def delta_type(arrow: pa.DataType) -> str:
    """Return the type of a column in a declaration."""
    from pyarrow import types

    if types.is_list(arrow):
        return f"array<{delta_type(arrow.value_type)}>"
    if types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if types.is_timestamp(arrow):
        return "timestamp"
    if types.is_date(arrow):
        return "date"
    names = {"bool": "boolean", "int16": "int", "int32": "int", "int64": "bigint", "float": "double"}
    return names.get(str(arrow), "double" if types.is_floating(arrow) else "string")


def _free_name(name: str, taken: Set[str]) -> str:
    """Return the name of a column: lower case, and unlike the others and those of the platform."""
    plain = re.sub(r"[^a-z0-9_]", "_", name.lower())
    found = plain if plain[:1].isalpha() else f"c_{plain.lstrip('_')}"
    while found in taken:
        found += "_"
    return found

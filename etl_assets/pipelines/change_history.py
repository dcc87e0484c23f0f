"""The table with every change of a table that follows a database's log: what it is declared as.

Belongs here: names, columns, and which declarations can have one. Does not belong here: the contract
(`declared.py`), and the versions of rows that are made of the changes (`row_versions.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from etl_assets.contracts.write_mode import WriteMode
from etl_assets.pipelines import debezium_spec, postgres_cdc_spec
from etl_assets.pipelines.debezium_spec import DebeziumSource
from etl_assets.pipelines.postgres_cdc_spec import PostgresCdcSource
from etl_assets.pipelines.transform_specs import PythonTransform, SqlTransform

if TYPE_CHECKING:
    from etl_assets.pipelines.spec import PipelineSpec
    from etl_assets.pipelines.spec_fields import Spec

OPERATION_COLUMN, SEQUENCE_COLUMN, TIME_COLUMN = (
    "operation_in_source",
    "sequence_in_source",
    "committed_at_in_source",
)
"""Columns of the history beside those of the records: what the database did, the place of a change among
those of its transaction, and when that was committed."""
_TIME = "When the database committed the change, by its clock; of a copied row, when it was copied."
_OF_POSTGRES = {
    OPERATION_COLUMN: {
        "type": "string",
        "from": postgres_cdc_spec.OPERATION_FIELD,
        "description": "What the database did: `insert`, `update`, `delete`, `truncate`, or `copy`.",
    },
    SEQUENCE_COLUMN: {
        "type": "bigint",
        "from": postgres_cdc_spec.SEQUENCE_FIELD,
        "description": "Place of the change among those of its transaction.",
    },
    TIME_COLUMN: {
        "type": "timestamp",
        "from": postgres_cdc_spec.COMMITTED_AT_FIELD,
        "description": _TIME,
    },
}
_OF_DEBEZIUM = {
    TIME_COLUMN: {"type": "timestamp", "from": debezium_spec.TIME_FIELD, "description": _TIME},
}


def history_name(table: str) -> str:
    """Return the name of the table with every change of a table."""
    return f"{table}_history"


def versions_name(table: str) -> str:
    """Return the name under which the versions of a table's rows can be queried."""
    return f"{table}_versions"


def history_columns(source: Spec) -> Mapping[str, Mapping[str, str]]:
    """Return the columns of a history that the records have and the table has not, as declarations."""
    match source:
        case PostgresCdcSource():
            return _OF_POSTGRES
        case DebeziumSource():
            return _OF_DEBEZIUM
    return {}


def expect_history(spec: PipelineSpec) -> None:
    """Expect that a declaration which asks for a history can have one.

    Raises:
        ValueError: it cannot.
    """
    added = history_columns(spec.source)
    if not added:
        raise ValueError(
            f"table.history needs the changes of a database's log, and the source is {spec.source.type};"
            " leave table.history out, or follow the log by a source of type postgres_cdc or debezium"
        )
    if taken := [name for name in added if name in spec.columns]:
        raise ValueError(f"the column {taken[0]} is one of the history; give yours another name")
    for index, each in enumerate(spec.transforms):
        if isinstance(each, SqlTransform | PythonTransform):
            raise ValueError(
                f"transforms.{index} ({each.type}) may make other rows of a change, and a history has one row"
                " for each; leave table.history out, or use map, filter and lookup"
            )


def history_spec(spec: PipelineSpec) -> PipelineSpec:
    """Return the declaration of the history of a pipeline's table: every change is a row of its own."""
    from etl_assets.pipelines.spec import ColumnSpec

    added = {name: ColumnSpec.model_validate(each) for name, each in history_columns(spec.source).items()}
    table = spec.table.model_copy(
        update={
            "name": history_name(spec.table_name),
            "description": (
                f"Every change of {spec.table_name}, once, in the order of arrival. The order of the changes"
                f" is that of their places in the log. `{versions_name(spec.table_name)}` has the versions of"
                " rows that follow from them."
            ),
            "write_mode": WriteMode.APPEND,
            "keys": (),
            "sequence_by": None,
            "partition_by": None,
            "trace_context": None,
            "except_column_list": tuple(
                name
                for name in spec.table.except_column_list
                if name not in (postgres_cdc_spec.CHANGE_COLUMN, debezium_spec.CHANGE_COLUMN)
            ),
            "history": False,
        }
    )
    return spec.model_copy(update={"columns": {**spec.columns, **added}, "table": table, "sinks": ()})

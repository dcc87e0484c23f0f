"""Where a record came from, in words, and the trace that it belongs to. Pure.

Belongs here: what the columns of a source table say of one record. Does not belong here: finding it
(`record_history.py`, `traced_records.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.trace_context import trace_id_of
from etl_assets.pipelines.source_specs import KAFKA, SQL, SqlSource

if TYPE_CHECKING:
    from etl_assets.pipelines.spec import PipelineSpec


def origin_of(spec: PipelineSpec, record: Mapping[str, Any]) -> str:
    """Return the place of a record in a source that has no files; else its source position.

    Args:
        spec: The declaration of its pipeline.
        record: The record as the source table has it.
    """
    position: str = record["source_position"]
    if record["source"] == KAFKA:
        topic, _, place = position.rpartition("/")
        partition, _, offset = place.partition(":")
        return f"topic {topic}, Kafka partition {partition}, offset {offset}"
    if record["source"] == SQL and isinstance(spec.source, SqlSource):
        values = json.loads(record["record"])
        keys = dict.fromkeys(spec.source.keys)
        return f"the row with {', '.join(f'{name} {values.get(name)}' for name in keys)}"
    return position


def trace_id_of_record(
    spec: PipelineSpec, record: Mapping[str, Any] | None, rows: tuple[Mapping[str, Any], ...]
) -> str | None:
    """Return the trace id of a record, from its rows in the table, or from the record itself."""
    name = spec.table.trace_context
    if name is None:
        return None
    for row in rows:
        if (found := trace_id_of(row.get(name))) is not None:
            return found
    column = spec.columns.get(name)
    if record is None or column is None:
        return None
    return trace_id_of(json.loads(record["record"]).get(column.from_ or name))

"""audit_log: the outcomes of every event."""

from __future__ import annotations

from dataclasses import replace

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.rules import AtLeast, OneOf
from etl_assets.contracts.tables.recurring_columns import COMMIT_STAMPS, TRACE_ID, label
from etl_assets.orders.tables.exceptions import NORMALIZED_ORDERS_EXCEPTIONS, RAW_EVENTS_EXCEPTIONS
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS


def _from_stages(raw: str, normalized: str, warehouse: str) -> tuple[str, ...]:
    return (
        f"{RAW_EVENTS.name}.{raw}",
        f"{NORMALIZED_ORDERS.name}.{normalized}",
        f"{WAREHOUSE_ROWS.name}.{warehouse}",
    )


def _from_exceptions(name: str) -> tuple[str, ...]:
    return (f"{RAW_EVENTS_EXCEPTIONS.name}.{name}", f"{NORMALIZED_ORDERS_EXCEPTIONS.name}.{name}")


AUDIT_LOG = TableContract(
    name="audit_log",
    description=(
        "What became of every record at every stage: one row for each stage, record and attempt. Only ever"
        " appended to."
    ),
    columns=(
        label("stage", "Stage that judged the record."),
        Column(
            "event_id",
            "STRING",
            "Event id of the record; null where it names none.",
            nullable=True,
            derived_from=(*_from_stages("event_id", "event_id", "event_id"), *_from_exceptions("event_id")),
        ),
        label("source", "Name of the source or table the stage read the record from."),
        label(
            "source_position",
            "Where in that source: `<day>/<file>:<line>` for landing files, else the offset.",
        ),
        Column("attempt", "INT", "1, and 1 more for each replay.", rules=(AtLeast(1),)),
        Column(
            "outcome",
            "STRING",
            "What became of the record.",
            rules=(OneOf(tuple(Outcome)),),
            derived_from=_from_exceptions("outcome"),
        ),
        label(
            "domain",
            "Failure domain in which the stage ran.",
            derived_from=(
                *_from_stages("ingest_domain", "transform_domain", "sink_domain"),
                *_from_exceptions("domain"),
            ),
        ),
        Column(
            "offset",
            "BIGINT",
            "Offset of the row the record became at that stage; for a duplicate or a conflict the raw_events"
            " offset of the accepted event; null for other rejected records.",
            nullable=True,
            rules=(AtLeast(0),),
            derived_from=(
                *_from_stages("offset", "offset", "normalized_offset"),
                *_from_exceptions("original_offset"),
            ),
        ),
        Column("recorded_at", "TIMESTAMP", "When the stage judged it, by the platform's clock (UTC)."),
        replace(
            TRACE_ID,
            derived_from=(*_from_stages("trace_id", "trace_id", "trace_id"), *_from_exceptions("trace_id")),
        ),
        *COMMIT_STAMPS,
    ),
    merge_key=("stage", "event_id", "source", "source_position", "attempt"),
    delta_partition=("partition_date",),
    append_only=True,
)

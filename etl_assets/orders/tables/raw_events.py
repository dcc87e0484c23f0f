"""raw_events: accepted events, each once, in order of acceptance."""

from __future__ import annotations

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import AtLeast, HexDigits, NotEmpty
from etl_assets.contracts.tables.recurring_columns import (
    COMMIT_STAMPS,
    SPAN_ID,
    TENANT_RULES,
    TRACE_ID,
    identifier,
    label,
    position,
)

RAW_EVENTS = TableContract(
    name="raw_events",
    description=(
        "Every accepted event, once: one row for each event id, in order of acceptance. The envelope is"
        " checked, the payload is kept as it came (in canonical form), also of unknown types and newer"
        " versions."
    ),
    columns=(
        position("offset", "Place in the order of acceptance: dense, from 0, over all days."),
        identifier("event_id", "The producer's id of the event; unique over all history."),
        Column("tenant_id", "STRING", "Whose event it is.", rules=TENANT_RULES),
        identifier("aggregate_id", "Id of what the event is about; for orders the order id."),
        identifier("event_type", "Type on the wire, known or not, such as `OrderCreated`."),
        Column("schema_version", "INT", "Version of the payload's contract, as sent.", rules=(AtLeast(1),)),
        Column("occurred_at", "TIMESTAMP", "When it happened, by the producer's clock (UTC)."),
        Column(
            "payload",
            "STRING",
            "The payload as canonical JSON, unknown fields included.",
            rules=(NotEmpty(),),
        ),
        Column(
            "fingerprint",
            "STRING",
            "SHA-256 of the canonical JSON of all the producer sent except trace_id and span_id.",
            rules=(HexDigits(64),),
        ),
        TRACE_ID,
        SPAN_ID,
        label("source", "Name of the source it came from, such as `landing`."),
        label("source_position", "Where in the source: `<day>/<file>:<line>` for landing files."),
        label("ingest_domain", "Failure domain that accepted it."),
        Column("ingested_at", "TIMESTAMP", "When it was accepted, by the platform's clock (UTC)."),
        *COMMIT_STAMPS,
    ),
    merge_key=("event_id",),
    ordering="offset",
    offset_column="offset",
    delta_partition=("partition_date",),
    append_only=True,
)

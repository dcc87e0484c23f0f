"""Exceptions of a stage: records that did not become a new row.

All stages share one shape, with one table per stage.

Belongs here: the exceptions that a stage commits itself, before its main commit. Does not belong here:
dead_letters, which an asset of its own derives from these tables.
"""

from __future__ import annotations

from dataclasses import replace

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.reasons import EXCEPTIONAL_OUTCOMES, DeadLetterReason, RecordEncoding
from etl_assets.contracts.rules import AtLeast, OneOf
from etl_assets.contracts.tables.recurring_columns import COMMIT_STAMPS, TRACE_ID, identifier, label

_CARRIED_OVER = ("source", "source_position", "event_id", "trace_id")
"""Columns that an exception copies from its input row, if the input table has them."""

EXCEPTION_COLUMNS: tuple[Column, ...] = (
    identifier("exception_id", "Deterministic id: a batch that runs again gives the same ones."),
    label("stage", "Stage that met the record."),
    Column("outcome", "STRING", "What became of the record.", rules=(OneOf(EXCEPTIONAL_OUTCOMES),)),
    Column(
        "reason",
        "STRING",
        "Why it was refused; null for a duplicate.",
        nullable=True,
        rules=(OneOf(tuple(DeadLetterReason)),),
    ),
    Column("error", "STRING", "What exactly is wrong, in words.", nullable=True),
    Column("record", "STRING", "The record as it came; null where it is not kept.", nullable=True),
    Column(
        "record_encoding",
        "STRING",
        "How `record` is written: as it came, or in base64 because it was not UTF-8.",
        nullable=True,
        rules=(OneOf(tuple(RecordEncoding)),),
    ),
    label("source", "Name of the source it came from."),
    label("source_position", "Where in the source: `<day>/<file>:<line>` for landing files."),
    Column("event_id", "STRING", "Event id the record names, if it names one.", nullable=True),
    Column(
        "original_offset",
        "BIGINT",
        "Offset of the accepted record that it is, repeats or contradicts.",
        nullable=True,
        rules=(AtLeast(0),),
    ),
    TRACE_ID,
    label("domain", "Failure domain in which the stage ran."),
    Column("failed_at", "TIMESTAMP", "When the stage met it, by the platform's clock (UTC)."),
    *COMMIT_STAMPS,
)


def exceptions_of(
    output: TableContract, *, read_from: TableContract | None, name: str | None = None
) -> TableContract:
    """Return the contract of the exceptions table of a stage.

    Args:
        output: The table that the stage writes.
        read_from: The table that it reads; None for a source.
        name: Name of the exceptions table; default `<output>_exceptions`.
    """
    return TableContract(
        name=name or f"{output.name}_exceptions",
        description=(
            f"Records that the stage which writes {output.name} found to be a duplicate, a conflict or"
            " unusable. Written before the stage's rows; a batch that runs again adds nothing."
        ),
        columns=tuple(_carried_over(column, read_from) for column in EXCEPTION_COLUMNS),
        merge_key=("exception_id",),
        delta_partition=("partition_date", "outcome"),
        append_only=True,
    )


def _carried_over(column: Column, read_from: TableContract | None) -> Column:
    if read_from is None or column.name not in _CARRIED_OVER or column.name not in read_from.names:
        return column
    return replace(column, derived_from=(f"{read_from.name}.{column.name}",))

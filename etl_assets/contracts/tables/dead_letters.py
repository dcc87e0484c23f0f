"""dead_letters: the rejected records of all stages, ready to be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.reasons import DeadLetterReason, DeadLetterState
from etl_assets.contracts.rules import AtLeast, OneOf
from etl_assets.contracts.tables.exceptions import EXCEPTION_COLUMNS
from etl_assets.contracts.tables.recurring_columns import COMMIT_STAMPS, identifier

_COLUMNS = {column.name: column for column in EXCEPTION_COLUMNS}
_TAKEN_FROM = {"dead_letter_id": "exception_id"}
"""Columns that have another name in exceptions."""

DEAD_LETTERS = TableContract(
    name="dead_letters",
    description=(
        "Every refused record of every stage, with its reason and as it came, until it is replayed or"
        " discarded. A conflict is a dead letter, a duplicate is not."
    ),
    columns=(
        identifier("dead_letter_id", "Id of the dead letter; a replay keeps it."),
        _COLUMNS["stage"],
        Column(
            "reason",
            "STRING",
            "Why the record was refused.",
            rules=(OneOf(tuple(DeadLetterReason)),),
        ),
        _COLUMNS["error"],
        _COLUMNS["record"],
        _COLUMNS["record_encoding"],
        _COLUMNS["source"],
        _COLUMNS["source_position"],
        _COLUMNS["event_id"],
        _COLUMNS["trace_id"],
        Column(
            "attempts",
            "INT",
            "How often the record was handed in: 1, and 1 more for each replay.",
            rules=(AtLeast(1),),
        ),
        Column("state", "STRING", "Where it is in its life.", rules=(OneOf(tuple(DeadLetterState)),)),
        _COLUMNS["failed_at"],
        *COMMIT_STAMPS,
    ),
    merge_key=("dead_letter_id",),
    ordering="attempts",
    delta_partition=("partition_date",),
)


def dead_letters_table(rejects: Sequence[TableContract]) -> TableContract:
    """Return the contract of dead_letters with its lineage: the tables of rejected rows it is made from."""

    def traced(column: Column) -> Column:
        name = _TAKEN_FROM.get(column.name, column.name)
        if name not in _COLUMNS or column.name in ("batch_id", "partition_date"):
            return column
        return replace(column, derived_from=tuple(f"{each.name}.{name}" for each in rejects))

    return replace(DEAD_LETTERS, columns=tuple(map(traced, DEAD_LETTERS.columns)))

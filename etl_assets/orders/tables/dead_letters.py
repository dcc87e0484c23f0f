"""dead_letters: the rejected records of all stages, ready to be replayed."""

from __future__ import annotations

from dataclasses import replace

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.reasons import DeadLetterReason, DeadLetterState
from etl_assets.contracts.rules import AtLeast, OneOf
from etl_assets.contracts.tables.recurring_columns import COMMIT_STAMPS, identifier
from etl_assets.orders.tables.exceptions import EXCEPTIONS_TABLES


def _from_exceptions(name: str) -> tuple[str, ...]:
    return tuple(f"{contract.name}.{name}" for contract in EXCEPTIONS_TABLES)


def _as_in_exceptions(name: str) -> Column:
    return replace(EXCEPTIONS_TABLES[0].column(name), derived_from=_from_exceptions(name))


DEAD_LETTERS = TableContract(
    name="dead_letters",
    description=(
        "Every refused record of every stage, with its reason and as it came, until it is replayed or"
        " discarded. A conflict is a dead letter, a duplicate is not."
    ),
    columns=(
        identifier(
            "dead_letter_id",
            "Id of the dead letter; a replay keeps it.",
            derived_from=_from_exceptions("exception_id"),
        ),
        _as_in_exceptions("stage"),
        Column(
            "reason",
            "STRING",
            "Why the record was refused.",
            rules=(OneOf(tuple(DeadLetterReason)),),
            derived_from=_from_exceptions("reason"),
        ),
        _as_in_exceptions("error"),
        _as_in_exceptions("record"),
        _as_in_exceptions("record_encoding"),
        _as_in_exceptions("source"),
        _as_in_exceptions("source_position"),
        _as_in_exceptions("event_id"),
        _as_in_exceptions("trace_id"),
        Column(
            "attempts",
            "INT",
            "How often the record was handed in: 1, and 1 more for each replay.",
            rules=(AtLeast(1),),
        ),
        Column("state", "STRING", "Where it is in its life.", rules=(OneOf(tuple(DeadLetterState)),)),
        _as_in_exceptions("failed_at"),
        *COMMIT_STAMPS,
    ),
    merge_key=("dead_letter_id",),
    ordering="attempts",
    delta_partition=("partition_date",),
)

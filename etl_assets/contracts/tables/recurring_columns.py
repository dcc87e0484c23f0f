"""Recurring columns: those that several tables have in the same shape.

Belongs here: a column's shape and rules where two tables or more share them. Does not belong here: a whole
table.
"""

from __future__ import annotations

from etl_assets.contracts.columns import Column
from etl_assets.contracts.rules import AtLeast, DoesNotContain, Matches, MaxCharacters, NotEmpty

MAX_ID_CHARACTERS = 512

TENANT_RULES = (
    NotEmpty(),
    MaxCharacters(MAX_ID_CHARACTERS),
    # The warehouse key is made of tenant and event id with a slash between them: with one slash in each, two
    # different events would get the same key.
    DoesNotContain("/"),
)
AMOUNT_TYPE = "DECIMAL(18,2)"
CURRENCY_RULES = (Matches("[A-Z]{3}", "three capital letters (ISO 4217)"),)

BATCH_ID = Column(
    "batch_id",
    "BIGINT",
    "Number of the planned batch that wrote the row; the commit's transaction id.",
    rules=(AtLeast(0),),
)
PARTITION_DATE = Column("partition_date", "DATE", "Day (UTC) on which the record arrived at its source.")
COMMIT_STAMPS = (BATCH_ID, PARTITION_DATE)
"""What the commit knows of every row; nearly every table ends with them."""

TRACE_ID = Column("trace_id", "STRING", "Trace of the producer, as sent.", nullable=True)
SPAN_ID = Column("span_id", "STRING", "Span of the producer, as sent.", nullable=True)


def identifier(name: str, description: str, *, derived_from: tuple[str, ...] = ()) -> Column:
    """An id: a string that is there, not empty and not longer than an id may be."""
    return Column(
        name,
        "STRING",
        description,
        rules=(NotEmpty(), MaxCharacters(MAX_ID_CHARACTERS)),
        derived_from=derived_from,
    )


def label(name: str, description: str, *, derived_from: tuple[str, ...] = ()) -> Column:
    """A name the platform gives: a string that is there and not empty."""
    return Column(name, "STRING", description, rules=(NotEmpty(),), derived_from=derived_from)


def position(name: str, description: str, *, derived_from: tuple[str, ...] = ()) -> Column:
    """An offset: a whole number from 0."""
    return Column(name, "BIGINT", description, rules=(AtLeast(0),), derived_from=derived_from)

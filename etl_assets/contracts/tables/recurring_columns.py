"""Recurring columns: those that several tables share in the same form.

Belongs here: the form and rules of a column that at least two tables share. Does not belong here: a whole
table.
"""

from __future__ import annotations

from etl_assets.contracts.columns import Column
from etl_assets.contracts.rules import AtLeast, DoesNotContain, Matches, MaxCharacters, NotEmpty

MAX_ID_CHARACTERS = 512

TENANT_RULES = (
    NotEmpty(),
    MaxCharacters(MAX_ID_CHARACTERS),
    # The warehouse key is tenant and event id, joined by a slash. If both could contain slashes, two
    # different events might get the same key.
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
"""Columns that the commit adds to every row; nearly every table ends with them."""

TRACE_ID = Column("trace_id", "STRING", "Trace of the producer, as sent.", nullable=True)
SPAN_ID = Column("span_id", "STRING", "Span of the producer, as sent.", nullable=True)


def identifier(name: str, description: str, *, derived_from: tuple[str, ...] = ()) -> Column:
    """Return the column of an id: a string that is not null, not empty and not longer than an id may be."""
    return Column(
        name,
        "STRING",
        description,
        rules=(NotEmpty(), MaxCharacters(MAX_ID_CHARACTERS)),
        derived_from=derived_from,
    )


def label(name: str, description: str, *, derived_from: tuple[str, ...] = ()) -> Column:
    """Return the column of a name that the platform assigns: a string that is neither null nor empty."""
    return Column(name, "STRING", description, rules=(NotEmpty(),), derived_from=derived_from)


def position(name: str, description: str, *, derived_from: tuple[str, ...] = ()) -> Column:
    """Return the column of an offset: a whole number from 0."""
    return Column(name, "BIGINT", description, rules=(AtLeast(0),), derived_from=derived_from)

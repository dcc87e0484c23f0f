"""Tombstones of a table that applies changes: what deletes and truncates leave when their rows are gone."""

from __future__ import annotations

from dataclasses import replace

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import AtLeast

IS_TRUNCATE = "_is_truncate"


def tombstones_name(table: str) -> str:
    """Return the name of the table of tombstones of a table."""
    return f"{table}_tombstones"


def tombstones_of(table: TableContract, *, order: tuple[str, ...]) -> TableContract:
    """Return the contract of the table of tombstones of a table.

    Args:
        table: The table that applies changes, with the column `_batch_id`.
        order: Its columns that place a change in the sequence.
    """

    def copied(name: str, description: str, *, nullable: bool) -> Column:
        column = table.column(name)
        return replace(column.taken_from(table.name), description=description, nullable=nullable, rules=())

    return TableContract(
        name=tombstones_name(table.name),
        description=(
            f"The newest delete of each key of {table.name} and the newest truncate: changes that are older"
            " have no effect when they arrive. Written before the rows; a batch that runs again adds nothing."
        ),
        columns=(
            Column(IS_TRUNCATE, "BOOLEAN", "Whether it is of a truncate, which has no key."),
            *(copied(name, "A key of the deleted row.", nullable=True) for name in table.merge_key),
            *(copied(name, "The place of the change in the sequence.", nullable=False) for name in order),
            Column(
                "_batch_id",
                "BIGINT",
                "The version of this table that wrote the tombstone.",
                rules=(AtLeast(0),),
            ),
        ),
        merge_key=(IS_TRUNCATE, *table.merge_key),
        ordering=order[0],
        nullable_keys=True,
    )

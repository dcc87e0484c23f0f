"""Deliveries to a sink: one row for each step of a target from one position to the next."""

from __future__ import annotations

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import AtLeast, NotEmpty


def deliveries_name(table: str, sink: str) -> str:
    """Return the name of the table of deliveries of a table to a sink."""
    return f"{table}_to_{sink}"


def deliveries_of(table: str, sink: str) -> TableContract:
    """Return the contract of the table of deliveries of a table to a sink."""

    def number(name: str, meaning: str) -> Column:
        return Column(
            name, "BIGINT", f"{meaning}; null if the process that delivered died first.", nullable=True
        )

    return TableContract(
        name=deliveries_name(table, sink),
        description=f"Deliveries of {table} to its sink {sink}, each once. The last one has the position.",
        columns=(
            Column(
                "to_version", "BIGINT", f"The version of {table} that the target has.", rules=(AtLeast(0),)
            ),
            Column("from_version", "BIGINT", "The version that it had; null if it had none.", nullable=True),
            Column("table_id", "STRING", f"Id of {table}.", rules=(NotEmpty(),)),
            Column("tombstones", "BIGINT", "The version of the tombstones; -1 if there are none."),
            Column("whole", "BOOLEAN", "Whether every row was delivered; null if not known.", nullable=True),
            number("written", "Rows that were written"),
            number("unchanged", "Rows that the target had already"),
            number("deleted", "Rows that were removed"),
            number("rejected", "Rows that the target did not accept"),
            Column("guarantee", "STRING", "The sink's guarantee.", rules=(NotEmpty(),)),
            Column("domain", "STRING", "Failure domain in which the step ran.", rules=(NotEmpty(),)),
            Column("began_at", "TIMESTAMP", "When the delivery began (UTC)."),
            Column("seconds", "DOUBLE", "How long it took, in seconds."),
            Column(
                "_batch_id", "BIGINT", "The version of this table that wrote the row.", rules=(AtLeast(0),)
            ),
        ),
        merge_key=("_batch_id",),
        append_only=True,
    )

"""A sink of type postgres: a table of a PostgreSQL database."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from etl_assets.pipelines.sink_specs.base import BaseSinkSpec

POSITIONS = "etl_assets_positions"
"""Name of the table of positions, beside the targets of a schema."""


def _target(value: str) -> str:
    if value.endswith(f".{POSITIONS}"):
        raise ValueError(f"{POSITIONS} is where the platform keeps positions; give the table another name")
    return value


class PostgresSinkSpec(BaseSinkSpec):
    """A table in PostgreSQL, exactly once: rows and position are committed in one transaction.

    The table is created from the pipeline's table, with its keys as primary key. Columns are added and
    widened.
    """

    connection_type: ClassVar[str] = "postgres"
    kind: ClassVar[str] = "postgres"
    type: Literal["postgres"]
    table: Annotated[
        str,
        AfterValidator(_target),
        Field(
            pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}\.[A-Za-z_][A-Za-z0-9_]{0,62}$",
            examples=["analytics.suppliers"],
            description="schema and table; the schema is created if it is missing",
        ),
    ]

    @property
    def target_field(self) -> str:
        """The field that names the target."""
        return "table"

    @property
    def target_name(self) -> str:
        """Schema and table."""
        return self.table

"""A sink of type duckdb: a table of a DuckDB file."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from etl_assets.pipelines.sink_specs.base import BaseSinkSpec


class DuckdbSinkSpec(BaseSinkSpec):
    """A table in a DuckDB file, exactly once: rows and position are committed in one transaction."""

    connection_type: ClassVar[str] = "duckdb"
    kind: ClassVar[str] = "duckdb"
    type: Literal["duckdb"]
    table: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$",
            examples=["suppliers", "analytics.suppliers"],
            description="table, or schema and table; both are created if they are missing",
        ),
    ]

    @property
    def target_field(self) -> str:
        """The field that names the target."""
        return "table"

    @property
    def target_name(self) -> str:
        """The table as declared."""
        return self.table

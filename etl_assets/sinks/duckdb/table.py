"""The target's table in a DuckDB file: created, widened and checked from a contract."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.errors import SinkRefused
from etl_assets.sinks.duckdb.types import duckdb_type, may_widen, quoted

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from etl_assets.contracts.columns import TableContract


@dataclass(frozen=True, slots=True)
class DuckdbTable:
    """A table of a schema in the file."""

    schema: str
    name: str

    @property
    def sql(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    def columns(self, connection: DuckDBPyConnection) -> dict[str, tuple[str, bool]]:
        """Return type and nullability of each column; empty if there is no such table.

        Raises:
            SinkRefused: the name belongs to a view.
        """
        parts = [self.schema, self.name]
        kind = connection.execute(
            "SELECT table_type FROM information_schema.tables WHERE table_schema = ? AND table_name = ?",
            parts,
        ).fetchone()
        if kind is not None and kind[0] != "BASE TABLE":
            raise self.refused(f"is a {kind[0].lower()}", "choose the name of a table")
        found = connection.execute(
            "SELECT column_name, data_type, is_nullable FROM information_schema.columns"
            " WHERE table_schema = ? AND table_name = ? AND table_catalog = current_database()",
            parts,
        ).fetchall()
        return {name: (type_, nullable == "YES") for name, type_, nullable in found}

    def rows(self, connection: DuckDBPyConnection) -> int:
        """Return the number of rows."""
        return int(connection.execute(f"SELECT count(*) FROM {self.sql}").fetchall()[0][0])

    def create(self, connection: DuckDBPyConnection, contract: TableContract) -> None:
        """Create the table. Only columns of the key are NOT NULL, so that columns can be added later."""
        keys = [name for name in contract.merge_key if not contract.column(name).nullable]
        columns = [
            f"{quoted(name)} {type_}{' NOT NULL' if name in keys else ''}"
            for name, type_ in self.wanted(contract).items()
        ]
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")
        connection.execute(f"CREATE TABLE {self.sql} ({', '.join(columns)})")

    def alter(
        self, connection: DuckDBPyConnection, contract: TableContract, found: dict[str, tuple[str, bool]]
    ) -> None:
        """Add missing columns and widen types.

        Raises:
            SinkRefused: a column has a type that cannot be widened, or rows cannot be written without a value
                of another column.
        """
        wanted = self.wanted(contract)
        for name, (_, nullable) in found.items():
            if name not in wanted and not nullable:
                raise self.refused(f"has a column {name!r} of its own that is NOT NULL", "let it be null")
        for name, type_ in wanted.items():
            if name not in found:
                connection.execute(f"ALTER TABLE {self.sql} ADD COLUMN {quoted(name)} {type_}")
            elif _plain(is_type := found[name][0]) != _plain(type_):
                if not may_widen(is_type, type_):
                    raise self.refused(
                        f"has a column {name!r} of type {is_type}, and rows have {type_}",
                        "rename or drop the table, and the next delivery creates it again",
                    )
                connection.execute(
                    f"ALTER TABLE {self.sql} ALTER COLUMN {quoted(name)} SET DATA TYPE {type_}"
                )

    def wanted(self, contract: TableContract) -> dict[str, str]:
        """Return the columns and their types in DuckDB.

        Raises:
            SinkRefused: DuckDB has no type for a column.
        """
        wanted = {}
        for column in contract.columns:
            try:
                wanted[column.name] = duckdb_type(column.parsed_type)
            except KeyError as error:
                raise self.refused(
                    f"cannot have the column {column.name!r}: DuckDB has no type for {column.type}",
                    "leave the column out of the pipeline's table, or convert it",
                ) from error
        return wanted

    def refused(self, what: str, fix: str) -> SinkRefused:
        """Return the error that names the table."""
        name = f"{self.schema}.{self.name}"
        return SinkRefused(f"the DuckDB table {name} {what}", fix=fix, sink=name)


def _plain(type_: str) -> str:
    """Return a type without quotes, which DuckDB sets where a name needs them."""
    return type_.replace('"', "")

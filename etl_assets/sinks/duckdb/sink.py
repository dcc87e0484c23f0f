"""The DuckDB sink: rows, deletes and position in one transaction of a file.

Belongs here: what a delivery does. Does not belong here: the file (`file.py`), the table (`table.py`).

DuckDB lets one process open a file that is written. So two processes never deliver at once: the second gets
`SinkUnavailable` until the first has closed it, and then finds the position moved.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.errors import ContractError, SinkFenced
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.sinks.duckdb.file import allowed_file, naming, opened
from etl_assets.sinks.duckdb.table import DuckdbTable
from etl_assets.sinks.duckdb.types import quoted
from etl_assets.sinks.sink import Delivered, Delivery, Guarantee, SinkPosition

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

    from etl_assets.contracts.columns import TableContract

POSITIONS = "etl_assets.sink_positions"
MEMORY_LIMIT = "512MB"


class DuckdbSink:
    """A table in a DuckDB file. EXACTLY_ONCE: the position is compared and set with the rows."""

    guarantee = Guarantee.EXACTLY_ONCE
    keeps_position = True
    applies_deletes = True

    def __init__(
        self,
        file: Path,
        table: str,
        *,
        allowed: Sequence[Path],
        schema: str = "main",
        memory_limit: str = MEMORY_LIMIT,
        threads: int = 2,
    ) -> None:
        """Name the target; the file is opened by the first call.

        Args:
            file: The database file; created if it is missing.
            table: The table in it.
            allowed: Folders below one of which the file must be, with every link followed.
            schema: The schema of the table.
            memory_limit: What DuckDB may use. What does not fit goes into files beside the database.
            threads: Threads of DuckDB.

        Raises:
            SinkRefused: the file is not below an allowed folder.
        """
        self._file = allowed_file(file, allowed)
        self._table = DuckdbTable(schema, table)
        self._memory_limit, self._threads = memory_limit, threads
        self._connection: DuckDBPyConnection | None = None
        self._contract: TableContract | None = None

    @property
    def target(self) -> str:
        return f"duckdb://{self._file}/{self._key}"

    def prepare(self, contract: TableContract) -> None:
        """Create the table, or add and widen columns.

        Raises:
            SinkRefused: a table of that name has rows that no delivery wrote.
        """
        with self._transaction() as connection:
            connection.execute("CREATE SCHEMA IF NOT EXISTS etl_assets")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {POSITIONS} (target VARCHAR NOT NULL, table_id VARCHAR,"
                " version BIGINT, tombstones BIGINT)"
            )
            found = self._table.columns(connection)
            is_ours = connection.execute(f"FROM {POSITIONS} WHERE target = ?", [self._key]).fetchone()
            if not found:
                # The table was dropped by hand: it is delivered again from the beginning.
                connection.execute(f"DELETE FROM {POSITIONS} WHERE target = ?", [self._key])
                self._table.create(connection, contract)
                is_ours = None
            elif is_ours is None and self._table.rows(connection):
                raise self._table.refused(
                    f"in {self._file} has rows that no delivery wrote", "rename it, or choose another name"
                )
            else:
                self._table.alter(connection, contract, found)
            if is_ours is None:
                connection.execute(f"INSERT INTO {POSITIONS} VALUES (?, NULL, NULL, NULL)", [self._key])
        self._contract = contract

    def position(self) -> SinkPosition | None:
        with naming(self._file):
            connection = self._open()
            has_any = connection.execute(
                "SELECT 1 FROM information_schema.tables WHERE table_schema = 'etl_assets'"
                " AND table_name = 'sink_positions'"
            ).fetchone()
            return self._position(connection) if has_any and self._table.columns(connection) else None

    def deliver(self, delivery: Delivery) -> Delivered:
        contract = self._contract
        if contract is None:
            raise ContractError("a sink is prepared before it is delivered to", fix="call prepare first")
        with self._transaction() as connection:
            # 1. Compare and set the position first: a second connection of this process then conflicts here.
            found = self._position(connection)
            if found != delivery.before:
                raise SinkFenced(
                    f"{self.target} is at {found}, and the delivery begins at {delivery.before}",
                    fix="repeat the step: it begins at the target's position",
                    sink=self.target,
                )
            after = delivery.after
            connection.execute(
                f"UPDATE {POSITIONS} SET table_id = ?, version = ?, tombstones = ? WHERE target = ?",
                [after.stored_id, after.version, after.tombstones, self._key],
            )
            # 2. Stage rows and keys, then apply them.
            schema = data_file_schema(contract)
            self._stage(connection, "staged_rows", schema, delivery.rows)
            keys = _key_schema(schema, contract)
            self._stage(connection, "staged_deletes", keys, delivery.deleted)
            failpoint(Failpoint.SINK_DURING_DELIVERY, table=contract.name)
            figures = self._apply(connection, contract, whole=delivery.whole)
            connection.execute("DROP TABLE temp.staged_rows")
            connection.execute("DROP TABLE temp.staged_deletes")
            failpoint(Failpoint.SINK_BEFORE_TARGET_COMMIT, table=contract.name)
            delivery.expect_current()
        failpoint(Failpoint.SINK_AFTER_TARGET_COMMIT, table=contract.name)
        return figures

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _key(self) -> str:
        return f"{self._table.schema}.{self._table.name}"

    def _open(self) -> DuckDBPyConnection:
        if self._connection is None:
            self._connection = opened(self._file, memory_limit=self._memory_limit, threads=self._threads)
        return self._connection

    @contextmanager
    def _transaction(self) -> Generator[DuckDBPyConnection]:
        """Run a block in one transaction; after an error nothing of it is there."""
        with naming(self._file):
            connection = self._open()
            connection.begin()
            try:
                yield connection
                connection.commit()
            except BaseException:
                # Closing ends the transaction also where DuckDB has ended it already.
                self.close()
                raise

    def _position(self, connection: DuckDBPyConnection) -> SinkPosition | None:
        found = connection.execute(
            f"SELECT table_id, version, tombstones FROM {POSITIONS} WHERE target = ?", [self._key]
        ).fetchone()
        if found is None or found[0] is None:
            return None
        return SinkPosition.stored(*found)

    def _stage(
        self,
        connection: DuckDBPyConnection,
        name: str,
        schema: pa.Schema,
        batches: Callable[[], Iterator[pa.RecordBatch]],
    ) -> None:
        """Write batches into a temporary table, as Arrow, one at a time."""
        import duckdb
        import pyarrow as pa

        of_rows: list[Exception] = []

        def incoming() -> Iterator[pa.RecordBatch]:
            try:
                for batch in batches():
                    yield batch.select(schema.names).cast(schema)
            except Exception as error:
                of_rows.append(error)
                raise

        connection.register("incoming", pa.RecordBatchReader.from_batches(schema, incoming()))
        try:
            connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM incoming")
        except duckdb.Error:
            # DuckDB reports an error of the rows as its own, as text.
            if of_rows:
                raise of_rows[0] from None
            raise
        connection.unregister("incoming")

    def _apply(self, connection: DuckDBPyConnection, contract: TableContract, *, whole: bool) -> Delivered:
        # NULL is a value like any other in a key that may be null.
        same_key = " AND ".join(
            f"t.{quoted(k)} IS NOT DISTINCT FROM s.{quoted(k)}" for k in contract.merge_key
        )

        def run(statement: str) -> int:
            return int(connection.execute(statement).fetchall()[0][0])

        def removed(staged: str) -> int:
            return run(f"DELETE FROM {self._table.sql} AS t USING {staged} AS s WHERE {same_key}")

        removed("staged_rows")
        deleted = run(f"DELETE FROM {self._table.sql}") if whole else removed("staged_deletes")
        names = ", ".join(map(quoted, contract.names))
        written = run(f"INSERT INTO {self._table.sql} ({names}) SELECT {names} FROM staged_rows")
        return Delivered(written=written, deleted=deleted)


def _key_schema(schema: pa.Schema, contract: TableContract) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([schema.field(name) for name in contract.merge_key])

"""A session of PostgreSQL that brings rows as Arrow batches, by ADBC.

This is ADBC's own interface. Its DB-API imports every library of data frames that is installed, which takes a
new process longer than a hundred thousand rows.

Belongs here: statements of one session. Does not belong here: under which settings and snapshot they run, and
what their errors mean (`postgres_session.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.sources.sql.postgres_errors import adbc_module

if TYPE_CHECKING:
    import adbc_driver_manager
    import pyarrow as pa

_BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ArrowSession:
    """A session, in one transaction that is rolled back at its end."""

    connection: adbc_driver_manager.AdbcConnection

    @classmethod
    @contextmanager
    def opened(cls, address: str) -> Generator[ArrowSession]:
        """Connect, and begin a transaction.

        Raises:
            RuntimeMissing: ADBC is not installed.
            adbc_driver_manager.Error: the server cannot be reached.
        """
        driver = adbc_module()
        import adbc_driver_manager

        with ExitStack() as closing:
            database = closing.enter_context(driver.connect(address))
            connection = closing.enter_context(adbc_driver_manager.AdbcConnection(database))
            connection.set_autocommit(False)
            yield cls(connection)

    def run(self, statement: str) -> None:
        """Run a statement without rows."""
        import adbc_driver_manager

        with adbc_driver_manager.AdbcStatement(self.connection) as running:
            running.set_sql_query(statement)
            running.execute_update()

    @contextmanager
    def rows(self, statement: str) -> Generator[Iterator[pa.RecordBatch]]:
        """Run a statement by COPY, and yield the batches of its rows.

        An error of the server among the batches is an `OSError` without SQLSTATE.
        """
        import adbc_driver_manager
        import pyarrow as pa
        from adbc_driver_postgresql import StatementOptions

        with adbc_driver_manager.AdbcStatement(self.connection) as running:
            running.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)})
            running.set_sql_query(statement)
            stream, _ = running.execute_query()
            with pa.RecordBatchReader.from_stream(stream) as batches:
                yield batches

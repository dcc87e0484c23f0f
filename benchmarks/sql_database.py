"""The database of the SQL cases: a table of rows that depend on their number only, and a target beside it.

Belongs here: making it on a server of the project's own. Does not belong here: what is measured (`cases/`).
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from benchmarks.options import Options
    from etl_assets.stack.postgres import PostgresServer

COLUMNS = {
    "sale_id": "bigint",
    "customer": "string",
    "amount": "decimal(18,2)",
    "is_paid": "boolean",
    "updated_at": "timestamp",
}
QUERY = f"SELECT {', '.join(COLUMNS)} FROM sale"
_CREATE = """
CREATE TABLE sale (
    sale_id bigint PRIMARY KEY,
    customer text NOT NULL,
    amount numeric(18, 2) NOT NULL,
    is_paid boolean NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE SCHEMA marts;
INSERT INTO sale
SELECT n, 'customer ' || n % 5000, n % 100000 / 100.0, n % 3 = 0,
    '2026-01-01'::timestamptz + n * interval '1 second'
FROM generate_series(1, {rows}) n;
CREATE INDEX ON sale (updated_at, sale_id);
VACUUM ANALYZE sale;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SalesDatabase:
    """A running database with rows to read.

    Attributes:
        address: Its URL.
        server: Number of the server's first process.
    """

    address: str
    server: int

    @property
    def connection(self) -> dict[str, object]:
        """The connection as a platform file has it; the password is in `BENCH_PASSWORD`."""
        parts = urlsplit(self.address)
        return {
            "type": "postgres",
            "host": parts.hostname,
            "port": parts.port,
            "database": parts.path.removeprefix("/"),
            "user": parts.username,
            "password": "${BENCH_PASSWORD}",
            "write": ["marts.*"],
        }

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which a script and psql get the password."""
        password = urlsplit(self.address).password or ""
        return {"BENCH_PASSWORD": password, "PGPASSWORD": password}

    def empty_target(self) -> None:
        """Remove what an earlier run wrote."""
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("DROP SCHEMA marts CASCADE")
            connection.execute("CREATE SCHEMA marts")
            connection.execute("CHECKPOINT")

    def target_rows(self) -> int:
        """Return the number of rows of `marts.sale`."""
        import psycopg

        with psycopg.connect(self.address) as connection:
            found = connection.execute("SELECT count(*) FROM marts.sale").fetchone()
        assert found is not None  # an aggregate has one row
        return found[0]


@contextmanager
def sales_database(rows: int) -> Generator[SalesDatabase]:
    """Start a server with a number of rows, whose commits reach the disk."""
    import psycopg

    from etl_assets.stack.postgres import PostgresServer

    server: PostgresServer
    with PostgresServer(settings={"shared_buffers": "256MB", "max_wal_size": "4GB"}) as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            for statement in _CREATE.format(rows=rows).split(";"):
                if statement.strip():
                    connection.execute(statement.encode())
        yield SalesDatabase(address=server.url, server=server.pid)


def spark_of(options: Options, scratch: Path) -> dict[str, str]:
    """Settings of a session that reads and writes Delta tables."""
    from etl_assets.runtime.jars import delta_jars

    jars = os.pathsep.join(map(str, delta_jars()))
    return {**options.spark_settings(scratch), "spark.driver.extraClassPath": jars}

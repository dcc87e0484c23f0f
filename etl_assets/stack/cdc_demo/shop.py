"""The shop's database: its user, the film-rental sample, and a table of stock for each of its stores.

Belongs here: making what is missing. Does not belong here: changes while a capture follows (`changes.py`).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from etl_assets.stack.film_rental.database import load_film_rental
from etl_assets.stack.server import HOST

if TYPE_CHECKING:
    import psycopg

    from etl_assets.stack.postgres import PostgresServer

USER, DATABASE, PASSWORD = "etl", "shop", "STACK_POSTGRES_PASSWORD"
"""`PASSWORD` is the environment variable that the example's platform file names."""
STORES = tuple(f"store.stock_{number:02d}" for number in range(1, 13))
_ITEMS_PER_STORE = 400
_STORE_TABLE = """
CREATE TABLE {} (
    item_id integer PRIMARY KEY,
    film_id integer NOT NULL,
    copies integer NOT NULL,
    price numeric(6, 2) NOT NULL,
    shelf varchar(12),
    counted_at timestamptz NOT NULL
)
"""
_STORE_ROWS = """
INSERT INTO {} SELECT i, 1 + (i * 7) %% 1000, i %% 9, 1 + (i %% 40) / 4.0, 'shelf ' || i %% 30, '2025-01-01Z'
FROM generate_series(1, %s) AS i
"""


class Shop:
    """The database of a server.

    The password of its user is new each time, and only in this process's memory: `environ` is for its
    children.

    Args:
        server: The server.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._password = secrets.token_urlsafe(24)
        self.environ = {PASSWORD: self._password}

    @property
    def url(self) -> str:
        """The database as the shop's user. Holds the password."""
        return f"postgresql://{USER}:{self._password}@{HOST}:{self._server.port}/{DATABASE}"

    def prepare(self) -> None:
        """Make what is missing."""
        import psycopg

        with psycopg.connect(self._server.url, autocommit=True) as connection:
            self._prepare_database(connection)
        load_film_rental(self.url)
        with psycopg.connect(self.url) as connection:
            connection.execute("CREATE SCHEMA IF NOT EXISTS store")
            for table in STORES:
                row = connection.execute("SELECT to_regclass(%s) IS NULL", [table]).fetchone()
                if row is not None and row[0]:
                    connection.execute(_STORE_TABLE.format(table).encode())
                    connection.execute(_STORE_ROWS.format(table).encode(), [_ITEMS_PER_STORE])

    def _prepare_database(self, connection: psycopg.Connection) -> None:
        from psycopg import sql

        user, database = sql.Identifier(USER), sql.Identifier(DATABASE)
        if not _is_there(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", USER):
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN REPLICATION").format(user))
        # Hashed here: no statement has the password.
        hashed = connection.pgconn.encrypt_password(self._password.encode(), USER.encode(), b"scram-sha-256")
        connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(user, hashed.decode()))
        if not _is_there(connection, "SELECT 1 FROM pg_database WHERE datname = %s", DATABASE):
            connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, user))


def _is_there(connection: psycopg.Connection, query: str, name: str) -> bool:
    return connection.execute(query.encode(), [name]).fetchone() is not None

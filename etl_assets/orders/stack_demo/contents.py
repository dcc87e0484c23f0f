"""What the example needs in its servers: a user and a database, the film-rental sample, a topic, a bucket.

Belongs here: making them where they are missing. Does not belong here: what pipelines and sinks make
themselves.
"""

from __future__ import annotations

import secrets
from collections import Counter
from http.client import HTTPConnection
from typing import TYPE_CHECKING

from etl_assets.errors import ServerNotStarted
from etl_assets.stack.film_rental.database import SCHEMA, load_film_rental
from etl_assets.stack.full import FullStack
from etl_assets.stack.server import HOST

if TYPE_CHECKING:
    import psycopg

USER, DATABASE, TOPIC, BUCKET = "etl", "shop", "orders", "lake"
PASSWORD, S3_KEY, S3_SECRET = "STACK_POSTGRES_PASSWORD", "STACK_S3_KEY", "STACK_S3_SECRET"
"""Environment variables that the example's platform file names."""
_PARTITIONS = 3
_SECONDS = 60


class Contents:
    """The contents of a stack's servers, and the secrets that lead to them.

    The secrets are new each time, and only in this process's memory: `environ` is for its children.
    """

    def __init__(self, stack: FullStack) -> None:
        self._stack = stack
        self._password = secrets.token_urlsafe(24)
        self.environ = {
            PASSWORD: self._password,
            S3_KEY: secrets.token_urlsafe(15),
            S3_SECRET: secrets.token_urlsafe(30),
        }

    @property
    def database_url(self) -> str:
        """The database as the example's user. Holds the password."""
        return f"postgresql://{USER}:{self._password}@{HOST}:{self._stack.postgres.port}/{DATABASE}"

    def prepare(self) -> None:
        """Make what is missing."""
        self._prepare_database()
        load_film_rental(self.database_url)
        self._prepare_topic()
        self._prepare_bucket()

    def change_rentals(self, number: int) -> int:
        """Bring some films back, rent some out, rate some, as the shop's own program would.

        Args:
            number: Which change it is: each one is of other rows, and made once.

        Returns:
            How many rentals were changed or added.
        """
        import psycopg

        with psycopg.connect(self.database_url) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS public.changes (number bigint PRIMARY KEY)")
            made = connection.execute(
                "INSERT INTO public.changes VALUES (%s) ON CONFLICT DO NOTHING", [number]
            )
            if made.rowcount == 0:
                return 0
            back = connection.execute(
                f"UPDATE {SCHEMA}.rental SET returned_at = now(), updated_at = now()"
                " WHERE rental_id %% 100 = %s".encode(),
                [number % 100],
            )
            out = connection.execute(
                f"INSERT INTO {SCHEMA}.rental (rental_id, inventory_id, customer_id, rented_at, updated_at)"
                " SELECT m.last + n, 1 + n % m.copies, 1 + n % m.customers, now(), now() FROM"
                f" (SELECT (SELECT max(rental_id) FROM {SCHEMA}.rental) AS last,"
                f" (SELECT count(*) FROM {SCHEMA}.inventory) AS copies,"
                f" (SELECT count(*) FROM {SCHEMA}.customer) AS customers) AS m,"
                " generate_series(1, 40) AS n".encode()
            )
            connection.execute(
                f"INSERT INTO {SCHEMA}.film_rating SELECT rental_id, 5, now() FROM {SCHEMA}.rental"
                " WHERE rental_id %% 100 = %s ON CONFLICT DO NOTHING".encode(),
                [number % 100],
            )
            return back.rowcount + out.rowcount

    def keys_of_query(self, query: str, key: str) -> Counter[str]:
        """Return the keys that a query over the database has now, as texts."""
        import psycopg

        with psycopg.connect(self.database_url) as connection:
            rows = connection.execute(f'SELECT "{key}"::text FROM ({query}) AS query'.encode())
            return Counter(row[0] for row in rows)

    def _prepare_database(self) -> None:
        import psycopg
        from psycopg import sql

        with psycopg.connect(self._stack.postgres.url, autocommit=True) as connection:
            user, database = sql.Identifier(USER), sql.Identifier(DATABASE)
            if not _is_there(connection, "SELECT 1 FROM pg_roles WHERE rolname = %s", USER):
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(user))
            # Hashed here: no statement has the password.
            hashed = connection.pgconn.encrypt_password(
                self._password.encode(), USER.encode(), b"scram-sha-256"
            )
            connection.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(user, hashed.decode()))
            if not _is_there(connection, "SELECT 1 FROM pg_database WHERE datname = %s", DATABASE):
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, user))

    def _prepare_topic(self) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self._stack.kafka.url, "log_level": 3})
        # Not compacted: a producer's key is no identity.
        topic = NewTopic(TOPIC, num_partitions=_PARTITIONS, replication_factor=1)
        try:
            admin.create_topics([topic])[TOPIC].result(_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _prepare_bucket(self) -> None:
        connection = HTTPConnection(HOST, self._stack.s3.port, timeout=_SECONDS)
        try:
            connection.request("PUT", f"/{BUCKET}")
            status = connection.getresponse().status
        finally:
            connection.close()
        if status >= 300:
            raise ServerNotStarted(
                f"{self._stack.s3.name} answered {status} when the bucket {BUCKET} was to be created",
                fix=f"its log is {self._stack.s3.log}",
                server=self._stack.s3.name,
                log=self._stack.s3.log,
            )


def _is_there(connection: psycopg.Connection, query: str, name: str) -> bool:
    return connection.execute(query.encode(), [name]).fetchone() is not None

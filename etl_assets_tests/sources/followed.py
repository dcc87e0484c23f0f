"""A table of PostgreSQL, and an installation whose pipeline follows it by the log.

Belongs here: what tests of following share. Does not belong here: what they expect.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from etl_assets.stack.postgres import PostgresServer
from etl_assets.steps.step import StepReport
from etl_assets_tests.commands.home import Home
from etl_assets_tests.sources.topics import SOURCE, START, SURVIVED, Topic

COLUMNS = {"film_id": "bigint", "title": "string", "rating": "string"}
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["deltalake", "pyarrow", "psycopg", "etl_assets_tests.sources.followed"])


@dataclass(slots=True)
class Followed:
    """A database with the table `public.film`, a session of its owner, and an installation."""

    name: str
    session: psycopg.Connection
    pipeline: Topic
    root: str = "data"

    @classmethod
    def create(cls, server: PostgresServer, folder: Path, **more: Any) -> Followed:
        name = f"f{uuid.uuid4().hex[:10]}"
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        address = server.database_url(name)
        home = Home(path=folder / "home")
        found = cls(name, psycopg.connect(address, autocommit=True), Topic("", "", home))
        os.environ["FILMS_PASSWORD"] = server.password
        parts = urlsplit(address)
        connection = {
            "type": "postgres",
            "host": parts.hostname,
            "port": parts.port,
            "database": name,
            "user": parts.username,
            "password": "${FILMS_PASSWORD}",
        }
        home.begin(start_date=START.isoformat(), connections={"films": connection}, **more)
        found.execute(
            "CREATE TABLE film (film_id bigint PRIMARY KEY, title text, rating text)",
        )
        found.declare()
        return found

    def declare(
        self, *, columns: Any = None, table: Any = None, transforms: Any = None, **source: Any
    ) -> None:
        """Declare the pipeline `people`, as `Topic` calls it, with some fields of its source."""
        spec = {
            "name": "people",
            "source": {
                "type": "postgres_cdc",
                "connection": "films",
                "table": "public.film",
                "publication": "films",
                "slot": self.name,
                **source,
            },
            "columns": columns or COLUMNS,
            "table": {"keys": ["film_id"], **(table or {})},
            **({} if transforms is None else {"transforms": transforms}),
        }
        folder = self.pipeline.home.path / "pipelines"
        folder.mkdir(exist_ok=True)
        (folder / "people.yaml").write_text(json.dumps(spec), "utf-8")

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement.encode())

    def films(self) -> dict[Any, Any]:
        """The rows of the source."""
        found = self.session.execute("SELECT film_id, title, rating FROM film").fetchall()
        return {film_id: (title, rating) for film_id, title, rating in found}

    def ingest(self, failpoint: str = "") -> StepReport:
        return self.pipeline.ingest(failpoint=failpoint)

    def ingest_and_die(self, failpoint: str) -> None:
        """Run the step of the source in a process that ends at a failpoint."""
        self._die(_ingest, failpoint)

    def load_and_die(self, failpoint: str) -> None:
        """Run the step of the table in a process that ends at a failpoint."""
        self._die(_load, failpoint)

    def _die(self, run: Callable[[Path, str, str], None], failpoint: str) -> None:
        process = _processes.Process(
            target=run, args=(self.pipeline.home.path, os.environ["FILMS_PASSWORD"], failpoint)
        )
        process.start()
        process.join(100)
        assert process.exitcode == -9, f"the process did not die at {failpoint}: {process.exitcode}"

    def records(self) -> list[dict[str, Any]]:
        """The accepted records, in their order."""
        rows = self.pipeline.home.rows(SOURCE, root=self.root)
        return [json.loads(row["record"]) for row in sorted(rows, key=lambda row: row["offset"])]

    def held(self) -> dict[Any, Any]:
        """What the accepted records say, applied by their places in the log, however they arrived."""
        films: dict[Any, Any] = {}
        newest: dict[Any, int] = {}
        emptied = -1
        for each in self.records():
            place, key = each["postgres.lsn"], each["film_id"]
            if each["postgres.change"] == "truncate":
                emptied = max(emptied, place)
                films = {key: film for key, film in films.items() if newest[key] > place}
            elif place >= max(newest.get(key, -1), emptied):
                newest[key] = place
                films.pop(key, None)
                if each["postgres.change"] == "upsert":
                    films[key] = (each["title"], each["rating"])
        return films

    def ids(self) -> list[tuple[Any, ...]]:
        """What identifies the accepted records."""
        return [
            (each["postgres.lsn"], each["postgres.sequence"], each["postgres.change"])
            for each in self.records()
        ]

    def confirmed(self) -> str | None:
        """Until where the slot has been confirmed; None if there is none."""
        statement = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
        row = self.session.execute(statement, [self.name]).fetchone()
        return None if row is None else row[0]

    def drop_slot(self) -> None:
        self.session.execute("SELECT pg_drop_replication_slot(%s)", [self.name])

    def close(self) -> None:
        if self.confirmed() is not None:
            self.drop_slot()
        self.session.close()


def _ingest(home: Path, password: str, failpoint: str) -> None:
    os.environ["FILMS_PASSWORD"] = password
    Topic("", "", Home(path=home)).ingest(failpoint=failpoint)
    os._exit(SURVIVED)


def _load(home: Path, password: str, failpoint: str) -> None:
    os.environ["FILMS_PASSWORD"] = password
    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    Topic("", "", Home(path=home)).load(None)
    os._exit(SURVIVED)

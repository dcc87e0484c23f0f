"""A database of films, and an installation whose pipeline reads it. The step runs here and needs no Spark.

Belongs here: what tests of full loads and deletes share. Does not belong here: what they expect.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from etl_assets.stack.postgres import PostgresServer
from etl_assets.steps.step import StepReport
from etl_assets_tests.commands.home import Home
from etl_assets_tests.sources.topics import START, SURVIVED, Topic

QUERY = "SELECT film_id, title, ':x' AS literal FROM film"
COLUMNS = {"film_id": "bigint", "title": "string"}
_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["deltalake", "pyarrow", "etl_assets_tests.sources.shop"])


@dataclass(slots=True)
class Shop:
    """A database, a session of its owner, and the home folder of an installation."""

    database: str
    session: psycopg.Connection
    pipeline: Topic

    @classmethod
    def create(cls, server: PostgresServer, folder: Path, **more: Any) -> Shop:
        name = f"s{uuid.uuid4().hex[:10]}"
        with psycopg.connect(server.database_url("postgres"), autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}".encode())
        address = server.database_url(name)
        home = Home(path=folder / "home")
        shop = cls(name, psycopg.connect(address, autocommit=True), Topic("", "", home))
        os.environ["SHOP_PASSWORD"] = server.password
        home.begin(start_date=START.isoformat(), connections={"shop": shop.connection(address), **more})
        shop.execute(
            "CREATE TABLE film (film_id bigint, title text, updated_at timestamptz, deleted_at date)"
        )
        return shop

    def connection(self, address: str) -> dict[str, Any]:
        parts = urlsplit(address)
        return {
            "type": "postgres",
            "host": parts.hostname,
            "port": parts.port,
            "database": self.database,
            "user": parts.username,
            "password": "${SHOP_PASSWORD}",
            "write": ["marts.*"],
        }

    def declare(self, *, columns: Any = None, table: Any = None, sinks: Any = (), **source: Any) -> None:
        """Declare the pipeline `people`, as `Topic` calls it, with some fields of its source."""
        spec = {
            "name": "people",
            "source": {"type": "sql", "connection": "shop", "query": QUERY, **source},
            "columns": columns or COLUMNS,
            "table": {"keys": ["film_id"], **(table or {})},
            "sinks": list(sinks),
        }
        folder = self.pipeline.home.path / "pipelines"
        folder.mkdir(exist_ok=True)
        (folder / "people.yaml").write_text(json.dumps(spec), "utf-8")

    def declare_full(self, **source: Any) -> None:
        self.declare(load="full", **{"id": ["film_id"], "max_batch_records": 3, **source})

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.session.execute(statement.encode())

    def films(self) -> dict[Any, Any]:
        return dict(self.session.execute("SELECT film_id, title FROM film").fetchall())

    def add(self, first: int, last: int, title: str = "film") -> None:
        self.execute(
            f"INSERT INTO film SELECT n, '{title} ' || n, '2026-01-01'::timestamptz + n * interval '1 second'"
            f" FROM generate_series({first}, {last}) n"
        )

    def ingest(self, failpoint: str = "") -> StepReport:
        return self.pipeline.ingest(failpoint=failpoint)

    def start_ingest(self, failpoint: str = "") -> Any:
        """Start the step in a process of its own."""
        process = _processes.Process(
            target=_ingest, args=(self.pipeline.home.path, os.environ["SHOP_PASSWORD"], failpoint)
        )
        process.start()
        return process

    def records(self, since: int = 0) -> list[tuple[int, str, bool]]:
        """Id, title and whether it is a delete, of accepted records in their order."""
        found = [json.loads(row["record"]) for row in self.pipeline.accepted()[since:]]
        return [(each["film_id"], each["title"], each.get("sql.deleted", False)) for each in found]

    def held(self) -> dict[int, str]:
        """What the accepted records say that the query returned."""
        films: dict[int, str] = {}
        for film_id, title, is_deleted in self.records():
            if is_deleted:
                assert film_id in films, f"{film_id} was deleted twice"
                del films[film_id]
            else:
                films[film_id] = title
        return films

    def rejected(self) -> list[tuple[str, str]]:
        return sorted(
            (row["outcome"], row["reason"])
            for row in self.pipeline.rejected()
            if row["outcome"] == "rejected"
        )


def _ingest(home: Path, password: str, failpoint: str) -> None:
    os.environ["SHOP_PASSWORD"] = password
    Topic("", "", Home(path=home)).ingest(failpoint=failpoint)
    os._exit(SURVIVED)

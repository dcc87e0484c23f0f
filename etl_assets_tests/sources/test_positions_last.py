"""Positions of a Kafka and of a SQL source, and of their sinks, outlast upkeep and an undo.

After a compaction, a vacuum, a log that begins later and a restored table, the next steps read nothing twice,
skip nothing, and deliver each row once. The source's own table is not restored: its positions stay ahead.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from etl_assets.cli.tables import tables
from etl_assets.delta.log.checkpoint import checkpoint_in_place
from etl_assets.delta.log.log_truncation import find_old_log, remove_old_log
from etl_assets.settings import load_settings
from etl_assets.stack.postgres import PostgresServer
from etl_assets.steps.compact import Compact
from etl_assets.steps.placing import place
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, StepReport, platform_table
from etl_assets_tests.sources.shop import Shop
from etl_assets_tests.sources.topics import SOURCE, Topic, today

pytestmark = pytest.mark.spark

DELIVERIES = "people_to_postgres"
TABLES = (SOURCE, "people", DELIVERIES)
LONG_AGO = time.time() - 40 * 86_400
UPKEEP_DAY = dt.datetime.now(dt.UTC) + dt.timedelta(days=40)
"""When upkeep runs: today is closed by then."""


@dataclass(frozen=True, kw_only=True)
class Fed:
    """A pipeline from a source to PostgreSQL, and what adds a record to the source."""

    pipeline: Topic
    server: PostgresServer
    session: Any
    schema: str
    add: Callable[[int], Any]

    def context(self, table: str, clock: Callable[[], dt.datetime]) -> StepContext:
        settings = load_settings(self.environment)
        return StepContext(
            session=lambda: self.session, domain=place(settings.placement(), table), clock=clock
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"ETL_ASSETS_HOME": str(self.pipeline.home.path)}

    def run(self) -> dict[str, StepReport]:
        """Run all steps, as a run does."""
        settings = load_settings(self.environment)
        reports = {}
        for name in TABLES:
            context = self.context(name, lambda: dt.datetime.now(dt.UTC))
            arguments = StepArguments(settings=settings, context=context, mode=ReadMode.INCREMENTAL)
            reports[name] = settings.catalog().stage(name).build_step(arguments).run([today()])
        return reports

    def expect(self, numbers: range) -> None:
        """Each record once in the source's table, in the table and in the target."""
        assert sorted(row["offset"] for row in self.pipeline.accepted()) == list(range(len(numbers)))
        wanted = [str(number) for number in numbers]
        assert sorted((row["title"] for row in self.pipeline.home.rows("people")), key=int) == wanted
        with psycopg.connect(self.server.url) as session:
            found = session.execute(f"SELECT title FROM {self.schema}.people".encode()).fetchall()
        assert sorted((title for (title,) in found), key=int) == wanted

    def expect_nothing_left(self) -> None:
        assert {name: report.commits for name, report in self.run().items()} == dict.fromkeys(TABLES, 0)

    def command(self, *arguments: str) -> None:
        done = CliRunner().invoke(tables, [*arguments], env=self.environment)
        assert done.exit_code == 0, done.output

    # Upkeep

    def compact(self) -> None:
        for name in TABLES:
            before, after = Compact(context=self.context(name, lambda: UPKEEP_DAY), table=name).run()
            assert after.files == 1 < before.files, name

    def vacuum(self) -> None:
        for path in (self.pipeline.home.path / "data" / "tables").rglob("*.*"):
            os.utime(path, (LONG_AGO, LONG_AGO))
        for name in TABLES:
            self.command("vacuum", name, "--retention-days", "1", "--delete")

    def shorten_logs(self) -> None:
        for name in TABLES:
            table = platform_table(name, load_settings(self.environment).placement().reader())
            checkpoint_in_place(table.path, table.version())
            old = find_old_log(table.path, 1)
            remove_old_log(table.path, old, table=name)
            assert old.names, name

    def restore_table(self) -> None:
        self.command(*self._restore("people"))

    def refuse_to_restore_source(self) -> None:
        before = self._version(SOURCE)
        refused = CliRunner().invoke(tables, self._restore(SOURCE), env=self.environment)
        assert refused.exit_code == 1
        assert "its records were acknowledged" in str(refused.exception)
        assert self._version(SOURCE) == before

    def _restore(self, name: str) -> list[str]:
        return ["restore", name, "--to-version", str(self._version(name) - 1), "--yes", "--no-run"]

    def _version(self, name: str) -> int:
        return platform_table(name, load_settings(self.environment).placement().reader()).version()


@pytest.fixture(params=["kafka", "sql"])
def fed(request, tmp_path, postgres_server, spark) -> Iterator[Fed]:
    schema = f"positions_of_{request.param}"
    with psycopg.connect(postgres_server.url, autocommit=True) as session:
        session.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE".encode())
    shop = Shop.create(postgres_server, tmp_path)
    own = shop.connection(postgres_server.database_url(shop.database))
    connections = {"shop": own, "warehouse": {**own, "database": "postgres", "write": [f"{schema}.*"]}}
    if request.param == "sql":
        pipeline = shop.pipeline
        source = {
            "type": "sql",
            "connection": "shop",
            "query": "SELECT film_id, title, updated_at FROM film",
            "incremental_key": "updated_at",
            "incremental_id_key": "film_id",
        }

        def add(number: int) -> None:
            shop.execute(f"INSERT INTO film VALUES ({number}, '{number}', now())")
    else:
        broker = request.getfixturevalue("kafka_server").url
        pipeline = Topic(broker, f"last-{time.time_ns()}", shop.pipeline.home)
        pipeline.create_topic(2)
        connections["events"] = {"type": "kafka", "bootstrap_servers": [broker]}
        source = {"type": "kafka", "connection": "events", "topic": pipeline.name, "id": ["film_id"]}

        def add(number: int) -> None:
            pipeline.send([{"film_id": number, "title": str(number)}], partition=number % 2)

    pipeline.home.begin(start_date="2026-01-01", connections=connections)
    spec = {
        "name": "people",
        "source": source,
        "columns": {"film_id": "bigint", "title": "string"},
        "table": {"keys": ["film_id"]},
        "sinks": [{"type": "postgres", "connection": "warehouse", "table": f"{schema}.people"}],
    }
    folder = pipeline.home.path / "pipelines"
    folder.mkdir()
    (folder / "people.yaml").write_text(json.dumps(spec), "utf-8")
    yield Fed(pipeline=pipeline, server=postgres_server, session=spark, schema=schema, add=add)
    shop.session.close()


def test_positions_outlast_compaction_vacuum_a_shorter_log_and_a_restored_table(fed):
    number = 0
    upkeep = (fed.compact, fed.vacuum, fed.shorten_logs, fed.restore_table, fed.refuse_to_restore_source)
    for work in upkeep:
        for _ in range(2):
            fed.add(number)
            number += 1
            fed.run()
        fed.expect(range(number))
        work()
        fed.run()
        fed.expect(range(number))
        fed.expect_nothing_left()
    # What was added while nobody looked, after all of that.
    fed.add(number)
    fed.run()
    fed.expect(range(number + 1))

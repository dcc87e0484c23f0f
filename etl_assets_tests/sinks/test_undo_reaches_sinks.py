"""Rows that an undo takes out of a table are withdrawn from its sinks, by the command that a user types."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import psycopg
import pytest
import yaml
from psycopg import sql

from etl_assets.sinks.files.reader import read_manifest
from etl_assets.sources.http.journal_file import JournalName, JournalRequest, file_content, journal_path
from etl_assets_tests.commands.home import BIN, SPARK
from etl_assets_tests.reference.webhook_receiver import ReceiverProcess, receiver
from etl_assets_tests.sinks.test_kafka_sink import messages

PIPELINE = """
name: films
source: {type: http, id: [film_id, title], include: [headers.traceparent]}
columns:
  film_id: bigint
  title: string
  trace: {type: string, from: http.headers.traceparent}
table: {keys: [film_id], trace_context: trace}
sinks:
  - {type: postgres, connection: warehouse, table: undone.films@}
  - {type: kafka, connection: events, topic: undone-films@, create: {partitions: 2}}
  - {type: search, connection: search, index: undone_films@}
  - {type: folder, connection: exports, target: undone/films}
  - {type: webhook, connection: hooks, path: "films/{film_id}"}
"""
FIRST = {1: "Alien", 2: "Brazil"}
SECOND = {1: "Alien", 2: "Brasil", 3: "Casino"}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NO_ALIEN = "transforms: [{type: filter, where: film_id <> 1}]\n"


@pytest.fixture
def hooks() -> Iterator[ReceiverProcess]:
    with receiver() as process:
        yield process


class Installation:
    """A home folder with a pipeline and five sinks."""

    def __init__(
        self, home: Path, postgres: Any, kafka: Any, search: Any, hooks: ReceiverProcess, suffix: str
    ) -> None:
        self.suffix, self.requests = suffix, 0
        self.home, self.postgres, self.kafka, self.search, self.hooks = home, postgres, kafka, search, hooks
        for folder in ("pipelines", "exports"):
            (home / folder).mkdir()
        connections = {
            "warehouse": {
                "type": "postgres",
                "host": "127.0.0.1",
                "port": postgres.port,
                "database": "postgres",
                "user": postgres.user,
                "password": "${WAREHOUSE_PASSWORD}",
                "write": ["undone.*"],
            },
            "events": {"type": "kafka", "bootstrap_servers": [kafka.url], "write": ["undone-*"]},
            "search": {"type": "search", "urls": [f"http://127.0.0.1:{search.port}"], "write": ["undone_*"]},
            "exports": {"type": "folder", "path": "exports", "write": ["undone/*"]},
            "hooks": {"type": "webhook", "url": hooks.url, "write": ["films/*"]},
        }
        settings = {"pipelines": {"built_in": []}, "spark": SPARK, "connections": connections}
        (home / "platform.yaml").write_text(yaml.safe_dump(settings))
        self.declare(PIPELINE)

    def declare(self, pipeline: str) -> None:
        (self.home / "pipelines" / "films.yaml").write_text(pipeline.replace("@", self.suffix))

    def send(self, rows: dict[int, str], traceparent: str | None) -> None:
        """Make a request durable, as the server does."""
        self.requests += 1
        name = JournalName(at=dt.datetime.now(dt.UTC), server="0" * 8, number=self.requests, keyed=False)
        records = [json.dumps({"film_id": key, "title": title}).encode() for key, title in rows.items()]
        file = journal_path(self.home / "data", "films") / name.day.isoformat() / str(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(file_content([JournalRequest(records=records, traceparent=traceparent)]))
        os.utime(file, ns=(name.mtime_ns, name.mtime_ns))

    def call(self, *arguments: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "ETL_ASSETS_HOME": str(self.home),
            "WAREHOUSE_PASSWORD": self.postgres.password,
            "ETL_ASSETS_FAILPOINT": failpoint,
            "COLUMNS": "200",
        }
        return subprocess.run(
            [BIN / "etl-assets", *arguments],
            env=environment,
            timeout=280,
            check=False,
            capture_output=True,
            text=True,
        )

    def stored(self) -> list[dict[int, str]]:
        """Return what PostgreSQL, the topic as compacted, the index and the files have."""
        with psycopg.connect(self.postgres.url) as session:
            table = sql.Identifier("undone", f"films{self.suffix}")
            query = sql.SQL("SELECT film_id, title FROM {}").format(table)
            rows = dict(session.execute(query).fetchall())
        newest = {each.key(): each.value() for each in self.sent()}
        values = [json.loads(value) for value in newest.values() if value is not None]
        files = list(read_manifest(str(self.home / "exports/undone/films")).files)
        in_files = dict(pl.scan_parquet(files).select("film_id", "title").collect().rows())
        address = f"http://127.0.0.1:{self.search.port}/undone_films{self.suffix}"
        for request in (f"{address}/_refresh", f"{address}/_search?size=100"):
            with urllib.request.urlopen(request, timeout=30) as answer:
                found = json.load(answer)
        documents = [each["_source"] for each in found["hits"]["hits"]]
        return [
            rows,
            {each["film_id"]: each["title"] for each in values},
            {each["film_id"]: each["title"] for each in documents},
            in_files,
        ]

    def sent(self) -> list[Any]:
        """Return the records of the topic."""
        return messages(self.kafka.url, f"undone-films{self.suffix}")

    def called(self) -> dict[int, str]:
        """Return what the receiver of webhooks has."""
        return {int(key): row["title"] for key, row in self.hooks.state()["rows"].items()}


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.timeout(900)  # seven processes, or ten, most of which start Spark
@pytest.mark.parametrize(
    "long", [False, pytest.param(True, marks=pytest.mark.full)], ids=["restore", "and-reprocess"]
)
def test_rows_that_are_taken_out_are_withdrawn_from_each_sink_or_the_sink_is_named(
    tmp_path, postgres_server, kafka_server, opensearch_server, hooks, long
):
    there = Installation(
        tmp_path, postgres_server, kafka_server, opensearch_server, hooks, "2" if long else ""
    )
    there.send(FIRST, None)
    assert there.call("run").returncode == 0
    there.send({2: "Brasil", 3: "Casino"}, TRACE)
    assert there.call("run").returncode == 0
    assert there.stored() == [SECOND] * 4
    assert there.called() == SECOND
    _expect_traces(there)

    restore = ("tables", "restore", "films", "--to-version", "1")
    preview = there.call(*restore)
    assert "films_to_kafka" in preview.stdout
    assert "films_to_webhook" in preview.stdout
    killed = there.call(*restore, "--yes", failpoint="sink.before_target_commit")
    assert killed.returncode == -signal.SIGKILL
    if long:
        hooks.mode(always=503)
        failed = there.call(*restore, "--yes")
        assert failed.returncode == 1
        assert "films_to_webhook" in failed.stderr
        assert there.stored() == [FIRST] * 4
        hooks.mode()
    done = there.call(*restore, "--yes")
    assert done.returncode == 0, done.stderr
    assert there.stored() == [FIRST] * 4
    assert there.called() == {**FIRST, 3: "Casino"}
    assert "rows that are gone were not deleted there" in done.stderr

    if not long:
        return
    there.declare(PIPELINE + NO_ALIEN)
    reprocess = ("reprocess", "--tables", "films", "--yes")
    assert there.call(*reprocess, failpoint="search.after_request").returncode == -signal.SIGKILL
    done = there.call(*reprocess)
    assert done.returncode == 0, done.stderr
    assert there.stored() == [{2: "Brasil", 3: "Casino"}] * 4
    assert there.called() == SECOND
    assert "rows that are gone were not deleted there" in done.stderr


def _expect_traces(there: Installation) -> None:
    """Expect that Kafka and the receiver got the trace context of each row that has one, and no other."""
    sent = [(each.value(), dict(each.headers())) for each in there.sent()]
    of_records = [(json.loads(value)["title"], headers.get("traceparent")) for value, headers in sent]
    traced = [("Brasil", TRACE), ("Casino", TRACE)]
    expected = [("Alien", None), ("Brazil", None), *traced]
    assert sorted(of_records, key=str) == sorted(
        ((title, trace and trace.encode()) for title, trace in expected), key=str
    )
    calls = [each.get("traceparent") for each in there.hooks.state()["headers"]]
    assert sorted(calls, key=str) == [TRACE, TRACE, None, None]

    found = there.call("trace", "--trace-id", TRACE.split("-")[1])
    assert found.returncode == 0, found.stderr
    assert '[2,"Brasil"]' in found.stdout
    assert '[3,"Casino"]' in found.stdout
    assert "Alien" not in found.stdout

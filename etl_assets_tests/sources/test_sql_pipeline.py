"""Declared pipelines over PostgreSQL: every version of a row has one outcome, whatever dies in between."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets_tests.commands.home import Home
from etl_assets_tests.sources.topics import REJECTS, SOURCE, START, SURVIVED, Topic

psycopg = pytest.importorskip("psycopg")


@pytest.fixture
def people(postgres_server, tmp_path, request, monkeypatch):
    """A table of people, and an installation whose pipeline reads it."""
    name = f"p{abs(hash(request.node.nodeid)):x}"
    with psycopg.connect(postgres_server.database_url("postgres"), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    address = postgres_server.database_url(name)
    parts = urlsplit(address)
    monkeypatch.setenv("PEOPLE_PASSWORD", parts.password or "none")
    home = Home(path=tmp_path / "home")
    connection_ = {
        "type": "postgres",
        "host": parts.hostname,
        "port": parts.port,
        "database": name,
        "user": parts.username,
        "password": "${PEOPLE_PASSWORD}",
    }
    home.begin(start_date=START.isoformat(), connections={"shop": connection_})
    source = {
        "type": "sql",
        "connection": "shop",
        "query": "SELECT *, ':x' AS literal FROM people; -- all",
        "incremental_key": "changed",
        "incremental_id_key": "id",
        "overlap": 60,
        "max_batch_records": 3,
    }
    spec = {
        "name": "people",
        "source": source,
        "columns": {"id": "bigint", "age": "int", "changed": "timestamp"},
        "table": {"keys": ["id"], "sequence_by": "changed"},
    }
    (home.path / "pipelines").mkdir(exist_ok=True)
    (home.path / "pipelines" / "people.yaml").write_text(json.dumps(spec), "utf-8")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE TABLE people (id bigint, age int, changed timestamptz)")
        connection.execute(
            "INSERT INTO people SELECT n, n, '2026-01-01'::timestamptz + n * interval '1 second'"
            " FROM generate_series(1, 8) n"
        )
        yield Topic("", "", home), connection


def versions(people: Topic) -> list[tuple[int, int]]:
    records = [json.loads(row["record"]) for row in people.accepted()]
    return [(each["id"], each["age"]) for each in records]


def test_each_version_of_a_row_is_one_record_and_known_ones_change_nothing(people):
    pipeline, connection = people
    pipeline.ingest()
    assert versions(pipeline) == [(n, n) for n in range(1, 9)]
    assert pipeline.ingest().commits == 0
    # A changed row, a row of the overlap, and one that has no key.
    connection.execute("UPDATE people SET age = 50, changed = '2026-01-01 00:01:00' WHERE id = 5")
    connection.execute("INSERT INTO people VALUES (9, 9, '2026-01-01 00:00:02+00'), (10, 10, NULL)")
    pipeline.ingest()
    assert Counter(versions(pipeline)[8:]) == Counter([(5, 50), (9, 9)])
    rejected = [row for row in pipeline.rejected() if row["outcome"] == "rejected"]
    assert [(row["reason"], json.loads(row["record"])["id"]) for row in rejected] == [("MissingField", 10)]
    assert not [row for row in pipeline.rejected() if row["outcome"] == "conflict"]
    assert pipeline.ingest().commits == 0


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint",
    [
        f"{Failpoint.STAGE_AFTER_WRITE}@{SOURCE}",
        f"{Failpoint.TABLE_DURING_COMMIT}@{REJECTS}",
        f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{SOURCE}",
        f"{Failpoint.TABLE_BEFORE_COMMIT}@{SOURCE}",
        f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}",
    ],
)
def test_after_a_kill_and_a_change_every_row_has_one_record(failpoint, people):
    pipeline, connection = people
    connection.execute("INSERT INTO people VALUES (10, 10, NULL)")
    process = multiprocessing.get_context("spawn").Process(
        target=_ingest, args=(pipeline.home.path, failpoint)
    )
    process.start()
    process.join(100)
    assert process.exitcode == -9
    connection.execute("INSERT INTO people VALUES (9, 9, '2026-01-01 00:00:02.5+00')")
    pipeline.ingest()
    assert Counter(versions(pipeline)) == Counter((n, n) for n in range(1, 10))
    assert [row["outcome"] for row in pipeline.rejected() if row["reason"]] == ["rejected"]
    assert pipeline.ingest().commits == 0


def test_validation_asks_the_database_and_names_the_line(people):
    from click.testing import CliRunner

    from etl_assets.cli.pipelines import pipelines

    pipeline, connection = people
    environment = {"ETL_ASSETS_HOME": str(pipeline.home.path)}
    command = ["validate", "--no-spark", "people"]
    assert CliRunner().invoke(pipelines, command, env=environment).exit_code == 0
    connection.execute("ALTER TABLE people RENAME changed TO modified")
    result = CliRunner().invoke(pipelines, command, env=environment)
    assert result.exit_code == 1
    assert "people.yaml:1:source.incremental_key: the query returns no column `changed`" in result.output
    assert CliRunner().invoke(pipelines, [*command, "--no-connect"], env=environment).exit_code == 0


def _ingest(home: Path, failpoint: str) -> None:
    Topic("", "", Home(path=home)).ingest(failpoint=failpoint)
    os._exit(SURVIVED)


@pytest.mark.spark
@pytest.mark.kill
def test_commands_complete_a_killed_run_read_late_rows_and_end(people):
    pipeline, connection = people
    connection.execute("INSERT INTO people VALUES (10, 10, NULL)")
    died = pipeline.home.call("run", failpoint=f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{SOURCE}", seconds=150)
    assert died.code == -9, died
    assert pipeline.accepted() == []
    done = pipeline.home.call("run", seconds=150)
    assert done.code == 0, done
    assert "==> 1 days to materialize" in done.err, done  # today, and not those of the keys
    assert sorted(row["id"] for row in pipeline.home.rows("people")) == list(range(1, 9))
    assert "nothing to do" in pipeline.home.call("run", seconds=60).err
    # Only a late row starts a run, and so does a changed row beside one without a key.
    for statement in (
        "INSERT INTO people VALUES (9, 9, '2026-01-01 00:00:02+00')",
        "UPDATE people SET age = 50, changed = '2026-01-01 00:01:00' WHERE id = 5;"
        " INSERT INTO people VALUES (11, 11, NULL)",
    ):
        connection.execute(statement)
        done = pipeline.home.call("run", seconds=150)
        assert done.code == 0, done
        assert sorted(row["id"] for row in pipeline.home.rows("people")) == list(range(1, 10)), done
    assert {row["id"]: row["age"] for row in pipeline.home.rows("people")}[5] == 50
    # When one row without a key changes, all of them are reported again.
    rejected = [json.loads(row["record"])["id"] for row in pipeline.rejected() if row["reason"]]
    assert sorted(rejected) == [10, 10, 11]
    assert "nothing to do" in pipeline.home.call("run", seconds=60).err

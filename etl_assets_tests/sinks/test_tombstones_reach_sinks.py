"""Deletes of a table that applies changes reach each type of sink, on real servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import psycopg
import pytest
import yaml

from etl_assets.sinks.files.reader import read_manifest
from etl_assets.sinks.search.client import SearchClient, SearchServer
from etl_assets_tests.reference.webhook_receiver import receiver
from etl_assets_tests.sinks.test_kafka_sink import messages
from etl_assets_tests.sinks.webhook_lab import DELIVER, PIPELINE, STEP, WebhookLab

Read = Callable[[], dict[int, str]]


def _postgres(request: pytest.FixtureRequest, home: Path) -> tuple[dict[str, Any], dict[str, Any], Read]:
    server = request.getfixturevalue("postgres_server")
    connection = {
        "type": "postgres",
        "host": "127.0.0.1",
        "port": server.port,
        "database": "postgres",
        "user": server.user,
        "password": "${TARGET_PASSWORD}",
        "write": ["buried.*"],
    }
    os.environ["TARGET_PASSWORD"] = server.password

    def read() -> dict[int, str]:
        with psycopg.connect(server.url) as session:
            return dict(session.execute("SELECT film_id, title FROM buried.films").fetchall())

    return connection, {"type": "postgres", "table": "buried.films"}, read


def _duckdb(request: pytest.FixtureRequest, home: Path) -> tuple[dict[str, Any], dict[str, Any], Read]:
    def read() -> dict[int, str]:
        with duckdb.connect(str(home / "out" / "marts.duckdb")) as connection:
            return dict(connection.execute("SELECT film_id, title FROM films").fetchall())

    (home / "out").mkdir()
    connection = {"type": "duckdb", "path": "out/marts.duckdb", "write": ["films"]}
    return connection, {"type": "duckdb", "table": "films"}, read


def _folder(request: pytest.FixtureRequest, home: Path) -> tuple[dict[str, Any], dict[str, Any], Read]:
    def read() -> dict[int, str]:
        files = list(read_manifest(str(home / "out" / "films")).files)
        return dict(pl.scan_parquet(files).select("film_id", "title").collect().rows())

    (home / "out").mkdir()
    return {"type": "folder", "path": "out", "write": ["films"]}, {"type": "folder", "target": "films"}, read


def _kafka(request: pytest.FixtureRequest, home: Path) -> tuple[dict[str, Any], dict[str, Any], Read]:
    server = request.getfixturevalue("kafka_server")

    def read() -> dict[int, str]:
        found: dict[int, str] = {}
        for each in messages(server.url, "buried-films"):
            key = json.loads(each.key())["film_id"]
            if each.value() is None:
                found.pop(key, None)
            else:
                found[key] = json.loads(each.value())["title"]
        return found

    connection = {"type": "kafka", "bootstrap_servers": [server.url], "write": ["buried-*"]}
    return connection, {"type": "kafka", "topic": "buried-films", "create": {"partitions": 1}}, read


def _search(request: pytest.FixtureRequest, home: Path) -> tuple[dict[str, Any], dict[str, Any], Read]:
    server = request.getfixturevalue("opensearch_server")
    url = f"http://127.0.0.1:{server.port}"

    def read() -> dict[int, str]:
        client = SearchClient(SearchServer(urls=(url,)), sink="test")
        found = client.send("GET", "/buried_films/_search", {"size": 1_000})
        client.close()
        return {hit["_source"]["film_id"]: hit["_source"]["title"] for hit in found.body["hits"]["hits"]}

    connection = {"type": "search", "urls": [url], "write": ["buried_*"]}
    return connection, {"type": "search", "index": "buried_films"}, read


def _webhook(request: pytest.FixtureRequest, home: Path) -> tuple[dict[str, Any], dict[str, Any], Read]:
    running = receiver()
    server = running.__enter__()
    request.addfinalizer(server.close)

    def read() -> dict[int, str]:
        return {int(key): row["title"] for key, row in server.state()["rows"].items()}

    return (
        {"type": "webhook", "url": server.url, "write": ["films"]},
        {"type": "webhook", "path": "films"},
        read,
    )


@pytest.mark.slow
@pytest.mark.parametrize("of", [_postgres, _duckdb, _folder, _kafka, _search, _webhook])
def test_deleted_rows_are_gone_from_the_target_and_stay_gone(request, tmp_path, of):
    lab = WebhookLab(tmp_path / "home", "http://127.0.0.1:9")
    connection, sink, read = of(request, lab.home)
    settings = yaml.safe_load((lab.home / "platform.yaml").read_text())
    settings["connections"] = {"target": connection}
    (lab.home / "platform.yaml").write_text(yaml.safe_dump(settings))
    spec = yaml.safe_load(PIPELINE)
    spec["sinks"] = [{**sink, "connection": "target"}]
    (lab.home / "pipelines" / "films.yaml").write_text(yaml.safe_dump(spec))

    def deliver() -> None:
        program = DELIVER.replace(STEP, f"films_to_{sink['type']}").replace("MODE", "INCREMENTAL")
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "ETL_ASSETS_HOME": str(lab.home)},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    lab.write([(1, "Alien"), (2, "Brazil"), (3, "Casino")])
    deliver()
    assert read() == {1: "Alien", 2: "Brazil", 3: "Casino"}
    lab.delete([2])
    lab.write([(4, "Dune")])
    deliver()
    assert read() == {1: "Alien", 3: "Casino", 4: "Dune"}
    # A key that comes back after its delete is a row again.
    lab.write([(2, "Brasil")])
    lab.delete([3])
    deliver()
    deliver()
    assert read() == {1: "Alien", 2: "Brasil", 4: "Dune"}

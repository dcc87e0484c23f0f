"""A declared pipeline to DuckDB, Parquet files and Kafka, by a user's commands, with kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import duckdb
import polars as pl
import pytest
import yaml

from etl_assets.sinks.files.reader import read_manifest
from etl_assets_tests.commands.home import BIN, SPARK
from etl_assets_tests.sinks.test_kafka_sink import messages

PIPELINE = """
name: films
source: {type: files, path: "landing/*.csv", id: [film_id, rating], settle_seconds: 0}
columns: {film_id: bigint, rating: "decimal(4,2)", title: string}
table: {keys: [film_id]}
sinks:
  - {type: duckdb, connection: marts, table: analytics.films}
  - {type: folder, connection: exports, target: marts/films}
  - {type: kafka, connection: events, topic: by-command-films, create: {partitions: 2}}
"""


@pytest.mark.kill
@pytest.mark.slow
def test_rows_arrive_once_in_each_target(tmp_path, kafka_server):
    for folder in ("pipelines", "landing", "exports"):
        (tmp_path / folder).mkdir()
    connections = {
        "marts": {"type": "duckdb", "path": "exports/marts.duckdb", "write": ["analytics.*"]},
        "exports": {"type": "folder", "path": "exports", "write": ["marts/*"]},
        "events": {"type": "kafka", "bootstrap_servers": [kafka_server.url], "write": ["by-command-*"]},
    }
    settings = {"pipelines": {"built_in": []}, "spark": SPARK, "connections": connections}
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "pipelines" / "films.yaml").write_text(PIPELINE)

    def run(failpoint: str = "") -> int:
        variables = {"ETL_ASSETS_HOME": str(tmp_path), "ETL_ASSETS_FAILPOINT": failpoint}
        return subprocess.run(
            [BIN / "etl-assets", "run"], env={**os.environ, **variables}, timeout=280, check=False
        ).returncode

    def stored() -> list[dict[int, str]]:
        with duckdb.connect(str(tmp_path / "exports/marts.duckdb")) as connection:
            in_file = dict(connection.execute("SELECT film_id, title FROM analytics.films").fetchall())
        files = list(read_manifest(str(tmp_path / "exports/marts/films")).files)
        in_files = dict(pl.scan_parquet(files).select("film_id", "title").collect().rows())
        values = [json.loads(each.value()) for each in messages(kafka_server.url, "by-command-films")]
        assert len(values) == len({json.dumps(each) for each in values})
        return [in_file, in_files, {each["film_id"]: each["title"] for each in values}]

    (tmp_path / "landing" / "a.csv").write_text("film_id,rating,title\n1,4.5,Alien\n2,3.25,Brazil\n")
    assert run("sink.before_target_commit") == -signal.SIGKILL
    assert run("sink.after_target_commit") == -signal.SIGKILL
    assert run() == 0
    assert stored() == [{1: "Alien", 2: "Brazil"}] * 3
    (tmp_path / "landing" / "b.csv").write_text("film_id,rating,title\n2,3.5,Brasil\n3,1.0,Casino\n")
    assert run() == 0
    assert stored() == [{1: "Alien", 2: "Brasil", 3: "Casino"}] * 3

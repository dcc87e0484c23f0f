"""How far a source's table and the tables after it are behind, from tables and files written by hand."""

from __future__ import annotations

import datetime as dt
import json
import os

import pytest
from click.testing import CliRunner

from etl_assets.cli.tables import tables
from etl_assets.delta.log.cursor import cursor_name
from etl_assets.delta.log.entries import entry_path
from etl_assets.metadata import lag_metadata
from etl_assets.observability.asset_lag import AssetLag, source_lag, table_lag
from etl_assets.observability.lag_checks import check_sources
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.written_tables import DAY, NOON, write_table

FILMS = """\
name: films
source: {type: files, path: "in/{day}/*.jsonl", id: [id], settle_seconds: 0}
columns: {id: bigint}
table: {keys: [id]}
"""
NOTHING = AssetLag(rows=0, seconds=0.0)
NEXT_DAY = DAY + dt.timedelta(days=1)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "platform.yaml").write_text("start_date: 2026-02-01\n")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "films.yaml").write_text(FILMS)
    return load_settings()


@pytest.fixture
def domain(settings):
    return settings.placement().domains[0]


def commit(domain, name: str, day: dt.date, rows: int, *, version: int, minutes_ago: float) -> None:
    contract = domain.catalog.table(name)
    column = contract.batch_column
    write_table(domain, name, [{"partition_date": day, column: version, "offset": version}] * rows)
    at = NOON.timestamp() - 60 * minutes_ago
    os.utime(entry_path(platform_table(name, domain).path, version), (at, at))


def test_a_table_lacks_the_rows_and_the_oldest_commit_that_it_has_not_read(settings, domain):
    films = domain.catalog.stage("films")
    assert table_lag(films, domain, NOON) == NOTHING, "there is nothing yet"
    commit(domain, "films_source", DAY, 5, version=0, minutes_ago=90)
    commit(domain, "films_source", NEXT_DAY, 3, version=1, minutes_ago=10)
    assert table_lag(films, domain, NOON) == AssetLag(rows=8, seconds=5_400.0)
    write_table(domain, "films", [{"id": 1, "_batch_id": 0}], {cursor_name("films_source", None): 0})
    lag = table_lag(films, domain, NOON)
    assert lag == AssetLag(rows=3, seconds=600.0)
    assert str(lag) == "3 rows, the oldest for 0:10:00"
    assert lag_metadata(platform_table("films", domain), settings)["lag_rows"] == 3
    said = json.loads(CliRunner().invoke(tables, ["--json"], catch_exceptions=False).stdout)
    assert {each["name"]: each["lag_rows"] for each in said}["films"] == 3
    write_table(domain, "films", [{"id": 2, "_batch_id": 1}], {cursor_name("films_source", None): 1})
    assert table_lag(films, domain, NOON) == NOTHING
    assert str(NOTHING) == "nothing"


def test_a_table_with_days_lacks_what_each_of_them_has_not_read(domain):
    orders = domain.catalog.stage("normalized_orders")
    commit(domain, "raw_events", DAY, 5, version=0, minutes_ago=90)
    commit(domain, "raw_events", NEXT_DAY, 3, version=1, minutes_ago=30)
    commit(domain, "raw_events", DAY, 2, version=2, minutes_ago=10)
    row = {"partition_date": DAY, "batch_id": 0}
    write_table(domain, "normalized_orders", [row], {cursor_name("raw_events", DAY): 0})
    assert table_lag(orders, domain, NOON) == AssetLag(rows=5, seconds=1_800.0)
    write_table(domain, "normalized_orders", [row], {cursor_name("raw_events", NEXT_DAY): 1})
    assert table_lag(orders, domain, NOON) == AssetLag(rows=2, seconds=600.0)


def test_a_source_has_files_that_were_not_read_and_the_oldest_of_them(settings, domain):
    stage = domain.catalog.stage("films_source")
    assert source_lag(stage, settings, NOON) == AssetLag(rows=0, seconds=0.0, files=0)
    for number in (1, 2):
        file = settings.home / "in" / str(DAY) / f"{number}.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"id": 1}\n')
        at = NOON.timestamp() - 60 * number
        os.utime(file, (at, at))
    assert source_lag(stage, settings, NOON) == AssetLag(rows=None, seconds=120.0, files=2)
    details = [each.detail for each in check_sources(settings, NOON)]
    assert "films_source has not read 2 files, the oldest for 0:02:00" in details
    metadata = lag_metadata(platform_table("films_source", domain), settings)
    assert metadata["lag_files"] == 2
    assert "lag_rows" not in metadata, "files do not say how many records they have"

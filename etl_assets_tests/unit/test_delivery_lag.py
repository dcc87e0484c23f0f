"""How far a sink is behind its table, from tables written by hand."""

from __future__ import annotations

import os
from typing import Any

import pytest

from etl_assets.delta.log.cursor import cursor_name
from etl_assets.delta.log.entries import entry_path
from etl_assets.observability.days_behind import days_behind
from etl_assets.observability.delivery_lag import delivery_lags
from etl_assets.observability.findings import Finding, Status
from etl_assets.observability.lag_checks import check_deliveries
from etl_assets.observability.undelivered import undelivered
from etl_assets.settings import load_settings
from etl_assets.sinks.circuit_breaker import after_failure, write_circuits
from etl_assets.sinks.replay_requests import content_of_request
from etl_assets.sources.replays import row_again, submit_replays
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.written_tables import NOON, write_table

FILMS = """\
name: films
source: {type: files, path: "in/*.jsonl", id: [id]}
columns: {id: bigint}
table: {keys: [id]}
sinks: [{type: duckdb, connection: marts, table: films}]
"""
DELIVERIES = "films_to_duckdb"


@pytest.fixture
def domain(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "platform.yaml").write_text(
        "connections: {marts: {type: duckdb, path: m.db, write: ['*']}}\npipelines: {built_in: []}\n"
    )
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "films.yaml").write_text(FILMS)
    return load_settings().placement().domains[0]


def commit(domain, version: int, rows: int, *, minutes_ago: float) -> None:
    """A commit of the table, some time before noon."""
    write_table(domain, "films", [{"id": 10 * version + each, "_batch_id": version} for each in range(rows)])
    at = NOON.timestamp() - 60 * minutes_ago
    os.utime(entry_path(platform_table("films", domain).path, version), (at, at))


def deliver(domain, version: int, batch: int = 0) -> None:
    row: dict[str, Any] = {"to_version": version, "_batch_id": batch, "seconds": 1.0}
    write_table(domain, DELIVERIES, [row], {cursor_name("films", None): version})


def found() -> list[Finding]:
    return list(check_deliveries(load_settings(), NOON))


def test_a_sink_is_behind_by_commits_rows_and_the_age_of_the_oldest(domain):
    assert [each.status for each in found()] == [Status.OK], "there is no table yet"
    commit(domain, 0, 5, minutes_ago=90)
    (nothing_yet,) = found()
    assert nothing_yet.status is Status.WARN
    assert nothing_yet.detail == f"{DELIVERIES} is 1 commits and 5 rows behind films, the oldest for 1:30:00"
    deliver(domain, 0)
    assert [each.detail for each in found()] == ["1 of 1 sinks have all that their tables have"]
    commit(domain, 1, 3, minutes_ago=10)
    commit(domain, 2, 4, minutes_ago=2)
    (behind,) = found()
    assert behind.detail == f"{DELIVERIES} is 2 commits and 7 rows behind films, the oldest for 0:10:00"
    circuit = after_failure(None, "SinkUnavailable: no\n  fix: -", pause_seconds=30, now=NOON.timestamp())
    write_circuits(load_settings().home, {DELIVERIES: circuit})
    assert found()[0].detail == f"{behind.detail}; {circuit.sentence(NOON.timestamp())}"
    deliver(domain, 2, batch=1)
    assert [each.status for each in found()] == [Status.OK]


def test_a_replay_is_something_that_a_sink_lacks_until_a_delivery_takes_it_up(domain):
    commit(domain, 0, 5, minutes_ago=90)
    deliver(domain, 0)
    content = content_of_request({"id": 1}, NOON, "anna@etl-1")
    submit_replays(domain, [row_again(NOON.date(), "a" * 64, 2, content, stage=DELIVERIES)])
    assert undelivered(domain) == (DELIVERIES,)
    assert days_behind(domain, NOON.date()) == {}, "there is no day yet to run"
    assert [each.detail for each in found()] == [f"{DELIVERIES} has dead letters to replay"]
    (lag,) = delivery_lags(domain, NOON)
    assert (lag.commits, lag.rows, lag.seconds) == (0, 0, 0.0), "no limit of the lag is exceeded by it"
    row: dict[str, Any] = {"to_version": 0, "_batch_id": 1, "seconds": 1.0}
    write_table(domain, DELIVERIES, [row], {cursor_name("films", None): 0, cursor_name("replays", None): 1})
    assert undelivered(domain) == ()
    assert [each.status for each in found()] == [Status.OK]


def test_a_table_made_again_is_behind_as_a_whole_and_a_shorter_log_has_the_age_of_its_oldest(
    domain,
):
    commit(domain, 0, 5, minutes_ago=90)
    deliver(domain, 7)
    assert "1 commits and 5 rows" in found()[0].detail
    commit(domain, 1, 1, minutes_ago=10)
    # The log's first entries went with upkeep.
    path = platform_table("films", domain).path
    from deltalake import DeltaTable

    DeltaTable(str(path)).create_checkpoint()
    entry_path(path, 0).unlink()
    assert found()[0].detail == (f"{DELIVERIES} is 2 commits and 6 rows behind films, the oldest for 0:10:00")

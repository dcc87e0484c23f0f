"""Dagster's event storage while a run's files are kept open."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import ExitStack
from pathlib import Path

import dagster as dg
import pytest

from etl_assets.dagster_internals import event_databases_open

KEYS = [f"2026-01-0{number}" for number in range(1, 8)]


@pytest.fixture
def seen(tmp_path: Path) -> list[set[str]]:
    """Which of SQLite's logs there were after each event that a step stored."""
    return []


@pytest.fixture
def job(tmp_path: Path, seen: list[set[str]]) -> dg.JobDefinition:
    @dg.asset
    def rows(context):
        for key in KEYS:
            context.log_event(dg.AssetMaterialization("other", partition=key))
            seen.append({path.name for path in tmp_path.rglob("*.db-wal")})

    return dg.Definitions(assets=[rows], jobs=[dg.define_asset_job("job")]).resolve_job_def("job")


def test_while_they_are_open_the_logs_stay_from_event_to_event_and_afterwards_are_gone(job, seen, tmp_path):
    run_id = str(uuid.uuid4())
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        with event_databases_open(instance, run_id):
            assert job.execute_in_process(instance=instance, run_id=run_id).success
        stored = instance.get_materialized_partitions(dg.AssetKey("other"))
    assert stored == set(KEYS)
    assert len(seen) == len(KEYS)
    assert all({"index.db-wal", f"{run_id}.db-wal"} <= logs for logs in seen), seen
    assert not list(tmp_path.rglob("*.db-wal"))


def test_without_them_open_each_event_ends_with_the_logs_moved_into_the_files(job, seen, tmp_path):
    """What makes it worth while. Once Dagster keeps its connections open, this module can go."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        assert job.execute_in_process(instance=instance).success
    assert seen == [set()] * len(KEYS)


def test_a_storage_that_is_not_sqlite_is_left_alone(tmp_path):
    with dg.DagsterInstance.ephemeral() as instance, event_databases_open(instance, "run"):
        assert instance.get_runs_count() == 0


def test_a_file_that_cannot_be_kept_open_fails_no_run(job, tmp_path, monkeypatch):
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        run_id = str(uuid.uuid4())

        def locked(*_: object, **__: object) -> sqlite3.Connection:
            raise sqlite3.OperationalError("database is locked")

        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", locked)
            stack = ExitStack()
            stack.enter_context(event_databases_open(instance, run_id))
        with stack:
            assert job.execute_in_process(instance=instance, run_id=run_id).success

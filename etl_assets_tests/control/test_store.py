"""The control store: opened by several at once, its versions, its errors, what callers read of it."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from etl_assets.control.connection_rows import ConnectionRows
from etl_assets.control.migrate import HEAD, MIGRATIONS
from etl_assets.control.records import RunLease
from etl_assets.control.run_controls import RunControls
from etl_assets.control.schema import METADATA, VERSION_TABLE
from etl_assets.control.states import Action, ControlState, RetryPolicy, RunStatus
from etl_assets.control.store import open_store, sqlite_store
from etl_assets.errors import (
    ControlStoreUnavailable,
    ControlStoreUnusable,
    NotFound,
    SettingsError,
    SourceUnavailable,
    TransitionRefused,
)
from etl_assets.settings import Settings
from etl_assets_tests.control.model import later

AWAY = SourceUnavailable("away", fix="bring it back", source="s")


@pytest.fixture
def store(open_again):
    made = open_again()
    with made.writing() as connection:
        for table in METADATA.sorted_tables:
            connection.execute(sa.delete(table))
    return made


@pytest.fixture
def controls(store):
    return RunControls(store)


def claimed(controls: RunControls) -> RunLease:
    lease = controls.claim("r")
    assert lease is not None
    return lease


def test_the_tables_are_what_the_migrations_make(store):
    with store.reading() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        differences = compare_metadata(context, METADATA)
    assert differences == []


def test_the_constant_is_the_newest_migration():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_four_that_open_a_new_store_at_once_all_can_use_it(open_again):
    with open_again().writing() as connection:
        for table in (*METADATA.sorted_tables, sa.Table(VERSION_TABLE, sa.MetaData())):
            connection.execute(sa.text(f"DROP TABLE {table.name}"))
    found, barrier = [], threading.Barrier(4)

    def use(number: int) -> None:
        barrier.wait()
        found.append(RunControls(open_again()).request_run(f"p{number}", "a").status)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [RunStatus.REQUESTED] * 4


def test_a_store_of_a_newer_release_is_refused_by_name(store, open_again):
    def version(text: str) -> None:
        with store.writing() as connection:
            connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '{text}'"))

    version("9999")
    try:
        with pytest.raises(ControlStoreUnusable, match="9999"):
            open_again()
    finally:
        version(HEAD)


def test_requests_of_many_at_once_are_one_run_and_each_has_its_id(store, open_again):
    barrier, found = threading.Barrier(6), []

    def ask() -> None:
        controls = RunControls(open_again())
        barrier.wait()
        found.append(controls.request_run("p", "a").id)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 6
    assert len(set(found)) == 1


def test_a_change_that_was_decided_on_an_older_row_is_decided_again(open_again, store):
    """Another process changes the row between its reading and its writing."""
    if store.engine.dialect.name == "sqlite":
        return  # the second one waits for the first one there
    other, changes = RunControls(open_again()), ["pause", "request_run"]

    def clock(connection: sa.Connection) -> dt.datetime:
        if changes:
            getattr(other, changes.pop())("p", "b")
        return later(0)

    late = RunControls(open_again(clock))
    late.pause("p", "a")
    found = late.state_of("p")
    assert (found.state, found.actor, found.revision) == (ControlState.PAUSED, "b", 2)
    assert found.run_id is not None


def test_a_lease_that_is_renewed_while_it_is_taken_for_expired_stays(store, controls):
    controls.request_run("p", "a")
    lease = claimed(controls)
    renewed: list[ControlState] = []

    def renewing() -> float:  # is called between the observer's look at the lease and its taking
        renewed.append(controls.heartbeat(lease))
        return 100.0

    clocks = iter([lambda: 0.0, renewing])
    observer = RunControls(store, monotonic=lambda: next(clocks)())
    observer.recover("o")
    observer.recover("o")
    assert renewed == [ControlState.RUNNING]
    assert controls.heartbeat(lease) is ControlState.RUNNING


def test_a_request_with_a_key_can_be_repeated_whatever_became_of_the_run(controls):
    first = controls.request_run("p", "a", key="one")
    lease = controls.claim("r")
    controls.finish(lease)
    assert controls.request_run("p", "a", key="one").id == first.id
    assert controls.state_of("p").state is ControlState.IDLE


def test_a_request_during_a_run_follows_it_and_a_pause_in_between_loses_neither(controls):
    first = controls.request_run("p", "a")
    lease = controls.claim("r")
    second = controls.request_run("p", "b")
    controls.pause("p", "c", "upgrade")
    assert controls.stop(lease).state is ControlState.PAUSED
    assert controls.claim("r") is None
    assert controls.resume("p", "c").run_id == first.id
    controls.finish(controls.claim("r"))
    assert controls.state_of("p").run_id == second.id != first.id


def test_runs_and_history_are_read_in_pages_from_the_newest(controls):
    for _ in range(5):
        controls.request_run("p", "a", "again")
        controls.finish(controls.claim("r"))
    controls.request_run("q", "a")
    all_runs = controls.runs("p")
    pages, last = [], None
    while page := controls.runs("p", before=last, limit=2):
        pages += page
        last = page[-1].id
    assert pages == list(all_runs)
    assert len(all_runs) == 5
    newest = controls.history("p", limit=2)
    assert [entry.action for entry in newest] == [Action.FINISH, Action.CLAIM]
    assert controls.history("p", before=newest[-1].id, limit=1)[0].reason == "again"
    with pytest.raises(NotFound):
        controls.runs("p", before="?")
    assert [each.pipeline for each in controls.all()] == ["p", "q"]
    assert [each.pipeline for each in controls.all([ControlState.RUN_REQUESTED])] == ["q"]


def test_progress_adds_up_over_attempts_and_has_a_rate(controls):
    run = controls.request_run("p", "a")
    lease = controls.claim("r")
    controls.report_progress(lease, batches=1, rows_committed=100, seconds=2.0)
    controls.release(lease)
    lease = controls.claim("s")
    controls.report_progress(lease, batches=2, rows_committed=300, seconds=2.0)
    found = controls.run(run.id)
    assert (found.batches, found.rows, found.rows_per_second, found.attempts) == (3, 400, 100.0, 1)


def test_a_timed_retry_comes_by_itself_and_a_clock_set_back_does_not_hold_it_up(open_again, store):
    clock = [later(0)]
    controls = RunControls(open_again(lambda connection: clock[0]), jitter=lambda: 1.0)
    run = controls.request_run("p", "a")
    for wait in (1.0, 2.0):
        controls.fail(claimed(controls), AWAY)
        assert controls.claim("r") is None, "the backoff"
        clock[0] = later((clock[0] - later(0)).total_seconds() + wait)
    assert controls.fail(claimed(controls), AWAY).state is ControlState.FAILED
    failed = controls.run(run.id)
    assert (failed.retry_policy, failed.solution) == (RetryPolicy.TIMED, "bring it back")
    assert controls.claim("r") is None
    clock[0] = later(-7_200)
    again = controls.claim("r")
    assert again is not None
    assert (again.run_id, again.attempt) == (run.id, 1)


def test_what_a_state_does_not_allow_is_refused_and_leaves_no_trace(controls):
    with pytest.raises(TransitionRefused, match="IDLE"):
        controls.cancel("p", "a")
    assert controls.history("p") == ()
    controls.pause("p", "a")
    controls.pause("p", "a")
    assert len(controls.history("p")) == 1, "a pause of a paused pipeline changes nothing"


def test_the_version_rises_with_every_change_and_not_with_heartbeats(controls):
    controls.request_run("p", "a")
    before = controls.version()
    lease = controls.claim("r")
    changed = controls.version()
    controls.heartbeat(lease)
    assert before < changed == controls.version()


def test_a_killed_process_leaves_a_new_store_usable(tmp_path):
    """Killed within the migration, and within a transition, in processes of their own."""
    script = """
import os, signal, sys
from pathlib import Path
import sqlalchemy as sa
from etl_assets.control.run_controls import RunControls
from etl_assets.control.store import sqlite_store
number = [0]
def count(*of_statement):
    number[0] += 1
    if number[0] == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
sa.event.listen(sa.Engine, "after_cursor_execute", count)
RunControls(sqlite_store(Path(sys.argv[1]))).request_run("p", "a")
"""
    path = tmp_path / "control.db"
    for statement in (3, 6, 9, 12, 16, 4, 5, 6, 7):
        subprocess.run([sys.executable, "-c", script, str(path), str(statement)], check=False)
    store = sqlite_store(path)
    try:
        assert RunControls(store).request_run("p", "a").attempts == 0
        assert len(RunControls(store).history("p")) == 1
    finally:
        store.close()


def test_the_setting_names_a_connection_to_postgres(tmp_path):
    with pytest.raises(SettingsError, match=r"control\.connection"):
        open_store(Settings.model_validate({"home": tmp_path, "control": {"connection": "none"}}))


def test_a_server_that_is_away_is_told_without_its_password(tmp_path, monkeypatch):
    monkeypatch.setenv("CONTROL_AWAY", "s3cret-words")
    connection = {
        "type": "postgres", "host": "127.0.0.1", "port": 1, "database": "d", "user": "u",
        "password": "${CONTROL_AWAY}",
    }  # fmt: skip
    found = {"home": tmp_path, "control": {"connection": "c"}, "connections": {"c": connection}}
    with pytest.raises(ControlStoreUnavailable) as away:
        open_store(Settings.model_validate(found))
    assert "s3cret-words" not in str(away.value)
    assert "127.0.0.1:1/d" in str(away.value)


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path):
    path = tmp_path / "control.db"
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(ControlStoreUnusable, match=r"control\.db"):
        sqlite_store(path)


def test_importing_run_control_imports_neither_dagster_nor_spark():
    assert _heavy("import etl_assets.control.run_controls, etl_assets.control.store") == "[]"


def test_the_command_line_starts_without_the_libraries_of_the_store():
    assert (
        _heavy("import etl_assets.cli.main, etl_assets.cli.pipelines, etl_assets.settings", "sqlalchemy")
        == "[]"
    )


def _heavy(imports: str, *more: str) -> str:
    names = ("dagster", "pyspark", "alembic", *more)
    program = f"import sys\n{imports}\nprint([name for name in {names} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_of_two_changes_of_a_connection_on_one_revision_one_is_stored(store):
    rows = ConnectionRows(store)
    content = {"type": "postgres", "password": "${env:WAREHOUSE}"}
    change: dict[str, Any] = {"tenant": "default", "content": content, "actor": "robot"}
    made = rows.put("warehouse", seen=0, **change)
    assert made is not None
    assert rows.put("warehouse", seen=0, **change) is None
    second = rows.put("warehouse", seen=1, tenant="default", content=content, actor="second")
    assert second is not None
    assert second.revision == 2
    assert rows.put("warehouse", seen=1, **change) is None
    ended = rows.put("warehouse", seen=2, tenant="default", content=None, actor="robot")
    assert rows.all() == {"warehouse": ended}
    assert (made.content, rows.all()["warehouse"].revision) == (content, 3)

"""What is waiting is told from logs and listings, and with nothing to do a command loads neither Dagster
nor Spark.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable

from etl_assets.cli import run as command
from etl_assets.delta.write.records import commit_rows
from etl_assets.observability.days_behind import days_behind
from etl_assets.observability.pending import Unfinished, find_unfinished
from etl_assets.orders.invariants import all_committed, nothing_lost
from etl_assets.settings import Settings, load_settings, platform_file
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.replays import event_again, submit_replays
from etl_assets.sources.source_files import SourceFile
from etl_assets.steps.step import platform_table
from etl_assets.worker.lease import lease
from etl_assets_tests.reference.written_tables import write_table

DAY, OTHER_DAY = dt.date(2026, 1, 5), dt.date(2026, 1, 6)
BEFORE = dt.date(2025, 12, 31)
RUN_AND_TELL_MODULES = """
import sys
from etl_assets.cli.main import cli
cli(["run"], standalone_mode=False)
heavy = {"dagster", "pyspark", "pandas", "numpy", "py4j", "pyarrow"} & set(sys.modules)
sys.exit(f"loaded {heavy}" if heavy else 0)
"""


@pytest.fixture
def settings() -> Settings:
    return load_settings()


def write(settings: Settings, table: str, day: dt.date, batch: int, cursors: dict[str, int] | None = None):
    domain = settings.placement().domains[0]
    write_table(domain, table, [{"partition_date": day, "batch_id": batch}], cursors)


def behind(settings: Settings) -> dict[str, tuple[dt.date, ...]]:
    return days_behind(settings.placement().reader(), settings.start_date)


def carried_through(settings: Settings, day: dt.date) -> None:
    """An event that every table has, of those that get it."""
    write(settings, "raw_events", day, 0)
    write(settings, "normalized_orders", day, 0, {f"raw_events/{day}": 0})
    write(settings, "warehouse_rows", day, 0, {f"normalized_orders/{day}": 0})
    write(settings, "order_status_view", day, 0, {"warehouse_rows/*": 0})
    inputs = ("raw_events", "normalized_orders", "warehouse_rows")
    write(settings, "audit_log", day, 0, {f"{name}/{day}": 0 for name in inputs})


def test_nothing_is_behind_where_nothing_is(settings):
    assert behind(settings) == {}


def test_a_batch_that_was_not_ended_is_behind(settings):
    domain = settings.placement().domains[0]
    file = SourceFile(day=DAY, source="landing", name="a.jsonl", size=1, mtime_ns=1)
    facts = BatchPlan(batch_id=1, files=(file,)).facts()
    commit_rows(platform_table("raw_events_exceptions", domain), [], base_version=-1, facts=facts)
    assert behind(settings) == {"raw_events": (DAY,)}
    write_table(domain, "raw_events", [], {"files": 1})
    assert behind(settings) == {}


def test_nothing_is_behind_once_every_table_has_what_its_inputs_have(settings):
    carried_through(settings, DAY)
    assert behind(settings) == {}


def test_what_a_run_left_undone_between_two_tables_is_found_by_day(settings):
    carried_through(settings, DAY)
    write(settings, "raw_events", OTHER_DAY, 1)
    assert behind(settings) == {"normalized_orders": (OTHER_DAY,), "audit_log": (OTHER_DAY,)}
    write(settings, "normalized_orders", OTHER_DAY, 1, {f"raw_events/{OTHER_DAY}": 1})
    assert behind(settings) == {"warehouse_rows": (OTHER_DAY,), "audit_log": (OTHER_DAY,)}
    write(settings, "warehouse_rows", OTHER_DAY, 1, {f"normalized_orders/{OTHER_DAY}": 1})
    assert behind(settings) == {"order_status_view": (OTHER_DAY,), "audit_log": (OTHER_DAY,)}


def test_a_day_without_refused_records_needs_no_dead_letters_and_one_with_them_does(settings):
    carried_through(settings, DAY)
    write(settings, "raw_events_exceptions", DAY, 0)
    assert behind(settings) == {"dead_letters": (DAY,), "audit_log": (DAY,)}


def test_days_before_the_first_partition_are_nobodys(settings):
    write(settings, "raw_events", BEFORE, 0)
    assert behind(settings) == {}


def test_with_nothing_to_do_a_run_says_so_and_loads_neither_dagster_nor_spark(settings):
    for number in range(6):  # more days than are looked up one by one
        carried_through(settings, DAY - dt.timedelta(days=number))
    done = run(settings)
    assert done.returncode == 0, done.stderr
    assert "nothing to do" in done.stderr


def test_a_run_has_something_to_do_when_only_a_table_is_behind(settings, monkeypatch):
    carried_through(settings, DAY)
    write(settings, "warehouse_rows", DAY, 1)
    asked = []
    monkeypatch.setattr(
        command, "_materialize", lambda settings, days, replays, *rest: asked.append(days) or Counter()
    )
    result = CliRunner().invoke(command.run, catch_exceptions=False)
    assert "order_status_view (1 day)" in result.output
    assert asked == [[DAY]]


def ran(monkeypatch: pytest.MonkeyPatch, landing: str = "", *options: str) -> tuple[Result, list]:
    """What the command said, and the days it materialized."""
    asked: list = []
    if landing:
        platform_file().write_text(f"landing: {{{landing}}}")
    monkeypatch.setattr(
        command, "_materialize", lambda settings, days, replays, *rest: asked.extend(days) or Counter()
    )
    return CliRunner().invoke(command.run, options, catch_exceptions=False), asked


def land(settings: Settings, day: dt.date) -> Path:
    file = settings.landing_path / day.isoformat() / "a.jsonl"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    os.utime(file, (0, 0))
    return file


def test_files_that_no_run_reads_are_named_and_not_said_to_be_read(settings, monkeypatch):
    land(settings, settings.start_date - dt.timedelta(days=1))
    (settings.landing_path / "yesterday").mkdir()
    result, days = ran(monkeypatch)
    assert (days, result.exit_code) == ([], 0)
    assert "lie outside of the partitions" in result.output
    assert "yesterday in the landing folder are no days" in result.output
    assert "every file is read" not in result.output


def test_files_that_came_just_now_are_waited_for_and_read(settings, monkeypatch):
    """As a cron job that reads nothing and is green leaves them to nobody."""
    os.utime(land(settings, DAY))
    result, days = ran(monkeypatch, "settle_seconds: 0.3")
    assert (days, result.exit_code) == ([DAY], 0)
    assert "1 file changed less than 0.3 s ago: waiting" in result.output
    assert "not read" not in result.output


def test_a_file_that_goes_on_changing_is_the_exit_code_with_the_time_at_which_it_can_be_read(
    settings, monkeypatch
):
    file = land(settings, DAY)
    another = land(settings, OTHER_DAY)
    os.utime(file, (2**33, 2**33))
    result, days = ran(monkeypatch, "settle_seconds: 0.3")
    assert (days, result.exit_code) == ([OTHER_DAY], 1), another
    assert re.search(
        r"1 file is still being written and was not read.* after \d\d:\d\d:\d\d UTC", result.output
    )
    assert "nothing else to do" not in result.output


def test_a_run_that_is_not_to_wait_says_at_once_when_the_files_can_be_read(settings, monkeypatch):
    os.utime(land(settings, DAY))
    result, days = ran(monkeypatch, "settle_seconds: 3600", "--no-wait")
    assert (days, result.exit_code) == ([], 1)
    assert "run again after " in result.output


def test_a_day_that_cannot_be_read_is_the_exit_code_and_the_others_are_materialized(settings, monkeypatch):
    land(settings, DAY)
    (settings.landing_path / OTHER_DAY.isoformat()).write_text("not a folder")
    monkeypatch.setattr(
        "etl_assets.sources.landing.Folders.days", lambda folder: iter([(DAY, 1), (OTHER_DAY, 1)])
    )
    result, days = ran(monkeypatch)
    assert (days, result.exit_code) == ([DAY], 1)
    assert str(OTHER_DAY) in result.output


def test_beside_a_worker_a_run_leaves_everything_to_it(settings, monkeypatch):
    land(settings, DAY)
    with lease(settings.home):
        result, days = ran(monkeypatch)
        assert (days, result.exit_code) == ([], 0)
        assert f"the worker on {socket.gethostname()} (process {os.getpid()}" in result.output
        os.utime(settings.home / "follower.lock", (0, 0))
        assert ran(monkeypatch)[1] == [DAY], "one that hangs is not waited for"


def run(settings: Settings) -> subprocess.CompletedProcess[str]:
    """The command in a fresh process; a Java that is not there keeps Spark from starting."""
    return subprocess.run(
        [sys.executable, "-c", RUN_AND_TELL_MODULES],
        env={
            **os.environ,
            "ETL_ASSETS_HOME": str(settings.home),
            "JAVA_HOME": "/nowhere",
            "PATH": "/nowhere",
        },
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def unfinished(settings: Settings) -> Unfinished:
    return find_unfinished(settings.placement().reader(), settings.start_date)


def test_a_letter_that_was_handed_in_to_normalize_and_not_judged_is_left_undone(settings, monkeypatch):
    carried_through(settings, DAY)
    domain = settings.placement().domains[0]
    letter = {
        "partition_date": DAY,
        "dead_letter_id": "a" * 64,
        "stage": "normalize",
        "state": "open",
        "attempts": 1,
    }
    write_table(domain, "dead_letters", [letter], {f"raw_events/{DAY}": 0, f"normalized_orders/{DAY}": 0})
    assert list(unfinished(settings).sentences()) == []
    submit_replays(domain, [event_again(DAY, "a" * 64, 2, "event-1", None)])
    asked: list = []
    monkeypatch.setattr(
        command, "_materialize", lambda settings, days, replays, *rest: asked.append(replays) or Counter()
    )
    result = CliRunner().invoke(command.run, catch_exceptions=False)
    assert "dead letters that were handed in (1 day)" in result.output
    assert asked == [{"normalized_orders": (DAY,)}]
    delete_rows(settings, "dead_letters")
    write_table(domain, "dead_letters", [{**letter, "attempts": 2}])
    assert unfinished(settings).replays == {}, "it was refused again"


def delete_rows(settings: Settings, table: str) -> None:
    DeltaTable(str(settings.placement().domains[0].table_path(table))).delete()


def test_days_before_the_first_partition_are_no_days_to_run_and_not_passed_over(settings, monkeypatch):
    carried_through(settings, DAY)
    write(settings, "raw_events", BEFORE, 1)
    found = unfinished(settings)
    assert (found.days, found.before_start) == ((), (BEFORE,))
    result, days = ran(monkeypatch)
    assert (days, result.exit_code) == ([], 1)
    assert f"set start_date to {BEFORE} or earlier" in result.output


def test_rows_that_another_program_removed_are_named_with_the_command_that_makes_them_again(
    settings, monkeypatch
):
    carried_through(settings, DAY)
    delete_rows(settings, "warehouse_rows")
    assert unfinished(settings).missing == {"warehouse_rows": {str(DAY): 1}}
    result, _ = ran(monkeypatch)
    assert result.exit_code == 1
    assert f"etl-assets reprocess --from {DAY} --to {DAY} --tables warehouse_rows" in result.output


def test_a_day_that_is_still_to_be_read_fails_no_check_of_another_day(settings):
    """As behind a killed run, whose days the next one takes up range by range."""
    carried_through(settings, DAY)
    domain = settings.placement().reader()
    write(settings, "raw_events", DAY, 1)
    assert nothing_lost(domain).passed
    write(settings, "normalized_orders", DAY, 1, {f"raw_events/{DAY}": 1})
    assert nothing_lost(domain).passed
    assert all_committed(domain).passed
    write(settings, "order_status_view", DAY, 1, {f"normalized_orders/{DAY}": 1})
    assert all_committed(domain).passed, "only what warehouse_rows itself has read counts"
    write_table(settings.placement().domains[0], "warehouse_rows", [], {f"normalized_orders/{DAY}": 1})
    assert not all_committed(domain).passed

"""Which files are to become fewer: small ones of days that are over, where there are several."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from etl_assets.cli.tables import tables
from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.maintenance import compaction
from etl_assets.delta.maintenance.compaction import (
    MAX_DAYS_PER_COMMIT,
    TIERS,
    Compaction,
    commit_compaction,
    plan_compactions,
    plan_crowded,
)
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.lock import POLL_SECONDS, writer_lock
from etl_assets.delta.write.records import commit_rows
from etl_assets.errors import NotFound
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site
from etl_assets.settings import load_settings
from etl_assets.steps import compact
from etl_assets.steps.step import StepContext, platform_table
from etl_assets.steps.table_queue import TableQueue
from etl_assets_tests.reference.mirrored_log import DATA, commit_entries, log_entries, three_replications
from etl_assets_tests.reference.tables import CATALOG, local_domain
from etl_assets_tests.reference.written_tables import write_table

TODAY = dt.date(2026, 3, 10)


@pytest.fixture
def domain(tmp_path: Path) -> FailureDomain:
    return local_domain(tmp_path)


def rows_of(*days: int) -> list[dict]:
    return [{"partition_date": dt.date(2026, 3, day)} for day in days]


def planned(table: Table) -> list[Compaction]:
    snapshot = table.snapshot()
    assert snapshot is not None
    return list(plan_compactions(snapshot, TODAY))


def test_only_closed_days_of_several_small_files_are_written_anew(domain):
    write_table(domain, "raw_events", rows_of(1, 2, 10))
    write_table(domain, "raw_events", rows_of(2, 10))
    (plan,) = planned(platform_table("raw_events", domain))
    assert plan.days == [dt.date(2026, 3, 2)]
    assert plan.sql("delta.`/t`") == "OPTIMIZE delta.`/t` WHERE partition_date IN (DATE'2026-03-02')"


def test_a_table_without_days_is_written_anew_as_a_whole(domain):
    write_table(domain, "customers", [{}])
    table = platform_table("customers", domain)
    assert planned(table) == []
    write_table(domain, "customers", [{}])
    (plan,) = planned(table)
    assert plan.sql("delta.`/t`") == "OPTIMIZE delta.`/t`"


def test_files_of_one_day_in_several_partitions_are_not_several_of_one(domain):
    name = "raw_events_exceptions"
    for outcome in ("rejected", "duplicate"):
        write_table(domain, name, [{"partition_date": dt.date(2026, 3, 1), "outcome": outcome}])
    assert planned(platform_table(name, domain)) == []
    write_table(domain, name, [{"partition_date": dt.date(2026, 3, 1), "outcome": "rejected"}])
    (plan,) = planned(platform_table(name, domain))
    assert plan.days == [dt.date(2026, 3, 1)]


def test_after_it_nothing_is_left_to_do(domain):
    for _ in range(3):
        write_table(domain, "raw_events", rows_of(1, 2))
    table = platform_table("raw_events", domain)
    assert len(planned(table)) == 1
    DeltaTable(str(table.path)).optimize.compact()
    assert planned(table) == []


class ManyDays(Snapshot):
    """Two small files a day."""

    def __init__(self, days: int, file_bytes: int = 10) -> None:
        self._days, self._file_bytes = days, file_bytes

    def partition_columns(self) -> tuple[str, ...]:
        return ("partition_date",)

    def sizes_by(self, *columns: str):
        for number in range(self._days):
            for _ in range(2):
                yield self._file_bytes, (dt.date(2020, 1, 1) + dt.timedelta(days=number),)


def test_many_days_are_several_commits_so_that_a_kill_loses_little():
    days = [len(plan.days) for plan in plan_compactions(ManyDays(2 * MAX_DAYS_PER_COMMIT + 1), TODAY)]
    assert days == [MAX_DAYS_PER_COMMIT, MAX_DAYS_PER_COMMIT, 1]


def test_days_of_many_bytes_are_several_commits_so_that_nobody_waits_long_for_the_table(monkeypatch):
    monkeypatch.setattr(compaction, "MAX_BYTES_PER_COMMIT", 45)
    assert [len(plan.days) for plan in plan_compactions(ManyDays(5), TODAY)] == [2, 2, 1]
    larger = ManyDays(3, file_bytes=100)
    assert [len(plan.days) for plan in plan_compactions(larger, TODAY)] == [1, 1, 1]


def test_a_writer_that_waits_gets_the_table_between_two_commits(domain, monkeypatch):
    lock, order = domain.root / "writer.lock", []
    waits = threading.Event()

    def commit(_spark: Any, _table: Table, compaction: Compaction, **_options: Any) -> None:
        with writer_lock(lock, table="raw_events", wait_seconds=10, driver_pid=None):
            order.append(compaction)
            waits.wait(10)
            time.sleep(2 * POLL_SECONDS)

    def write() -> None:
        while not order:
            time.sleep(0.01)
        waits.set()
        with writer_lock(lock, table="raw_events", wait_seconds=10, driver_pid=None):
            order.append("a micro-batch")

    def no_session() -> Any:
        return None

    monkeypatch.setattr(compact, "commit_compaction", commit)
    monkeypatch.setattr(compact.Compact, "_due", lambda *_: ["first", "second", "third"])
    writer = threading.Thread(target=write)
    writer.start()
    compact.Compact(context=StepContext(session=no_session, domain=domain), table="raw_events").run()
    writer.join()
    assert order == ["first", "a micro-batch", "second", "third"]


def test_a_run_waits_for_one_commit_and_not_for_all_of_them(domain, monkeypatch):
    order: list[str] = []
    waits = threading.Event()
    turns = TableQueue(folder=domain.root / "turns", waiting=waits.set)

    def commit(_spark: Any, _table: Table, compaction: Any, **_options: Any) -> None:
        order.append(compaction)
        assert waits.wait(10)

    def run() -> None:
        while not order:
            time.sleep(0.01)
        with turns.take("raw_events"):
            order.append("a run")

    monkeypatch.setattr(compact, "commit_compaction", commit)
    monkeypatch.setattr(compact.Compact, "_due", lambda *_: ["first", "second", "third"])
    thread = threading.Thread(target=run)
    thread.start()
    context = StepContext(session=lambda: cast(Any, None), domain=domain, turns=turns)
    compact.Compact(context=context, table="raw_events").run()
    thread.join()
    assert order == ["first", "a run", "second", "third"]


def test_a_day_that_goes_on_is_written_anew_once_it_is_crowded(domain, monkeypatch):
    monkeypatch.setattr(compaction, "CROWDED_FILES", 4)
    for number in range(4):
        if number == 3:
            assert planned(platform_table("raw_events", domain)) == []
        write_table(domain, "raw_events", rows_of(10))
    table = platform_table("raw_events", domain)
    (plan,) = planned(table)
    assert plan.days == [TODAY]
    DeltaTable(str(table.path)).optimize.compact()
    assert planned(table) == []
    write_table(domain, "raw_events", rows_of(10))
    assert planned(table) == []


def test_a_table_without_days_waits_for_as_many_files_as_it_is_told(domain):
    for _ in range(3):
        write_table(domain, "customers", [{}])
    snapshot = platform_table("customers", domain).snapshot()
    assert snapshot is not None
    assert list(plan_compactions(snapshot, TODAY, undated_files=4)) == []
    assert list(plan_compactions(snapshot, TODAY, undated_files=3)) == [Compaction()]


@pytest.mark.parametrize(("name", "row"), [("raw_events", rows_of(1)), ("customers", [{}])])
def test_what_somebody_else_has_done_meanwhile_is_not_done_again(domain, name, row):
    for _ in range(2):
        write_table(domain, name, row)
    table = platform_table(name, domain)
    (plan,) = planned(table)
    DeltaTable(str(table.path)).optimize.compact()
    write_table(domain, name, [{"partition_date": dt.date(2026, 3, 2)}] if name == "raw_events" else [])
    assert commit_compaction(_no_session, table, plan) is None


def _no_session() -> Any:
    raise AssertionError("it wants Spark")


def test_few_bytes_are_written_anew_without_spark(domain):
    table = platform_table("raw_events_exceptions", domain)
    contract = table.contract
    assert contract is not None
    ensure_table(table)
    values = {"STRING": "x", "INT": 1, "BIGINT": 1, "TIMESTAMP": dt.datetime(2026, 3, 1, tzinfo=dt.UTC)}
    row = {column.name: values.get(column.type) for column in contract.columns}
    for number in range(4):
        days = ({"partition_date": dt.date(2026, 3, day), "batch_id": number} for day in (1, 2))
        outcome = {"outcome": ("a b", "c/d")[number % 2]}
        commit_rows(table, [row | day | outcome for day in days], base_version=table.version())
    before = sorted(map(str, DeltaTable(str(table.path)).to_pyarrow_table().to_pylist()))
    (plan,) = planned(table)
    entry = commit_compaction(_no_session, table, plan)
    assert entry is not None
    assert (len(entry.removed), len(entry.added)) == (8, 4)
    assert not any(file.changes_rows for file in (*entry.removed, *entry.added))
    after = DeltaTable(str(table.path))
    assert sorted(map(str, after.to_pyarrow_table().to_pylist())) == before
    assert after.to_pyarrow_dataset().to_table().num_rows == 8
    for filters, number in (
        ([("outcome", "=", "c/d")], 4),
        ([("outcome", "=", "a b")], 4),
        ([("batch_id", "=", 3)], 2),
    ):
        assert after.to_pyarrow_table(filters=cast("Any", filters)).num_rows == number
    assert commit_compaction(_no_session, table, plan) is None


def test_many_bytes_are_left_to_spark(domain, monkeypatch):
    for _ in range(2):
        write_table(domain, "raw_events", rows_of(1))
    monkeypatch.setattr(compaction, "MAX_BYTES_IN_PROCESS", 0)
    table = platform_table("raw_events", domain)
    with pytest.raises(AssertionError, match="it wants Spark"):
        commit_compaction(_no_session, table, planned(table)[0])


def test_what_is_no_longer_for_this_process_is_left(domain, monkeypatch):
    for _ in range(2):
        write_table(domain, "raw_events", rows_of(1))
    table = platform_table("raw_events", domain)
    before = table.version()
    looks = iter([True, False])
    monkeypatch.setattr(compaction, "_is_little", lambda *_: next(looks))
    assert commit_compaction(_no_session, table, planned(table)[0]) is None
    assert table.version() == before


def test_long_rows_are_not_held_together(monkeypatch):
    monkeypatch.setattr(compaction, "_BYTES_AT_ONCE", 100)
    pieces = [pa.table({"a": ["x" * 60]}) for _ in range(4)]
    assert [rows.num_rows for rows in compaction._fewer(iter(pieces))] == [2, 2]


def test_pieces_of_many_files_become_few_row_groups(monkeypatch):
    monkeypatch.setattr(compaction, "ROWS_AT_ONCE", 4)
    pieces = [pa.table({"a": [number] * 3}) for number in range(5)]
    assert [rows.num_rows for rows in compaction._fewer(iter(pieces))] == [6, 6, 3]


def test_what_a_dead_process_left_in_the_home_log_comes_before_it(tmp_path, monkeypatch):
    mirrored, *_ = three_replications(tmp_path)
    newest = commit_entries(mirrored, 35)
    folder, (tail,) = mirrored.folder(mirrored.lead()), log_entries(1, first=newest + 1)
    added = next(action for line in tail.splitlines() if (action := json.loads(line).get("add")))
    (folder / added["path"]).write_bytes(DATA)
    entry_path(folder, newest + 1).write_bytes(tail)
    sites = tuple(Site(name=each, root=str(tmp_path / each), role=Role.VOTER) for each in "abc")
    table = Table(
        name="events", domain=FailureDomain(catalog=CATALOG, name="a", root=tmp_path / "a", sites=sites)
    )
    written: list[int] = []
    monkeypatch.setattr(compaction, "write_version", lambda _, __, version, ___: written.append(version))
    commit_compaction(lambda: cast("Any", object()), table, planned(table)[0])
    assert written == [newest + 2]


def test_the_command_starts_no_spark_where_nothing_is_to_be_done(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "landing").mkdir()
    runner = CliRunner()
    nothing = runner.invoke(tables, ["compact", "raw_events"])
    assert nothing.output == "raw_events: 0 files of 0 bytes; nothing to compact\n", nothing.exception
    write_table(load_settings().placement().domains[0], "raw_events", rows_of(1, 2))
    assert "2 files of" in runner.invoke(tables, ["compact", "raw_events"]).output
    assert isinstance(runner.invoke(tables, ["compact", "raw_evens"]).exception, NotFound)


class Sized(Snapshot):
    """A version with files of these sizes, by day of the month."""

    def __init__(self, sizes: dict[int, list[int]]) -> None:
        self.sizes = sizes

    def partition_columns(self) -> tuple[str, ...]:
        return ("partition_date",)

    def sizes_by(self, *columns: str):
        for day, sizes in self.sizes.items():
            for size in sizes:
                yield size, (f"2026-03-{day:02}",)


SMALL, MIDDLE = TIERS[0] - 1, TIERS[1] - 1


def test_a_day_under_way_is_written_anew_when_it_has_too_many_small_files():
    assert plan_crowded(Sized({}), 3) is None
    assert plan_crowded(Sized({9: [SMALL] * 2, 10: [SMALL] * 3}), 3) is None
    plan = plan_crowded(Sized({9: [SMALL] * 2, 10: [SMALL] * 4}), 3)
    assert plan == Compaction(days=(TODAY,), smaller_than=TIERS[0])


def test_what_was_made_of_small_files_is_not_written_anew_with_each_of_the_next():
    assert plan_crowded(Sized({10: [MIDDLE] * 3 + [SMALL] * 3}), 3) is None
    assert plan_crowded(Sized({10: [MIDDLE] * 4 + [SMALL] * 3}), 3) == Compaction(
        days=(TODAY,), smaller_than=TIERS[1]
    )
    plan = plan_crowded(Sized({10: [MIDDLE] * 2 + [SMALL] * 4}), 3)
    assert plan is not None
    assert plan.smaller_than == TIERS[0], "those in the middle stay as they are"
    assert plan_crowded(Sized({10: [TIERS[1]] * 9}), 3) is None


def test_a_day_of_many_commits_is_written_anew_a_few_times_not_with_every_compaction():
    commit, commits, most = 100_000, 1_000, 50
    sizes: list[int] = []
    written = 0
    for _ in range(commits):
        sizes.append(commit)
        if (plan := plan_crowded(Sized({10: sizes}), most)) is not None:
            due = [size for size in sizes if size < plan.smaller_than]
            written += sum(due)
            sizes = [size for size in sizes if size >= plan.smaller_than] + [sum(due)]
        assert len(sizes) <= 2 * most
    assert written <= 2 * commit * commits

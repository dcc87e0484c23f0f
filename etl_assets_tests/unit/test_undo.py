"""Taking tables back, as far as it goes without Spark: which is all but making the rows again."""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import threading
import time
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from etl_assets import runs
from etl_assets.cli import remake
from etl_assets.cli.reprocess import reprocess
from etl_assets.cli.restore import restore
from etl_assets.cli.trace import trace
from etl_assets.delta.log.cursor import read_cursors, taken_back
from etl_assets.delta.log.entries import read_entry
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.read.key_index import KeyIndex, hashes_of
from etl_assets.delta.table import Table
from etl_assets.delta.write.content import content_of
from etl_assets.delta.write.lock import writer_lock
from etl_assets.delta.write.offsets import next_offset
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.delta.write.write_version import Place, commit_metadata, write_version
from etl_assets.errors import (
    CommitConflict,
    FilesGone,
    InputError,
    NotFound,
    RunFailed,
    RuntimeMissing,
    TableBusy,
)
from etl_assets.failpoints import Failpoint
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.observability.pending import find_unfinished
from etl_assets.observability.rows import find_rows
from etl_assets.observability.table_states import table_states
from etl_assets.orders.invariants import all_committed, nothing_lost
from etl_assets.orders.steps.load_customers import file_read_last
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site
from etl_assets.settings import load_settings
from etl_assets.sources.replays import event_again, submit_replays
from etl_assets.steps.discard_dead_letters import DISCARDED
from etl_assets.steps.invariants import dense_offsets
from etl_assets.steps.step import platform_table
from etl_assets.steps.table_queue import TableQueue
from etl_assets.undo.plan import plan_days, plan_restore, version_at
from etl_assets.undo.undo import Undo
from etl_assets_tests.reference.mirrored_log import commit_entries, three_replications
from etl_assets_tests.reference.tables import CATALOG
from etl_assets_tests.reference.written_tables import NOON, write_table

PATH = CATALOG.downstream_of(["normalized_orders"])
FIRST, SECOND = dt.date(2026, 3, 1), dt.date(2026, 3, 2)
LETTER = {"stage": "normalize", "reason": "InvalidPayload", "record": "{}", "attempts": 1}


@pytest.fixture
def domain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FailureDomain:
    """A platform with two days, the second read by code that was wrong: versions 0 and 1 of every table.

    Spark and Dagster are left out here: what they make of the days is for the tests with Spark.
    """
    monkeypatch.setattr(remake, "check_ready", lambda *of: None)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    (tmp_path / "platform.yaml").write_text("{start_date: 2026-01-01, runs: {lock_wait_seconds: 1}}")
    domain = load_settings().placement().domains[0]
    for version, day in enumerate((FIRST, SECOND)):
        fill(domain, version, day)
    return domain


def fill(domain: FailureDomain, version: int, day: dt.date) -> None:
    def of_day(**fields: object) -> dict[str, object]:
        return {"partition_date": day, "batch_id": version, "event_id": f"event-{version}", **fields}

    write_table(domain, "raw_events", [of_day(offset=4 * version + each) for each in range(4)])
    read = {f"{table}/{day}": version for table in ("raw_events", "normalized_orders", "warehouse_rows")}
    write_table(
        domain,
        "normalized_orders",
        [of_day(offset=2 * version + each, raw_offset=version) for each in range(2)],
        {f"raw_events/{day}": version},
    )
    refused = [of_day(event_id=f"{day}-{n}", exception_id=f"{day}-{n}", outcome="rejected") for n in range(2)]
    write_table(domain, "normalized_orders_exceptions", refused)
    write_table(domain, "warehouse_rows", [of_day(), of_day()], {f"normalized_orders/{day}": version})
    write_table(domain, "order_status_view", [{}], {"warehouse_rows/*": version})
    letters = [
        of_day(**LETTER, dead_letter_id=f"{day}-{state}", state=state) for state in ("open", "discarded")
    ]
    write_table(domain, "dead_letters", letters)
    write_table(domain, "audit_log", [of_day()], read)


def everywhere(domain: FailureDomain):
    return lambda name: domain


def rows(domain: FailureDomain, table: str) -> list[dict]:
    path = platform_table(table, domain).path
    return DeltaTable(str(path)).to_pyarrow_dataset().to_table().to_pylist()


def days(domain: FailureDomain, table: str) -> Counter[dt.date]:
    return Counter(row["partition_date"] for row in rows(domain, table))


def cursor(domain: FailureDomain, table: str, source: str, day: dt.date | None = SECOND) -> int:
    return read_cursors(platform_table(table, domain), source, [day])[day]


def files(domain: FailureDomain) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in domain.root.rglob("*") if path.is_file()}


def call(command, *options: str, code: int = 0):
    result = CliRunner().invoke(command, options)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def version(domain: FailureDomain, table: str) -> int:
    return platform_table(table, domain).version()


@contextmanager
def committing(table: Table, turns: TableQueue) -> Generator[None]:
    """A process that commits to a table all the time, in turns with whoever asks for one, as the worker
    does.
    """
    began, end = threading.Event(), threading.Event()

    def commit_again_and_again() -> None:
        while not end.wait(0.05):
            with turns.take(table.name):
                commit_nothing(table)
            began.set()

    with ThreadPoolExecutor(1) as other:
        done = other.submit(commit_again_and_again)
        try:
            assert began.wait(30)
            yield
        finally:
            end.set()
        done.result()


def commit_nothing(table: Table, **facts: int) -> None:
    def put(place: Place, writer: str) -> None:
        mark = commit_metadata(place, writer, facts)
        metrics = {"numFiles": 0, "numOutputRows": 0}
        NewEntry(operation="WRITE", base_version=now, metrics=metrics, user_metadata=mark).put(
            place.path, stamped=False
        )

    now = table.version()
    write_version(None, table, now + 1, put)


@pytest.mark.parametrize(
    ("busy", "command", "options"),
    [
        ("normalized_orders", restore, ("normalized_orders", "--to-version", "0")),
        ("audit_log", restore, ("normalized_orders", "--to-version", "0")),
        ("warehouse_rows", reprocess, ("--from", "2026-03-02", "--to", "2026-03-02")),
    ],
)
def test_an_undo_takes_turns_with_somebody_who_commits_to_one_of_its_tables_all_the_time(
    domain, monkeypatch, busy, command, options
):
    monkeypatch.setattr(runs, "materialize_days", lambda *args, **more: [])
    carry_out = Undo.carry_out

    def slowly(undo: Undo, **more: Any) -> dict[str, int]:
        time.sleep(0.3)  # planned, as on logs that take long to read
        return carry_out(undo, **more)

    monkeypatch.setattr(Undo, "carry_out", slowly)
    with committing(platform_table(busy, domain), TableQueue(folder=load_settings().turns_path)):
        call(command, *options, "--yes")
    assert days(domain, "normalized_orders") == {FIRST: 2}


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (restore, ("normalized_orders", "--to-version", "0")),
        (reprocess, ("--from", "2026-03-02", "--to", "2026-03-02")),
    ],
    ids=["restore", "reprocess"],
)
def test_a_preview_tells_what_would_be_done_and_changes_nothing(domain, command, options):
    before = files(domain)
    shown = call(command, *options)
    for option in options:
        assert option in shown.stderr.splitlines()[-1], "the command that does it"
    assert shown.stderr.rstrip().endswith("--yes")
    assert "audit_log: 1 row of 1 day go" in shown.stdout
    assert "dead_letters: 1 row of 1 day go and are made again; 1 that an operator decided on" in shown.stdout
    assert "order_status_view: all 2 rows go and are made again; it is empty until then" in shown.stdout
    machine = json.loads(call(command, *options, "--json").stdout)
    assert [table["name"] for table in machine["tables"]] == list(PATH)
    assert files(domain) == before


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (restore, ("normalized_orders", "--to-version", "0")),
        (reprocess, ("--from", SECOND.isoformat(), "--to", SECOND.isoformat())),
    ],
)
def test_machines_are_told_that_it_is_done_only_once_it_is(domain, command, options):
    with writer_lock(domain.lock_path("audit_log"), table="audit_log", wait_seconds=1, driver_pid=None):
        failed = CliRunner().invoke(command, [*options, "--yes", "--json"])
    assert isinstance(failed.exception, TableBusy)
    assert failed.stdout == ""
    assert {version(domain, table) for table in PATH} == {1}


def test_a_restored_table_has_its_old_rows_and_what_was_made_of_the_others_is_taken_back(domain):
    call(restore, "normalized_orders", "--to-version", "0", "--yes", "--no-run")
    for table in ("normalized_orders", "normalized_orders_exceptions", "warehouse_rows"):
        assert days(domain, table) == {FIRST: 2}
    assert days(domain, "audit_log") == {FIRST: 1}
    assert rows(domain, "order_status_view") == []
    assert days(domain, "raw_events") == {FIRST: 4, SECOND: 4}
    for table, source in (
        ("normalized_orders", "raw_events"),
        ("warehouse_rows", "normalized_orders"),
        ("audit_log", "warehouse_rows"),
    ):
        assert cursor(domain, table, source, SECOND) == -1
        assert cursor(domain, table, source, FIRST) == 0
        assert taken_back(platform_table(table, domain), platform_table(source, domain)) == {
            SECOND.isoformat()
        }
    assert cursor(domain, "order_status_view", "warehouse_rows", None) == -1
    waiting = {state.name: state.taken_back for state in table_states(domain, NOON)}
    assert waiting["normalized_orders"] == (SECOND.isoformat(),)
    assert waiting["warehouse_rows"] == (), "there is nothing yet to make them of"
    assert waiting["order_status_view"] == ("*",)
    entry = read_entry(platform_table("warehouse_rows", domain).path, 2)
    assert entry.user_metadata["undo"] == {
        "kind": "restore",
        "table": "normalized_orders",
        "from": 1,
        "to": 0,
    }


def test_a_table_that_has_read_nothing_of_it_yet_moves_on_too_so_that_a_run_under_way_meets_a_conflict(
    domain,
):
    write_table(domain, "normalized_orders", [{"partition_date": dt.date(2026, 3, 3)}])
    before = version(domain, "warehouse_rows")
    call(restore, "normalized_orders", "--to-version", "1", "--yes", "--no-run")
    assert version(domain, "warehouse_rows") == before + 1
    assert days(domain, "warehouse_rows") == {FIRST: 2, SECOND: 2}


def test_restoring_twice_is_restoring_once(domain):
    call(restore, "normalized_orders", "--to-version", "0", "--yes", "--no-run")
    before = files(domain)
    again = call(restore, "normalized_orders", "--to-version", "0", "--yes", "--no-run")
    assert "nothing to do" in again.stderr
    assert files(domain) == before


def test_restoring_twice_what_comes_back_is_restoring_once(domain):
    """Files that come back have other names than in the version they are from."""
    there = rows(domain, "warehouse_rows")
    call(restore, "warehouse_rows", "--to-version", "0", "--yes", "--no-run")
    call(restore, "warehouse_rows", "--to-version", "1", "--yes", "--no-run")
    assert len(rows(domain, "warehouse_rows")) == len(there)
    before = files(domain)
    for again in ("1", str(version(domain, "warehouse_rows"))):
        assert (
            "nothing to do"
            in call(restore, "warehouse_rows", "--to-version", again, "--yes", "--no-run").stderr
        )
    assert files(domain) == before


def test_days_whose_input_was_undone_since_are_taken_out_and_not_restored(domain):
    """Their old rows name offsets that normalized_orders has given up."""
    plan_days(everywhere(domain), ["normalized_orders"], [SECOND]).carry_out()
    call(restore, "warehouse_rows", "--to-version", "1", "--yes", "--no-run")
    assert days(domain, "warehouse_rows") == {FIRST: 2}
    assert cursor(domain, "warehouse_rows", "normalized_orders") == -1


def test_discarded_letters_of_days_whose_input_was_undone_since_stay(domain):
    plan_days(everywhere(domain), ["normalized_orders"], [SECOND]).carry_out()
    call(restore, "dead_letters", "--to-version", "1", "--yes", "--no-run")
    assert {row["dead_letter_id"] for row in rows(domain, "dead_letters")} == {
        f"{FIRST}-open",
        f"{FIRST}-discarded",
        f"{SECOND}-discarded",
    }


def test_dead_letters_of_a_pipeline_that_is_not_installed_any_more_stay(domain):
    letter = {**LETTER, "dead_letter_id": "of-a-removed-one", "stage": "removed", "state": "open"}
    write_table(domain, "dead_letters", [{**letter, "partition_date": SECOND}])
    plan_days(everywhere(domain), ["normalized_orders"], [FIRST, SECOND]).carry_out()
    assert {row["dead_letter_id"] for row in rows(domain, "dead_letters")} == {
        f"{FIRST}-discarded",
        f"{SECOND}-discarded",
        "of-a-removed-one",
    }


def test_days_that_the_table_itself_lost_to_an_undo_are_restored(domain):
    plan_days(everywhere(domain), ["warehouse_rows"], [SECOND]).carry_out()
    call(restore, "warehouse_rows", "--to-version", "1", "--yes", "--no-run")
    assert days(domain, "warehouse_rows") == {FIRST: 2, SECOND: 2}


def test_days_that_were_read_and_gave_no_row_are_read_again(domain):
    """A transform that refuses everything leaves no row in its table, only the cursor."""
    write_table(domain, "raw_events", [{"partition_date": dt.date(2026, 3, 3), "batch_id": 2}])
    write_table(domain, "normalized_orders", [], {"raw_events/2026-03-03": 2})
    undo = plan_restore(everywhere(domain), "normalized_orders", 1)
    assert undo.days == (dt.date(2026, 3, 3),)


def test_what_operators_decided_stands(domain):
    submit_replays(domain, [event_again(SECOND, "a" * 64, 2, f"{SECOND}-0", None)])
    call(restore, "normalized_orders", "--to-version", "0", "--yes", "--no-run")
    letters = {row["dead_letter_id"] for row in rows(domain, "dead_letters")}
    assert letters == {f"{FIRST}-open", f"{FIRST}-discarded", f"{SECOND}-discarded"}
    refused = platform_table("normalized_orders_exceptions", domain).snapshot()
    assert refused is not None
    assert refused.newest_batch_by_day() == {FIRST: 0, SECOND: 1}, "what is kept is as old as it was"
    letter = f"{SECOND}-discarded"
    found = find_rows(
        platform_table("dead_letters", domain), columns=["state"], where={"dead_letter_id": [letter]}
    )
    assert len(list(found)) == 1, "by delta-rs, which goes by the log's statistics"
    kept = [row for row in rows(domain, "normalized_orders_exceptions") if row["partition_date"] == SECOND]
    assert [(row["event_id"], row["outcome"]) for row in kept] == [(f"{SECOND}-0", "rejected")]


def test_no_offset_is_dealt_twice_and_the_checks_know_of_the_gap(domain):
    orders = platform_table("normalized_orders", domain)
    plan_days(everywhere(domain), ["normalized_orders"], [FIRST]).carry_out()
    assert next_offset(orders.snapshot()) == 4
    assert dense_offsets(domain, "normalized_orders").passed
    plan_days(everywhere(domain), ["normalized_orders"], [SECOND]).carry_out()
    assert next_offset(orders.snapshot()) == 4, "no row is left that says so"
    assert dense_offsets(domain, "normalized_orders").passed
    write_table(domain, "normalized_orders", [{"offset": 5}])
    assert not dense_offsets(domain, "normalized_orders").passed


def test_checks_leave_out_the_days_that_wait_to_be_made_again(domain):
    write_table(domain, "raw_events", [{"partition_date": SECOND, "batch_id": 2} for _ in range(5)])
    one = [{"partition_date": SECOND, "batch_id": 2}]
    write_table(domain, "normalized_orders", one, {f"raw_events/{SECOND}": 2})
    write_table(domain, "warehouse_rows", 2 * one, {f"normalized_orders/{SECOND}": 2})
    assert not nothing_lost(domain).passed
    assert not all_committed(domain).passed
    plan_restore(everywhere(domain), "warehouse_rows", 1).carry_out()
    assert days(domain, "warehouse_rows")[SECOND] == 2
    assert all_committed(domain).passed
    plan_restore(everywhere(domain), "normalized_orders", 1).carry_out()
    assert nothing_lost(domain).passed


def test_a_later_commit_counts_against_what_an_undo_set_back(domain):
    plan_restore(everywhere(domain), "normalized_orders", 0).carry_out()
    write_table(domain, "normalized_orders", [{"partition_date": SECOND}], {f"raw_events/{SECOND}": 1})
    assert cursor(domain, "normalized_orders", "raw_events") == 1
    normalized, raw = (platform_table(name, domain) for name in ("normalized_orders", "raw_events"))
    assert not taken_back(normalized, raw)


def test_a_version_is_found_by_the_time_of_its_commit(domain):
    table = platform_table("normalized_orders", domain)
    at = dt.datetime.fromtimestamp(DeltaTable(str(table.path)).history()[1]["timestamp"] / 1000, dt.UTC)
    one = dt.timedelta(milliseconds=1)
    # The same moment, told in another zone.
    there = at.astimezone(dt.timezone(dt.timedelta(hours=-5)))
    shown = call(restore, "normalized_orders", "--to-time", there.isoformat(), "--json")
    assert json.loads(shown.stdout)["to_version"] == 0
    result = CliRunner().invoke(restore, ["normalized_orders", "--to-time", (at - one).isoformat()])
    assert isinstance(result.exception, NotFound)
    assert "its log begins at" in str(result.exception)
    assert "no zone" in call(restore, "normalized_orders", "--to-time", "2026-03-01T10:00:00", code=2).stderr
    assert "no time" in call(restore, "normalized_orders", "--to-time", "yesterday", code=2).stderr
    call(restore, "normalized_orders", code=2)


@pytest.mark.parametrize(
    ("table", "to", "error", "says"),
    [
        ("raw_events", 0, InputError, "acknowledged"),
        ("raw_events_exceptions", 0, InputError, "acknowledged"),
        ("effects", 0, InputError, "not undone by forgetting it"),
        ("capture_states", 0, InputError, "an older state may lack what has happened to them"),
        ("replays", 0, InputError, "not undone by forgetting it"),
        ("normalized_orders_exceptions", 0, InputError, "belongs to the rows of normalized_orders"),
        ("customers", 0, NotFound, "has not been made yet"),
        ("normalised_orders", 0, NotFound, "did you mean 'normalized_orders'"),
        ("normalized_orders", 7, NotFound, "has no version 7: its newest is 1"),
    ],
)
def test_what_cannot_be_restored_is_refused(domain, table, to, error, says):
    before = files(domain)
    result = CliRunner().invoke(restore, [table, "--to-version", str(to), "--yes", "--no-run"])
    assert isinstance(result.exception, error)
    assert says in str(result.exception)
    assert files(domain) == before


def test_a_version_whose_files_or_log_are_gone_is_refused_before_anything_is_written(domain):
    write_view(domain)
    view = platform_table("order_status_view", domain)
    snapshot = view.snapshot(1)
    assert snapshot is not None
    old = Path(view.path, next(snapshot.files()))
    content = old.read_bytes()
    old.unlink()
    with pytest.raises(FilesGone, match="1 of its files are gone"):
        plan_restore(everywhere(domain), "order_status_view", 1)
    old.write_bytes(content)
    DeltaTable(str(view.path)).create_checkpoint()
    (view.path / "_delta_log" / f"{0:020d}.json").unlink()
    with pytest.raises(FilesGone, match="cannot be read any more"):
        plan_restore(everywhere(domain), "order_status_view", 0)
    assert version(domain, "order_status_view") == 2


def write_view(domain: FailureDomain) -> None:
    """Replace the rows of the view: files of version 1 are out of use."""
    view = platform_table("order_status_view", domain)
    snapshot = view.snapshot()
    assert snapshot is not None
    removed = tuple(content_of(snapshot).values())
    replace_contents([Replacement(table=view, base_version=snapshot.version, removed=removed)])


def test_a_table_without_days_comes_back_from_files_that_were_out_of_use(domain):
    before = rows(domain, "order_status_view")
    write_view(domain)
    assert rows(domain, "order_status_view") == []
    call(restore, "order_status_view", "--to-version", "1", "--yes", "--no-run")
    assert rows(domain, "order_status_view") == before
    assert cursor(domain, "order_status_view", "warehouse_rows", None) == -1


def test_days_whose_files_were_only_merged_stay_as_they_are(domain):
    write_table(domain, "normalized_orders", [{"partition_date": FIRST}])
    write_table(domain, "normalized_orders", [{"partition_date": SECOND}])
    path = platform_table("normalized_orders", domain).path
    DeltaTable(str(path)).optimize.compact()
    undo = plan_restore(everywhere(domain), "normalized_orders", 2)
    assert undo.days == (SECOND,)
    undo.carry_out()
    assert days(domain, "normalized_orders") == {FIRST: 3, SECOND: 2}


def test_the_customer_file_that_was_read_last_stays_read(domain):
    write_table(domain, "customers", [{"customer_id": "a"}])
    write_table(domain, "customers", [{"customer_id": "b"}])
    table = platform_table("customers", domain)
    replace_contents([Replacement(table=table, base_version=1, facts={"file": [1, 2]})])
    replace_contents([Replacement(table=table, base_version=2, facts={"compacted_days": 0})])
    assert file_read_last(table, 3) == [1, 2], "a compaction reads no file"
    call(restore, "customers", "--to-version", "0", "--yes", "--no-run")
    assert [row["customer_id"] for row in rows(domain, "customers")] == ["a"]
    assert read_entry(table.path, 4).user_metadata["facts"] == {"file": [1, 2]}


def test_files_that_come_back_are_in_the_index_of_keys(domain):
    raw = platform_table("raw_events", domain)
    index = KeyIndex(raw, "event_id")

    def found(key: str) -> list[dt.date]:
        return index.find(hashes_of(pa.chunked_array([[key]])), raw.version()).days

    snapshot = raw.snapshot()
    assert snapshot is not None
    gone = tuple(file for file in content_of(snapshot).values() if file.day == SECOND)
    replace_contents([Replacement(table=raw, base_version=1, removed=gone)])
    assert found("event-1") == [], "the index is made while they are away"
    replace_contents([Replacement(table=raw, base_version=2, restored=gone)])
    assert found("event-1") == [SECOND]


def test_a_table_that_is_written_is_busy_and_one_that_was_written_is_planned_on_anew(domain):
    undo = plan_restore(everywhere(domain), "normalized_orders", 0)
    before = files(domain)
    lock = platform_table("warehouse_rows", domain).lock_path
    with (
        writer_lock(lock, table="warehouse_rows", wait_seconds=1, driver_pid=None),
        pytest.raises(TableBusy),
    ):
        undo.carry_out(wait_seconds=0)
    write_table(domain, "audit_log", [{}])
    with pytest.raises(CommitConflict, match="audit_log"):
        undo.carry_out()
    after = files(domain)
    assert {
        name for name in after if name not in before and "/locks/" not in name and "audit" not in name
    } == set()


def test_days_without_events_and_tables_that_are_not_made_again_are_refused(domain):
    result = CliRunner().invoke(reprocess, ["--from", "2026-04-01", "--to", "2026-04-02"])
    assert isinstance(result.exception, NotFound)
    result = CliRunner().invoke(
        reprocess, ["--from", "2026-03-01", "--to", "2026-03-01", "--tables", "raw_events"]
    )
    assert isinstance(result.exception, InputError)
    call(reprocess, "--from", "2026-03-02", "--to", "2026-03-01", code=2)


FOLLOWED = ["normalized_orders", "warehouse_rows", "order_status_view", "audit_log", "dead_letters"]
UNDONE = (
    (reprocess, ("--from", SECOND.isoformat(), "--to", SECOND.isoformat(), "--yes")),
    (restore, ("normalized_orders", "--to-version", "0", "--yes")),
)


def content(domain: FailureDomain) -> dict[str, Any]:
    """Rows of every table, and how far each has read the others."""
    stands: dict[str, Any] = {
        f"{state.name} has read": state.cursor for state in table_states(domain, NOON) if state.name in PATH
    }
    return stands | {name: sorted(map(repr, rows(domain, name))) for name in PATH}


def test_days_are_taken_out_and_then_run(domain, monkeypatch):
    ran: list[tuple[set[dt.date], list[str]]] = []

    def run(settings, instance, asked, *, mode, assets):
        assert days(domain, "normalized_orders") == {SECOND: 2}, "taken out before anything runs"
        ran.append((set(asked), list(assets)))

    monkeypatch.setattr(runs, "materialize_days", run)
    call(reprocess, "--from", "2026-02-01", "--to", "2026-03-01", "--yes")
    assert ran == [({FIRST}, FOLLOWED)]


def test_what_follows_a_restored_table_is_made_again_at_once(domain, monkeypatch):
    ran: list[tuple[set[dt.date], list[str]]] = []

    def run(settings, instance, asked, *, mode, assets):
        assert days(domain, "warehouse_rows") == {FIRST: 2}, "taken out before anything runs"
        ran.append((set(asked), list(assets)))

    monkeypatch.setattr(runs, "materialize_days", run)
    call(restore, "normalized_orders", "--to-version", "0", "--yes")
    assert ran == [({SECOND}, FOLLOWED[1:])]
    assert days(domain, "normalized_orders") == {FIRST: 2}


@pytest.mark.parametrize(("command", "options"), UNDONE, ids=["reprocess", "restore"])
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_when_the_run_fails_every_table_gets_back_what_it_had(
    domain, monkeypatch, command, options, is_interrupted
):
    error = KeyboardInterrupt() if is_interrupted else RunFailed("the run failed", fix="open the run")
    before, behind = content(domain), find_unfinished(domain, FIRST)
    offsets = next_offset(platform_table("normalized_orders", domain).snapshot())

    def run(settings, instance, asked, *, mode, assets):
        write_table(domain, "normalized_orders", [{"partition_date": SECOND, "batch_id": 3, "offset": 9}])
        raise error

    monkeypatch.setattr(runs, "materialize_days", run)
    result = CliRunner().invoke(command, options)
    assert result.exit_code == 1
    assert "have again the rows that they had before the command" in result.stderr
    if isinstance(error, RunFailed):
        assert "have again the rows that they had" in error.fix
    assert content(domain) == before
    assert find_unfinished(domain, FIRST) == behind
    assert next_offset(platform_table("normalized_orders", domain).snapshot()) > offsets, (
        "none is dealt twice"
    )
    assert dense_offsets(domain, "normalized_orders").passed


def test_a_letter_that_is_discarded_during_the_run_stays_discarded_if_the_run_fails(domain, monkeypatch):
    letter = {**LETTER, "dead_letter_id": f"{SECOND}-open", "partition_date": SECOND, "state": "discarded"}

    def run(settings, instance, asked, *, mode, assets):
        made_again = {f"normalized_orders_exceptions/{SECOND}": 3}
        write_table(domain, "dead_letters", [{**letter, "event_id": "event-1"}], made_again)
        commit_nothing(platform_table("dead_letters", domain), **{DISCARDED: 1})
        raise RunFailed("the run failed", fix="open the run")

    monkeypatch.setattr(runs, "materialize_days", run)
    result = CliRunner().invoke(*UNDONE[0])
    assert "dead_letters changed meanwhile and is made again by the next run" in result.stderr
    states = [
        row["state"] for row in rows(domain, "dead_letters") if row["dead_letter_id"] == f"{SECOND}-open"
    ]
    assert states == ["discarded"]
    assert "dead_letters" in find_unfinished(domain, FIRST).behind
    assert days(domain, "warehouse_rows")[SECOND] == 2, "the other tables have what they had"


def test_a_day_that_can_neither_be_made_nor_put_back_is_an_alert(domain, monkeypatch):
    with ExitStack() as locks:

        def run(settings, instance, asked, *, mode, assets):
            lock = writer_lock(
                domain.lock_path("audit_log"), table="audit_log", wait_seconds=1, driver_pid=None
            )
            locks.enter_context(lock)
            raise RunFailed("the run failed", fix="open the run")

        monkeypatch.setattr(runs, "materialize_days", run)
        result = CliRunner().invoke(*UNDONE[0])
    assert isinstance(result.exception, RunFailed)
    assert "rows are missing from normalized_orders" in result.exception.fix
    assert "`etl-assets run`, makes them again" in result.exception.fix
    (line,) = (load_settings().home / "alerts.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["kind"] == "UndoUnfinished"
    assert {"normalized_orders", "order_status_view"} <= set(find_unfinished(domain, FIRST).behind)


@pytest.mark.parametrize(("command", "options"), UNDONE, ids=["reprocess", "restore"])
def test_nothing_is_taken_out_where_nothing_can_be_made_again(domain, monkeypatch, command, options):
    def not_ready(*of):
        raise RuntimeMissing("no Java", fix="install it")

    monkeypatch.setattr(remake, "check_ready", not_ready)
    before = files(domain)
    assert isinstance(CliRunner().invoke(command, options).exception, RuntimeMissing)
    assert files(domain) == before


def test_a_restore_that_was_killed_before_its_run_is_completed_by_the_same_command(domain, monkeypatch):
    call(restore, "warehouse_rows", "--to-version", "0", "--yes", "--no-run")
    call(restore, "warehouse_rows", "--to-version", "1", "--yes", "--no-run")
    ran = []
    monkeypatch.setattr(
        runs, "materialize_days", lambda *of, mode, assets: ran.append((set(of[2]), list(assets)))
    )
    again = call(restore, "warehouse_rows", "--to-version", "1", "--yes")
    assert ran == [({FIRST, SECOND}, ["order_status_view", "audit_log"])]
    assert "still to be made" in again.stderr


def test_only_what_follows_the_tables_named_is_made_again(domain):
    undo = plan_days(everywhere(domain), ["warehouse_rows"], [FIRST])
    assert [each.name for each in undo.tables] == ["warehouse_rows", "order_status_view", "audit_log"]
    undo = plan_days(everywhere(domain), ["dead_letters"], [FIRST])
    assert [each.name for each in undo.tables] == ["dead_letters"]


def restore_and_die(home: str, failpoint: str) -> None:
    os.environ |= {"ETL_ASSETS_HOME": home, "ETL_ASSETS_FAILPOINT": failpoint}
    restore.main(["normalized_orders", "--to-version", "0", "--yes", "--no-run"])


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["deltalake", "pyarrow", "rich.console", "etl_assets_tests.unit.test_undo"]
    )
    return context


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint",
    [
        f"{Failpoint.TABLE_BEFORE_COMMIT}@audit_log",
        f"{Failpoint.TABLE_AFTER_COMMIT}@dead_letters",
        f"{Failpoint.TABLE_AFTER_COMMIT}@normalized_orders_exceptions",
        f"{Failpoint.TABLE_BEFORE_COMMIT}@normalized_orders",
        f"{Failpoint.TABLE_AFTER_COMMIT}@normalized_orders",
        f"{Failpoint.TABLE_AFTER_SYNC}@normalized_orders",
    ],
)
def test_killed_anywhere_and_called_again_it_is_done(domain, tmp_path, processes, failpoint):
    process = processes.Process(target=restore_and_die, args=(str(tmp_path), failpoint))
    process.start()
    process.join(60)
    assert process.exitcode == -9
    call(restore, "normalized_orders", "--to-version", "0", "--yes", "--no-run")
    for table in ("normalized_orders", "normalized_orders_exceptions", "warehouse_rows"):
        assert days(domain, table) == {FIRST: 2}
    assert days(domain, "audit_log") == {FIRST: 1}
    assert days(domain, "dead_letters") == {FIRST: 2, SECOND: 1}
    assert cursor(domain, "normalized_orders", "raw_events") == -1
    assert cursor(domain, "warehouse_rows", "normalized_orders") == -1


def test_the_story_of_an_event_tells_that_its_day_was_taken_back(domain):
    def told(event_id: str) -> list[tuple[str, str]]:
        story = json.loads(call(trace, event_id, "--json").stdout)
        return [(each["stage"], each["outcome"]) for each in story["happenings"]]

    before = told("event-1")
    assert "taken back" not in {outcome for _, outcome in before}
    other = told("event-0")
    call(restore, "normalized_orders", "--to-version", "0", "--yes", "--no-run")
    taken = [("normalize", "taken back"), ("commit", "taken back")]
    assert sorted(told("event-1")) == sorted([("ingest", "accepted"), *taken, *_refusals(before)])
    assert told("event-0") == other, "its day was left alone"
    shown = call(trace, "event-1").stdout
    assert "by restore of normalized_orders" in " ".join(shown.replace("│", " ").split())
    # Made again: what was taken back stays told, and what is there now comes after it.
    made = {"event_id": "event-1", "partition_date": SECOND, "offset": 4, "raw_offset": 1}
    write_table(domain, "normalized_orders", [{**made, "batch_id": version(domain, "normalized_orders") + 1}])
    again = told("event-1")
    assert again.index(taken[0]) < again.index(("normalize", "normalized"))


def _refusals(told: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [each for each in told if each[1] == "rejected"]


def test_a_time_is_looked_up_where_a_replica_lies_now_that_was_built_anew_meanwhile(tmp_path):
    leader, *_ = three_replications(tmp_path)
    sites = tuple(Site(name=each, root=str(tmp_path / each), role=Role.VOTER) for each in "abc")
    table = Table(
        name="events", domain=FailureDomain(catalog=CATALOG, name="b", root=tmp_path / "b", sites=sites)
    )
    for expected in (2, 4):
        newest = commit_entries(leader, 3 if expected == 2 else 2)
        leader.follow()
        assert version_at(table, dt.datetime.now(dt.UTC)) == newest == expected
        leader.rebuild("b")

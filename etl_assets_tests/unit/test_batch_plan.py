"""What has been read is known after every end a run can have, and never believed too early."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from etl_assets.sources.batch_plan import BatchPlan, CommittedBatch, ReadProgress
from etl_assets.sources.landing import LANDING, REPLAYS, SourceFile
from etl_assets.steps.ingest import batches_of
from etl_assets_tests.pipeline import DAY, NEXT_DAY

NOTHING = CommittedBatch(batch_id=-1, digest=None)
LATER = CommittedBatch(batch_id=99, digest=None)


def file(name: str = "a.jsonl", **fields) -> SourceFile:
    return replace(SourceFile(day=DAY, source=LANDING, name=name, size=10, mtime_ns=1), **fields)


def committed(plan: BatchPlan) -> CommittedBatch:
    return CommittedBatch(batch_id=plan.batch_id, digest=plan.digest)


@pytest.fixture
def progress(tmp_path: Path) -> ReadProgress:
    return ReadProgress(tmp_path)


def test_a_plan_lasts_over_a_restart(tmp_path):
    plan = ReadProgress(tmp_path).plan(1, [file("b.jsonl"), file("a.jsonl")])
    assert ReadProgress(tmp_path).pending(table_version=0, committed=NOTHING) == plan
    assert [found.name for found in plan.files] == ["a.jsonl", "b.jsonl"]


def test_a_planned_file_is_unread_until_its_batch_is_in_the_table(progress):
    plan = progress.plan(1, [file()])
    assert progress.unread([file()], committed=NOTHING) == (file(),)
    assert progress.unread([file()], committed=committed(plan)) == ()


def test_a_recorded_plan_is_in_the_ledger_and_gone(progress):
    plan = progress.plan(1, [file()])
    progress.record(plan)
    progress.record(plan)
    assert progress.unread([file()], committed=LATER) == ()
    assert progress.pending(table_version=0, committed=NOTHING) is None


def test_a_plan_killed_before_the_ledger_is_settled_by_the_next_run(progress):
    plan = progress.plan(1, [file()])
    assert progress.pending(table_version=1, committed=committed(plan)) is None
    assert progress.unread([file()], committed=LATER) == ()


def test_a_plan_whose_version_another_commit_took_is_dropped_and_its_files_stay_unread(progress):
    progress.plan(1, [file()])
    other = BatchPlan(batch_id=1, files=(file("other.jsonl"),))
    assert progress.pending(table_version=1, committed=committed(other)) is None
    assert progress.pending(table_version=0, committed=NOTHING) is None
    assert progress.unread([file()], committed=committed(other)) == (file(),)


def test_a_commit_whose_log_entry_was_cleaned_up_settles_no_plan(progress):
    plan = progress.plan(1, [file()])
    forgotten = CommittedBatch(batch_id=plan.batch_id, digest=None)
    progress.pending(table_version=1, committed=forgotten)
    assert progress.unread([file()], committed=forgotten) == (file(),)


@pytest.mark.parametrize("change", [{"size": 11}, {"mtime_ns": 2}, {"name": "b.jsonl"}, {"source": REPLAYS}])
def test_a_file_that_is_not_as_it_was_read_is_unread(progress, change):
    progress.record(progress.plan(1, [file()]))
    assert progress.unread([replace(file(), **change)], committed=NOTHING) == (replace(file(), **change),)
    is_known_by_name = "size" in change or "mtime_ns" in change
    assert bool(progress.changed([replace(file(), **change)])) == is_known_by_name


def test_without_a_batch_in_the_table_the_ledger_of_an_earlier_table_counts_for_nothing(progress):
    progress.record(progress.plan(1, [file()]))
    assert progress.unread([file()], committed=LATER) == ()
    assert progress.unread([file()], committed=NOTHING) == (file(),)


def test_the_ledger_of_a_day_grows_and_that_of_another_is_not_touched(progress, tmp_path):
    progress.record(progress.plan(1, [file("a.jsonl")]))
    before = (tmp_path / "ledger" / f"{DAY}.json").stat()
    progress.record(progress.plan(2, [file("a.jsonl", day=NEXT_DAY)]))
    assert (tmp_path / "ledger" / f"{DAY}.json").stat().st_mtime_ns == before.st_mtime_ns
    progress.record(progress.plan(3, [file("b.jsonl")]))
    assert progress.unread([file("a.jsonl"), file("b.jsonl")], committed=LATER) == ()


def test_two_plans_of_one_id_are_told_apart_by_what_they_hold():
    assert (
        BatchPlan(batch_id=1, files=(file("a.jsonl"),)).digest
        != BatchPlan(batch_id=1, files=(file("b.jsonl"),)).digest
    )


def test_batches_keep_source_order_and_their_limit():
    files = [file(f"{n}.jsonl", size=size) for n, size in enumerate((4, 4, 4, 100, 1))]
    assert [[f.size for f in batch] for batch in batches_of(reversed(files), 8)] == [[4, 4], [4], [100], [1]]
    assert list(batches_of([], 8)) == []

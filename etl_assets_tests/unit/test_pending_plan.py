"""What becomes of the plan of a killed run: carried out before anything is planned again, or what it refused
is taken back.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from etl_assets.delta.log.entries import entry_path, latest_version
from etl_assets.delta.write.content import content_of
from etl_assets.delta.write.records import commit_rows, read_files
from etl_assets.ingest.pending_plan import FILES, pending_plan, settled_version, take_back
from etl_assets.ingest.step import Ingest
from etl_assets.orders.tables.exceptions import RAW_EVENTS_EXCEPTIONS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.source_files import SourceFile
from etl_assets.steps.changes import read_changes
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, NOW, Pipeline, event
from etl_assets_tests.reference.written_tables import write_table

DAYS = [DAY, NEXT_DAY]


def ingest(pipeline: Pipeline, mode: ReadMode = ReadMode.INCREMENTAL) -> Ingest:
    step = pipeline.steps(mode)["raw_events"]
    assert isinstance(step, Ingest)
    return step


@pytest.fixture
def platform(tmp_path: Path) -> Pipeline:
    """A platform whose Spark is not there."""
    made = Pipeline(
        root=tmp_path / "data", landing=tmp_path / "landing", session=lambda: pytest.fail("Spark")
    )
    made.land([event(1)])
    made.land([event(2, day=NEXT_DAY)], day=NEXT_DAY)
    return made


def files(pipeline: Pipeline) -> tuple[SourceFile, ...]:
    return tuple(file for _, listing in ingest(pipeline)._listings(DAYS) for file in listing.files)


def refuse(pipeline: Pipeline, plan: BatchPlan | None) -> None:
    """Commit what a batch refuses; or something else that is no batch."""
    table = pipeline.context.table(RAW_EVENTS_EXCEPTIONS.name).path
    facts = {"compacted_days": 1} if plan is None else plan.facts()
    info = {"timestamp": time.time_ns() // 1_000_000, "userMetadata": json.dumps({"facts": facts})}
    path = entry_path(table, latest_version(table) + 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"commitInfo": info}) + "\n")


def test_a_plan_whose_refusals_were_committed_and_whose_rows_were_not_is_pending(platform):
    plan = BatchPlan(batch_id=7, files=files(platform))
    assert ingest(platform)._pending(6, DAYS) is None
    refuse(platform, plan)
    assert ingest(platform)._pending(6, DAYS) == plan
    refuse(platform, None)
    assert ingest(platform)._pending(6, DAYS) == plan, "a compaction came after it"


def test_a_plan_whose_version_a_compaction_took_is_pending_as_a_later_one(platform):
    """Its refusals are committed, by what its files were then; planned again, a file that came since could go
    before them.
    """
    plan = BatchPlan(batch_id=1, files=files(platform))
    write_table(platform.context.domain, RAW_EVENTS.name, [{}], {FILES: 0})
    refuse(platform, plan)
    platform.land([event(3)], name="0.jsonl")
    write_table(platform.context.domain, RAW_EVENTS.name, [])
    assert ingest(platform)._pending(1, DAYS) == BatchPlan(batch_id=2, files=plan.files)
    write_table(platform.context.domain, RAW_EVENTS.name, [])
    assert ingest(platform)._pending(2, DAYS) == BatchPlan(batch_id=3, files=plan.files)


@pytest.mark.parametrize("committed", [1, 2])
def test_a_plan_that_was_committed_or_came_before_another_batch_is_not(platform, committed):
    refuse(platform, BatchPlan(batch_id=1, files=files(platform)))
    for batch in range(committed + 1):
        write_table(platform.context.domain, RAW_EVENTS.name, [{}], {FILES: batch})
    assert ingest(platform)._pending(committed, DAYS) is None


def test_a_plan_of_a_version_that_is_not_due_is_not(platform):
    refuse(platform, BatchPlan(batch_id=7, files=files(platform)))
    assert ingest(platform)._pending(5, DAYS) is None


def test_a_plan_of_other_days_is_not(platform):
    refuse(platform, BatchPlan(batch_id=7, files=files(platform)))
    assert ingest(platform)._pending(6, [DAY]) is None


def test_a_plan_is_not_if_a_file_is_gone_or_has_changed(platform):
    plan = BatchPlan(batch_id=7, files=files(platform))
    refuse(platform, plan)
    platform.land([event(1), event(3)])
    assert ingest(platform)._pending(6, DAYS) is None
    (platform.landing / DAY.isoformat() / "a.jsonl").unlink()
    assert ingest(platform)._pending(6, DAYS) is None


def test_reading_days_whole_plans_them_anew(platform):
    refuse(platform, BatchPlan(batch_id=7, files=files(platform)))
    assert ingest(platform, ReadMode.WHOLE)._pending(6, DAYS) is None


def refuse_rows(pipeline: Pipeline, ids: str, plan: BatchPlan | None, *, gone: str = "") -> None:
    """Commit exceptions, one a letter, as those of a plan; or as a compaction of what was there does."""
    table = pipeline.context.table(RAW_EVENTS_EXCEPTIONS.name)
    base = table.version()
    snapshot = table.snapshot()
    files = () if snapshot is None or not gone else tuple(content_of(snapshot).values())
    there = {row["exception_id"]: row["batch_id"] for row in read_files(table.path, files)}
    filled = {"stage": "ingest", "source": "landing", "source_position": "x", "domain": "local"}
    rows = [
        dict.fromkeys(RAW_EVENTS_EXCEPTIONS.names)
        | filled
        | {"exception_id": each, "outcome": "rejected", "partition_date": DAY, "failed_at": NOW}
        | {"batch_id": there.get(each, max(base, 0) + 1)}
        for each in ids
    ]
    commit_rows(table, rows, base_version=base, removed=files, facts={} if plan is None else plan.facts())


def refused(pipeline: Pipeline) -> str:
    return "".join(
        row["exception_id"] for row in pipeline.rows("raw_events_exceptions", order_by="exception_id")
    )


def test_what_a_batch_refuses_is_read_once_its_rows_are_committed(platform):
    exceptions = platform.context.table(RAW_EVENTS_EXCEPTIONS.name)
    raw_events, letters = (platform.context.table(name) for name in (RAW_EVENTS.name, "dead_letters"))

    def news() -> tuple[int, bool]:
        found = read_changes(exceptions, letters, DAYS, ReadMode.INCREMENTAL)
        return found.version, bool(found.days)

    write_table(platform.context.domain, RAW_EVENTS.name, [{}], {FILES: 0})
    refuse_rows(platform, "a", BatchPlan(batch_id=1, files=files(platform)))
    assert news() == (0, False)
    write_table(platform.context.domain, RAW_EVENTS.name, [{}], {FILES: 1})
    assert news() == (1, True)
    refuse_rows(platform, "b", BatchPlan(batch_id=2, files=files(platform)))
    refuse_rows(platform, "c", BatchPlan(batch_id=2, files=files(platform)))
    assert news() == (1, True)
    write_table(platform.context.domain, RAW_EVENTS.name, [{}], {FILES: 3})
    assert news() == (3, True)
    assert pending_plan(exceptions, raw_events) is None


@pytest.mark.parametrize("compacted", [False, True])
def test_what_a_plan_refused_that_is_not_carried_out_leaves_the_table_and_the_rest_stays(platform, compacted):
    exceptions, raw_events = (
        platform.context.table(name) for name in (RAW_EVENTS_EXCEPTIONS.name, RAW_EVENTS.name)
    )
    write_table(platform.context.domain, RAW_EVENTS.name, [{}], {FILES: 1})
    refuse_rows(platform, "ab", BatchPlan(batch_id=1, files=files(platform)))
    refuse_rows(platform, "c", BatchPlan(batch_id=2, files=files(platform)))
    refuse_rows(platform, "d", BatchPlan(batch_id=2, files=files(platform)))
    if compacted:
        refuse_rows(platform, "abcd", None, gone="abcd")
    assert refused(platform) == "abcd"
    version, left = exceptions.version(), pending_plan(exceptions, raw_events)
    assert left is not None
    take_back(exceptions, left)
    assert refused(platform) == "ab"
    assert {row["batch_id"] for row in platform.rows(exceptions.name)} == {1}
    assert pending_plan(exceptions, raw_events) is None
    assert settled_version(exceptions, raw_events) == exceptions.version() == version + 1


@pytest.mark.parametrize("mode", list(ReadMode))
def test_a_step_with_nothing_to_read_takes_back_what_was_left(platform, mode):
    write_table(platform.context.domain, RAW_EVENTS.name, [{}], {FILES: 0})
    refuse_rows(platform, "a", BatchPlan(batch_id=1, files=files(platform)))
    for day in DAYS:
        (platform.landing / day.isoformat() / "a.jsonl").unlink()
    assert ingest(platform, mode).run(DAYS).commits == 0
    assert refused(platform) == ""

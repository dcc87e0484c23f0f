"""Which plan of a killed run is carried out before anything is planned anew."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from etl_assets.contracts.tables import RAW_EVENTS, RAW_EVENTS_EXCEPTIONS
from etl_assets.delta.log import entry_path, latest_version
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.landing import SourceFile
from etl_assets.steps.ingest import Ingest
from etl_assets.steps.ingest_batch import FILES
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline, event
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
    """Its refusals are committed, by what its files were then; planned anew, a file that came since could go before them."""
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

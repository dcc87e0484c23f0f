"""Each event counts once: within a batch, across batches and days, and against all history."""

from __future__ import annotations

import dataclasses

import pytest

from etl_assets.delta.records import commit_rows
from etl_assets.steps import ingest_batch
from etl_assets.steps.ingest_batch import IngestBatch
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, event

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("most_events_here", [100, -1], ids=["found here", "found in Spark"])
def test_repeats_are_found_across_batches_days_and_runs(pipeline, monkeypatch, most_events_here):
    monkeypatch.setattr(ingest_batch, "MOST_EVENTS_HERE", most_events_here)
    small = dataclasses.replace(pipeline, max_batch_bytes=1)
    small.land([event(1), event(2), event(1)], name="a.jsonl")
    small.land([event(2), event(3)], name="b.jsonl")
    small.land([event(3), event(4), event(1, tenant_id="other")], day=NEXT_DAY)
    report = small.run([DAY, NEXT_DAY], only=["raw_events"])["raw_events"]
    assert report.commits == 3, "a file is a batch of its own"
    assert (report.counts[DAY]["accepted"], report.counts[DAY]["duplicate"]) == (3, 2)
    assert (report.counts[NEXT_DAY]["accepted"], report.counts[NEXT_DAY]["duplicate"]) == (1, 1)
    assert report.counts[NEXT_DAY]["conflict"] == 1

    small.land([event(4), event(2, payload={"customer_id": "x", "amount": 1}), event(5)], name="late.jsonl")
    report = small.run([DAY], only=["raw_events"])["raw_events"]
    total = report.total()
    assert (total["read"], total["accepted"], total["duplicate"], total["conflict"]) == (3, 1, 1, 1)

    rows = small.rows("raw_events", order_by="offset")
    assert [(row["offset"], row["event_id"]) for row in rows] == list(
        enumerate(f"event-{n}" for n in (1, 2, 3, 4, 5))
    )
    found = {
        row["source_position"]: (row["outcome"], row["original_offset"])
        for row in small.rows("raw_events_exceptions")
    }
    assert found == {
        f"{DAY}/a.jsonl:3": ("duplicate", None),
        f"{DAY}/b.jsonl:1": ("duplicate", 1),
        f"{NEXT_DAY}/a.jsonl:1": ("duplicate", 2),
        f"{NEXT_DAY}/a.jsonl:3": ("conflict", 0),
        f"{DAY}/late.jsonl:1": ("duplicate", 3),
        f"{DAY}/late.jsonl:2": ("conflict", 1),
    }
    before = small.rows("raw_events", order_by="offset"), len(small.rows("raw_events_exceptions"))
    whole = small.run([DAY, NEXT_DAY], mode=ReadMode.WHOLE, only=["raw_events"])["raw_events"].total()
    assert (whole["accepted"], whole["inserted"], whole["duplicate"], whole["conflict"]) == (5, 0, 4, 2)
    assert (small.rows("raw_events", order_by="offset"), len(small.rows("raw_events_exceptions"))) == before


def test_few_lines_become_rows_and_exceptions_without_a_spark_job(pipeline, spark):
    pipeline.land([event(1), event(1), "bad"])
    pipeline.run(only=["raw_events"])
    pipeline.land([event(2), event(1), event(1, tenant_id="other"), "bad"], name="b.jsonl")
    spark.sparkContext.setJobGroup("few lines", "counted by a test")
    try:
        report = pipeline.run(only=["raw_events"])["raw_events"]
        whole = pipeline.run(only=["raw_events"], mode=ReadMode.WHOLE)["raw_events"].total()
        spark.range(1).collect()  # seen by the tracker, as any job would be
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("few lines")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert len(jobs) == 1
    total = report.total()
    assert (total["accepted"], total["duplicate"], total["conflict"], total["rejected"]) == (1, 1, 1, 1)
    assert (whole["read"], whole["inserted"]) == (7, 0)
    assert len(pipeline.rows("raw_events_exceptions")) == 5


def test_a_batch_killed_between_what_it_refused_and_its_rows_is_carried_out_as_it_was_planned(
    pipeline, monkeypatch
):
    """Beside a file that came since, its lines would be judged in another way than its exceptions say."""

    class Killed(Exception):
        pass

    def die(*_: object) -> None:
        raise Killed

    pipeline.land([event(1)], name="b.jsonl")
    pipeline.land([event(1), event(2)], name="c.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(IngestBatch, "_commit_rows", die)
        with pytest.raises(Killed):
            pipeline.run(only=["raw_events"])
    pipeline.land([event(1, payload={"customer_id": "x", "amount": 1})], name="a.jsonl")
    # As a compaction does, this takes the version that was planned.
    table = pipeline.context.table("raw_events")
    commit_rows(table, [], base_version=table.version())
    assert pipeline.run(only=["raw_events"])["raw_events"].commits == 2
    rows = pipeline.rows("raw_events", order_by="offset")
    assert [row["source_position"] for row in rows] == [f"{DAY}/b.jsonl:1", f"{DAY}/c.jsonl:2"]
    found = [(row["source_position"], row["outcome"]) for row in pipeline.rows("raw_events_exceptions")]
    assert sorted(found) == [(f"{DAY}/a.jsonl:1", "conflict"), (f"{DAY}/c.jsonl:1", "duplicate")]
    assert pipeline.run(only=["raw_events"])["raw_events"].commits == 0

"""Each event counts once: within a batch, across batches and days, and against all history."""

from __future__ import annotations

import dataclasses
import datetime as dt
import gzip
import json

import pytest
from pyspark.errors import PySparkException

from etl_assets.delta.write.records import commit_rows
from etl_assets.ingest import repeats
from etl_assets.ingest.ingest_batch import IngestBatch
from etl_assets.io_managers.partition_split import run_partitions
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, NOW, event

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("most_events_here", [100, -1], ids=["found here", "found in Spark"])
def test_repeats_are_found_across_batches_days_and_runs(pipeline, monkeypatch, most_events_here):
    monkeypatch.setattr(repeats, "MAX_EVENTS_IN_PROCESS", most_events_here)
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
        f"{DAY}/a.jsonl:3": ("duplicate", 0),
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

    # Of a batch of mostly new events, only those that may repeat others are compared.
    mixed = [*(event(number) for number in range(10, 20)), event(4), event(5, tenant_id="other"), event(10)]
    small.land(mixed, name="mixed.jsonl")
    total = small.run([DAY], only=["raw_events"])["raw_events"].total()
    assert (total["accepted"], total["duplicate"], total["conflict"]) == (10, 2, 1)
    found = {
        row["source_position"]: (row["outcome"], row["original_offset"])
        for row in small.rows("raw_events_exceptions")
        if "mixed" in row["source_position"]
    }
    assert found == {
        f"{DAY}/mixed.jsonl:11": ("duplicate", 3),
        f"{DAY}/mixed.jsonl:12": ("conflict", 4),
        f"{DAY}/mixed.jsonl:13": ("duplicate", 5),
    }


def test_a_batch_whose_rows_fail_and_whose_days_are_tried_apart_judges_each_line_once(pipeline, monkeypatch):
    """A file that came since changes what its lines are: the refusals of the first attempt do not stay."""
    other = event(1, payload={"customer_id": "other", "amount": 1})
    pipeline.land([event(1), event(2), "bad"])
    pipeline.land([other, event(2)], day=NEXT_DAY)
    days = [DAY.isoformat(), NEXT_DAY.isoformat()]
    commit_rows_of = IngestBatch._commit_rows

    def fail_once(*_: object) -> None:
        monkeypatch.setattr(IngestBatch, "_commit_rows", commit_rows_of)
        pipeline.land([other], name="0.jsonl")
        raise PySparkException("a worker was killed")

    monkeypatch.setattr(IngestBatch, "_commit_rows", fail_once)
    step = pipeline.steps()["raw_events"]
    done = run_partitions(lambda keys: step.run([dt.date.fromisoformat(key) for key in keys]), days)
    assert not done.failed
    pipeline.run([DAY, NEXT_DAY], only=["dead_letters", "audit_log"])
    found = {
        row["source_position"]: (row["outcome"], row["original_offset"])
        for row in pipeline.rows("raw_events_exceptions")
    }
    assert found == {
        f"{DAY}/a.jsonl:1": ("conflict", 0),
        f"{DAY}/a.jsonl:3": ("rejected", None),
        f"{NEXT_DAY}/a.jsonl:1": ("duplicate", 0),
        f"{NEXT_DAY}/a.jsonl:2": ("duplicate", 1),
    }
    outcomes = {row["source_position"]: row["outcome"] for row in pipeline.rows("audit_log")}
    accepted = {f"{DAY}/0.jsonl:1": "accepted", f"{DAY}/a.jsonl:2": "accepted"}
    assert outcomes == {position: outcome for position, (outcome, _) in found.items()} | accepted
    assert len(pipeline.rows("audit_log")) == 6
    assert {letter["source_position"] for letter in pipeline.rows("dead_letters")} == {
        f"{DAY}/a.jsonl:1",
        f"{DAY}/a.jsonl:3",
    }


@pytest.mark.parametrize("most_events_here", [100, -1], ids=["found here", "found in Spark"])
def test_a_line_that_was_changed_after_it_had_been_read_is_a_conflict_with_its_row(
    pipeline, monkeypatch, most_events_here
):
    monkeypatch.setattr(repeats, "MAX_EVENTS_IN_PROCESS", most_events_here)
    steps = ["raw_events", "dead_letters", "audit_log"]
    path = pipeline.land([event(1), event(2), event(3)])
    pipeline.run(only=steps)
    audited = {(row["source_position"], row["outcome"]) for row in pipeline.rows("audit_log")}
    changed = json.dumps(event(2, payload={"customer_id": "c", "amount": "99.00"}, unknown="kept"))
    path.write_text("".join(f"{line}\n" for line in (json.dumps(event(1)), changed, json.dumps(event(3)))))
    total = pipeline.run(only=steps)["raw_events"].total()
    assert (total["read"], total["accepted"], total["conflict"], total["inserted"]) == (3, 2, 1, 0)
    (refused,) = pipeline.rows("raw_events_exceptions")
    assert (refused["outcome"], refused["original_offset"], refused["record"]) == ("conflict", 1, changed)
    assert [letter["record"] for letter in pipeline.rows("dead_letters")] == [changed]
    assert len(pipeline.rows("raw_events")) == 3
    assert pipeline.run(mode=ReadMode.WHOLE, only=steps)["raw_events"].total()["conflict"] == 1
    assert len(pipeline.rows("raw_events_exceptions")) == 1
    now = {(row["source_position"], row["outcome"]) for row in pipeline.rows("audit_log")}
    assert now == audited, "the audit log keeps the first outcome of a line"


def test_a_conflict_keeps_the_record_as_it_came_also_from_a_compressed_file(pipeline):
    odd = (
        '{"event_id" : "event-1", "unknown":{"b":1.10 ,"a":"\\u00e9"},'
        ' "tenant_id":"acme","aggregate_id":"order-1",'
        '"event_type":"OrderCreated","payload":{"z":1,"amount":12.50},"timestamp":"2026-01-05T11:00:00+01:00",'
        '"schema_version":1,"trace_id":"t"} '
    )
    pipeline.land([event(1), event(2)])
    folder = pipeline.landing / DAY.isoformat()
    lines = [json.dumps(event(3)), "bad", odd, json.dumps(event(3)), odd.replace("1.10", "1.2")]
    (folder / "b.jsonl.gz").write_bytes(gzip.compress("\r\n".join(lines).encode()))
    pipeline.run(only=["raw_events"])
    found = {
        row["source_position"]: (row["outcome"], row["original_offset"], row["record"])
        for row in pipeline.rows("raw_events_exceptions")
    }
    assert found == {
        f"{DAY}/b.jsonl.gz:2": ("rejected", None, "bad"),
        f"{DAY}/b.jsonl.gz:3": ("conflict", 0, odd),
        f"{DAY}/b.jsonl.gz:4": ("duplicate", 2, None),
        f"{DAY}/b.jsonl.gz:5": ("conflict", 0, lines[4]),
    }


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


def test_the_audit_has_the_first_outcome_of_a_line_also_where_it_reads_both_at_once(pipeline):
    """As after a reprocess of a day with a file that was changed after it had been read."""
    file = pipeline.land([event(1), "no JSON", event(3)])
    pipeline.run(only=["raw_events"])
    file.write_bytes(b"".join(json.dumps(each).encode() + b"\n" for each in ("{}", event(2), event(3))))
    later = dataclasses.replace(pipeline, clock=lambda: NOW + dt.timedelta(hours=1))
    later.run(only=["raw_events", "audit_log"])
    rows = [row for row in pipeline.rows("audit_log") if row["stage"] == "ingest"]
    assert sorted((row["source_position"][-1], row["outcome"]) for row in rows) == [
        ("1", "accepted"),
        ("2", "rejected"),
        ("3", "accepted"),
    ]


@pytest.mark.parametrize("mode", list(ReadMode))
def test_the_audit_has_the_first_of_two_events_that_a_line_of_a_changed_file_had(pipeline, mode):
    """Both were accepted, and the audit reads both at once; of other files it has every line."""
    file = pipeline.land([event(1), event(2)], name="a:7.jsonl")
    pipeline.run(only=["raw_events"])
    file.write_bytes(b"".join(json.dumps(event(number)).encode() + b"\n" for number in (3, 4, 5)))
    pipeline.land([event(6)], name="a.jsonl")
    later = dataclasses.replace(pipeline, clock=lambda: NOW + dt.timedelta(hours=1))
    later.run(only=["raw_events", "audit_log"], mode=mode)
    rows = [row for row in pipeline.rows("audit_log") if row["stage"] == "ingest"]
    assert sorted((row["source_position"], row["event_id"]) for row in rows) == [
        (f"{DAY}/a.jsonl:1", "event-6"),
        (f"{DAY}/a:7.jsonl:1", "event-1"),
        (f"{DAY}/a:7.jsonl:2", "event-2"),
        (f"{DAY}/a:7.jsonl:3", "event-5"),
    ]

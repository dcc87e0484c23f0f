"""The data path from file to order status: every figure adds up, and running again changes nothing."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etl_assets.delta.write import staged
from etl_assets.steps import changes
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, event

pytestmark = pytest.mark.spark
AUDIT_KEY = ("stage", "source", "source_position", "attempt")


def test_every_line_has_one_outcome_and_the_figures_add_up(pipeline):
    pipeline.land([event(1), event(1), event(1, tenant_id="other"), "not json", event(2)])
    pipeline.land([event(2, day=DAY), event(3, day=NEXT_DAY)], day=NEXT_DAY, name="ü [1] 100%.jsonl")
    reports = pipeline.run([DAY, NEXT_DAY])
    total = reports["raw_events"].total()
    assert (total["read"], total["accepted"], total["duplicate"], total["conflict"], total["rejected"]) == (
        7,
        3,
        2,
        1,
        1,
    )
    assert [row["offset"] for row in pipeline.rows("raw_events", order_by="offset")] == [0, 1, 2]
    assert [row["event_id"] for row in pipeline.rows("raw_events", order_by="offset")] == [
        "event-1",
        "event-2",
        "event-3",
    ]
    assert len(pipeline.rows("warehouse_rows")) == 3
    assert {row["order_status"] for row in pipeline.rows("order_status_view")} == {"created"}
    assert sorted(row["reason"] for row in pipeline.rows("dead_letters")) == [
        "FingerprintConflict",
        "MalformedJson",
    ]
    assert len(pipeline.rows("audit_log")) == 7 + 3 + 3

    again = pipeline.run([DAY, NEXT_DAY])
    assert all(report.commits == 0 for report in again.values())
    whole = pipeline.run([DAY, NEXT_DAY], mode=ReadMode.WHOLE)
    assert whole["raw_events"].total()["accepted"] == 3
    assert whole["raw_events"].total()["inserted"] == 0
    assert whole["normalized_orders"].total()["inserted"] == 0
    assert len(pipeline.rows("audit_log")) == 13
    assert len(pipeline.rows("dead_letters")) == 2


@pytest.mark.parametrize("little_bytes", [staged.LITTLE_BYTES, -1], ids=["counted here", "counted in Spark"])
def test_events_that_are_read_again_beside_new_ones_are_known(pipeline, monkeypatch, little_bytes):
    """Their offsets say so: a batch that follows all that is there is not compared with it, any other is."""
    monkeypatch.setattr(staged, "LITTLE_BYTES", little_bytes)
    pipeline.land([event(1), event(2), event(9, payload={"amount": "much"})])
    pipeline.run(only=["raw_events", "normalized_orders"])
    pipeline.land([event(3)], name="b.jsonl")
    assert (
        pipeline.run(only=["raw_events", "normalized_orders"])["normalized_orders"].total()["inserted"] == 1
    )
    pipeline.land([event(4)], name="c.jsonl")
    pipeline.run(only=["raw_events"])
    whole = pipeline.run(mode=ReadMode.WHOLE, only=["normalized_orders"])["normalized_orders"].total()
    assert (whole["read"], whole["inserted"], whole["ignored"], whole["refused"]) == (5, 1, 3, 1)
    rows = pipeline.rows("normalized_orders", order_by="offset")
    assert [(row["offset"], row["event_id"]) for row in rows] == [(n - 1, f"event-{n}") for n in (1, 2, 3, 4)]


def test_what_comes_to_a_day_is_not_compared_with_the_day_and_what_comes_again_is(
    pipeline, monkeypatch, tmp_path
):
    """Shown by taking away the files that it would be compared with."""
    path = ("raw_events", "normalized_orders", "warehouse_rows", "audit_log")
    pipeline.land([event(1), event(2), event(2), "not json", event(8, payload={"amount": "much"})])
    pipeline.run(only=path)
    pipeline.land([event(3), "not json either", event(9, payload={"amount": "much"})], name="b.jsonl")
    rows, log = (pipeline.context.table(name).path for name in ("warehouse_rows", "audit_log"))
    with gone(rows, tmp_path / "rows"), gone(log, tmp_path / "log"):
        done = pipeline.run(only=path)
    assert done["warehouse_rows"].total()["inserted"] == 1
    # Accepted, normalized and committed; refused at ingest; accepted and refused at normalize.
    assert done["audit_log"].total()["inserted"] == 3 + 1 + 2

    pipeline.land([event(4)], name="c.jsonl")
    pipeline.run(only=path[:2])
    known = changes.read_cursors
    with monkeypatch.context() as lost:
        lost.setattr(changes, "read_cursors", lambda *asked: dict.fromkeys(known(*asked), -1))
        again = pipeline.run(only=path[2:])
    assert (again["warehouse_rows"].total()["inserted"], again["warehouse_rows"].total()["ignored"]) == (1, 3)
    assert again["audit_log"].total()["inserted"] == 3
    whole = pipeline.run(only=path[2:], mode=ReadMode.WHOLE)
    assert [report.total()["inserted"] for report in whole.values()] == [0, 0]
    assert sorted(row["normalized_offset"] for row in pipeline.rows("warehouse_rows")) == [0, 1, 2, 3]
    assert len({tuple(row[name] for name in AUDIT_KEY) for row in pipeline.rows("audit_log")}) == (
        len(pipeline.rows("audit_log"))
    )


@contextmanager
def gone(folder: Path, aside: Path) -> Generator[None]:
    """A table without its data files of the moment."""
    files = [(file, aside / file.relative_to(folder)) for file in folder.rglob("*.parquet")]
    for file, kept in files:
        kept.parent.mkdir(parents=True, exist_ok=True)
        file.rename(kept)
    yield
    for file, kept in files:
        kept.rename(file)

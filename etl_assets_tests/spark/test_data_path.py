"""The data path from file to order status: every figure adds up, and running again changes nothing."""

from __future__ import annotations

import pytest

from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, NEXT_DAY, event

pytestmark = pytest.mark.spark


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

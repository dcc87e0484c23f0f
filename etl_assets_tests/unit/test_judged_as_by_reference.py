"""Lines of every kind judged by the platform and by the campaign's reference, without Spark and without
files.
"""

from __future__ import annotations

import datetime as dt
import random

import pytest

from etl_assets.contracts.envelope import Limits, judge
from etl_assets_tests.campaign.judge import (
    EARLIEST,
    EPOCH,
    MAX_RECORD_BYTES,
    SKEW,
    Event,
    canonical,
    judge_line,
    kept_record,
)
from etl_assets_tests.campaign.lines import Lines

DAY = dt.date(2026, 2, 3)
MICROSECOND = dt.timedelta(microseconds=1)
LIMITS = Limits(
    max_record_bytes=MAX_RECORD_BYTES,
    earliest_micros=(EARLIEST - EPOCH) // MICROSECOND,
    skew_micros=SKEW // MICROSECOND,
)
LATEST = dt.datetime.combine(DAY + dt.timedelta(days=1), dt.time(), dt.UTC) + SKEW


@pytest.mark.parametrize("seed", range(5))
def test_a_line_is_judged_as_by_the_reference(seed):
    for line in Lines(random.Random(seed), "h").some(DAY, 1_000):
        wanted = judge_line(line, DAY)
        assert wanted is not None
        found = judge(line, latest_micros=(LATEST - EPOCH) // MICROSECOND, limits=LIMITS)
        if not isinstance(wanted, Event):
            assert found.reason in wanted.reasons, line
            assert (found.record, found.record_encoding) == kept_record(line)
            continue
        assert found.reason is None, (line, found.error)
        assert found.payload == canonical(wanted.payload)
        micros = (wanted.occurred_at - EPOCH) // MICROSECOND
        assert (found.fingerprint, found.occurred_at_micros) == (wanted.fingerprint, micros)
        for name in (
            "event_id",
            "tenant_id",
            "aggregate_id",
            "event_type",
            "schema_version",
            "trace_id",
            "span_id",
        ):
            assert getattr(found, name) == getattr(wanted, name)

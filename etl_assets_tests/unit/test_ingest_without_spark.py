"""A few records are ingested without Spark: its start would cost more than all the rest."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from etl_assets.delta.write import commit as committing
from etl_assets.steps.step import ReadMode
from etl_assets_tests.pipeline import DAY, Pipeline, event


class SessionAskedFor(Exception):
    """A step has asked for Spark."""


def _no_session() -> NoReturn:
    raise SessionAskedFor


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(root=tmp_path / "data", landing=tmp_path / "landing", session=_no_session)


@pytest.mark.parametrize("mode", list(ReadMode))
def test_rows_rejects_duplicates_and_conflicts_are_stored_without_a_session(
    pipeline: Pipeline, mode: ReadMode
):
    pipeline.land([event(1), event(2), "not json", event(2)])
    (report,) = pipeline.run(only=["raw_events"]).values()
    assert (report.counts[DAY]["inserted"], report.counts[DAY]["rejected"]) == (2, 1)
    pipeline.land([event(1), event(3), event(2, tenant_id="other")], name="b.jsonl")
    pipeline.run(mode=mode, only=["raw_events"])

    rows = pipeline.rows("raw_events", order_by="offset")
    assert [(row["event_id"], row["offset"]) for row in rows] == [
        ("event-1", 0),
        ("event-2", 1),
        ("event-3", 2),
    ]
    refused = pipeline.rows("raw_events_exceptions", order_by="source_position")
    assert {row["source_position"].rpartition("/")[2] for row in refused} == {
        "a.jsonl:3",
        "a.jsonl:4",
        "b.jsonl:1",
        "b.jsonl:3",
    }


def test_a_table_that_delta_has_to_write_gets_a_frame(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(committing, "can_append", lambda *_: False)
    pipeline.land([event(1)])
    with pytest.raises(SessionAskedFor):
        pipeline.run(only=["raw_events"])
    assert pipeline.rows("raw_events") == []

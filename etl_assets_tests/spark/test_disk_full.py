"""A disk that is full in the middle of a commit: a clear error, and nothing lost or doubled once there is
space.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl_assets.delta.write import commit as committing
from etl_assets.error_policy import Decision, advice, decide
from etl_assets_tests.pipeline import Pipeline, event
from etl_assets_tests.reference.small_disk import fill, small_disk

pytestmark = pytest.mark.spark


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", mebibytes=16) as folder:
        yield folder


def test_a_run_that_meets_a_full_disk_says_so_and_the_next_one_completes(pipeline, disk, monkeypatch):
    platform: Pipeline = dataclasses.replace(pipeline, root=disk / "data")
    platform.land([event(1), event(2)])
    platform.run(only=["raw_events"])
    platform.land([event(number) for number in range(2, 500)], name="b.jsonl")

    def meets_a_full_disk() -> None:
        with pytest.raises(Exception) as failed:  # noqa: PT011 - whatever Spark, Java or Python call it
            platform.run(only=["raw_events"])
        assert decide(failed.value) is Decision.STOP
        assert "free space" in advice(failed.value)

    filler = fill(disk)
    meets_a_full_disk()
    filler.unlink()

    execute = committing._execute

    def fill_and_execute(spark, table, *args) -> None:
        if table.name == "raw_events":
            fill(disk)
        execute(spark, table, *args)

    monkeypatch.setattr(committing, "_execute", fill_and_execute)
    meets_a_full_disk()
    monkeypatch.undo()
    filler.unlink()
    assert len(platform.rows("raw_events")) == 2

    total = platform.run(only=["raw_events"])["raw_events"].total()
    assert (total["read"], total["accepted"], total["duplicate"]) == (498, 497, 1)
    rows = platform.rows("raw_events", order_by="offset")
    assert [row["offset"] for row in rows] == list(range(499))
    assert len({row["event_id"] for row in rows}) == 499
    assert len(platform.rows("raw_events_exceptions")) == 1

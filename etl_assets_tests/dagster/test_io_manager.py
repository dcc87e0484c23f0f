"""`DeltaUpsertIOManager` for assets of anybody: DataFrames in, idempotent upserts, figures on the
materialization.
"""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets_tests.dagster.io_manager_lab import DAYS, asset_of, failure, figures, stored

pytestmark = [
    pytest.mark.spark,
    # Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]


def test_rows_are_upserted_by_key_and_order_and_running_again_changes_nothing(lab):
    first = lab.frame(
        ("a", "2026-01-01", 1, "old"), ("a", "2026-01-01", 2, "new"), ("b", "2026-01-01", 1, "b")
    )
    result = lab.run(asset_of(lambda: first))
    assert stored(lab) == {"a": (2, "new"), "b": (1, "b")}
    told = figures(result)
    assert (told["inserted"], told["commits"], told["dagster/row_count"]) == (2, "1", 2)
    assert told["dagster/uri"].endswith(str(lab.resources["delta"].table_of(dg.AssetKey("mine")).path))

    again = figures(lab.run(asset_of(lambda: first)))
    assert (again.get("inserted", 0), again.get("updated", 0), again["ignored"]) == (0, 0, 2)

    by_hand = {
        "delta_upsert/merge_key": "id",
        "delta_upsert/ordering": "revision",
        "delta_upsert/delta_partition": "day",
    }
    older_and_newer = lab.frame(("a", "2026-01-01", 1, "late"), ("b", "2026-01-01", 2, "newer"))
    told = figures(lab.run(asset_of(lambda: older_and_newer, by_hand)))
    assert (told["updated"], told["ignored"]) == (1, 1)
    assert stored(lab) == {"a": (2, "new"), "b": (2, "newer")}


@pytest.mark.parametrize("literal", [False, True], ids=["rows", "literals"])
def test_one_bad_day_of_a_backfill_does_not_lose_the_others(lab, literal):
    """Rows that are literals of the query would be computed before days are told apart."""
    from pyspark.sql import functions as F

    values = [(f"k{day}", f"2026-01-0{day}", 1, "good") for day in (1, 2, 3, 4)]

    def rows() -> Any:
        if literal:
            frame = lab.spark.sql(f"SELECT * FROM VALUES {str(values)[1:-1]} AS t(id, day, revision, value)")
        else:
            frame = lab.frame(*values)
        bad = F.col("day") == "2026-01-03"
        return frame.withColumn(
            "value", F.when(bad, F.raise_error(F.lit("bad row"))).otherwise(F.col("value"))
        )

    result = lab.run(asset_of(rows, daily=True), tags=lab.days("2026-01-01", "2026-01-04"))
    text = failure(result)
    assert "1 of 4 partitions of mine failed: 2026-01-03" in text
    assert set(stored(lab)) == {"k1", "k2", "k4"}
    done = lab.instance.get_materialized_partitions(dg.AssetKey("mine"))
    assert done == {"2026-01-01", "2026-01-02", "2026-01-04"}
    table = lab.resources["delta"].table_of(dg.AssetKey("mine"))
    # Two commits create the table and name its asset.
    assert table.version() <= 3, "the good days took fewer commits than there are days"


def test_a_backfill_without_a_bad_day_is_one_commit_and_is_read_by_ranges(lab):
    frame = lab.frame(*((f"k{day}", f"2026-01-0{day}", 1, "good") for day in (1, 2, 3, 4)))
    upstream = asset_of(lambda: frame, daily=True)
    seen: list[set[str]] = []

    @dg.asset(partitions_def=DAYS, backfill_policy=dg.BackfillPolicy.single_run())
    def reader(mine: Any) -> None:
        seen.append({row["id"] for row in mine.collect()})

    result = lab.run(upstream, tags=lab.days("2026-01-01", "2026-01-04"))
    assert figures(result, "2026-01-02")["dagster/partition_row_count"] == 1
    assert figures(result, "2026-01-02")["commits"] == "1"
    read = lab.run(upstream, reader, selection=[reader], tags=lab.days("2026-01-02", "2026-01-03"))
    assert read.success
    assert seen == [{"k2", "k3"}]


def test_an_asset_without_keys_is_told_how_to_name_some(lab):
    text = failure(lab.run(asset_of(lambda: lab.frame(("a", "2026-01-01", 1, "x")), {})))
    assert "the metadata of the asset mine: it has no keys" in text
    assert "delta_upsert/keys" in text


def test_a_key_that_comes_twice_without_an_order_is_an_error_that_names_the_key(lab):
    twice = lab.frame(("a", "2026-01-01", 1, "x"), ("a", "2026-01-01", 2, "y"))
    text = failure(lab.run(asset_of(lambda: twice, UpsertSpec(merge_key=("id",)).to_metadata())))
    assert "hold a merge key (id) twice and no ordering column says which is newer" in text


def test_anything_but_a_frame_is_refused(lab):
    assert "the asset mine returned list" in failure(lab.run(asset_of(lambda: [1, 2])))

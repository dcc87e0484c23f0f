"""Assets of users with partitions of every kind: stored once however often they run, and loaded whole."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pytest

from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets_tests.dagster.io_manager_lab import Lab, asset_of, failure, figures

pytestmark = [
    pytest.mark.spark,
    # Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]

LETTERS = ("it's 1/2", "Köln", 'a "b" $c')


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Partitions, the type of the column that tells them apart, and values of it in two partitions.

    `by_partition_expr` names the column as other IO managers of Dagster read it.
    """

    name: str
    definition: dg.PartitionsDefinition
    type: str
    first: str
    in_first: tuple[str, ...]
    second: str
    in_second: tuple[str, ...]
    by_partition_expr: bool = False


def daily(**how: Any) -> dg.PartitionsDefinition:
    return dg.DailyPartitionsDefinition(start_date="2026-03-28", **how)


KINDS = [
    Kind(
        name="days as text",
        definition=daily(),
        type="STRING",
        first="2026-03-29",
        in_first=("2026-03-29",),
        second="2026-03-28",
        in_second=("2026-03-28",),
    ),
    Kind(
        name="days",
        definition=daily(),
        type="DATE",
        first="2026-03-29",
        in_first=("2026-03-29",),
        second="2026-03-28",
        in_second=("2026-03-28",),
    ),
    Kind(
        name="days of a city with a change of clocks",
        definition=daily(timezone="Europe/Berlin"),
        type="TIMESTAMP",
        first="2026-03-29",
        in_first=("2026-03-28T23:00:00Z", "2026-03-29T21:59:59.999999Z"),
        second="2026-03-28",
        in_second=("2026-03-28T22:59:59Z",),
    ),
    Kind(
        name="hours",
        definition=dg.HourlyPartitionsDefinition(start_date="2026-03-28-00:00"),
        type="TIMESTAMP",
        first="2026-03-28-01:00",
        in_first=("2026-03-28T01:00:00Z", "2026-03-28T01:30:00.5Z"),
        second="2026-03-28-02:00",
        in_second=("2026-03-28T02:00:00Z",),
        by_partition_expr=True,
    ),
    Kind(
        name="hours as text",
        definition=dg.HourlyPartitionsDefinition(start_date="2026-03-28-00:00"),
        type="STRING",
        first="2026-03-28-01:00",
        in_first=("2026-03-28-01:00",),
        second="2026-03-28-02:00",
        in_second=("2026-03-28-02:00",),
    ),
    Kind(
        name="months",
        definition=dg.MonthlyPartitionsDefinition(start_date="2026-01-01"),
        type="DATE",
        first="2026-02-01",
        in_first=("2026-02-01", "2026-02-15", "2026-02-28"),
        second="2026-01-01",
        in_second=("2026-01-31",),
    ),
    Kind(
        name="truth",
        definition=dg.StaticPartitionsDefinition(["true", "false"]),
        type="BOOLEAN",
        first="true",
        in_first=("true",),
        second="false",
        in_second=("false",),
    ),
    Kind(
        name="numbers",
        definition=dg.StaticPartitionsDefinition(["1", "-2"]),
        type="INT",
        first="1",
        in_first=("1",),
        second="-2",
        in_second=("-2",),
    ),
    Kind(
        name="texts that need quotes",
        definition=dg.StaticPartitionsDefinition(list(LETTERS)),
        type="STRING",
        first=LETTERS[0],
        in_first=(LETTERS[0],),
        second=LETTERS[2],
        in_second=(LETTERS[2],),
    ),
    Kind(
        name="two dimensions as text",
        definition=dg.MultiPartitionsDefinition(
            {"day": daily(), "region": dg.StaticPartitionsDefinition(["eu", "us"])}
        ),
        type="STRING",
        first="2026-03-28|eu",
        in_first=("2026-03-28|eu",),
        second="2026-03-28|us",
        in_second=("2026-03-28|us",),
    ),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_partition_that_runs_twice_is_stored_once_and_loaded_whole(lab: Lab, kind: Kind):
    spec = UpsertSpec(merge_key=("id",), delta_partition="part", partition_bound=True)
    in_partition = {kind.first: kind.in_first, kind.second: kind.in_second}
    metadata = spec.to_metadata()
    if kind.by_partition_expr:
        metadata["partition_expr"] = metadata.pop("delta_upsert/delta_partition")

    @dg.asset(partitions_def=kind.definition, metadata=metadata, io_manager_key="delta")
    def mine(context) -> Any:  # Dagster reads no postponed annotation of a context
        key = context.partition_key
        rows = [(f"{key} {number}", value) for number, value in enumerate(in_partition[key])]
        return lab.frame(*rows, columns="id string, text string").selectExpr(
            "id", f"CAST(text AS {kind.type}) AS part"
        )

    seen: list[list[str]] = []

    @dg.asset(partitions_def=kind.definition)
    def reader(mine: Any) -> None:
        seen.append(sorted(row["id"] for row in mine.collect()))

    lab.run(mine, partition_key=kind.second)
    first = figures(lab.run(mine, partition_key=kind.first), kind.first)
    assert (first["inserted"], first["dagster/partition_row_count"]) == (
        len(kind.in_first),
        len(kind.in_first),
    )
    again = figures(lab.run(mine, reader, partition_key=kind.first), kind.first)
    assert (again.get("inserted", 0), again["ignored"]) == (0, len(kind.in_first))
    assert again["dagster/partition_row_count"] == len(kind.in_first)
    wanted = [f"{key} {number}" for key, values in in_partition.items() for number, _ in enumerate(values)]
    assert sorted(row["id"] for row in lab.rows_of()) == sorted(wanted)
    assert seen == [sorted(f"{kind.first} {number}" for number, _ in enumerate(kind.in_first))]


def test_a_backfill_of_months_in_one_run_counts_each_and_is_loaded_as_a_whole(lab: Lab):
    months = dg.MonthlyPartitionsDefinition(start_date="2026-01-01", end_date="2026-04-01")
    spec = UpsertSpec(merge_key=("id",), delta_partition="day", partition_bound=True)
    rows = lab.frame(
        ("a", "2026-01-01"), ("b", "2026-01-31"), ("c", "2026-03-31"), columns="id string, day string"
    ).selectExpr("id", "CAST(day AS DATE) AS day")

    @dg.asset(
        partitions_def=months,
        metadata=spec.to_metadata(),
        io_manager_key="delta",
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def mine() -> Any:
        return rows

    seen: list[set[str]] = []

    @dg.asset
    def whole(mine: Any) -> None:
        seen.append({row["id"] for row in mine.collect()})

    for inserted in ((2, 0, 1), (0, 0, 0)):
        result = lab.run(mine, tags=lab.days("2026-01-01", "2026-03-01"))
        told = [figures(result, f"2026-0{month}-01") for month in (1, 2, 3)]
        assert tuple(each["inserted"] for each in told) == inserted
        assert [each["dagster/partition_row_count"] for each in told] == [2, 0, 1]
    assert lab.run(mine, whole, selection=[whole]).success
    assert seen == [{"a", "b", "c"}]


def test_an_asset_without_partitions_may_be_bound_to_a_delta_partition(lab: Lab):
    spec = UpsertSpec(merge_key=("id",), delta_partition="day", partition_bound=True)
    frame = lab.frame(("a", "2026-01-01"), ("b", "2026-01-02"), columns="id string, day string")
    for _ in range(2):
        figures(lab.run(asset_of(lambda: frame, spec.to_metadata())))
    assert sorted(row["id"] for row in lab.rows_of()) == ["a", "b"]


def test_a_spec_that_names_another_column_than_the_table_is_laid_out_by_stores_once(lab: Lab):
    frame = lab.frame(("a", "2026-01-01", "x"), columns="id string, day string, region string")
    for column in ("region", "day"):
        spec = UpsertSpec(merge_key=("id",), delta_partition=column, partition_bound=True)
        assert lab.run(asset_of(lambda: frame, spec.to_metadata())).success
    spec = UpsertSpec(merge_key=("id",), delta_partition="day", partition_bound=True)
    in_days = asset_of(lambda: frame, spec.to_metadata(), daily=True)
    assert "dagster/partition_row_count" not in figures(
        lab.run(in_days, partition_key="2026-01-01"), "2026-01-01"
    )
    assert [row["id"] for row in lab.rows_of()] == ["a"]


def static(*keys: str) -> dg.PartitionsDefinition:
    return dg.StaticPartitionsDefinition(list(keys))


@pytest.mark.parametrize(
    ("definition", "key", "column", "said"),
    [
        (
            static("01"),
            "01",
            "1",
            "partition key '01' of the asset mine is no value of its column part, which is INT",
        ),
        (
            static("yes"),
            "yes",
            "true",
            "partition key 'yes' of the asset mine is no value of its column part",
        ),
        (static("1.5"), "1.5", "1.5D", "column part of .*mine is DOUBLE and cannot be its `delta_partition`"),
        (static("1.5"), "1.5", "1.5", r"column part of the asset mine is DECIMAL\(2,1\), which cannot tell"),
        (
            dg.HourlyPartitionsDefinition(start_date="2026-01-01-00:00"),
            "2026-01-01-01:00",
            "DATE'2026-01-01'",
            "'2026-01-01-01:00' of the asset mine is no value of its column part, which is DATE",
        ),
        (
            dg.MultiPartitionsDefinition({"a": static("x"), "b": static("y")}),
            "x|y",
            "'x'",
            "hold 'x' in part, which is of none of the partitions of this run",
        ),
    ],
    ids=["01", "yes", "double", "decimal", "hours as days", "one of two dimensions"],
)
def test_partitions_that_a_column_cannot_tell_apart_are_refused(lab: Lab, definition, key, column, said):
    spec = UpsertSpec(merge_key=("id",), delta_partition="part")

    @dg.asset(partitions_def=definition, metadata=spec.to_metadata(), io_manager_key="delta")
    def mine() -> Any:
        return lab.spark.sql(f"SELECT 'a' AS id, {column} AS part")

    text = failure(lab.run(mine, partition_key=key))
    assert re.search(said, text), text
    assert "fix:" in text
    assert lab.version_of() <= 0, "nothing was stored"

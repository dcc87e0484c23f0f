"""What an asset of a user's returns and cannot be stored once: refused with column and remedy, before a row
is stored.
"""

from __future__ import annotations

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

BY_ID = UpsertSpec(merge_key=("id",))
BOUND = UpsertSpec(merge_key=("id",), delta_partition="day", partition_bound=True)


def refused(lab: Lab, sql: str, spec: UpsertSpec, **how: Any) -> str:
    """What the failure of an asset with a query's rows says; no row of it was stored."""
    before = max(lab.version_of(), 0)
    text = failure(
        lab.run(asset_of(lambda: lab.spark.sql(sql), spec.to_metadata(), daily="partition_key" in how), **how)
    )
    assert lab.version_of() <= before
    assert "fix:" in text
    assert "Py4J" not in text
    return text


def stores(lab: Lab, sql: str, spec: UpsertSpec) -> dict[str, Any]:
    return figures(lab.run(asset_of(lambda: lab.spark.sql(sql), spec.to_metadata())))


ROWS = [
    (
        BY_ID,
        "SELECT * FROM VALUES ('a', 1), (NULL, 2) AS t(id, v)",
        "hold NULL in id, a column of the merge key",
    ),
    (BY_ID, "SELECT 'a' AS id UNION ALL SELECT 'a'", "hold a merge key (id) twice and no ordering column"),
    (
        UpsertSpec(merge_key=("id",), ordering="o"),
        "SELECT * FROM VALUES ('a', 2, 'x'), ('a', 2, 'y'), ('a', 1, 'z') AS t(id, o, v)",
        "twice with the same o and different values",
    ),
    (
        UpsertSpec(merge_key=("id",), ordering="o"),
        "SELECT id, CAST(o AS INT) AS o, v, w FROM VALUES ('a', NULL, 'x', NULL), ('a', NULL, NULL, 'x') AS"
        " t(id, o, v, w)",
        "twice with the same o and different values",
    ),
    (
        UpsertSpec(merge_key=("id",), ordering="o"),
        "SELECT 'a' AS id, CAST('NaN' AS DOUBLE) AS o",
        "hold NaN in o, their `sequence_by`",
    ),
    (BOUND, "SELECT 'a' AS id, CAST(NULL AS STRING) AS day", "hold NULL in day, their `delta_partition`"),
    (
        UpsertSpec(merge_key=("id", "day"), delta_partition="day"),
        "SELECT 'a' AS id, '' AS day",
        "hold '' in day, their `delta_partition`, where Delta stores it as NULL",
    ),
]


@pytest.mark.parametrize(("spec", "sql", "said"), ROWS, ids=[said[:30] for _, _, said in ROWS])
def test_a_row_that_cannot_be_stored_once_is_refused(lab: Lab, spec: UpsertSpec, sql: str, said: str):
    assert said in refused(lab, sql, spec)


@pytest.mark.parametrize(
    ("spec", "day", "said"),
    [
        (
            BOUND,
            "'2026-01-02'",
            "hold '2026-01-02' in day, which is of none of the partitions of this run (2026-01-01)",
        ),
        (BOUND, "CAST(NULL AS DATE)", "hold NULL in day, which is of none of the partitions of this run"),
        (
            UpsertSpec(merge_key=("id",), delta_partition="day"),
            "'<x> %7B'",
            "hold '<x> %7B' in day, which is of none",
        ),
    ],
    ids=["another day", "no day", "not bound"],
)
def test_rows_of_another_partition_than_those_of_the_run_are_refused(lab: Lab, spec, day: str, said: str):
    sql = f"SELECT 'a' AS id, {day} AS day"
    assert said in refused(lab, sql, spec, partition_key="2026-01-01")


def test_rows_of_another_partition_are_refused_beside_a_bad_row_that_splits_the_run(lab: Lab):
    sql = (
        "SELECT id, day FROM VALUES ('a', '2026-01-01'), (NULL, '2026-01-02'), ('c', '2026-01-04') AS t(id,"
        " day)"
    )
    asset = asset_of(lambda: lab.spark.sql(sql), BOUND.to_metadata(), daily=True)
    text = failure(lab.run(asset, tags=lab.days("2026-01-01", "2026-01-02")))
    assert "hold '2026-01-04' in day" in text
    assert lab.rows_of() == []


def test_a_null_key_in_one_day_does_not_hold_up_the_others(lab: Lab):
    sql = "SELECT id, day FROM VALUES ('a', '2026-01-01'), (NULL, '2026-01-02') AS t(id, day)"
    asset = asset_of(lambda: lab.spark.sql(sql), BOUND.to_metadata(), daily=True)
    text = failure(lab.run(asset, tags=lab.days("2026-01-01", "2026-01-02")))
    assert "1 of 2 partitions of mine failed: 2026-01-02: RowsRefused: " in text
    assert [row["id"] for row in lab.rows_of()] == ["a"]


def test_rows_that_the_asset_leaves_out_are_not_looked_at(lab: Lab):
    """A condition on columns alone would be moved below the join, to rows that the asset does not return."""
    sql = """SELECT a.id, a.day
             FROM VALUES ('a', '2026-01-01'), ('b', '2026-01-02'), (NULL, '2026-01-01') AS a(id, day)
        JOIN VALUES ('a', '2026-01-01') AS b(id, day) ON a.id = b.id AND a.day = b.day"""
    asset = asset_of(lambda: lab.spark.sql(sql), BOUND.to_metadata(), daily=True)
    assert figures(lab.run(asset, partition_key="2026-01-01"), "2026-01-01")["inserted"] == 1


def test_the_same_row_twice_is_one_row_and_names_that_are_used_within_are_the_users(lab: Lab):
    spec = UpsertSpec(merge_key=("id",), ordering="__rank")
    columns = "id, __rank, `__first`, batch_id, run, t, s"
    rows = "('a', 1, 7, 8, 9, 10, 11), ('a', 1, 7, 8, 9, 10, 11)"
    told = stores(lab, f"SELECT * FROM VALUES {rows} AS t({columns})", spec)
    assert told["inserted"] == 1
    names = ("__rank", "__first", "batch_id", "run", "t", "s")
    assert [tuple(row[name] for name in names) for row in lab.rows_of()] == [(1, 7, 8, 9, 10, 11)]


def test_a_change_of_a_column_called_batch_id_is_a_change(lab: Lab):
    stores(lab, "SELECT 'a' AS id, 1 AS batch_id", BY_ID)
    assert stores(lab, "SELECT 'a' AS id, 2 AS batch_id", BY_ID)["updated"] == 1
    assert [row["batch_id"] for row in lab.rows_of()] == [2]


def test_columns_that_are_not_those_of_the_table_are_refused_by_name(lab: Lab):
    stores(lab, "SELECT 1 AS id, 'x' AS text, CAST(1 AS BIGINT) AS wide", BY_ID)
    for sql, *said in (
        ("SELECT 7.9D AS id, 'x' AS text, 1L AS wide", "the column id ", "is DOUBLE, in its table it is INT"),
        (
            "SELECT 1099511627776L AS id, 'x' AS text, 1L AS wide",
            "the column id ",
            "is BIGINT, in its table it is INT",
        ),
        ("SELECT 1 AS id, 5 AS text, 1L AS wide", "the column text ", "is INT, in its table it is STRING"),
        (
            "SELECT 1 AS id, 'x' AS text, 1L AS wide, 2 AS more",
            "have the column more (INT)",
            "declare `schema_changes` add",
        ),
        ("SELECT 1 AS id, 'x' AS text", "lack its column wide (BIGINT)"),
        (
            "SELECT 1 AS id, 'x' AS Text, 1L AS wide",
            "have the column Text (STRING)",
            "rename it in the asset to text",
        ),
        ("SELECT 1 AS ID, 'x' AS text, 1L AS wide", "lack id, named in its spec", "rename ID to id"),
    ):
        text = refused(lab, sql, BY_ID)
        assert "rows for mine" in text
        for words in said:
            assert words in text
    told = stores(lab, "SELECT 2 AS id, NULL AS text, 3 AS wide", BY_ID)
    assert told["inserted"] == 1, "INT is kept whole in BIGINT, and NULL in any type"


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("map('a', 1)", "the type MAP, which cannot be stored by an upsert"),
        ("array(struct(map('a', 1) AS m))", "the type MAP"),
        ("parse_json('{}')", "the type VARIANT"),
        ("NULL", "the type VOID"),
    ],
    ids=["map", "map within", "variant", "void"],
)
def test_types_that_cannot_be_compared_are_refused_by_name(lab: Lab, column: str, said: str):
    text = refused(lab, f"SELECT 1 AS id, {column} AS tags", BY_ID)
    assert "the column tags of the rows for mine has" in text
    assert said in text
    assert lab.version_of() == -1, "no table was made of it"


@pytest.mark.parametrize("name", ["raw_events", "customers", "effects"])
def test_an_asset_called_like_a_table_of_the_platform_is_stored_and_loaded_as_the_users(lab: Lab, name: str):
    days = dg.DailyPartitionsDefinition(start_date="2026-01-01")
    seen: list[str] = []

    @dg.asset(name=name, partitions_def=days, metadata=BOUND.to_metadata(), io_manager_key="delta")
    def own() -> Any:
        return lab.spark.sql("SELECT 'a' AS id, '2026-01-01' AS day")

    @dg.asset(partitions_def=days, ins={"own": dg.AssetIn(name)})
    def reader(own: Any) -> None:
        seen.extend(row["id"] for row in own.collect())

    assert lab.run(own, partition_key="2026-01-01").success
    assert lab.run(own, reader, selection=[reader], partition_key="2026-01-01").success
    assert seen == ["a"]
    assert [row["id"] for row in lab.rows_of(name)] == ["a"]

"""Frames with other columns than their table: refused, or the table changes as declared, before a row is
written.
"""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from etl_assets.delta.write.write_spec import SchemaChanges, WriteMode, WriteSpec
from etl_assets_tests.dagster.io_manager_lab import Lab, asset_of, failure, figures

pytestmark = [
    pytest.mark.spark,
    # Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]


def run(lab: Lab, sql: str, allowed: SchemaChanges, **spec: Any) -> dg.ExecuteInProcessResult:
    spec = spec or {"keys": ("id",)}
    metadata = WriteSpec(schema_changes=allowed, **spec).to_metadata()
    return lab.run(asset_of(lambda: lab.spark.sql(sql), metadata))


def rows(lab: Lab) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """Columns and rows, read by Spark."""
    table = lab.resources["delta"].table_of(dg.AssetKey("mine"), users=True)
    frame = lab.spark.read.format("delta").load(str(table.path)).orderBy("id")
    return frame.dtypes, [tuple(row) for row in frame.collect()]


def test_new_columns_are_added_at_the_end_and_what_is_stored_has_null_there(lab: Lab):
    assert run(lab, "SELECT 1 AS id, 'a' AS v", SchemaChanges.ADD).success
    before = lab.version_of()
    wider = "SELECT 'new' AS added, 2 AS id, struct(1 AS `a-b`) AS inner, 'b' AS v"
    assert figures(run(lab, wider, SchemaChanges.ADD))["inserted"] == 1
    assert lab.version_of() == before + 2, "the columns and the rows"
    again = figures(run(lab, wider, SchemaChanges.ADD))
    assert (again["ignored"], lab.version_of()) == (1, before + 3), (
        "columns that are there are not added again"
    )
    types, found = rows(lab)
    assert types == [("id", "int"), ("v", "string"), ("added", "string"), ("inner", "struct<a-b:int>")]
    assert found == [(1, "a", None, None), (2, "b", "new", (1,))]
    filled = "SELECT 1 AS id, 'a' AS v, 'late' AS added, NULL AS inner"
    assert figures(run(lab, filled, SchemaChanges.REJECT))["updated"] == 1


REFUSED = [
    (
        "SELECT 2 AS id, 'b' AS v, 'c' AS added",
        SchemaChanges.REJECT,
        "have the column added (STRING): which its table does not have",
    ),
    ("SELECT 2 AS id", SchemaChanges.WIDEN, "lack its column v (STRING)"),
    ("SELECT 2 AS id, 'b' AS v, 'c' AS V2, 'd' AS v2", SchemaChanges.ADD, "differ in nothing but case"),
    ("SELECT 2 AS id, 'b' AS V", SchemaChanges.ADD, "in its table it is v"),
    ("SELECT 2 AS id, 'b' AS v, NULL AS added", SchemaChanges.ADD, "give it a type"),
    (
        "SELECT 2 AS id, 'b' AS v, map('a', 1) AS added",
        SchemaChanges.ADD,
        "has the type MAP, which cannot be stored by an upsert",
    ),
    (
        "SELECT 2L AS id, 'b' AS v",
        SchemaChanges.ADD,
        "the column id of the rows for mine is BIGINT, in its table it is INT",
    ),
    ("SELECT 2.5D AS id, 'b' AS v", SchemaChanges.WIDEN, "the column id of the rows for mine is DOUBLE"),
    (
        "SELECT 2 AS id, 1 AS v, 'c' AS added",
        SchemaChanges.WIDEN,
        "the column v of the rows for mine is INT",
    ),
]


def test_what_is_not_declared_is_refused_by_name_and_nothing_changes(lab: Lab):
    assert run(lab, "SELECT 1 AS id, 'a' AS v", SchemaChanges.REJECT).success
    before = lab.version_of()
    for sql, allowed, said in REFUSED:
        assert said in failure(run(lab, sql, allowed))
        assert lab.version_of() == before


@pytest.mark.parametrize(
    "spec",
    [{"keys": ("id",)}, {"write_mode": WriteMode.APPEND}, {"write_mode": WriteMode.REPLACE}],
    ids=["upsert", "append", "replace"],
)
def test_numbers_become_wider_and_what_is_stored_stays_what_it_is(lab: Lab, spec: dict[str, Any]):
    narrow = "SELECT 1 AS id, CAST(0.5 AS FLOAT) AS f, CAST(1.25 AS DECIMAL(4, 2)) AS d, 'a' AS v"
    wide = "SELECT 3000000000 AS id, 0.1D AS f, CAST(1.125 AS DECIMAL(6, 3)) AS d, 'b' AS v, 'new' AS added"
    assert run(lab, narrow, SchemaChanges.WIDEN, **spec).success
    told = figures(run(lab, wide, SchemaChanges.WIDEN, **spec))
    assert told["inserted"] == 1
    types, found = rows(lab)
    assert types == [
        ("id", "bigint"),
        ("f", "double"),
        ("d", "decimal(6,3)"),
        ("v", "string"),
        ("added", "string"),
    ]
    shown = [tuple(map(str, row)) for row in found]
    old = [("1", "0.5", "1.250", "a", "None")]
    replaced = spec.get("write_mode") is WriteMode.REPLACE
    assert shown == ([] if replaced else old) + [("3000000000", "0.1", "1.125", "b", "new")]

    narrow_again = (
        "SELECT 2 AS id, CAST(0.5 AS FLOAT) AS f, CAST(1.25 AS DECIMAL(4, 2)) AS d, 'c' AS v, 'x' AS added"
    )
    again = figures(run(lab, narrow_again, SchemaChanges.WIDEN, **spec))
    assert again["inserted"] == 1
    assert rows(lab)[0] == types


def test_local_times_are_added_to_a_table_that_had_none(lab: Lab):
    """Delta enables the feature for it in a new table only."""
    assert run(lab, "SELECT 1 AS id", SchemaChanges.ADD).success
    within = "array(named_struct('at', TIMESTAMP_NTZ'2026-03-29 02:30:00'))"
    assert run(lab, f"SELECT 2 AS id, {within} AS times", SchemaChanges.ADD).success
    types, found = rows(lab)
    assert types == [("id", "int"), ("times", "array<struct<at:timestamp_ntz>>")]
    assert [str(row[1] and row[1][0]["at"]) for row in found] == ["None", "2026-03-29 02:30:00"]

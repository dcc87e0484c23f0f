"""Write modes of users' assets: insert, append and replace, run again, in backfills, and with rows that are
bad.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from etl_assets.cli.main import cli
from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets.io_managers import delta_upsert
from etl_assets_tests.dagster.io_manager_lab import Lab, asset_of, failure, figures

pytestmark = [
    pytest.mark.spark,
    # Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]

BY_DAY = WriteSpec(write_mode=WriteMode.REPLACE, delta_partition="day")
WHOLE = WriteSpec(write_mode=WriteMode.REPLACE)
ADDED = WriteSpec(write_mode=WriteMode.APPEND, delta_partition="day")
FIRST, SECOND, THIRD = "2026-01-01", "2026-01-02", "2026-01-03"


def run(lab: Lab, spec: WriteSpec, sql: str, *days: str, **how: Any) -> dg.ExecuteInProcessResult:
    """Run an asset whose rows a query has, for one day, for days from one to another, or without
    partitions.
    """
    asset = asset_of(lambda: lab.spark.sql(sql), spec.to_metadata(), daily=bool(days))
    if len(days) == 1:
        return lab.run(asset, partition_key=days[0], **how)
    return lab.run(asset, **({"tags": lab.days(*days)} if days else {}), **how)


def values(rows: str) -> str:
    return f"SELECT * FROM VALUES {rows} AS t(id, day)"


NONE = values(f"('x', '{FIRST}')") + " WHERE id IS NULL"


def ids(lab: Lab) -> list[str]:
    return sorted(row["id"] for row in lab.rows_of())


def test_an_insert_keeps_the_first_row_of_a_key_within_a_frame_and_among_runs(lab: Lab):
    spec = WriteSpec(write_mode=WriteMode.INSERT, keys=("id",), sequence_by="at")
    columns = "AS t(id, at, value)"
    told = figures(
        run(lab, spec, f"SELECT * FROM VALUES ('a', 2, 'second'), ('a', 1, 'first'), ('b', 5, 'b') {columns}")
    )
    assert (told["inserted"], told.get("updated", 0)) == (2, 0)
    told = figures(
        run(lab, spec, f"SELECT * FROM VALUES ('a', 0, 'late'), ('b', 9, 'new'), ('c', 1, 'c') {columns}")
    )
    assert (told["inserted"], told.get("updated", 0), told["ignored"]) == (1, 0, 2)
    assert {row["id"]: row["value"] for row in lab.rows_of()} == {"a": "first", "b": "b", "c": "c"}


def test_afterwards_a_replaced_partition_has_exactly_the_rows_of_its_run(lab: Lab):
    run(lab, BY_DAY, values(f"('a', '{FIRST}'), ('a', '{FIRST}'), ('b', '{FIRST}')"), FIRST)
    run(lab, BY_DAY, values(f"('z', '{SECOND}')"), SECOND)
    assert ids(lab) == ["a", "a", "b", "z"], "rows are not told apart: the frame had one twice"

    before = lab.version_of()
    told = figures(run(lab, BY_DAY, values(f"('c', '{FIRST}')"), FIRST), FIRST)
    assert (told["inserted"], told["removed"], told["dagster/partition_row_count"]) == (1, 3, 1)
    assert told["dagster/row_count"] == 2
    assert lab.version_of() == before + 1, "in one commit"
    assert ids(lab) == ["c", "z"]

    told = figures(run(lab, BY_DAY, NONE, FIRST), FIRST)
    assert (told["inserted"], told["removed"], told["dagster/partition_row_count"]) == (0, 1, 0)
    assert ids(lab) == ["z"], "no rows empty the partition"
    assert run(lab, BY_DAY, NONE, FIRST).success
    assert ids(lab) == ["z"]


def test_the_partitions_of_a_backfill_are_replaced_in_one_commit_and_one_without_rows_is_emptied(lab: Lab):
    run(lab, BY_DAY, values(f"('a', '{FIRST}'), ('b', '{SECOND}'), ('c', '{THIRD}')"), FIRST, THIRD)
    before = lab.version_of()
    result = run(lab, BY_DAY, values(f"('x', '{SECOND}'), ('y', '{SECOND}')"), FIRST, SECOND)
    assert lab.version_of() == before + 1
    assert ids(lab) == ["c", "x", "y"]
    names = ("inserted", "removed", "dagster/partition_row_count")
    assert [[figures(result, day)[name] for name in names] for day in (FIRST, SECOND)] == [
        [0, 1, 0],
        [2, 1, 2],
    ]


def test_a_table_without_partitions_is_replaced_as_a_whole_by_what_was_made_of_it(lab: Lab):
    """Whatever the session says of overwriting: with dynamic partitions the day that has no row would
    stay.
    """
    lab.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    run(lab, BY_DAY, values(f"('a', '{FIRST}'), ('b', '{SECOND}')"))
    table = lab.resources["delta"].table_of(dg.AssetKey("mine"), users=True)
    told = figures(
        run(lab, BY_DAY, f"SELECT concat(id, '2') AS id, day FROM delta.`{table.path}` WHERE id = 'a'")
    )
    assert (told["inserted"], told["removed"]) == (1, 2)
    assert ids(lab) == ["a2"]
    run(lab, BY_DAY, NONE)
    assert ids(lab) == []


def test_partitions_that_a_table_is_not_laid_out_by_are_replaced_too(lab: Lab):
    run(lab, WHOLE, values(f"('a', '{FIRST}'), ('b', '{SECOND}')"))
    told = figures(run(lab, BY_DAY, values(f"('c', '{FIRST}'), ('d', '{FIRST}')"), FIRST), FIRST)
    assert (told["inserted"], told["removed"]) == (2, 1)
    assert ids(lab) == ["b", "c", "d"]


def test_windows_of_time_are_replaced_by_their_bounds(lab: Lab):
    months = dg.MonthlyPartitionsDefinition(start_date="2026-01-01")

    def replace(key: str, *days: str) -> None:
        rows = ", ".join(f"('{day}', TIMESTAMP'{day} 23:59:59.999999Z')" for day in days)

        @dg.asset(name="mine", partitions_def=months, metadata=BY_DAY.to_metadata(), io_manager_key="delta")
        def mine() -> Any:
            return lab.spark.sql(f"SELECT * FROM VALUES {rows} AS t(id, day)")

        assert lab.run(mine, partition_key=key).success

    replace("2026-01-01", "2026-01-01", "2026-01-31")
    replace("2026-02-01", "2026-02-01", "2026-02-28")
    replace("2026-01-01", "2026-01-15")
    assert ids(lab) == ["2026-01-15", "2026-02-01", "2026-02-28"]


@pytest.mark.parametrize(
    ("type_", "key", "other"),
    [("STRING", 'it\'s "1/2" $c', "Köln"), ("BOOLEAN", "true", "false"), ("INT", "-1", "1")],
    ids=["letters", "truth", "numbers"],
)
def test_partitions_of_every_type_are_replaced_without_the_others(lab: Lab, type_: str, key: str, other: str):
    @dg.asset(
        name="mine",
        partitions_def=dg.StaticPartitionsDefinition([key, other]),
        metadata=BY_DAY.to_metadata(),
        io_manager_key="delta",
    )
    def mine(context) -> Any:  # Dagster reads no postponed annotation of a context
        rows = lab.frame((context.partition_key,), columns="id string")
        return rows.selectExpr("id", f"CAST(id AS {type_}) AS day")

    for each in (key, other, key):
        assert figures(lab.run(mine, partition_key=each), each)["inserted"] == 1
    assert ids(lab) == sorted([key, other])


@pytest.mark.parametrize("spec", [BY_DAY, ADDED], ids=["replace", "append"])
def test_rows_of_another_partition_are_refused_and_nothing_changes(lab: Lab, spec: WriteSpec):
    run(lab, spec, values(f"('a', '{FIRST}')"), FIRST)
    before = lab.version_of()
    text = failure(run(lab, spec, values(f"('b', '{FIRST}'), ('c', '{SECOND}')"), FIRST))
    assert f"hold '{SECOND}' in day, which is of none of the partitions of this run" in text
    assert (lab.version_of(), ids(lab)) == (before, ["a"])


@pytest.mark.parametrize("spec", [BY_DAY, ADDED], ids=["replace", "append"])
def test_rows_that_the_asset_leaves_out_are_not_looked_at(lab: Lab, spec: WriteSpec):
    """A condition on columns alone would be moved below the join, to rows that the asset does not return."""
    sql = f"""SELECT a.id, a.day FROM VALUES ('a', '{FIRST}'), ('b', '{SECOND}') AS a(id, day)
        JOIN VALUES ('a', '{FIRST}') AS b(id, day) ON a.id = b.id AND a.day = b.day"""
    assert figures(run(lab, spec, sql, FIRST), FIRST)["inserted"] == 1


def test_a_bad_day_of_a_backfill_keeps_what_it_had_and_the_others_are_replaced(lab: Lab):
    run(lab, BY_DAY, values(f"('a', '{FIRST}'), ('b', '{SECOND}'), ('c', '{THIRD}')"), FIRST, THIRD)
    sql = f"""SELECT IF(day = '{SECOND}', CAST(raise_error('bad') AS STRING), concat('new', day)) AS id, day
        FROM VALUES ('{FIRST}'), ('{SECOND}'), ('{THIRD}') AS t(day)"""
    assert f"1 of 3 partitions of mine failed: {SECOND}" in failure(run(lab, BY_DAY, sql, FIRST, THIRD))
    assert ids(lab) == ["b", f"new{FIRST}", f"new{THIRD}"]


def test_a_partitioned_asset_that_replaces_names_the_column_of_its_partition(lab: Lab):
    text = failure(run(lab, WHOLE, values(f"('a', '{FIRST}')"), FIRST))
    assert "nothing says which rows of its table `write_mode` replace replaces" in text
    assert lab.version_of() == -1


def failing_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Runs that end between their commit and its report, the first time."""
    real, calls = delta_upsert.log_result, list[int]()

    def log_result(*args: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("the answer was lost")
        real(*args)

    monkeypatch.setattr(delta_upsert, "log_result", log_result)
    return calls


@pytest.mark.parametrize("days", [(), (FIRST,), (FIRST, SECOND)], ids=["no partitions", "one", "two"])
def test_a_retry_does_not_append_again_and_another_run_does(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, days: Collection[str]
):
    attempts = failing_once(monkeypatch)
    rows = lab.spark.sql(values(f"('a', '{FIRST}')"))

    @dg.asset(
        name="mine",
        io_manager_key="delta",
        metadata=ADDED.to_metadata(),
        partitions_def=dg.DailyPartitionsDefinition(start_date=FIRST) if days else None,
        backfill_policy=dg.BackfillPolicy.single_run() if days else None,
        retry_policy=dg.RetryPolicy(max_retries=1, delay=0.01),
    )
    def mine() -> Any:
        return rows

    how: dict[str, Any] = {"tags": lab.days(min(days), max(days))} if days else {}
    result = lab.run(mine, **how)
    told = figures(result, FIRST if days else None)
    assert (len(attempts), told.get("inserted", 0)) == (2, 0)
    notes = [
        each.materialization.metadata["notes"].value
        for each in result.get_asset_materialization_events()
        if "notes" in each.materialization.metadata
    ]
    assert notes
    assert "they were not added again" in str(notes[0])
    assert ids(lab) == ["a"]
    assert figures(lab.run(mine, **how), FIRST if days else None)["dagster/row_count"] == 2
    assert ids(lab) == ["a", "a"]


def test_an_append_that_a_restore_took_out_is_added_by_a_repetition_of_its_run_and_by_no_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    runs = ["first"]
    monkeypatch.setattr(delta_upsert, "_run_id", lambda context: runs[-1])

    def repeat(run_id: str) -> list[str]:
        runs.append(run_id)
        assert run(lab, ADDED, values(f"('{run_id}', '{FIRST}')"), FIRST).success
        return ids(lab)

    assert repeat("first") == ["first"]
    version = str(lab.version_of())
    assert repeat("second") == ["first", "second"]
    restored = CliRunner().invoke(cli, ["tables", "restore", "mine", "--to-version", version, "--yes"])
    assert restored.exit_code == 0, restored.output
    assert ids(lab) == ["first"]
    assert repeat("first") == ["first"]
    assert repeat("second") == ["first", "second"]
    assert repeat("second") == ["first", "second"]


def test_a_repeated_backfill_appends_the_days_that_failed_and_no_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    found = iter(["CAST(raise_error('bad') AS STRING)", "'late'", "'late'"])

    def rows() -> Any:
        return lab.spark.sql(
            f"""SELECT IF(day = '{SECOND}', {next(found)}, day) AS id, day
            FROM VALUES ('{FIRST}'), ('{SECOND}'), ('{THIRD}') AS t(day)"""
        )

    monkeypatch.setattr(delta_upsert, "_run_id", lambda context: "the run")
    asset = asset_of(rows, ADDED.to_metadata(), daily=True)
    assert "1 of 3 partitions of mine failed" in failure(lab.run(asset, tags=lab.days(FIRST, THIRD)))
    assert ids(lab) == [FIRST, THIRD]
    for _ in range(2):
        assert lab.run(asset, tags=lab.days(FIRST, THIRD)).success
        assert ids(lab) == [FIRST, THIRD, "late"]


@pytest.mark.parametrize("spec", [WHOLE, WriteSpec(write_mode=WriteMode.APPEND)], ids=["replace", "append"])
def test_rows_get_the_types_of_their_table_and_may_hold_maps(lab: Lab, spec: WriteSpec):
    columns = "map('k', 1) AS tags, array(map('k', DATE'2026-01-01')) AS more"
    run(lab, spec, f"SELECT 1L AS id, CAST(1.5 AS DECIMAL(10, 2)) AS price, 'x' AS text, {columns}")
    narrower = f"SELECT NULL AS text, 2 AS id, CAST(2.5 AS DECIMAL(4, 1)) AS price, {columns}"
    assert run(lab, spec, narrower).success
    newest = max(lab.rows_of(), key=lambda row: row["id"])
    assert (newest["id"], str(newest["price"]), newest["text"]) == (2, "2.50", None)
    assert newest["tags"] == [("k", 1)]


@pytest.mark.parametrize("mode", [WriteMode.UPSERT, WriteMode.INSERT])
def test_null_in_a_key_is_a_value_where_that_is_declared(lab: Lab, mode: WriteMode):
    """Of rows that are as new as each other, in two runs, the stored one stays."""
    spec = WriteSpec(write_mode=mode, keys=("a", "b"), nullable_keys=True, sequence_by="at")
    columns = "AS t(a, b, at, value)"
    first = (
        "SELECT * FROM VALUES ('x', NULL, 1, 'one'), (NULL, NULL, 1, 'two'), ('x', 'y', 1, 'three')"
        f" {columns}"
    )
    assert figures(run(lab, spec, first))["inserted"] == 3
    again = (
        "SELECT * FROM VALUES ('x', NULL, 1, 'tie'), (NULL, NULL, 2, 'newer'), (NULL, 'y', 1, 'four')"
        f" {columns}"
    )
    told = figures(run(lab, spec, again))
    newer = "newer" if mode is WriteMode.UPSERT else "two"
    assert told["inserted"] == 1
    assert sorted((str(row["a"]), str(row["b"]), row["value"]) for row in lab.rows_of()) == [
        ("None", "None", newer),
        ("None", "y", "four"),
        ("x", "None", "one"),
        ("x", "y", "three"),
    ]
    text = failure(run(lab, WriteSpec(keys=("a", "b"), sequence_by="at"), again))
    assert "set `nullable_keys`, where NULL is a value" in text

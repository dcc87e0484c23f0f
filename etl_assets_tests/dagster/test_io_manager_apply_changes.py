"""Users' assets that apply changes: the newest change of a key stands, also if it is a delete, in whatever
order runs bring them.
"""

from __future__ import annotations

import random
from typing import Any

import dagster as dg
import pytest

from etl_assets.delta.write.write_spec import SchemaChanges, WriteMode, WriteSpec
from etl_assets_tests.dagster.io_manager_lab import Lab, asset_of, failure, figures
from etl_assets_tests.reference.changes import Change, table_of

pytestmark = [
    pytest.mark.spark,
    # Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]

SPEC = WriteSpec(
    write_mode=WriteMode.APPLY_CHANGES,
    keys=("id",),
    sequence_by="at",
    apply_as_deletes="op = 'D'",
    except_column_list=("op",),
)
FIRST, SECOND = "2026-01-01", "2026-01-02"


def run(
    lab: Lab, rows: str, *days: str, spec: WriteSpec = SPEC, columns: str = "id, at, value, op", **how: Any
) -> dg.ExecuteInProcessResult:
    sql = f"SELECT * FROM VALUES {rows} AS t({columns})"
    asset = asset_of(lambda: lab.spark.sql(sql), spec.to_metadata(), daily=bool(days))
    if len(days) == 1:
        return lab.run(asset, partition_key=days[0], **how)
    return lab.run(asset, **({"tags": lab.days(*days)} if days else {}), **how)


def rows(lab: Lab) -> dict[str, Any]:
    found = {row["id"]: (row["at"], row["value"]) for row in lab.rows_of()}
    assert len(found) == len(lab.rows_of())
    return found


def test_deletes_and_late_changes_of_several_runs(lab: Lab):
    told = figures(run(lab, "('a', 1, 'x', 'U'), ('b', 1, 'x', 'U'), ('b', 2, '', 'D'), ('c', 5, 'x', 'U')"))
    assert (told["inserted"], told.get("deleted", 0), told["ignored"]) == (2, 0, 1)
    assert rows(lab) == {"a": (1, "x"), "c": (5, "x")}
    assert set(lab.rows_of()[0]) == {"id", "at", "value"}

    again = "('a', 3, '', 'D'), ('b', 1, 'late', 'U'), ('c', 4, '', 'D'), ('d', 1, '', 'D')"
    told = figures(run(lab, again))
    assert (told["read"], told["inserted"], told["deleted"], told["ignored"]) == (4, 0, 1, 3)
    assert rows(lab) == {"c": (5, "x")}
    assert figures(run(lab, again))["ignored"] == 4, "running it again changes nothing"

    # At one place in the sequence a delete wins, whichever came first; a newer row comes back.
    run(lab, "('a', 3, 'as new', 'U'), ('b', 3, 'new', 'U'), ('c', 5, '', 'D'), ('d', 0, 'late', 'U')")
    assert rows(lab) == {"b": (3, "new")}


def test_any_changes_in_any_runs_give_the_table_of_the_reference(lab: Lab):
    dice, changes, runs = random.Random(7), [], []
    for number in range(3):
        made = {(f"k{dice.randrange(60)}", dice.randrange(8)): dice.choice("UUD") for _ in range(150)}
        runs.append(
            [Change(kind=kind, key=key, place=(at,), value=f"{number}") for (key, at), kind in made.items()]
        )
    for batch in (*runs, runs[0]):
        changes += batch
        run(
            lab,
            ", ".join(f"('{each.key}', {each.place[0]}, '{each.value}', '{each.kind}')" for each in batch),
        )
        wanted = {key: (each.place[0], each.value) for key, each in table_of(changes).items()}
        assert rows(lab) == wanted


def test_keys_may_be_null_and_become_wider_with_their_tombstones(lab: Lab):
    wide = WriteSpec(
        write_mode=WriteMode.APPLY_CHANGES,
        keys=("id", "part"),
        nullable_keys=True,
        sequence_by="at",
        apply_as_deletes="op = 'D'",
        schema_changes=SchemaChanges.WIDEN,
    )
    columns = "id, part, at, value, op"
    run(
        lab,
        "(1, NULL, 1, 'x', 'U'), (2, 'p', 1, 'x', 'U'), (2, NULL, 2, '', 'D')",
        spec=wide,
        columns=columns,
    )
    run(
        lab,
        "(5000000000, NULL, 1, 'x', 'U'), (1, NULL, 2, '', 'D'), (2, NULL, 1, 'late', 'U')",
        spec=wide,
        columns=columns,
    )
    version = lab.resources["delta"].table_of(dg.AssetKey("mine"), users=True)
    found = version.read(lab.spark, version.version()).collect()
    assert sorted((row["id"], row["part"]) for row in found) == [(2, "p"), (5_000_000_000, None)]


def test_a_backfill_deletes_in_its_partitions_and_a_bad_one_keeps_its_rows(lab: Lab):
    by_day = WriteSpec(
        write_mode=WriteMode.APPLY_CHANGES,
        keys=("id",),
        sequence_by="at",
        apply_as_deletes="op = 'D'",
        delta_partition="day",
        partition_bound=True,
    )
    columns = "id, at, value, op, day"
    run(
        lab,
        f"('a', 1, 'x', 'U', '{FIRST}'), ('b', 1, 'x', 'U', '{SECOND}')",
        FIRST, SECOND, spec=by_day, columns=columns,
    )  # fmt: skip
    bad = f"('a', 2, 'x', 'D', '{FIRST}'), ('b', CAST(NULL AS INT), 'x', 'D', '{SECOND}')"
    result = run(lab, bad, FIRST, SECOND, spec=by_day, columns=columns)
    assert "hold NULL in at, their `sequence_by`" in str(failure(result))
    assert [row["id"] for row in lab.rows_of()] == ["b"]


@pytest.mark.parametrize(
    ("rows", "spec", "said"),
    [
        ("('a', 1, 'x', 'U'), ('a', 1, 'x', 'D')", SPEC, "twice with the same at"),
        ("(CAST(NULL AS STRING), 1, 'x', 'D')", SPEC, "hold NULL in id"),
    ],
)
def test_what_nothing_decides_is_refused(lab: Lab, rows: str, spec: WriteSpec, said: str):
    assert said in str(failure(run(lab, rows, spec=spec)))


def test_a_condition_that_is_none_is_refused(lab: Lab):
    for text, said in (("opp = 'D'", "did you mean 'op'"), ("at", "not true or false")):
        spec = WriteSpec(
            write_mode=WriteMode.APPLY_CHANGES, keys=("id",), sequence_by="at", apply_as_deletes=text
        )
        assert said in str(failure(run(lab, "('a', 1, 'x', 'U')", spec=spec)))

"""A declared table that applies changes: the newest change of a key stands, whatever the order of arrival,
also if it is a delete.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from etl_assets.errors import ContractError
from etl_assets.steps import load_table
from etl_assets.steps.step import ReadMode, StepReport
from etl_assets.undo.plan import plan_days, plan_restore
from etl_assets_tests.reference.changes import Change, table_of, tombstones_of
from etl_assets_tests.reference.declared_pipeline import (
    CHANGES,
    DAY,
    Declared,
    declared,
    delete,
    truncate,
    upsert,
)
from etl_assets_tests.reference.drawn_changes import LAYOUTS, batches, changes_in

pytestmark = pytest.mark.spark


@pytest.fixture
def people(spark, tmp_path) -> Declared:
    return Declared(root=tmp_path / "data", session=lambda: spark, spec=declared(**CHANGES))


def ages(pipeline: Declared) -> dict[str, Any]:
    return {row["id"]: row["age"] for row in pipeline.rows()}


def tombstones(pipeline: Declared) -> dict[Any, tuple[int, int]]:
    rows = pipeline.rows("people_tombstones")
    found = {None if row["_is_truncate"] else row["id"]: (row["changed_at"], row["_offset"]) for row in rows}
    assert len(found) == len(rows)
    return found


def load(pipeline: Declared, *records: dict[str, Any], mode: ReadMode = ReadMode.INCREMENTAL) -> StepReport:
    if records:
        pipeline.accept(records)
    return pipeline.load(mode)


def figures(report: StepReport) -> dict[str, int]:
    total = report.total()
    names = ("read", "refused", "inserted", "updated", "deleted", "ignored")
    return {name: total[name] for name in names if total[name]}


def test_deletes_and_late_changes_by_their_place_in_the_sequence(people):
    report = load(people, upsert("a", 1), upsert("b", 1), upsert("c", 5), delete("d", 3), delete("b", 2))
    assert figures(report) == {"read": 5, "inserted": 2, "ignored": 3}
    assert ages(people) == {"a": 1, "c": 1}
    assert set(people.rows()[0]) == {"id", "age", "changed_at", "_offset", "_batch_id"}
    assert tombstones(people) == {"b": (2, 4), "d": (3, 3)}

    # A delete of a stored row, one that is late, and late upserts of deleted rows.
    report = load(people, delete("a", 2), delete("c", 4), upsert("b", 1, 9), upsert("d", 2, 9))
    assert figures(report) == {"read": 4, "deleted": 1, "ignored": 3}
    assert ages(people) == {"c": 1}
    assert tombstones(people) == {"a": (2, 5), "b": (2, 4), "c": (4, 6), "d": (3, 3)}

    # Newer ones bring a row back; of equal places in the sequence the one that arrived last is newer.
    report = load(people, upsert("a", 3, 7), upsert("b", 2, 8), upsert("d", 2, 9))
    assert figures(report) == {"read": 3, "inserted": 2, "ignored": 1}
    assert ages(people) == {"a": 7, "b": 8, "c": 1}

    # Nothing new, and everything again.
    assert people.load().commits == 0
    before = people.rows(), tombstones(people)
    assert figures(load(people, mode=ReadMode.WHOLE)) == {"read": 12, "ignored": 12}
    assert (people.rows(), tombstones(people)) == before


def test_a_truncate_removes_what_is_older_and_makes_it_late(people):
    load(people, upsert("a", 1), upsert("b", 9), upsert("c", 4), delete("e", 1))
    report = load(people, truncate(5), upsert("c", 6, 2), upsert("d", 4), truncate(3))
    assert figures(report) == {"read": 4, "updated": 1, "deleted": 1, "ignored": 1}
    assert ages(people) == {"b": 1, "c": 2}
    assert tombstones(people) == {None: (5, 4), "e": (1, 3)}
    load(people, upsert("a", 4), upsert("d", 6, 3), upsert("a", 5, 4))
    assert ages(people) == {"a": 4, "b": 1, "c": 2, "d": 3}
    load(people, truncate(100))
    assert ages(people) == {}
    load(people, mode=ReadMode.WHOLE)
    assert ages(people) == {}


def test_a_late_truncate_removes_no_newer_rows_for_the_sake_of_another_type(people):
    load(people, upsert("a", 1), upsert("b", 9))
    columns = {**CHANGES["columns"], "age": "string"}
    changed = replace(people, spec=declared(**{**CHANGES, "columns": columns}))
    with pytest.raises(ContractError, match="age of people is int"):
        load(changed, truncate(5))
    assert ages(people) == {"a": 1, "b": 1}


def test_deletes_need_their_keys_and_their_place_only(people):
    rules = [{"name": "adult", "condition": "age >= 18", "on_violation": "drop"}]
    pipeline = replace(
        people, spec=declared(**CHANGES, transforms=[{"type": "expectations", "rules": rules}])
    )
    load(pipeline, upsert("a", 1, 20), upsert("b", 1, 20), upsert("c", 1, 20))
    load(
        pipeline,
        delete("a", 2), {"id": "b", "changed_at": 2, "op": "D", "age": "none"}, {**delete("c", 2), "age": -1},
        upsert("x", 2, None), upsert("y", 2, 3), upsert("z", None, 20), delete("z", None), delete(None, 2),
        upsert(None, 2, 20),
        {**upsert("z", 2), "op": "X"}, truncate(None),
    )  # fmt: skip
    assert ages(pipeline) == {}
    missing = "changed_at is missing or null, and says which change of people is newer"
    assert pipeline.dead_letters() == [
        (6, "MissingField", "age is missing or null"),
        (7, "ExpectationFailed", "adult: the row does not meet the expectation"),
        (8, "MissingField", missing),
        (9, "MissingField", missing),
        (10, "MissingField", "id is missing or null"),
        (11, "MissingField", "id is missing or null"),
        (12, "ContractViolation", "op must be one of U, D, T"),
        (13, "MissingField", missing),
    ]


def test_conditions_see_the_columns_after_the_transforms_and_changes_may_apply_as_they_arrive(people):
    spec = declared(
        **CHANGES
        | {
            "columns": {"id": "string", "age": "int", "changed_at": "bigint", "op": "string"},
            "transforms": [
                {"type": "map", "columns": {"gone": {"expression": "op like 'del%'", "type": "boolean"}}},
                {"type": "sql", "select": "select * except (id), explode(split(id, ',')) as id from input"},
            ],
            "table": {
                **CHANGES["table"],
                "apply_as_deletes": "gone",
                "apply_as_truncates": None,
                "sequence_by": None,
                "except_column_list": ["op", "gone"],
            },
        }
    )
    pipeline = replace(people, spec=spec)
    load(pipeline, upsert("a,b,c", 1), {**delete("a,b", 2), "op": "delete"}, upsert("b", 3, 5))
    assert ages(pipeline) == {"b": 5, "c": 1}
    load(pipeline, upsert("a", 1, 9), {**delete("c", 1), "op": "deleted"})
    assert ages(pipeline) == {"a": 9, "b": 5}, "in the order of arrival"


@pytest.mark.parametrize(
    ("condition", "said"),
    [("oops = 'D'", "did you mean 'op'"), ("op", "compare a column"), ("op = ", "write Spark SQL")],
)
def test_a_condition_that_is_none_is_named_before_anything_is_written(people, condition, said):
    table = {**CHANGES["table"], "apply_as_deletes": condition}
    pipeline = replace(people, spec=declared(**CHANGES | {"table": table}))
    with pytest.raises(ContractError, match=r"table\.apply_as_deletes") as refused:
        load(pipeline, upsert("a", 1))
    assert said in refused.value.fix
    assert refused.value.fields["field"] == "table.apply_as_deletes"
    assert pipeline.rows() == []


KEYS = st.sampled_from([f"k{number}" for number in range(40)])
CHANGE = st.one_of(
    st.builds(upsert, KEYS, st.integers(0, 9), st.integers(0, 99)),
    st.builds(delete, KEYS, st.integers(0, 9)),
    st.builds(upsert, KEYS, st.integers(0, 9), st.integers(0, 99)),
    st.builds(delete, KEYS, st.integers(0, 9)),
    st.builds(truncate, st.integers(0, 2)),
    st.builds(upsert, KEYS, st.sampled_from([None, 3]), st.sampled_from([None, 5])),
)
BATCHES = st.lists(st.lists(CHANGE, min_size=60, max_size=90), min_size=3, max_size=3)


@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(batches=BATCHES, whole=st.integers(1, 2))
def test_any_changes_in_any_batches_give_the_table_of_the_reference(
    spark, tmp_path_factory, batches: Sequence[Sequence[dict[str, Any]]], whole: int
):
    """Batches with ties, repeats, late ones and dead letters; some are read again with all before them."""
    root = tmp_path_factory.mktemp("changes") / "data"
    pipeline = Declared(root=root, session=lambda: spark, spec=declared(**CHANGES))
    changes: list[Change] = []
    offset = 0
    for number, batch in enumerate(batches):
        pipeline.accept(batch)
        for record in batch:
            bad = record["changed_at"] is None or (record["op"] == "U" and record["age"] is None)
            if not bad:
                place = (record["changed_at"], offset)
                changes.append(
                    Change(kind=record["op"], key=record.get("id"), place=place, value=record.get("age"))
                )
            offset += 1
        report = pipeline.load(ReadMode.WHOLE if number == whole else ReadMode.INCREMENTAL)
        wanted = table_of(changes)
        assert {row["id"]: (row["age"], (row["changed_at"], row["_offset"])) for row in pipeline.rows()} == {
            key: (each.value, each.place) for key, each in wanted.items()
        }
        assert tombstones(pipeline) == tombstones_of(changes)
        assert report.total()["ignored"] >= 0


def test_what_is_restored_is_made_again_beside_the_tombstones_of_later_deletes(people):
    """A restored row whose delete came later is deleted again; until then the tombstones stay."""
    load(people, upsert("a", 1), upsert("b", 1), upsert("c", 1))
    version = people.context.table("people").version()
    load(people, delete("a", 3), truncate(2), upsert("d", 4))
    before = people.rows(), tombstones(people)
    undo = plan_restore(lambda name: people.context.domain, "people", version)
    assert "people_tombstones" not in [each.name for each in undo.tables]
    undo.carry_out()
    assert set(ages(people)) == {"a", "b", "c"}
    assert tombstones(people) == before[1]
    load(people, upsert("a", 2))
    assert [ages(people), tombstones(people)] == [{"d": 1}, before[1]]
    load(people, mode=ReadMode.WHOLE)
    assert _without_batch(people.rows()) == _without_batch(before[0])


def test_rows_that_are_made_again_leave_no_tombstone_of_a_former_declaration(people):
    load(people, upsert("1", 1), delete("1", 2), upsert("2", 1), truncate(0))
    assert set(tombstones(people)) == {"1", None}
    columns = {**CHANGES["columns"], "age": "int"}
    table = {**CHANGES["table"], "apply_as_deletes": "op = 'X'", "apply_as_truncates": "op = 'X'"}
    later = replace(people, spec=declared(**CHANGES | {"columns": columns, "table": table}))
    assert later.load(ReadMode.WHOLE).commits == 1
    assert (ages(later), tombstones(later)) == ({"1": None, "2": 1}, {})
    # Keys of another type: neither the rows nor the tombstones could stay.
    load(people, delete("2", 2))
    other = replace(people, spec=declared(**CHANGES | {"columns": {**CHANGES["columns"], "id": "bigint"}}))
    plan_days(lambda name: other.context.domain, ["people"], [DAY]).carry_out()
    load(other, upsert("3", 1), upsert("1", 1))
    assert (ages(other), tombstones(other)) == ({3: 1}, {1: (2, 1), 2: (2, 4), None: (0, 3)})


def _without_batch(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "_batch_id"} for row in rows]


def test_this_process_and_spark_take_the_same_records_for_deletes(spark, tmp_path):
    declaration = changes_in("not laid out")
    declaration["table"] |= {"apply_as_deletes": "(city is null) OR (seen_at is not null) OR op = 'D'"}
    here, by_spark = (
        Declared(root=tmp_path / name, session=lambda: spark, spec=declared(**declaration))
        for name in ("here", "by_spark")
    )
    for pipeline in (here, by_spark):
        pipeline.accept(
            [
                {**upsert(f"{number}", 1, age), "city": city, "seen_at": seen}
                for number, (age, city, seen) in enumerate(
                    itertools.product((20, None), ("x", None), ("2026-02-01T00:00:00Z", "soon", None))
                )
            ]
        )
        with pytest.MonkeyPatch.context() as patch:
            if pipeline is by_spark:
                patch.setattr(load_table, "plain_stage", lambda *args, **options: None)
            pipeline.load()
    assert _without_batch(here.rows("people", "id")) == _without_batch(by_spark.rows("people", "id"))
    assert here.dead_letters() == by_spark.dead_letters()


@pytest.mark.parametrize(
    "layout",
    ["by a text", *(pytest.param(each, marks=pytest.mark.full) for each in LAYOUTS if each != "by a text")],
)
@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)
@given(drawn=batches(keys=12, sizes=(20, 40), number=3))
def test_this_process_and_spark_make_the_same_tables(spark, tmp_path_factory, layout, drawn):
    folder = tmp_path_factory.mktemp("same")
    spec = declared(**changes_in(layout))
    here, by_spark = (
        Declared(root=folder / name, session=lambda: spark, spec=spec) for name in ("here", "by_spark")
    )
    for number, batch in enumerate(drawn):
        mode = ReadMode.WHOLE if number == 1 else ReadMode.INCREMENTAL
        reports = []
        for pipeline in (here, by_spark):
            pipeline.accept(batch)
            with pytest.MonkeyPatch.context() as patch:
                if pipeline is by_spark:
                    patch.setattr(load_table, "plain_stage", lambda *args, **options: None)
                reports.append(figures(pipeline.load(mode)))
        assert reports[0] == reports[1]
        for table, order in (("people", "id"), ("people_tombstones", "_offset")):
            assert _without_batch(here.rows(table, order)) == _without_batch(by_spark.rows(table, order)), (
                table,
                number,
            )

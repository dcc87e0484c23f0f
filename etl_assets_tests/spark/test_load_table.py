"""The table of a declared pipeline: one row per key by the declared order, however often its records are
read.
"""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from etl_assets.errors import ContractError, ExpectationFailed, RowsRefused, SchemaMismatch
from etl_assets.steps.step import ReadMode
from etl_assets_tests.reference.declared_pipeline import PEOPLE, Declared, declared

pytestmark = pytest.mark.spark


@pytest.fixture
def people(spark, tmp_path) -> Declared:
    return Declared(root=tmp_path / "data", session=lambda: spark)


def person(
    id_: str | None, age: Any = 30, at: str | None = "2026-01-05T10:00:00Z", **fields: Any
) -> dict[str, Any]:
    return {"id": id_, "age": age, "country": "de", "updated_at": at, **fields}


def ages(pipeline: Declared) -> dict[str, Any]:
    return {row["id"]: row["age"] for row in pipeline.rows()}


def figures(report) -> dict[str, int]:
    total = report.total()
    names = ("read", "refused", "inserted", "updated", "ignored")
    return {name: total[name] for name in names if total[name]}


def test_the_newest_row_of_each_key_stands_and_bad_records_are_dead_letters(people):
    people.accept([
        person("a", 1), person("b", 2), person("a", 3, "2026-01-05T11:00:00Z"), person("a", 4,
        "2026-01-05T09:00:00Z"),
        person("c", "much"), person(None), person("d", -1), person("b", 5), person("e", at=None),
    ])  # fmt: skip
    report = people.load()
    assert figures(report) == {"read": 9, "refused": 3, "inserted": 3, "ignored": 3}
    assert ages(people) == {"a": 3, "b": 5, "e": 30}
    assert [(offset, reason) for offset, reason, _ in people.dead_letters()] == [
        (4, "WrongType"), (5, "MissingField"), (6, "ContractViolation"),
    ]  # fmt: skip
    letter = people.rows(people.tables.rejects.name, "original_offset")[0]
    assert letter["record"] == '{"age":"much","country":"de","id":"c","updated_at":"2026-01-05T10:00:00Z"}'
    assert (letter["stage"], letter["source"], letter["source_position"]) == (
        "people",
        "files",
        "2026-01-05/a.jsonl:5",
    )
    assert {row["_batch_id"] for row in people.rows()} == {report.version}

    # Nothing new: no commit. Everything again: the same table, the same dead letters.
    before = _without_batch(people.rows()), people.dead_letters()
    assert people.load().commits == 0
    whole = people.load(ReadMode.WHOLE)
    assert figures(whole) == {"read": 9, "refused": 3, "ignored": 6}
    assert (_without_batch(people.rows()), people.dead_letters()) == before

    # Late rows change nothing, newer ones do; of equal ones the later record stands.
    people.accept([person("a", 9, "2026-01-05T10:59:00Z"), person("b", 8), person("e", 7,
        "2026-01-01T00:00:00Z"),
                   person("f", 6)])  # fmt: skip
    assert figures(people.load()) == {"read": 4, "inserted": 1, "updated": 2, "ignored": 1}
    assert ages(people) == {"a": 3, "b": 8, "e": 7, "f": 6}
    assert figures(people.load(ReadMode.WHOLE)) == {"read": 13, "refused": 3, "ignored": 10}
    assert ages(people) == {"a": 3, "b": 8, "e": 7, "f": 6}


def test_without_an_order_the_last_to_arrive_stands(people):
    pipeline = replace(people, spec=declared(table={"keys": ["id"]}))
    pipeline.accept([person("a", 1), person("b", 2), person("a", 3, "2020-01-01T00:00:00Z")])
    pipeline.load()
    pipeline.accept([person("b", 4, None)])
    pipeline.load()
    assert ages(pipeline) == {"a": 3, "b": 4}


def test_insert_keeps_the_first_row_of_a_key(people):
    pipeline = replace(people, spec=declared(table={"keys": ["id"], "write_mode": "insert"}))
    pipeline.accept([person("a", 1), person("a", 2)])
    pipeline.load()
    pipeline.accept([person("a", 3), person("b", 4)])
    assert figures(pipeline.load()) == {"read": 2, "inserted": 1, "ignored": 1}
    assert ages(pipeline) == {"a": 1, "b": 4}
    assert figures(pipeline.load(ReadMode.WHOLE)) == {"read": 4, "ignored": 4}


def test_append_keeps_every_record_once(people):
    pipeline = replace(people, spec=declared(table={"write_mode": "append"}))
    pipeline.accept([person("a", 1), person("a", 1), person("a", "much")])
    pipeline.load()
    pipeline.accept([person("a", 1)])
    assert figures(pipeline.load()) == {"read": 1, "inserted": 1}
    assert figures(pipeline.load(ReadMode.WHOLE)) == {"read": 4, "refused": 1, "ignored": 3}
    assert [(row["_offset"], row["age"]) for row in pipeline.rows(order_by="_offset")] == [
        (0, 1),
        (1, 1),
        (3, 1),
    ]


def test_records_beyond_the_stored_keys_are_appended_without_a_merge(people):
    people.accept([person("a"), person("b")])
    people.load()
    people.accept([person("c")])
    people.load()
    log = people.context.table("people").path / "_delta_log"
    assert '"operation":"WRITE"' in (log / "00000000000000000002.json").read_text()
    people.accept([person("b", 5)])
    people.load()
    assert '"operation":"MERGE"' in (log / "00000000000000000003.json").read_text()


def test_plain_records_of_new_keys_need_no_session(people):
    def session() -> Any:
        raise AssertionError("a session was asked for")

    alone = replace(people, session=session)
    people.accept([person("a", 1), person("b", 2), person("a", 3)])
    assert figures(alone.load()) == {"read": 3, "inserted": 2, "ignored": 1}
    people.accept([person("c", 4), person("aa", 5)])
    assert figures(alone.load()) == {"read": 2, "inserted": 2}
    assert ages(people) == {"a": 3, "aa": 5, "b": 2, "c": 4}

    # Records of other forms, one of them good, beside plain ones and a stored key.
    people.accept([person("d", "6"), person("e", 7), person("f", "much"), person("b", 8), person("d", 9)])
    assert figures(people.load()) == {"read": 5, "refused": 1, "inserted": 2, "updated": 1, "ignored": 1}
    assert ages(people) == {"a": 3, "aa": 5, "b": 8, "c": 4, "d": 9, "e": 7}


def test_a_violation_that_fails_the_run_leaves_everything_as_it_was(people):
    rules = [{"name": "adult", "condition": "age >= 18", "on_violation": "fail"}]
    pipeline = replace(people, spec=declared(transforms=[{"type": "expectations", "rules": rules}]))
    pipeline.accept([person("a"), person("b", 3), person("c", None), person("d", "much")])
    with pytest.raises(
        ExpectationFailed, match=r"transforms\[0\] \(expectations\): 2 rows do not meet the rule adult"
    ):
        pipeline.load()
    assert (pipeline.rows(), pipeline.dead_letters()) == ([], [])
    people.load()
    assert set(ages(people)) == {"a", "b", "c"}, "the records are read once the rule is gone"


def test_transforms_filter_compute_look_up_and_count(people):
    pipeline = replace(
        people,
        spec=declared(
            transforms=[
                {"type": "filter", "where": "id <> 'test'"},
                {"type": "map", "columns": {"age_next": {"expression": "age + 1", "type": "bigint"}}},
                {"type": "lookup", "table": "countries", "on": {"country": "code"},
                "columns": {"region": "region"}},
                {
                    "type": "expectations",
                    "rules": [
                        {"name": "known", "condition": "region is not null"},
                        {"name": "young", "condition": "age < 100", "on_violation": "drop"},
                    ],
                },
                {"type": "sql", "select": "select *, upper(id) as name from input where age <> 7",
                 "columns": {"id": "string", "age": "int", "age_next": "bigint", "region": "string",
                 "country": "string",
                             "updated_at": "timestamp", "name": "string"}},
            ]
        ),
    )  # fmt: skip
    pipeline.keep_countries({"de": "europe"})
    pipeline.accept([
        person("a"), person("test"), person("b", 200), person("c", country="xx"), person("d", None),
        person("e", "much"), person("g", 7),
    ])  # fmt: skip
    report = pipeline.load()
    assert report.notes == ("transforms[3] (expectations): rule known: 1 row does not meet it",)
    assert Counter(report.total())["filtered"] == 1
    rows = [(row["id"], row["name"], row["age_next"], row["region"]) for row in pipeline.rows()]
    assert rows == [("a", "A", 31, "europe"), ("c", "C", 31, None)]
    assert pipeline.dead_letters() == [
        (2, "ExpectationFailed", "young: the row does not meet the expectation"),
        (4, "ExpectationFailed", "young: the row does not meet the expectation"),
        (
            5,
            "WrongType",
            "age is not of the type INT: it must be a whole number from -2147483648 to 2147483647",
        ),
    ]


def test_a_key_or_rule_that_transforms_break_makes_a_dead_letter(people):
    columns = {
        "id": {"expression": "nullif(id, 'x')", "type": "string"},
        "age": {"expression": "age * 1.5", "type": "int"},
    }
    pipeline = replace(people, spec=declared(transforms=[{"type": "map", "columns": columns}]))
    pipeline.accept([person("x"), person("a", 2), person("b", 3)])
    pipeline.load()
    assert ages(pipeline) == {"a": 3}
    assert pipeline.dead_letters() == [
        (0, "MissingField", "id is missing or null, and is a key of people"),
        (2, "ContractViolation", "the value of age from transforms[0] (map) does not fit the type INT"),
    ]


def test_several_rows_of_one_record_need_keys(people):
    explode = {"type": "sql", "select": "select * except (id), explode(split(id, ',')) as id from input"}
    keyed = replace(people, spec=declared(transforms=[explode]))
    keyed.accept([person("a,b", 1), person("b,c", 2)])
    keyed.load()
    assert ages(keyed) == {"a": 1, "b": 2, "c": 2}
    log = replace(people, spec=declared(transforms=[explode], table={"name": "log", "write_mode": "append"}))
    with pytest.raises(RowsRefused, match="several rows of one record"):
        log.load()
    assert log.rows() == []


def test_the_table_follows_a_declaration_that_changes(people):
    people.accept([person("a", 1)])
    people.load()
    columns = {**PEOPLE["columns"], "age": "bigint", "email": {"type": "string", "required": True}}
    del columns["country"]
    later = replace(people, spec=declared(columns=columns))
    later.accept(
        [person("b", 2**40, email="b@x"), person("c"), person("a", 5, "2026-01-06T00:00:00Z", email="a@x")]
    )
    assert figures(later.load()) == {"read": 3, "refused": 1, "inserted": 1, "updated": 1}
    stored = [(row["id"], row["age"], row["country"], row["email"]) for row in later.rows_by_spark()]
    assert stored == [("a", 5, None, "a@x"), ("b", 2**40, None, "b@x")]
    assert later.dead_letters() == [(2, "MissingField", "email is missing or null")]

    loose = replace(
        people, spec=declared(columns={"id": "string", "updated_at": "timestamp", "email": "string"})
    )
    loose.accept([person("e")])
    assert figures(loose.load()) == {"read": 1, "inserted": 1}

    other = replace(people, spec=declared(columns={**PEOPLE["columns"], "age": "string"}))
    with pytest.raises(
        ContractError, match="the column age of people is bigint, and string is declared"
    ) as refused:
        other.load(ReadMode.WHOLE)
    assert "another name" in refused.value.fix
    laid_out = replace(
        people, spec=declared(columns=columns, table={**PEOPLE["table"], "partition_by": "id"})
    )
    with pytest.raises(ContractError, match="laid out by no column, and id is declared"):
        laid_out.load(ReadMode.WHOLE)


def test_rows_are_laid_out_by_a_column_that_changes(people):
    spec = declared(table={**PEOPLE["table"], "partition_by": "country"})
    pipeline = replace(people, spec=spec)
    pipeline.accept([person("a", country="de"), person("b", country=None), person("c", country="")])
    pipeline.load()
    pipeline.accept([person("a", 5, "2026-02-01T00:00:00Z", country="fr")])
    pipeline.load()
    assert [(row["id"], row["country"]) for row in pipeline.rows()] == [("a", "fr"), ("b", None)]
    assert pipeline.dead_letters() == [
        (2, "ContractViolation", "country must not be empty: the files of people are laid out by it")
    ]


def _without_batch(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "_batch_id"} for row in rows]


@pytest.mark.parametrize("is_filled", [True, False], ids=["filled", "empty"])
@pytest.mark.parametrize("was_laid_out", [True, False], ids=["no longer", "now"])
def test_plain_records_do_not_enter_a_table_of_another_layout(people, is_filled, was_laid_out):
    laid_out = replace(people, spec=declared(table={**PEOPLE["table"], "partition_by": "country"}))
    former, later = (laid_out, people) if was_laid_out else (people, laid_out)
    former.accept([person("a", country="de")] if is_filled else [person("a", "much")])
    former.load()
    later.accept([person("b", country="fr")])
    if is_filled:
        with pytest.raises(ContractError, match="laid out by"):
            later.load()
        return
    later.load()
    assert [(row["id"], row["country"]) for row in later.rows_by_spark()] == [("b", "fr")]
    assert [(row["id"], row["country"]) for row in later.rows()] == [("b", "fr")]


def test_a_key_that_is_a_time_may_come_in_plain_and_in_other_records_of_one_load(people):
    timed = replace(
        people,
        spec=declared(
            columns={"at": "timestamp", "age": "bigint"}, table={"keys": ["at"], "write_mode": "upsert"}
        ),
    )
    timed.accept([{"at": "2026-01-05T10:00:00Z", "age": 1}, {"at": "2026-01-06t10:00:00z", "age": 2}])
    assert figures(timed.load()) == {"read": 2, "inserted": 2}


def test_two_bad_records_at_one_position_are_two_dead_letters(people):
    """A file that was changed after it had been read has another record where one was rejected."""
    people.accept([person("a", "much")])
    people.load()
    people.accept([person("b", "more")], first_line=1)
    people.load()
    people.load(ReadMode.WHOLE)
    assert [(offset, reason) for offset, reason, _ in people.dead_letters()] == [
        (0, "WrongType"),
        (1, "WrongType"),
    ]


def test_a_table_of_the_same_name_that_something_else_made_is_left_as_it_is(people):
    people.accept([person("a", 1)])
    folder = people.context.table("people").path
    write_deltalake(str(folder), pa.table({"id": ["x"], "age": pa.array([7], pa.int32())}))
    with pytest.raises(ContractError, match="there is a table people that no declared pipeline has made"):
        people.load()
    assert DeltaTable(str(folder)).version() == 0


def test_sql_that_breaks_a_rule_or_names_another_record_is_refused(people):
    """The rules of a column hold for what `sql` makes of it, too."""
    negative = {"type": "sql", "select": "select * except (age), -age as age from input"}
    pipeline = replace(people, spec=declared(transforms=[negative]))
    pipeline.accept([person("a", 1), person("b", 0)])
    assert figures(pipeline.load()) == {"read": 2, "refused": 1, "inserted": 1}
    assert (ages(pipeline), pipeline.dead_letters()) == (
        {"b": 0},
        [(0, "ContractViolation", "age must be at least 0")],
    )
    other = {
        **negative,
        "select": "select * except (age, _offset), -age as age, _offset + 100 as _offset from input",
    }
    wrong = replace(people, spec=declared(transforms=[other], table={**PEOPLE["table"], "name": "others"}))
    with pytest.raises(SchemaMismatch, match="rows whose _offset is of no record that they got"):
        wrong.load()
    assert wrong.rows() == []


@pytest.mark.parametrize("made", ["array(1, 2)", "array(2, 1)"])
def test_of_rows_that_one_record_gives_a_key_always_the_same_one_stands(people, made):
    both = {"type": "sql", "select": f"select * except (age), explode({made}) as age from input"}
    pipeline = replace(people, spec=declared(transforms=[both]))
    pipeline.accept([person("a")])
    pipeline.load()
    assert ages(pipeline) == {"a": 2}


def test_a_source_that_was_made_again_is_read_from_its_beginning(people):
    for number in range(2):
        people.accept([person("a", number)])
        people.load()
    shutil.rmtree(people.context.table("people_source").path)
    people.accept([person("b")])
    assert figures(people.load()) == {"read": 1, "inserted": 1}
    assert ages(people) == {"a": 1, "b": 30}


def test_a_row_without_a_value_to_order_by_is_older_than_any(people):
    people.accept([person("a", 1), person("a", 2, None), person("b", 3, None), person("b", 4, None)])
    people.load()
    assert ages(people) == {"a": 1, "b": 4}

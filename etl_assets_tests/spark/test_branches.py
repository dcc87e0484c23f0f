"""Branches, unions and joins of a declared pipeline beside plain Python: every row, every count, every
dead letter.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import ExpectationFailed, RowsRefused
from etl_assets.steps.check_transforms import check_transforms
from etl_assets.steps.step import ReadMode
from etl_assets_tests.reference.declared_pipeline import Declared, declared

pytestmark = pytest.mark.spark
FUNCTIONS = "etl_assets_tests.reference.shop_functions"
TAKES_ALL = {"type": "filter", "where": "true"}


@pytest.fixture
def people(spark, tmp_path) -> Declared:
    return Declared(root=tmp_path / "data", session=lambda: spark)


def figures(report: Any) -> dict[str, int]:
    total = Counter(report.total())
    names = ("read", "rejected", "filtered", "inserted", "updated", "ignored")
    return {name: total[name] for name in names if total[name]}


def a_person(dice: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": f"p{number}",
        "age": dice.choice([None, "much", *range(0, 100, 5)]),
        "country": dice.choice(["de", "fr", "us", None]),
        "updated_at": f"2026-01-05T{number % 24:02}:00:00Z",
    }


BRANCHES = [
    {"name": "small", "type": "filter", "where": "age < 60"},
    {"name": "german", "inputs": ["small"], "type": "filter", "where": "country = 'de'"},
    {"name": "marked", "type": "map", "columns": {"mark": {"expression": "upper(country)",
    "type": "string"}}},
    {"name": "young", "inputs": ["small"], "type": "expectations", "rules": [
        {"name": "is_young", "condition": "age < 40", "on_violation": "drop"},
        {"name": "is_placed", "condition": "country is not null"},
    ]},
    {"name": "both", "inputs": ["marked", "young"], "type": "expectations", "rules": [
        {"name": "is_old", "condition": "age >= 10"},
        {"name": "is_known", "condition": "country <> 'us'", "on_violation": "drop"},
    ]},
    {"type": "map", "columns": {"id": {"expression": "concat(id, coalesce(mark, ''))", "type": "string"}}},
]  # fmt: skip
"""Two branches of the people below 60, one of which marks the Germans and the other one drops those from
40.
"""


def in_plain_python(records: list[dict[str, Any]]) -> tuple[dict[str, Any], set[int], int, Counter[str]]:
    """Rows by id, the offsets of dead letters, the number of filtered records, and the unmet expectations."""
    rows: dict[str, Any] = {}
    dead, filtered, unmet = set(), 0, Counter[str]()
    for offset, record in enumerate(records):
        age, country = record["age"], record["country"]
        if age == "much":
            dead.add(offset)
            continue
        if age is None or age >= 60:
            filtered += 1
            continue
        taken: list[dict[str, str | None]] = [{"mark": "DE"}] if country == "de" else []
        if age < 40:
            taken.append({"mark": None})
            unmet["is_placed"] += country is None
        else:
            dead.add(offset)
        for row in taken:
            unmet["is_old"] += age < 10
            if country is None or country == "us":
                dead.add(offset)
            else:
                rows[record["id"] + (row["mark"] or "")] = (age, row["mark"], offset)
    return rows, dead, filtered, unmet


def test_branches_and_their_union_are_those_of_plain_python(people):
    dice = random.Random(5)
    records = [a_person(dice, number) for number in range(200)]
    pipeline = replace(people, spec=declared(transforms=BRANCHES))
    pipeline.accept(records)
    report = pipeline.load()
    rows, dead, filtered, unmet = in_plain_python(records)
    assert len(rows) > 40
    assert len(dead) > 40
    assert filtered > 40
    found = {row["id"]: (row["age"], row["mark"], row["_offset"]) for row in pipeline.rows()}
    assert found == rows
    assert [offset for offset, _, _ in pipeline.dead_letters()] == sorted(dead)
    assert figures(report) == {
        "read": 200,
        "rejected": len(dead),
        "filtered": filtered,
        "inserted": len(rows),
    }
    assert report.notes == tuple(
        f"transforms[{place}] (expectations): rule {rule}: {unmet[rule]} rows do not meet it"
        for place, rule in ((3, "is_placed"), (4, "is_old"))
    )
    before = pipeline.rows(), pipeline.dead_letters()
    again = figures(pipeline.load(ReadMode.WHOLE))
    assert again == {"read": 200, "rejected": len(dead), "filtered": filtered, "ignored": len(rows)}
    assert (pipeline.rows(), pipeline.dead_letters()) == before


def person(id_: str, age: Any = 30, country: str | None = "de") -> dict[str, Any]:
    return {"id": id_, "age": age, "country": country, "updated_at": "2026-01-05T10:00:00Z"}


def test_a_join_of_branches_sees_each_by_its_name_and_tables_beside_them(people):
    """`countries` is a branch here, and hides the table of that name."""
    join = """
        select p.*, c.age as other from p join countries c on p.country = c.country and p.id <> c.id
        -- where it says input, or people, it means nothing"""
    columns = {"id": "string", "age": "int", "country": "string", "updated_at": "timestamp", "other": "int"}
    pipeline = replace(
        people,
        spec=declared(
            transforms=[
                {"name": "p", "type": "filter", "where": "id < 'm'"},
                {"name": "countries", "inputs": ["records"], "type": "filter", "where": "id >= 'm'"},
                {"type": "sql", "inputs": ["p", "countries"], "select": join, "columns": columns},
            ]
        ),
    )
    pipeline.keep_countries({"de": "europe"})
    pipeline.accept(
        [person("a"), person("b", country="fr"), person("c", "much"), person("x", 7), person("y", 8, "us")]
    )
    assert figures(pipeline.load()) == {"read": 5, "rejected": 1, "inserted": 1}, (
        "both sides are taken, and none filtered"
    )
    assert [(row["id"], row["age"], row["other"], row["_offset"]) for row in pipeline.rows()] == [
        ("a", 30, 7, 0)
    ]


def test_sql_of_one_input_knows_it_by_its_name_and_as_input(people):
    for name in ("p", "input"):
        sql = {"type": "sql", "inputs": ["p"], "select": f"select * from {name} where age > 1"}
        transforms = [{"name": "p", "type": "filter", "where": "age < 3"}, sql]
        pipeline = replace(
            people, spec=declared(transforms=transforms, table={"name": f"by_{name}", "keys": ["id"]})
        )
        if name == "p":
            pipeline.accept([person("a", 1), person("b", 2), person("c", 3)])
        pipeline.load()
        assert [row["id"] for row in pipeline.rows()] == ["b"]


def test_a_record_on_two_branches_is_counted_once_whatever_becomes_of_its_rows(people):
    """Rejected on both branches, on one, filtered on both, on one, and kept on both."""
    rule = {"name": "r", "condition": "age < 50", "on_violation": "drop"}
    pipeline = replace(
        people,
        spec=declared(
            transforms=[
                {"name": "a", "type": "filter", "where": "country <> 'out'"},
                {"name": "a2", "type": "expectations", "rules": [rule]},
                {
                    "name": "b",
                    "inputs": ["records"],
                    "type": "filter",
                    "where": "country not in ('out', 'half')",
                },
                {"name": "b2", "type": "expectations", "rules": [{**rule, "condition": "age < 60"}]},
                {"name": "shared", "inputs": ["a2", "b2"], **TAKES_ALL},
                {"name": "c", "inputs": ["shared"], "type": "filter", "where": "country <> 'late'"},
                {"inputs": ["c"], "type": "python", "function": f"{FUNCTIONS}:older"},
                {"type": "expectations", "rules": [{**rule, "condition": "age < 32"}]},
            ]
        ),
    )
    pipeline.accept(
        [
            person("rejected twice", 70), person("rejected once", 55), person("out", 5, "out"), person("half",
            5, "half"),
            person("half rejected", 55, "half"), person("late", 5, "late"), person("kept", 5),
            person("rejected late", 31),
        ]
    )  # fmt: skip
    report = figures(pipeline.load())
    assert [offset for offset, _, _ in pipeline.dead_letters()] == [0, 1, 4, 7]
    assert [row["id"] for row in pipeline.rows()] == ["half", "kept"]
    assert report == {"read": 8, "rejected": 4, "filtered": 2, "inserted": 2, "ignored": 1}


def test_rows_that_several_transforms_take_are_staged_once(people, monkeypatch):
    """A function that sees all rows, and whose rows two transforms take, is called once."""
    from etl_assets_tests.reference import shop_functions

    calls: list[str] = []

    def counted(rows: Any) -> Any:
        calls.append("called")
        return rows

    monkeypatch.setattr(shop_functions, "counted", counted, raising=False)
    folders: list[str] = []
    written = _spy_on_parquet(monkeypatch, folders)
    pipeline = replace(
        people,
        spec=declared(
            transforms=[
                {"name": "all", "type": "python", "function": f"{FUNCTIONS}:counted"},
                {"name": "old", "type": "filter", "where": "age >= 30"},
                {
                    "name": "new",
                    "inputs": ["all"],
                    "type": "sql",
                    "select": "select * from input where age < 30",
                },
                {"inputs": ["old", "new"], **TAKES_ALL},
            ]
        ),
    )
    pipeline.accept([person("a", 1), person("b", 40)])
    pipeline.load()
    assert [row["id"] for row in pipeline.rows()] == ["a", "b"]
    assert calls == ["called"]
    assert [Path(each).name for each in written()] == ["rows_0", "rows_1", "rows_2"], (
        "records, `all`, and the last rows"
    )


def _spy_on_parquet(monkeypatch: Any, folders: list[str]) -> Any:
    from etl_assets.steps import staged_load

    staged = staged_load.StagedRows

    def noted(spark: Any, folder: str, schema: Any) -> Any:
        folders.append(folder)
        return staged(spark, folder, schema)

    monkeypatch.setattr(staged_load, "StagedRows", noted)
    return lambda: folders


def test_a_branch_may_fail_the_run_and_an_appended_record_has_one_row(people):
    kept = {"name": "kept", "inputs": ["records"], **TAKES_ALL}
    fails = {"name": "r", "condition": "age < 50", "on_violation": "fail"}
    failing = replace(
        people,
        spec=declared(
            transforms=[
                kept,
                {"name": "b", "inputs": ["records"], "type": "expectations", "rules": [fails]},
                {"inputs": ["kept", "b"], **TAKES_ALL},
            ]
        ),
    )
    failing.accept([person("a", 70), person("b", 80), person("c")])
    with pytest.raises(ExpectationFailed, match="2 rows do not meet the rule r"):
        failing.load()
    assert failing.rows() == []

    def log(where: str, name: str) -> Declared:
        transforms = [
            {"name": "old", "type": "filter", "where": "age >= 50"},
            {"name": "others", "inputs": ["records"], "type": "filter", "where": where},
            {"inputs": ["others", "old"], **TAKES_ALL},
        ]
        return replace(
            people, spec=declared(transforms=transforms, table={"name": name, "write_mode": "append"})
        )

    with pytest.raises(RowsRefused, match="several rows of one record"):
        log("age < 71", "overlapping").load()
    apart = log("age < 50", "apart")
    assert figures(apart.load()) == {"read": 3, "inserted": 3}
    assert [row["_offset"] for row in apart.rows()] == [0, 1, 2]


def test_the_check_of_transforms_sees_the_columns_and_names_of_each_input(people):
    mapped = {"name": "m", "type": "map", "columns": {"twice": {"expression": "age * 2", "type": "bigint"}}}
    plain = {"name": "p", "inputs": ["records"], **TAKES_ALL}
    united = {"name": "u", "inputs": ["m", "p"], "type": "filter", "where": "twice > 3 and id is not null"}
    columns = {"id": "string"}

    def said(*last: dict[str, Any]) -> list[tuple[str, str, str]]:
        spec = declared(transforms=[mapped, plain, united, *last])
        tables = replace(people, spec=spec).tables
        return check_transforms(people.session(), tables, lambda name: pytest.fail(name))

    good = {
        "type": "sql",
        "inputs": ["u", "m"],
        "select": "select u.id, u._offset from u join m using (id)",
        "columns": columns,
    }
    assert said(good) == []
    (finding,) = said({**good, "select": "select u.id, u._offset from u join p using (id)"})
    assert finding[0] == "transforms.3"
    assert "select from `u`, `m`, or from a table" in finding[2]
    (finding,) = said({"inputs": ["u"], "type": "filter", "where": "mark = 1"})
    assert "mark" in finding[1]

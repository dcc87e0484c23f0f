"""Each transform does to rows what its declaration says, and what Spark does not accept is named with the
transform.
"""

from __future__ import annotations

from typing import Any

import pytest

from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.session import frame_of
from etl_assets.errors import ContractError, SchemaMismatch
from etl_assets.steps.check_transforms import check_transforms, no_rows
from etl_assets.transforms.declared_transforms import DeclaredTransforms
from etl_assets_tests.reference.declared_pipeline import COUNTRIES, declared, tables_of

pytestmark = pytest.mark.spark
FUNCTIONS = "etl_assets_tests.reference.shop_functions"
GOOD = (None, None, False)


def transforms_of(spark: Any, *transforms: Any) -> DeclaredTransforms:
    def read_table(name: str) -> Any:
        assert name == "countries"
        return frame_of(spark, [("de", "europe"), ("us", None)], struct_type(COUNTRIES))

    return DeclaredTransforms(
        spark=spark, tables=tables_of(declared(transforms=list(transforms))), read_table=read_table
    )


def applied(spark: Any, transform: dict[str, Any], *rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    """Apply one transform to rows of id, age, country, and the reason, error and whether they are left
    out.
    """
    transforms = transforms_of(spark, transform)
    schema = no_rows(spark, transforms.tables.columns_before(0)).schema
    given = [
        (id_, age, country, None, number, *state) for number, (id_, age, country, *state) in enumerate(rows)
    ]
    with transforms.views():
        made = transforms.apply(0, frame_of(spark, given, schema)).toArrow().to_pylist()
    return sorted(made, key=lambda row: row["_offset"])


def findings(spark: Any, *transforms: dict[str, Any]) -> list[tuple[str, str, str]]:
    prepared = transforms_of(spark, *transforms)
    return check_transforms(spark, prepared.tables, prepared.read_table)


ROWS = (
    ("a", 30, "de", *GOOD),
    ("b", None, "xx", *GOOD),
    ("c", 7, "us", "WrongType", "c is wrong", False),
    ("d", 7, None, None, None, True),
    ("e", 2**31 - 1, None, *GOOD),
)


def test_a_filter_leaves_rows_out_for_which_it_is_not_true(spark):
    made = applied(spark, {"type": "filter", "where": "age = 30"}, *ROWS)
    assert [row["_left_out"] for row in made] == [False, True, False, True, True]
    assert [row["_reason"] for row in made] == [None, None, "WrongType", None, None]


def test_expressions_of_a_map_see_the_columns_as_they_were_and_rejected_rows_are_not_evaluated(spark):
    columns = {
        "age": {
            "expression": "CASE WHEN age = 7 THEN raise_error('evaluated') ELSE age + 1L END -- next",
            "type": "int",
        },
        "before": {"expression": "age", "type": "double"},
        "half": {"expression": "age * 0.5", "type": "decimal(12,0)"},
    }
    made = applied(spark, {"type": "map", "columns": columns}, *ROWS)
    assert [(row["age"], row["before"], row["half"]) for row in (made[0], made[1])] == [
        (31, 30.0, 15),
        (None, None, None),
    ]
    assert [row["_reason"] for row in made] == [None, None, "WrongType", None, "ContractViolation"]
    assert made[4]["_error"] == "the value of age from transforms[0] (map) does not fit the type INT"


def test_a_lookup_adds_columns_and_null_where_nothing_matches(spark):
    transform = {
        "type": "lookup",
        "table": "countries",
        "on": {"country": "code"},
        "columns": {"region": "region"},
    }
    made = applied(spark, transform, *ROWS)
    assert [row["region"] for row in made] == ["europe", None, None, None, None]
    assert [row["_offset"] for row in made] == [0, 1, 2, 3, 4]


def test_expectations_drop_or_mark_rows(spark):
    rules = [
        {"name": "grown", "condition": "age >= 18"},
        {"name": "placed", "condition": "country is not null", "on_violation": "drop"},
        {"name": "known", "condition": "country <> 'xx'", "on_violation": "fail"},
    ]
    made = applied(spark, {"type": "expectations", "rules": rules}, *ROWS)
    assert [row["_unmet_0_0"] for row in made] == [False, True, False, False, False]
    assert [row["_unmet_0_2"] for row in made] == [False, True, False, False, False]
    assert [row["_reason"] for row in made] == [None, None, "WrongType", None, "ExpectationFailed"]


def test_sql_sees_only_the_rows_that_go_on_and_tables_by_name(spark):
    select = """
        WITH here AS (SELECT * FROM input WHERE age IS NOT NULL)
        SELECT here.* EXCEPT (country), coalesce(c.region, 'none; here') AS country
        FROM here LEFT JOIN countries c ON here.country = c.code -- regions
        ;"""
    made = applied(spark, {"type": "sql", "select": select}, *ROWS)
    assert [(row["id"], row["country"], row["_offset"]) for row in made] == [
        ("a", "europe", 0),
        ("e", "none; here", 4),
    ]
    assert spark.catalog.listTables() == [], "the views are gone"


def test_python_gets_a_frame_or_record_batches(spark):
    older = {"type": "python", "function": f"{FUNCTIONS}:older"}
    made = applied(spark, older, *ROWS[:4])
    assert [(row["id"], row["age"]) for row in made] == [("a", 31), ("b", None)]
    upper = {"type": "python", "function": f"{FUNCTIONS}:upper_ids", "batches": True}
    made = applied(spark, upper, *ROWS)
    assert [(row["id"], row["_offset"]) for row in made] == [("A", 0), ("B", 1), ("E", 4)]
    with pytest.raises(
        Exception, match=r"transforms\[0\] \(python\): the result has the columns id, country"
    ):
        applied(spark, {"type": "python", "function": f"{FUNCTIONS}:without_ages", "batches": True}, *ROWS)


@pytest.mark.parametrize(
    ("transform", "error", "said", "fix"),
    [
        ({"type": "filter", "where": "aeg > 3"}, ContractError, "where: .*aeg", "did you mean 'age'?"),
        ({"type": "filter", "where": "age + 1"}, ContractError, "the condition is int", "compare"),
        ({"type": "filter", "where": "age >"}, ContractError, "Syntax error", "Spark SQL"),
        ({"type": "filter", "where": "sum(age) > 3"}, ContractError, "(?i)aggregat|group", "Spark SQL"),
        ({"type": "map", "columns": {"age": {"expression": "id", "type": "int"}}}, SchemaMismatch,
         "age is string, and INT is declared", "write CAST"),
        ({"type": "map", "columns": {"age": {"expression": "*", "type": "int"}}}, ContractError, "gives",
        "one value"),
        ({"type": "sql", "select": "select id from input"}, SchemaMismatch, "no column _offset",
        "select `_offset` too"),
        ({"type": "sql", "select": "select *, 1 as more from"
                                   " input"}, SchemaMismatch, "undeclared column more", "declare"),
        ({"type": "sql", "select": "select _offset, id, age, country from"
                                   " input"}, SchemaMismatch, "no column updated_at", "add"),
        ({"type": "sql", "select": "select *, id from input"}, SchemaMismatch, "more than one column"
                                                                               " id", "each of them once"),
        ({"type": "sql", "select": "select * except (age), 'x' as age from"
                                   " input"}, SchemaMismatch, "age is string", "CAST"),
        ({"type": "sql", "select": "select * from people"}, ContractError, "people", "not from the"
                                                                                     " pipeline's own"),
        ({"type": "sql", "select": "drop table people"}, ContractError, "Syntax error", "single SELECT"),
        ({"type": "sql", "select": "insert into countries select 'a',"
                                   " 'b'"}, ContractError, "Syntax error", "single SELECT"),
        ({"type": "sql", "select": "set spark.sql.ansi.enabled ="
                                   " false"}, ContractError, "Syntax error", "single SELECT"),
        ({"type": "python", "function": f"{FUNCTIONS}:forget_offset"}, SchemaMismatch, "no column _offset",
        "_offset"),
        ({"type": "python", "function": f"{FUNCTIONS}:to_list"}, ContractError, "returned a list",
        "DataFrame"),
        ({"type": "python", "function": f"{FUNCTIONS}:missing"}, ContractError, "no function missing",
        "module:function"),
        ({"type": "python", "function": f"{FUNCTIONS}:NOT_A_FUNCTION"}, ContractError, "something else",
        "module:function"),
        ({"type": "python", "function": "no_such_module:clean"}, ContractError, "cannot be imported",
        "install"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_with_the_transform_and_a_fix(spark, transform, error, said, fix):
    """The check finds it without rows, and so does a load."""
    with pytest.raises(error, match=said) as refused:
        applied(spark, transform, *ROWS)
    assert refused.value.message.startswith(f"transforms[0] ({transform['type']})")
    assert fix in refused.value.fix
    found = findings(spark, transform, {"type": "filter", "where": "nope"})
    assert [place.split(".")[:2] for place, _, _ in found] == [["transforms", "0"], ["transforms", "1"]]


def test_good_transforms_have_no_findings(spark):
    transforms = [
        {"type": "lookup", "table": "countries", "on": {"country": "code"}, "columns": {"region": "region"}},
        {"type": "map", "columns": {"score": {"expression": "1.5D * age", "type": "double"}}},
        {"type": "sql", "select": "select * from input where region in (select region from countries)"},
        {"type": "python", "function": f"{FUNCTIONS}:upper_ids", "batches": True},
    ]
    assert findings(spark, *transforms) == []

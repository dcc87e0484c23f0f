"""Records become typed columns as the plain-Python reference says, whatever stands in them."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from etl_assets.contracts.columns import Column
from etl_assets.contracts.rules import AtLeast, NotEmpty
from etl_assets.delta.session import frame_of
from etl_assets.transforms.typed_records import RecordColumn, typed_records
from etl_assets_tests.reference.declared_pipeline import canonical
from etl_assets_tests.reference.drawn_records import NAMES, records
from etl_assets_tests.reference.typed_values import WRONG, text_of, typed

pytestmark = pytest.mark.spark
TYPES = (
    "STRING", "INT", "BIGINT", "DECIMAL(18,2)", "DECIMAL(38,10)", "BOOLEAN", "DATE", "TIMESTAMP", "DOUBLE",
)  # fmt: skip


def column(name: str, type_: str, field: str | None = None, **options: Any) -> RecordColumn:
    options.setdefault("nullable", True)
    return RecordColumn(column=Column(name, type_, "A column.", **options), field=field or name)


def parsed(spark: Any, records: list[str], columns: list[RecordColumn]) -> list[dict[str, Any]]:
    rows = frame_of(spark, list(enumerate(records)), "offset BIGINT, record STRING")
    found = typed_records(rows, columns).toArrow().to_pylist()
    return sorted(found, key=lambda row: row["_offset"])


@settings(
    max_examples=3,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # each example is a Spark job: shrinking would take minutes
)
@given(st.lists(records, min_size=80, max_size=80))
def test_every_value_becomes_what_the_reference_says(engine, drawn):
    """One Spark job for all records and types: each field is taken as three types."""
    session = engine.spark_session.newSession()
    columns = [
        column(f"c{number}_{kind}", TYPES[(number + kind) % len(TYPES)], name)
        for number, name in enumerate(NAMES)
        for kind in (0, 3, 7)
    ]
    found = parsed(session, [canonical(text_of(record)) for record in drawn], columns)
    for record, row in zip(drawn, found, strict=True):
        first_wrong = None
        for each in columns:
            value = record.get(each.field)
            expected = typed(value, each.column.type)
            if expected is WRONG:
                first_wrong = first_wrong or each.label
                expected = None
            made = row[each.column.name]
            if isinstance(value, dict | list) and each.column.type == "STRING":
                made, expected = (json.loads(str(text), parse_float=Decimal) for text in (made, expected))
            assert made == expected, (each.field, each.column.type, value)
        if first_wrong is None:
            assert (row["_reason"], row["_error"]) == (None, None)
        else:
            assert row["_reason"] == "WrongType"
            assert row["_error"].startswith(f"{first_wrong} is not of the type "), row["_error"]


def test_the_first_problem_in_the_order_of_the_columns_is_the_reason(spark):
    columns = [
        column("id", "STRING", nullable=False, rules=(NotEmpty(),)),
        column("age", "INT", "Age", rules=(AtLeast(0),)),
        column("at", "TIMESTAMP"),
    ]
    rows = [
        {"id": "x", "Age": 3, "at": 1_700_000_000_000},
        {"id": None, "Age": "much"},
        {"Age": "much"},
        {"id": "", "Age": "much"},
        {"id": "x", "Age": "much", "at": "never"},
        {"id": "x", "Age": -1, "at": "never"},
        {"id": "x", "at": "1700000000000"},
    ]
    found = parsed(spark, [canonical(json.dumps(row)) for row in rows], columns)
    assert [(row["_reason"], row["_error"]) for row in found] == [
        (None, None),
        ("MissingField", "id is missing or null"),
        ("MissingField", "id is missing or null"),
        ("ContractViolation", "id must not be empty"),
        (
            "WrongType",
            "age (the field 'Age') is not of the type INT: it must be a whole number from -2147483648 to"
            " 2147483647",
        ),
        ("ContractViolation", "age must be at least 0"),
        (
            "WrongType",
            "at is not of the type TIMESTAMP: it must be a time as in RFC 3339, a time without zone in UTC,"
            " or whole"
            " milliseconds since 1970",
        ),
    ]
    assert found[0]["at"] == dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)


def test_nested_values_are_read_from_json_and_from_texts_with_json(spark):
    columns = [
        column("tags", "ARRAY<STRING>"),
        column("sizes", "MAP<STRING, DECIMAL(18,2)>"),
        column("place", "STRUCT<city: STRING, zip: INT>"),
    ]
    good = {"tags": ["a", None], "sizes": {"x": 1.25}, "place": {"city": "Köln", "zip": 5}}
    rows = [
        good,
        {name: json.dumps(value) for name, value in good.items()},
        {},
        {"tags": "a"},
        {"sizes": {"x": "much"}},
        {"place": {"zip": 1.5}},
        {"place": [1]},
    ]
    found = parsed(spark, [canonical(json.dumps(row)) for row in rows], columns)
    wanted = {
        "tags": ["a", None],
        "sizes": [("x", Decimal("1.25"))],
        "place": {"city": "Köln", "zip": 5},
    }
    assert [{name: row[name] for name in wanted} for row in found[:3]] == [
        wanted,
        wanted,
        dict.fromkeys(wanted),
    ]
    assert [row["_reason"] for row in found] == [None] * 3 + ["WrongType"] * 4
    assert (
        found[3]["_error"]
        == "tags is not of the type ARRAY<STRING>: it must be JSON of the type ARRAY<STRING>"
    )

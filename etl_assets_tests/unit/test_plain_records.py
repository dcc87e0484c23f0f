"""Plain records have the values that the reference says, and records of other forms are left to Spark."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl_assets.contracts.columns import Column
from etl_assets.contracts.rules import AtLeast, Matches, MaxCharacters, NotEmpty, OneOf
from etl_assets.transforms.plain_records import PlainRecords
from etl_assets.transforms.typed_records import RecordColumn
from etl_assets_tests.reference.declared_pipeline import canonical
from etl_assets_tests.reference.drawn_records import NAMES, records
from etl_assets_tests.reference.typed_values import WRONG, text_of, typed

TYPES = (
    "STRING", "INT", "BIGINT", "DECIMAL(18,2)", "DECIMAL(38,10)", "BOOLEAN", "DATE", "TIMESTAMP", "DOUBLE",
)  # fmt: skip


def column(name: str, type_: str, field: str | None = None, **options: Any) -> RecordColumn:
    options.setdefault("nullable", True)
    return RecordColumn(column=Column(name, type_, "A column.", **options), field=field or name)


def plain(columns: list[RecordColumn], rows: list[str], *required: str) -> dict[int, dict[str, Any]]:
    """The plain ones among records, by their position."""
    found = PlainRecords.of(columns, frozenset(required))
    assert found is not None
    table, positions = found.typed(pa.array(rows, pa.string()))
    return dict(zip(positions.to_pylist(), table.to_pylist(), strict=True))


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(records, min_size=20, max_size=20), st.sampled_from(NAMES))
def test_a_plain_record_has_the_values_that_the_reference_says(drawn, name):
    rows = [canonical(text_of(record)) for record in drawn]
    for type_ in TYPES:
        for number, row in plain([column("c", type_, name)], rows).items():
            value = drawn[number].get(name)
            expected = typed(value, type_)
            assert expected is not WRONG, (type_, value)
            assert row["c"] == expected, (type_, value)


@pytest.mark.parametrize(
    ("type_", "taken", "others"),
    [
        ("STRING", ["", "x\n", "\u0000", "😀"], [1, True, [], {}]),
        ("INT", [0, -(2**31), 2**31 - 1], ["1", 2**31, Decimal("1.5"), True]),
        ("BIGINT", [Decimal(2**63 - 1)], [Decimal(2**63), "7"]),
        ("DECIMAL(4,2)", ["12.50", Decimal("12.5"), 99, "+1", "007"],
         ["12.5000", "1e1", ".5", "5.", "1.555", 100, "100", " 1", "", "NaN"]),
        ("DECIMAL(38,18)", ["1" * 20 + ".5"], ["1" * 25 + ".5", "123456789012345678901234567890.12"]),
        ("DECIMAL(38,10)", [Decimal(10**27), "9" * 28], [Decimal(10**28), Decimal(17 * 10**28)]),
        ("BOOLEAN", [True, False], ["true", 1]),
        ("DATE", ["2024-02-29", "0002-01-01"], ["2023-02-29", "0000-01-01", "2024-2-1", "2024-02-29\n"]),
        ("TIMESTAMP", ["2026-01-05T10:00:00Z", "2026-01-05 10:00:00.1", "2026-01-05T10:00:00.123456-17:59"],
         ["2026-01-05", "2026-01-05T24:00:00Z", "2026-01-05T10:00:00.1234567Z", "2026-01-05T10:00:00+18:00",
          "0000-01-05T10:00:00Z", 1_700_000_000_000, "2026-01-05t10:00:00z"]),
        ("DOUBLE", [0, 1, Decimal("0.1"), -3], ["1", "Infinity"]),
    ],
)  # fmt: skip
def test_the_usual_form_of_each_type_is_plain_and_no_other(type_, taken, others):
    values = [*taken, None, *others]
    found = plain([column("c", type_)], [canonical(f'{{"c":{_json(value)}}}') for value in values])
    assert {number: row["c"] for number, row in found.items()} == {
        number: typed(value, type_) for number, value in enumerate([*taken, None])
    }


def test_a_record_that_lacks_what_it_needs_or_breaks_a_rule_is_not_plain():
    columns = [
        column("id", "STRING", nullable=False, rules=(NotEmpty(), MaxCharacters(3))),
        column("age", "INT", rules=(AtLeast(0),)),
        column("kind", "STRING", rules=(OneOf(("a", "b")),)),
    ]
    rows: list[dict[str, Any]] = [
        {"id": "x", "age": 1, "kind": "a"}, {"id": "x", "age": 1}, {"id": "x", "kind": "b"}, {"id": "x"},
        {"id": None, "age": 1, "kind": "a"}, {"id": "", "age": 1, "kind": "a"},
        {"id": "long", "age": 1, "kind": "a"}, {"id": "x", "age": -1, "kind": "a"},
        {"id": "x", "age": 1, "kind": "c"},
    ]  # fmt: skip
    lines = [canonical(json.dumps(row)) for row in rows]
    assert list(plain(columns, lines)) == [0, 1, 2, 3]
    assert list(plain(columns, lines, "age", "kind")) == [0]
    # A field of that name in a nested object is none of the record's.
    nested = plain([column("a", "INT")], ['{"b":{"a":"x"}}', '{"a":1,"b":[{"a":null}]}'])
    assert nested == {0: {"a": None}, 1: {"a": 1}}


def test_few_odd_records_among_many_are_found_and_many_cost_no_more_than_a_look():
    rows = [f'{{"c":{number}}}' for number in range(5_000)]
    odd = {7, 2_500, 4_999}
    mixed = ['{"c":"x"}' if number in odd else row for number, row in enumerate(rows)]
    assert set(plain([column("c", "INT")], mixed)) == set(range(5_000)) - odd
    assert plain([column("c", "INT")], ['{"c":"1"}'] * 5_000) == {}
    assert plain([column("c", "INT")], []) == {}


def test_what_arrow_does_not_do_as_spark_does_is_left_to_spark():
    pattern = column("c", "STRING", rules=(Matches("[a-z]+", "of small letters"),))
    for columns in (
        [pattern],
        [column("c", "ARRAY<INT>")],
        [column("c", "DOUBLE", rules=(AtLeast(0),))],
        [column("c", "INT"), column("d", "STRING", "c")],
        [],
    ):
        assert PlainRecords.of(columns, frozenset()) is None
    assert PlainRecords.of([column("c", "DATE"), column("d", "TIMESTAMP", "c")], frozenset()) is not None


def _json(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (str, bool, list, dict)) or value is None else str(value)

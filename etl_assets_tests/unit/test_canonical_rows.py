"""Rows written by columns are those that are written one by one, byte by byte."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contracts import canonical_json
from etl_assets.contracts.canonical_json import Refused
from etl_assets.sources.arrow_values import json_values
from etl_assets.sources.canonical_rows import canonical_rows

_US = st.integers(-(2**62), 2**62) | st.integers(-(10**15), 4 * 10**15).map(lambda n: n // 1000 * 1000)
_VALUES = {
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.decimal128(12, 3): st.decimals(-(10**8), 10**8, places=3),
    pa.decimal128(38, 30): st.decimals(-(10**7), 10**7, places=30),
    pa.decimal128(9, 0): st.decimals(-(10**8), 10**8, places=0),
    pa.date32(): st.integers(-(2**31), 2**31 - 1),
    pa.timestamp("us"): _US,
    pa.timestamp("us", "UTC"): _US,
    pa.binary(): st.binary(),
    pa.list_(pa.int32()): st.lists(st.none() | st.integers(-9, 9), max_size=3),
}
_NAMES = ["b", "a", "a b", 'quoted "name"', "Ä", "postgres.lsn"]


@st.composite
def _columns(draw):
    rows = draw(st.integers(0, 4))
    types = draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=len(_NAMES)))
    return {
        name: pa.array(
            draw(st.lists(st.none() | _VALUES[type_], min_size=rows, max_size=rows)),
            type_,
        )
        for name, type_ in zip(_NAMES, types, strict=False)
    }


@given(_columns())
def test_a_row_written_by_columns_is_the_row_written_by_itself(columns):
    names = list(columns)
    rows = zip(*map(json_values, columns.values()), strict=True)
    expected = [canonical_json.write(dict(zip(names, row, strict=True))) for row in rows]
    assert [text.encode() for text in canonical_rows(columns).to_pylist()] == expected


def test_usual_values_are_written_by_arrow_and_need_no_second_form():
    moment = dt.datetime(2026, 5, 1, 12, 30, 0, 250_000, tzinfo=dt.UTC)
    columns = {
        "id": pa.array([1, 2]),
        "amount": pa.array([Decimal("10.50"), Decimal("100.00")], pa.decimal128(9, 2)),
        "at": pa.array([moment, moment.replace(microsecond=0)], pa.timestamp("us", "UTC")),
        "day": pa.array([moment.date(), None]),
        "note": pa.array(['a "b"\n', ""]),
    }
    assert canonical_rows(columns).to_pylist() == [
        '{"amount":10.5,"at":"2026-05-01T12:30:00.25Z","day":"2026-05-01","id":1,"note":"a \\"b\\"\\n"}',
        '{"amount":100,"at":"2026-05-01T12:30:00Z","day":null,"id":2,"note":""}',
    ]


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_makes_no_json(number):
    (text,) = canonical_rows({"n": pa.array([number])}).to_pylist()
    with pytest.raises(Refused):
        canonical_json.canonical(text.encode())

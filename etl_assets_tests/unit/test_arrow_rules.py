"""Rules over Arrow values mean what they mean elsewhere, so that a check of few rows needs no Spark."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contracts.arrow_rules import breaking, violations_in_process
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import AtLeast, NotEmpty, NotNull, OneOf, Rule
from etl_assets_tests.reference.column_rules import RULES, amounts, edge_texts, holds, numbers, texts

TYPES = {"text": pa.string(), "number": pa.int64(), "amount": pa.decimal128(18, 2)}
VALUES = {"text": edge_texts | texts, "number": numbers, "amount": amounts}


@pytest.mark.parametrize(("column", "rule"), [(column, rule) for column, _, rule in RULES])
@given(data=st.data())
def test_every_rule_counts_the_values_that_break_it(column: str, rule: Rule, data: st.DataObject):
    values = data.draw(st.lists(VALUES[column], max_size=30))
    chunked = pa.chunked_array([pa.array(values, TYPES[column])])
    assert breaking(rule, chunked) == sum(not holds(rule, value) for value in values)


def test_null_breaks_not_null_only():
    values = pa.chunked_array([pa.array([None, "a", None], pa.string())])
    assert breaking(NotNull(), values) == 2
    assert breaking(NotEmpty(), values) == 0


ORDERS = TableContract(
    name="orders",
    description="Orders.",
    columns=(
        Column("order_id", "STRING", "The order.", rules=(NotEmpty(),)),
        Column("amount", "DECIMAL(18,2)", "What it costs.", nullable=True, rules=(AtLeast(0),)),
        Column("status", "STRING", "Where it is.", rules=(OneOf(("paid",)),)),
    ),
    merge_key=("order_id",),
)


def orders(*rows: tuple) -> pa.Table:
    types = {"order_id": pa.string(), "amount": pa.decimal128(18, 2), "status": pa.string()}
    columns = zip(*rows, strict=True) if rows else [(), (), ()]
    return pa.table(
        {name: pa.array(values, types[name]) for name, values in zip(types, columns, strict=True)}
    )


def test_good_rows_and_no_rows_break_nothing():
    assert violations_in_process(ORDERS, []) == ()
    assert violations_in_process(ORDERS, [orders()]) == ()
    good = orders(("o1", None, "paid"), ("o2", Decimal("1.00"), "paid"))
    assert violations_in_process(ORDERS, [good]) == ()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_what_is_broken_is_counted_over_all_pieces_and_no_value_is_shown(size):
    rows = orders(
        ("o1", Decimal("1.00"), "paid"),
        ("o1", Decimal("-1.00"), "paid"),
        ("o2", Decimal("-2.00"), None),
        (None, None, "secret"),
        ("o2", None, "secret"),
    )
    found = violations_in_process(ORDERS, [rows.slice(begin, size) for begin in range(0, 5, size)])
    assert [(violation.column, violation.check, violation.count) for violation in found] == [
        ("order_id", "order_id must not be null", 1),
        ("amount", "amount must be at least 0", 2),
        ("status", "status must not be null", 1),
        ("status", "status must be one of paid", 2),
        ("order_id", "order_id must be unique", 2),
    ]
    assert not any("secret" in str(violation) for violation in found)

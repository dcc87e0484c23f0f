"""Frames are held against a contract by name and type, without Spark running."""

from __future__ import annotations

import pytest
from pyspark.sql import types

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.spark_types import check_schema, schema_differences, struct_type
from etl_assets.errors import SchemaMismatch
from etl_assets_tests.reference.tables import ALL_TABLES

ORDERS = TableContract(
    name="orders",
    description="The customers' orders.",
    columns=(
        Column("order_id", "STRING", "The order's id."),
        Column("amount", "DECIMAL(18,2)", "What it costs.", nullable=True),
        Column("parts", "ARRAY<STRUCT<part_id: STRING, pieces: INT>>", "What it consists of.", nullable=True),
        Column("day", "DATE", "The day."),
    ),
    merge_key=("order_id",),
    delta_partition=("day",),
)
SCHEMA = struct_type(ORDERS)


def changed(name: str, type_: types.DataType) -> types.StructType:
    return types.StructType(
        [
            types.StructField(f.name, type_ if f.name == name else f.dataType, f.nullable)
            for f in SCHEMA.fields
        ]
    )


def mismatch(schema: types.StructType, **options) -> SchemaMismatch:
    with pytest.raises(SchemaMismatch) as refused:
        check_schema(ORDERS, schema, **options)
    return refused.value


@pytest.mark.parametrize("contract", ALL_TABLES, ids=lambda contract: contract.name)
def test_the_schema_of_every_table_passes_its_own_check(contract):
    check_schema(contract, struct_type(contract))


def test_a_wrong_type_is_named_with_table_column_expected_found_and_fix():
    refused = mismatch(changed("amount", types.DoubleType()))
    assert (refused.table, refused.column, refused.expected, refused.found) == (
        "orders",
        "amount",
        "decimal(18,2)",
        "double",
    )
    assert str(refused) == (
        "the rows for orders do not fit its contract: column 'amount' is double (expected decimal(18,2))\n"
        "  fix: cast 'amount' to DECIMAL(18,2) where it is made, or change the contract"
    )


def test_a_missing_column_is_named():
    refused = mismatch(types.StructType([f for f in SCHEMA.fields if f.name != "day"]))
    assert (refused.column, refused.expected, refused.found) == ("day", "date", None)
    assert refused.fix == "add the column 'day'"


def test_a_column_the_contract_does_not_know_is_named():
    refused = mismatch(types.StructType([*SCHEMA.fields, types.StructField("mood", types.StringType())]))
    assert (refused.column, refused.expected, refused.found) == ("mood", None, "string")
    assert "drop 'mood'" in refused.fix


def test_a_misspelled_column_is_answered_with_its_right_name():
    fields = [types.StructField("Order_ID", types.StringType()), *SCHEMA.fields[1:]]
    assert "rename 'Order_ID' to 'order_id'" in mismatch(types.StructType(fields)).fix


def test_a_column_that_is_there_twice_is_named():
    refused = mismatch(types.StructType([*SCHEMA.fields, SCHEMA["amount"]]))
    assert refused.column == "amount"
    assert "2 columns of that name" in str(refused)


def test_all_differences_are_told_at_once():
    schema = types.StructType([types.StructField("order_id", types.IntegerType())])
    assert mismatch(schema).differences == schema_differences(ORDERS, schema)
    assert [difference.column for difference in schema_differences(ORDERS, schema)] == [
        "order_id",
        "amount",
        "parts",
        "day",
    ]


@pytest.mark.parametrize(
    ("column", "type_"),
    [
        ("amount", types.DecimalType(18, 3)),
        ("order_id", types.VarcharType(10)),
        ("parts", types.ArrayType(types.StructType([types.StructField("part_id", types.StringType())]))),
        ("day", types.TimestampType()),
        ("day", types.NullType()),
    ],
)
def test_a_nearly_right_type_is_wrong(column, type_):
    assert mismatch(changed(column, type_)).column == column


def test_order_and_nullability_of_columns_do_not_matter():
    fields = [types.StructField(f.name, f.dataType, not f.nullable) for f in reversed(SCHEMA.fields)]
    check_schema(ORDERS, types.StructType(fields))
    parts = types.StructType(
        [
            types.StructField("part_id", types.StringType(), False),
            types.StructField("pieces", types.IntegerType()),
        ]
    )
    check_schema(ORDERS, changed("parts", types.ArrayType(parts, containsNull=False)))


def test_columns_that_the_commit_stamps_later_may_be_left_out_and_must_not_be_there_before():
    without_day = types.StructType([f for f in SCHEMA.fields if f.name != "day"])
    check_schema(ORDERS, without_day, without=["day"])
    assert [d.column for d in schema_differences(ORDERS, SCHEMA, without=["day"])] == ["day"]

"""What a frame may change of its table's columns, by their types alone."""

from __future__ import annotations

import pytest
from pyspark.sql import types
from pyspark.sql.types import StructField, StructType

from etl_assets.delta.write.schema_changes import columns_after
from etl_assets.delta.write.write_spec import SchemaChanges

BYTE, INT, LONG = types.ByteType(), types.IntegerType(), types.LongType()
FLOAT, DOUBLE, TEXT = types.FloatType(), types.DoubleType(), types.StringType()


def columns(**by_name: types.DataType) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in by_name.items()])


def decimal(precision: int, scale: int) -> types.DecimalType:
    return types.DecimalType(precision, scale)


def test_new_columns_come_at_the_end_and_may_be_null():
    stored = columns(id=INT, v=TEXT)
    schema = StructType(
        [StructField("new", TEXT, nullable=False), *stored.fields, StructField("more", columns(a=INT))]
    )
    for allowed in (SchemaChanges.ADD, SchemaChanges.WIDEN):
        after = columns_after(schema, stored, allowed)
        assert after == columns(id=INT, v=TEXT, new=TEXT, more=columns(a=INT))
    assert columns_after(schema, stored, SchemaChanges.REJECT) == stored


@pytest.mark.parametrize(
    ("stored", "found", "after"),
    [
        (INT, LONG, LONG),
        (BYTE, INT, INT),
        (LONG, INT, LONG),
        (FLOAT, DOUBLE, DOUBLE),
        (decimal(4, 2), decimal(6, 3), decimal(6, 3)),
        (decimal(6, 1), decimal(5, 3), decimal(8, 3)),
        (decimal(38, 0), decimal(38, 2), decimal(38, 0)),
        (INT, DOUBLE, INT),
        (INT, decimal(10, 0), INT),
        (LONG, TEXT, LONG),
        (columns(a=INT), columns(a=LONG), columns(a=INT)),
        (types.DateType(), types.TimestampNTZType(), types.DateType()),
    ],
    ids=str,
)
def test_a_column_becomes_as_wide_as_both_where_each_value_stays_what_it_is(stored, found, after):
    assert columns_after(columns(v=found), columns(v=stored), SchemaChanges.WIDEN) == columns(v=after)
    assert columns_after(columns(v=found), columns(v=stored), SchemaChanges.ADD) == columns(v=stored)


def test_what_tells_partitions_apart_and_what_has_no_clear_name_or_type_stays():
    stored = columns(id=INT, part=INT)
    schema = columns(ID=TEXT, part=LONG, nothing=types.NullType())
    assert columns_after(schema, stored, SchemaChanges.WIDEN, laid_out_by=["part"]) == stored

"""Which values a partition key stands for, and the condition that they are."""

from __future__ import annotations

import datetime as dt

import dagster as dg
import pytest
from pyspark.sql import types

from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.errors import ContractError
from etl_assets.io_managers.partition_keys import values_by_key

DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01")
BERLIN = dg.DailyPartitionsDefinition(start_date="2026-01-01", timezone="Europe/Berlin")
FROM_SIX = dg.DailyPartitionsDefinition(start_date="2026-01-01", hour_offset=6)
HOURS = dg.HourlyPartitionsDefinition(start_date="2026-01-01-00:00")
WEEKS = dg.WeeklyPartitionsDefinition(start_date="2026-01-01")
MONTHS = dg.MonthlyPartitionsDefinition(start_date="2026-01-01")
WORDS = dg.DynamicPartitionsDefinition(name="words")


def values(definition: dg.PartitionsDefinition, key: str, type_: types.DataType) -> PartitionFilter:
    return values_by_key(definition, [key], column="part", type_=type_, asset="mine")[key]


def day(number: int, month: int = 1) -> dt.date:
    return dt.date(2026, month, number)


@pytest.mark.parametrize(
    ("definition", "key", "type_", "condition"),
    [
        (WORDS, "it's", types.StringType(), r"p IN ('it\u0027s')"),
        (HOURS, "2026-01-01-01:00", types.StringType(), "p IN ('2026-01-01-01:00')"),
        (WORDS, "true", types.BooleanType(), "p IN (TRUE)"),
        (WORDS, "-7", types.LongType(), "p IN (-7)"),
        (WORDS, "2026-01-31", types.DateType(), "p IN (DATE '2026-01-31')"),
        (DAYS, "2026-01-31", types.DateType(), "(p >= DATE '2026-01-31' AND p < DATE '2026-02-01')"),
        (FROM_SIX, "2026-01-31", types.DateType(), "p IN (DATE '2026-01-31')"),
        (WEEKS, "2026-01-04", types.DateType(), "(p >= DATE '2026-01-04' AND p < DATE '2026-01-11')"),
        (MONTHS, "2026-02-01", types.DateType(), "(p >= DATE '2026-02-01' AND p < DATE '2026-03-01')"),
        (
            BERLIN,
            "2026-03-29",
            types.TimestampType(),
            "(p >= TIMESTAMP '2026-03-28 23:00:00+00:00' AND p < TIMESTAMP '2026-03-29 22:00:00+00:00')",
        ),
    ],
)
def test_a_key_stands_for_values_of_its_column(definition, key, type_, condition):
    assert values(definition, key, type_).condition("p") == condition


@pytest.mark.parametrize(
    ("definition", "key", "type_"),
    [
        (WORDS, "01", types.IntegerType()),
        (WORDS, "one", types.IntegerType()),
        (WORDS, "True", types.BooleanType()),
        (WORDS, "20260131", types.DateType()),
        (HOURS, "2026-01-01-01:00", types.DateType()),
        (WORDS, "", types.StringType()),
        (WORDS, "__HIVE_DEFAULT_PARTITION__", types.StringType()),
    ],
)
def test_a_key_that_is_no_value_of_its_column_is_refused_with_asset_column_key_and_remedy(
    definition, key, type_
):
    with pytest.raises(ContractError, match="of the asset mine is no value of its column part") as refused:
        values(definition, key, type_)
    assert (refused.value.asset, refused.value.column, refused.value.value) == ("mine", "part", key)
    assert repr(key) in refused.value.message
    assert "STRING column" in refused.value.fix


@pytest.mark.parametrize("type_", [types.DoubleType(), types.DecimalType(3, 1), types.TimestampNTZType()])
def test_a_type_that_cannot_tell_partitions_apart_is_refused(type_):
    with pytest.raises(
        ContractError, match="which cannot tell the partitions of a HourlyPartitionsDefinition apart"
    ):
        values(HOURS, "2026-01-01-01:00", type_)


def test_days_without_a_window_have_no_times():
    with pytest.raises(ContractError, match="TIMESTAMP"):
        values(WORDS, "2026-01-01", types.TimestampType())


def test_spans_that_touch_become_one():
    keys = ["2026-01-02", "2026-01-01", "2026-01-04"]
    found = values_by_key(DAYS, keys, column="p", type_=types.DateType(), asset="mine")
    together = PartitionFilter.union(found.values())
    assert together.spans == ((day(1), day(3)), (day(4), day(5)))
    assert [together.holds(day(number)) for number in (1, 2, 3, 4, 5)] == [True, True, False, True, False]


def test_null_is_no_value_and_no_key_has_no_rows():
    assert not PartitionFilter.of("a").holds(None)
    assert PartitionFilter.union([]).condition("p") == "FALSE"


def test_an_instant_is_compared_in_any_zone():
    hour = values(HOURS, "2026-01-01-01:00", types.TimestampType())
    assert hour.holds(dt.datetime(2026, 1, 1, 1, 59, 59, 999999, tzinfo=dt.UTC))
    assert not hour.holds(dt.datetime(2026, 1, 1, 2, tzinfo=dt.UTC))

"""Of which columns data files have a dictionary."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl_assets.delta.read.data_files import new_data_file, repeating_columns

MANY, FEW = range(10_000), [number % 7 for number in range(10_000)]
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
ROWS = pa.table(
    {
        "id": pa.array(MANY),
        "kind": pa.array(FEW),
        "name": pa.array([f"name {each}" for each in MANY]),
        "group": pa.array([f"group {each}" for each in FEW]),
        "price": pa.array([Decimal(each) for each in FEW], pa.decimal128(18, 2)),
        "at": pa.array([START + dt.timedelta(seconds=each) for each in MANY], pa.timestamp("us", "UTC")),
        "nothing": pa.nulls(len(MANY), pa.string()),
        "tags": pa.array([["a"]] * len(MANY)),
    }
)


@pytest.mark.parametrize("pieces", [10_000, 999])
def test_columns_with_few_values_repeat(tmp_path, pieces):
    rows = pa.Table.from_batches(ROWS.to_batches(pieces))
    found = repeating_columns(rows)
    assert found == ["kind", "group", "price", "nothing"]
    with new_data_file(tmp_path / "x.parquet", rows.schema, repeating=found) as writer:
        writer.write_table(rows)
    assert pq.read_table(tmp_path / "x.parquet").equals(rows)


def test_no_column_of_one_row_repeats():
    assert repeating_columns(ROWS.slice(0, 1)) == ["nothing"]

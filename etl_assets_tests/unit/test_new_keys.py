"""One row of each key, as Spark's window chooses it, and what is said of keys that a table has."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl_assets.steps.new_keys import KeyedRows, keyed_rows, one_of_each_key
from etl_assets_tests.reference.declared_pipeline import declared, tables_of

TIMES = [None, *(dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 2))]


@pytest.mark.parametrize("keys", [["k", "l"], ["l"]])
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([1, 2]), st.sampled_from(TIMES)), max_size=12),
    st.booleans(),
)
def test_one_row_of_each_key_is_chosen_by_order_then_offset(keys, drawn, newest):
    columns = list(zip(*drawn, strict=True)) or [(), (), ()]
    types = (pa.string(), pa.int64(), pa.timestamp("us", tz="UTC"))
    arrays = [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)]
    rows = pa.table([*arrays, pa.array(range(len(drawn)), pa.int64())], names=["k", "l", "at", "_offset"])

    def rank(place: int) -> tuple[Any, ...]:
        at = drawn[place][2]
        return (at is not None, at or TIMES[1], place if newest else -place)

    best: dict[Any, int] = {}
    for place, row in enumerate(drawn):
        key = row[2 - len(keys) : 2]
        if key not in best or rank(place) > rank(best[key]):
            best[key] = place
    found = one_of_each_key(rows, keys, ["at", "_offset"], newest=newest)
    assert (list(range(len(drawn))) if found is None else found.tolist()) == sorted(best.values())


@pytest.mark.parametrize("keys", [["id"], ["id", "amount"]])
def test_rows_are_appended_once_each_unless_a_key_is_stored(tmp_path, keys):
    tables = tables_of(declared(columns={"id": "string", "amount": "decimal(10,2)"}, table={"keys": keys}))

    def file(name: str, *rows: tuple[str, str, int]) -> Path:
        columns = {
            "id": pa.array([row[0] for row in rows]),
            "amount": pa.array([Decimal(row[1]) for row in rows], pa.decimal128(10, 2)),
            "_offset": pa.array([row[2] for row in rows]),
            "_batch_id": pa.array([3] * len(rows)),
        }
        pq.write_table(pa.table(columns), tmp_path / name)
        return tmp_path / name

    def new(base: list[Path], *staged: Path) -> KeyedRows | None:
        snapshot: Any = SimpleNamespace(
            is_plain=True,
            files=lambda: (each.name for each in base),
            rows_by_file=lambda: ((each.name, 2) for each in base),
        )
        table: Any = SimpleNamespace(path=tmp_path)
        return keyed_rows(tables, staged, table, snapshot, None)

    staged = [file("s0", ("a", "1", 0), ("b", "1", 1)), file("s1", ("a", "1", 2), ("c", "1", 3))]
    met = new([file("t0", ("x", "1", 9), ("c", "1.00", 8)), file("t2", ("y", "1", 7))], *staged)
    assert met is not None
    assert met.meets == ("t0",)
    found = new([file("t1", ("x", "1", 9))], *staged)
    assert found is not None
    assert found.meets == ()
    assert found.write(tmp_path / "one", {}) == found.write(tmp_path / "two", {}) == 0
    files = [*(tmp_path / "one").iterdir(), *(tmp_path / "two").iterdir()]
    assert len({each.name for each in files}) == 4, "each file has a name of its own in its table"
    rows = pa.concat_tables(pq.read_table(each) for each in (tmp_path / "one").iterdir())
    assert rows.column_names == ["id", "amount", "_offset", "_batch_id"]
    assert sorted(rows.column("_offset").to_pylist()) == [1, 2, 3]

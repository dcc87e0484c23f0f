"""Staged rows merged by file into a table that has some of their keys, beside a model in plain Python."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from etl_assets.delta.read.data_files import rows_at_once
from etl_assets.delta.write.content import StoredFile
from etl_assets.steps.known_keys import KnownKeys
from etl_assets.steps.new_keys import keyed_rows
from etl_assets_tests.reference.declared_pipeline import declared, tables_of

FIRST = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TIMES = [None, FIRST, FIRST + dt.timedelta(days=1)]
SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "amount": pa.decimal128(10, 2),
        "at": pa.timestamp("us", tz="UTC"),
        "_offset": pa.int64(),
        "_batch_id": pa.int64(),
    }
)
Row = tuple[str, Decimal, dt.datetime | None, int, int]
KEYS = st.tuples(st.sampled_from("abcd"), st.sampled_from([Decimal("1.00"), Decimal("2.50")]))


def write(path: Path, rows: list[Row]) -> Path:
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    pq.write_table(pa.table(arrays, schema=SCHEMA), path, row_group_size=2)
    return path


def rows_in(files: list[Path]) -> dict[tuple[str, Decimal], Row]:
    rows = [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]
    assert len({row[:2] for row in rows}) == len(rows), "each key has one row"
    return {row[:2]: row for row in rows}


def rank(row: Row) -> tuple[bool, dt.datetime, int]:
    return row[2] is not None, row[2] or FIRST, row[3]


@pytest.mark.parametrize("mode", ["upsert", "insert", "upsert by arrival"])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stored=st.lists(st.tuples(KEYS, st.sampled_from(TIMES)), max_size=8, unique_by=lambda row: row[0]),
    staged=st.lists(st.tuples(KEYS, st.sampled_from(TIMES)), max_size=10),
    cuts=st.tuples(st.integers(0, 8), st.integers(0, 10)),
    late=st.booleans(),
)
def test_rows_are_those_of_the_model(tmp_path, mode, stored, staged, cuts, late):
    folder = tmp_path / uuid.uuid4().hex
    folder.mkdir()
    by_arrival = mode == "upsert by arrival"
    table: dict[str, Any] = {"keys": ["id", "amount"], "write_mode": mode.split()[0]}
    table |= {"sequence_by": "at"} if mode == "upsert" else {}
    columns = {"id": "string", "amount": "decimal(10,2)", "at": "timestamp"}
    tables = tables_of(declared(columns=columns, table=table))
    first = 0 if late else 100
    before: list[Row] = [(*key, at, 50 + number, 1) for number, (key, at) in enumerate(stored)]
    coming: list[Row] = [(*key, at, first + number, 2) for number, (key, at) in enumerate(staged)]
    old = [write(folder / "old0", before[: cuts[0]]), write(folder / "old1", before[cuts[0] :])]
    new = [write(folder / "new0", coming[: cuts[1]]), write(folder / "new1", coming[cuts[1] :])]

    snapshot: Any = SimpleNamespace(
        is_plain=True,
        files=lambda: (each.name for each in old),
        rows_by_file=lambda: ((each.name, pq.read_metadata(each).num_rows) for each in old),
    )
    in_folder: Any = SimpleNamespace(path=folder)
    rows = keyed_rows(tables, new, in_folder, snapshot, None)
    assert rows is not None
    assert set(rows.meets) == {file.name for file in old if {*rows_in([file])} & {row[:2] for row in coming}}
    assume(rows.meets)  # else they are appended
    known = KnownKeys(
        table=in_folder,
        rows=rows,
        order=tables.order if mode != "insert" else (),
        stored=tuple(_stored(folder / name) for name in rows.meets),
    )
    done = known.write(folder / "append" / "rows")

    wanted, best = rows_in(old), {}
    for row in coming:
        place = rank(row) if mode == "upsert" else (row[3],)
        if mode == "insert":
            place = (-row[3],)
        if row[:2] not in best or place > best[row[:2]][0]:
            best[row[:2]] = (place, row)
    inserted = updated = 0
    for key, (_, row) in best.items():
        inserted += key not in wanted
        is_newer = key not in wanted or (
            mode != "insert" and (row[3] > wanted[key][3] if by_arrival else rank(row) > rank(wanted[key]))
        )
        updated += is_newer and key in wanted
        if is_newer:
            wanted[key] = row
    removed = {file.name for file in done.removed}
    left = [file for file in old if file.name not in removed]
    assert rows_in([*left, *(folder / "append" / "rows").iterdir()]) == wanted
    assert (done.source_rows, done.inserted, done.updated) == (len(best), inserted, updated)
    assert not removed or updated, "a file without an older row stays as it is"


def _stored(path: Path) -> StoredFile:
    rows = pq.read_metadata(path).num_rows
    return StoredFile(
        name=path.name, partition={}, size=1, modified=0, rows=rows, statistics={"numRecords": rows}
    )


def test_few_long_rows_are_held_at_once(tmp_path):
    short, long = tmp_path / "short.parquet", tmp_path / "long.parquet"
    pq.write_table(pa.table({"text": [f"{number}" for number in range(1_000)]}), short)
    pq.write_table(pa.table({"text": [f"{number}" * 500_000 for number in range(10)]}), long)
    assert rows_at_once(short) == 50_000
    assert 30 < rows_at_once(long) < 100

"""Statistics of files: of every listed column or of none, so that no reader takes a file for one without the
rows it has.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.delta.log.entries import entry_path
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.log.statistics import Bounds, as_json, statistics
from etl_assets.delta.table import Table
from etl_assets.delta.write.append import write_files
from etl_assets.delta.write.content import content_of
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.replacement import Replacement, replace_contents
from etl_assets.errors import FilesGone
from etl_assets_tests.reference.tables import local_domain

PRICES = TableContract(
    name="prices",
    description="A price of each kind of key.",
    columns=(
        Column("price_id", "STRING", "Its id."),
        Column("amount", "DECIMAL(38,8)", "In euros."),
        Column("is_net", "BOOLEAN", "Without tax.", nullable=True),
        Column("updated_at", "TIMESTAMP", "When it was set."),
        Column("valid_from", "DATE", "First day.", nullable=True),
        Column("batch_id", "BIGINT", "The commit that wrote it."),
    ),
    merge_key=("price_id", "amount", "is_net", "valid_from", "updated_at"),
    append_only=True,
)
AT = dt.datetime(2026, 1, 5, 10, 30, 0, 123456, tzinfo=dt.UTC)
BIG = Decimal("123456789012345678901234567890.12345678")
ROWS = [
    {
        "price_id": "a",
        "amount": Decimal(1),
        "is_net": True,
        "updated_at": AT,
        "valid_from": None,
        "batch_id": 1,
    },
    {
        "price_id": "b" * 5_000,
        "amount": BIG,
        "is_net": False,
        "updated_at": AT + dt.timedelta(days=1),
        "valid_from": dt.date(2026, 1, 5),
        "batch_id": 1,
    },
]


@pytest.fixture(params=["as_made", "with_booleans"])
def prices(tmp_path, request):
    table = Table(name="prices", domain=local_domain(tmp_path), contract=PRICES)
    ensure_table(table)
    if request.param == "with_booleans":
        entry = entry_path(table.path, 0)
        entry.write_text(entry.read_text().replace("amount,valid_from", "amount,is_net,valid_from"))
        snapshot = table.snapshot()
        assert snapshot is not None
        assert "is_net" in (snapshot.statistics_columns() or ())
    return table


def append(table: Table, rows: list[dict], name: str = "") -> None:
    snapshot = table.snapshot()
    assert snapshot is not None

    def write(folder):
        folder.mkdir(parents=True)
        file = pa.Table.from_pylist(rows, schema=data_file_schema(PRICES))
        pq.write_table(file, folder / (name or f"part-{uuid.uuid4()}.parquet"))
        return 0

    new = write_files(table, table.path, snapshot, write)
    entry = NewEntry(
        operation="WRITE",
        base_version=snapshot.version,
        metrics=new.metrics,
        user_metadata={},
        added=new.files,
    )
    assert entry.put(table.path, stamped=False)


def test_a_new_data_file_replaces_none_of_the_table(prices):
    row = ROWS[0]
    (prices.path / "part-0.parquet").write_bytes(b"left by a killed append")
    append(prices, [row], "part-0.parquet")
    with pytest.raises(RuntimeError, match=r"part-0\.parquet has the name of one"):
        append(prices, [row, row], "part-0.parquet")
    assert DeltaTable(str(prices.path)).to_pyarrow_table().num_rows == 1


def found(table: Table, row: dict) -> list[int]:
    """How many rows delta-rs and Polars find by each of a row's values."""
    filters = [(name, "=", value) for name, value in row.items() if value is not None]
    by_delta_rs = [DeltaTable(str(table.path)).to_pyarrow_table(filters=[each]).num_rows for each in filters]
    lazy = polars.scan_delta(str(table.path))
    by_polars = [lazy.filter(polars.col(name) == value).collect().height for name, _, value in filters]
    assert by_delta_rs == by_polars
    return by_delta_rs


def test_rows_are_found_by_values_of_every_type(prices):
    append(prices, ROWS)
    assert found(prices, ROWS[0]) == [1, 1, 1, 1, 2]
    assert found(prices, ROWS[1]) == [1, 1, 1, 1, 1, 2]


def test_rows_of_a_file_that_came_back_are_found_by_values_of_every_type(prices):
    append(prices, ROWS)
    files = tuple(content_of(prices.snapshot()).values())
    replace_contents([Replacement(table=prices, base_version=1, removed=files)])
    replace_contents([Replacement(table=prices, base_version=2, restored=files)])
    assert found(prices, ROWS[0]) == [1, 1, 1, 1, 2]
    assert found(prices, ROWS[1]) == [1, 1, 1, 1, 1, 2]


def test_of_a_file_with_bounds_of_some_columns_only_none_come_back(prices):
    append(prices, ROWS)
    entry = entry_path(prices.path, 1)
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            partial = json.loads(action["add"]["stats"])
            del partial["minValues"]["updated_at"], partial["maxValues"]["updated_at"]
            action["add"]["stats"] = json.dumps(partial)
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions))
    files = tuple(content_of(prices.snapshot()).values())
    replace_contents([Replacement(table=prices, base_version=1, removed=files)])
    replace_contents([Replacement(table=prices, base_version=2, restored=files)])
    assert found(prices, ROWS[0]) == [1, 1, 1, 1, 2]


def test_a_column_that_deltas_writer_keeps_no_bounds_of_is_not_listed(tmp_path):
    table = Table(name="prices", domain=local_domain(tmp_path), contract=PRICES)
    ensure_table(table)
    snapshot = table.snapshot()
    assert snapshot is not None
    assert snapshot.statistics_columns() == ("price_id", "amount", "valid_from", "updated_at", "batch_id")


def test_one_column_without_bounds_takes_those_of_the_others_with_it():
    known = {"k": Bounds(0, 1, 2), "empty": Bounds(3)}
    assert statistics(3, known)["minValues"] == {"k": 1}
    assert statistics(3, known)["nullCount"] == {"k": 0, "empty": 3}
    for unknown in (None, Bounds(1), Bounds(0, 0.5, 1.5)):
        assert statistics(3, {**known, "other": unknown}) == {"numRecords": 3}


def test_values_are_spelled_with_all_their_digits_and_long_texts_by_their_beginning():
    utc = AT.astimezone(dt.timezone(dt.timedelta(hours=2)))
    found = statistics(
        1,
        {
            "amount": Bounds(0, BIG, BIG),
            "at": Bounds(0, utc, utc),
            "long": Bounds(0, "é" * 2_000, "é" * 2_000),
        },
    )
    text = as_json(found)
    assert f'"amount":{BIG}' in text
    assert '"at":"2026-01-05T10:30:00.123456Z"' in text
    read = json.loads(text)
    assert read["minValues"]["long"] < "é" * 2_000 < read["maxValues"]["long"]
    assert max(len(read[kind]["long"]) for kind in ("minValues", "maxValues")) < 1_100


def test_rows_that_the_log_does_not_tell_are_counted_in_the_footers(prices):
    append(prices, ROWS)
    entry = entry_path(prices.path, 1)
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        action.get("add", {}).pop("stats", None)
    entry.write_text("".join(json.dumps(action) + "\n" for action in actions))
    snapshot = prices.snapshot()
    assert snapshot is not None
    assert (snapshot.row_count(), snapshot.rows_by()) == (2, {(): 2})
    assert [stored.rows for stored in content_of(snapshot).values()] == [2], "an undo counts as well"
    (file,) = snapshot.files()
    (prices.path / file).unlink()
    with pytest.raises(FilesGone, match="does not say how many rows"):
        snapshot.row_count()

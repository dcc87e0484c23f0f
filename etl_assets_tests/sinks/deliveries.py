"""A table and deliveries of it, as plain values, for the tests of every sink."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.sinks.sink import Delivery, Rejection, SinkPosition

CONTRACT = TableContract(
    name="films",
    description="Films for tests.",
    columns=(
        Column("film_id", "STRING", "Key.", nullable=False),
        Column("day", "DATE", "A day."),
        Column("amount", "DECIMAL(18,2)", "An amount."),
        Column("seen_at", "TIMESTAMP", "A time."),
        Column("flag", "BOOLEAN", "Yes or no."),
        Column("score", "DOUBLE", "A measurement."),
        Column("count", "INT", "A number."),
        Column("big", "BIGINT", "A big number."),
        Column("tags", "ARRAY<STRING>", "Words."),
        Column("rates", "MAP<STRING, DECIMAL(18,2)>", "Rates."),
        Column("maker", "STRUCT<name: STRING, born: DATE>", "A person."),
    ),
    merge_key=("film_id",),
)
PARTITIONED = TableContract(
    name="films",
    description="Films for tests, by day.",
    columns=CONTRACT.columns,
    merge_key=CONTRACT.merge_key,
    delta_partition=("day",),
)


def film(film_id: str, count: int = 1, *, day: int = 1) -> dict[str, Any]:
    return {
        "film_id": film_id,
        "day": dt.date(2026, 1, day),
        "amount": Decimal("12.30"),
        "seen_at": dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC),
        "flag": True,
        "score": 0.5,
        "count": count,
        "big": 2**53 + 1,
        "tags": ["a", None],
        "rates": [("x", Decimal("1.00"))],
        "maker": {"name": "É", "born": dt.date(1970, 1, 1)},
    }


def at(version: int, table_id: str = "t1") -> SinkPosition:
    return SinkPosition(table_id=table_id, version=version)


def delivery(
    before: SinkPosition | None,
    after: SinkPosition,
    rows: Sequence[dict[str, Any]] = (),
    deleted: Sequence[str] = (),
    *,
    whole: bool = False,
    rejected: list[Rejection] | None = None,
    contract: TableContract = CONTRACT,
) -> Delivery:
    schema = data_file_schema(contract)
    keys = pa.schema([schema.field("film_id")])

    def batches() -> Iterator[pa.RecordBatch]:
        yield from pa.Table.from_pylist(list(rows), schema=schema).to_batches(max_chunksize=1000)

    def gone() -> Iterator[pa.RecordBatch]:
        yield from pa.Table.from_pylist([{"film_id": each} for each in deleted], schema=keys).to_batches()

    return Delivery(
        before=before,
        after=after,
        whole=whole,
        rows=batches,
        deleted=gone,
        reject=(rejected if rejected is not None else []).extend,
    )


def many(before: SinkPosition | None, after: SinkPosition, number: int, *, whole: bool = False) -> Delivery:
    """A delivery whose rows exist one batch at a time."""
    schema = data_file_schema(CONTRACT)

    def batches() -> Iterator[pa.RecordBatch]:
        template = pa.RecordBatch.from_pylist([film("x")] * 5000, schema=schema)
        for first in range(0, number, 5000):
            size = min(5000, number - first)
            ids = pa.array([f"film-{each:09d}" for each in range(first, first + size)])
            yield template.slice(0, size).set_column(0, schema.field(0), ids)

    return Delivery(
        before=before, after=after, whole=whole, rows=batches, deleted=lambda: iter(()), reject=_none
    )


def _none(rejected: list[Rejection]) -> None:
    assert not rejected

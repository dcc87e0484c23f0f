"""A query over PostgreSQL into a Delta table as a good engineer writes it by hand: COPY into Arrow by ADBC,
and one append by delta-rs.

It does without: positions, going on where it stopped, ids and fingerprints, rejects, keys, fsync.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments

if TYPE_CHECKING:
    import pyarrow as pa

WARM, DONE = "session", "done"


def main() -> None:
    # Loaded before the clock starts.
    import pyarrow  # noqa: F401 - used by `rows_of`
    from adbc_driver_postgresql import dbapi  # noqa: F401 - used by `rows_of`
    from deltalake import DeltaTable, write_deltalake

    told = arguments()
    mark(WARM)
    with rows_of(told["address"], told["query"]) as rows:
        write_deltalake(told["table"], rows, mode="append")
    mark(DONE)
    mark("verified", sale=DeltaTable(told["table"]).to_pyarrow_dataset().count_rows())


@contextmanager
def rows_of(address: str, query: str) -> Generator[pa.RecordBatchReader]:
    """Read the rows of a query, with types that Delta has."""
    import pyarrow as pa
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute(query)
        rows = cursor.fetch_record_batch()
        # ADBC has numeric as text; Delta has no opaque types.
        schema = pa.schema([(field.name, _plain(field.type)) for field in rows.schema])
        yield pa.RecordBatchReader.from_batches(schema, (_as(batch, schema) for batch in rows))


def _plain(type_: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if isinstance(type_, pa.BaseExtensionType):
        return pa.decimal128(18, 2)
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(type_) else type_


def _as(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = [
        (column.storage if isinstance(column, pa.ExtensionArray) else column).cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


if __name__ == "__main__":
    main()

"""Rows of one version of a table by their keys. No Spark.

Files that their statistics exclude stay closed. Belongs here: reading. Does not belong here: which keys are
wanted (`requested_rows.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from etl_assets.steps.delivery_rows import DeliveryRows, batches_of, schema_of, tuples_of

if TYPE_CHECKING:
    import pyarrow as pa

Keys = tuple[Any, ...]
"""The values of the key columns, in their order."""


def versions_of(rows: DeliveryRows, keys: Collection[Keys]) -> dict[Keys, int]:
    """Return the version that wrote the row of each of some keys; keys without a row are left out.

    If the table has no column for it, that is the version after the newest one: each delivery has all rows.
    """
    column, names = rows.contract.batch_column, list(rows.contract.merge_key)
    found: dict[Keys, int] = {}
    columns = [*names, *([] if column is None else [column])]
    for batch in batches_of(rows.table, columns, _among(rows, keys)) if keys else ():
        unknown = [rows.table[1] + 1] * batch.num_rows
        written = unknown if column is None else batch.column(column).to_pylist()
        found.update(zip(tuples_of(batch, names), written, strict=True))
    return {key: version for key, version in found.items() if key in keys}


def rows_of(rows: DeliveryRows, keys: Collection[Keys]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some keys."""
    import pyarrow as pa

    for batch in rows.rows_where(_among(rows, keys)) if keys else ():
        there = [key in keys for key in tuples_of(batch, list(rows.contract.merge_key))]
        if (found := batch.filter(pa.array(there, pa.bool_()))).num_rows:
            yield found


def keys_table(rows: DeliveryRows, keys: Collection[Keys]) -> pa.Table:
    """Return some keys as a table with the key columns, always in the same order."""
    import pyarrow as pa

    names = list(rows.contract.merge_key)
    values = [dict(zip(names, key, strict=True)) for key in sorted(keys, key=repr)]
    return pa.Table.from_pylist(values, schema=schema_of(rows.snapshot, names))


def _among(rows: DeliveryRows, keys: Collection[Keys]) -> Any:
    """Return a condition that rows of some keys meet, and few others: on the first column of the key."""
    import pyarrow.dataset as ds

    name = rows.contract.merge_key[0]
    return ds.field(name).isin(keys_table(rows, keys).column(name).combine_chunks().unique())

"""Rows of a table by value, through delta-rs and pyarrow.

No JVM; parameterized; one batch in memory at a time. Belongs here: finding rows. Does not belong here: their
meaning (`dead_letters.py`, `event_history.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

_LAST_CHARACTER = "\U0010ffff"


def find_rows(
    table: Table,
    *,
    columns: Sequence[str],
    where: Mapping[str, Collection[Any]] | None = None,
    prefix: tuple[str, str] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield rows of the newest version in no particular order; none if the table does not exist.

    A column that the stored table does not have yet is null.

    Args:
        table: The table.
        columns: Columns to read.
        where: Allowed values by column; all conditions must hold. Values of the Delta partition column keep
            the files of other partitions closed.
        prefix: A STRING column and the prefix of its value.

    Raises:
        FilesGone, ReplicaCorrupt: a file of the table is gone or damaged.
    """
    conditions = dict(where or {})
    if any(not values for values in conditions.values()) or (snapshot := table.snapshot()) is None:
        return
    import pyarrow.dataset as ds

    from etl_assets.delta.read.data_files import batches_of_snapshot
    from etl_assets.delta.write.writing import storage_named

    stored = {field["name"] for field in snapshot.fields()}
    asked = {*conditions, *(() if prefix is None else prefix[:1])}
    if not asked <= stored:
        return
    missing = dict.fromkeys(name for name in columns if name not in stored)
    condition: Any = None
    for name, values in conditions.items():
        one = ds.field(name).isin(list(values))
        condition = one if condition is None else condition & one
    if prefix is not None:
        name, start = prefix
        # A range, so that files whose statistics exclude it stay closed.
        one = (ds.field(name) >= start) & (ds.field(name) <= start + _LAST_CHARACTER)
        condition = one if condition is None else condition & one
    there = [name for name in columns if name in stored]
    with storage_named(table):
        for batch in batches_of_snapshot(snapshot, there, condition):
            yield from ({**row, **missing} for row in batch.to_pylist()) if missing else batch.to_pylist()

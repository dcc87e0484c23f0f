"""Rows of a table by value, through delta-rs and pyarrow: no JVM, parameterized, one batch in memory at a time.

Belongs here: how rows are found. Does not belong here: what they mean (`dead_letters.py`, `event_history.py`).
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
    """Rows of the newest version, in no particular order; none where the table does not exist.

    Args:
        table: The table.
        columns: What to read of each row.
        where: For some columns the values they may have; all must hold. Values of the Delta partition column keep the
            other partitions' files closed.
        prefix: A STRING column and what its value starts with.
    """
    conditions = dict(where or {})
    if any(not values for values in conditions.values()) or (snapshot := table.snapshot()) is None:
        return
    import pyarrow.dataset as ds

    condition: Any = None
    for name, values in conditions.items():
        one = ds.field(name).isin(list(values))
        condition = one if condition is None else condition & one
    if prefix is not None:
        name, start = prefix
        # As a range, so that files whose statistics rule it out stay closed.
        one = (ds.field(name) >= start) & (ds.field(name) <= start + _LAST_CHARACTER)
        condition = one if condition is None else condition & one
    for batch in snapshot.dataset().to_batches(columns=list(columns), filter=condition):
        yield from batch.to_pylist()

"""Two versions of a table compared by the files that one of them has and the other one has not.

A row of the older version that is changed or gone in the newer one is in a file that the newer one does not
have. Rows that were only moved to other files, as by a compaction, are in both.

Belongs here: the rows of the older version. Does not belong here: new rows, which their batch ids tell
(`steps/delivery_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from etl_assets.steps.delivery_rows import DeliveryRows, batches_of, schema_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from etl_assets.delta.snapshot import Snapshot

_PLACE = "_place"
_BATCH = "_newer_batch"


def former_rows(
    before: DeliveryRows, after: DeliveryRows, columns: Sequence[str], *, until: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an older version whose keys are gone in a newer one, or changed there.

    Memory holds the keys of the rows in files that only one of the versions has.

    Args:
        before: The older version.
        after: The newer version.
        columns: The columns to yield.
        until: The newest batch id of changed rows whose former values are wanted; None: rows that are gone
            only.
    """
    import numpy as np
    import pyarrow as pa

    removed, added = _differing_files(before.snapshot, after.snapshot)
    if not removed:
        return
    keys, batch = list(before.contract.merge_key), before.contract.batch_column
    assert batch is not None  # a table without one is not followed
    # 1. Find out which rows are wanted, by keys alone.
    schema = schema_of(after.snapshot, list(dict.fromkeys([*keys, batch])))
    newer = pa.Table.from_batches([*batches_of(after.table, schema.names, None, files=added)], schema=schema)
    batches = newer.column(batch)
    newer = newer.select(keys).append_column(_BATCH, batches)
    older = pa.Table.from_batches(
        [*batches_of(before.table, keys, None, files=removed)], schema=schema_of(before.snapshot, keys)
    )
    older = older.append_column(_PLACE, pa.array(np.arange(older.num_rows)))
    wanted = _places(older, newer, keys, after=before.table[1], until=until)
    # 2. Read these rows. One version has its rows always in the same order.
    place = 0
    for rows in batches_of(before.table, list(columns), None, files=removed):
        mask = wanted[place : place + rows.num_rows]
        place += rows.num_rows
        if mask.any():
            yield rows.filter(pa.array(mask))


def _differing_files(before: Snapshot, after: Snapshot) -> tuple[frozenset[str], frozenset[str]]:
    """Return the files that only one of two versions has; all where files alone do not tell the rows."""
    older, newer = frozenset(before.files()), frozenset(after.files())
    if not (before.is_plain and after.is_plain):
        return older, newer
    return older - newer, newer - older


def _places(
    older: pa.Table, newer: pa.Table, keys: list[str], *, after: int, until: int | None
) -> np.ndarray:
    """Return for each row of the older version whether it is wanted."""
    import numpy as np

    joined = older.join(newer, keys=keys, join_type="left outer").select([_PLACE, _BATCH])
    places = joined.column(_PLACE).to_numpy()
    there = joined.column(_BATCH).is_valid().to_numpy()
    batches = joined.column(_BATCH).fill_null(-1).to_numpy()
    is_changed = there & (batches > after) & (batches <= (-1 if until is None else until))
    wanted = np.zeros(older.num_rows, dtype=bool)
    wanted[places] = ~there | is_changed
    return wanted

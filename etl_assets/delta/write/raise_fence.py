"""The commit that raises the fence of a pipeline's runs at a table.

Belongs here: that commit. Does not belong here: what the fence means (`run_fence.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.delta.log.lasting_cursors import lasting_cursors
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.write.run_fence import fence_id, is_raised
from etl_assets.delta.write.write_version import (
    DEFAULT_LOCK_WAIT_SECONDS,
    Place,
    commit_metadata,
    put_entry,
    write_version,
)
from etl_assets.delta.write.writing import writing

if TYPE_CHECKING:
    from etl_assets.delta.table import Table


def raise_fence(table: Table, *, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS) -> bool:
    """Reject every later commit of a lost runner of the table's run. Uses no Spark, and changes no row.

    Does nothing without a lost runner, or if the table rejects it already.

    Returns:
        Whether a commit was made.

    Raises:
        LeaseLost: a runner with a higher token has begun.
        TableBusy: another process, which may be the lost runner, held the table's lock for too long.
    """
    run = table.run
    if run is None or is_raised(table):
        return False
    with writing(table, wait_seconds=wait_seconds, driver_pid=None):
        if is_raised(table):  # by another thread
            return False
        version = table.version()

        def execute(place: Place, writer: str) -> None:
            entry = NewEntry(
                operation="SET TRANSACTIONS",
                base_version=version,
                metrics={},
                transactions={**lasting_cursors(table, version, {}), fence_id(run.pipeline): run.token},
                user_metadata=commit_metadata(place, writer, {}, last=True),
                changes_rows=False,
            )
            snapshot = table.snapshot(version)
            assert snapshot is not None  # the table is there
            put_entry(table, place, snapshot, entry)

        write_version(None, table, version + 1, execute)
    return True

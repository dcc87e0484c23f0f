"""What an undo of a table without contract does otherwise: the table of a user's asset, in which nothing
reads cursors.

Belongs here: which appends of runs it forgets, and which tables it refuses. Does not belong here: the plan
(`plan.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from etl_assets.delta.asset_record import APPEND_IDS, is_of_a_pipeline
from etl_assets.delta.log.entries import read_transactions
from etl_assets.delta.table import Snapshot, Table
from etl_assets.errors import FilesGone, InputError


def expect_of_an_asset(table: Table, snapshot: Snapshot) -> None:
    """Refuse to undo a table that a pipeline made which is not declared any more: its cursors would stay.

    Raises:
        InputError: the table is not that of a user's asset.
    """
    if table.contract is None and is_of_a_pipeline(snapshot):
        raise InputError(
            f"{table.name} is not restored: a pipeline made it that is not declared any more, or whose file"
            " has problems",
            fix="put its file back into the folder `pipelines`, or correct it (`etl-assets pipelines list`)",
            table=table.name,
        )


def appends_after_restore(table: Table, now: Snapshot, then: Snapshot) -> dict[str, int]:
    """Return the transaction ids of appends to set, so that the table knows those whose rows it has, and no
    others.

    A run whose rows are taken out adds them when it is executed again; a run whose rows come back does not.

    Raises:
        FilesGone: the log does not say which appends a version had.
    """
    if table.contract is not None:
        return {}
    had, has = _appends(table, then), _appends(table, now)
    wanted = {name: had.get(name, -1) for name in (*had, *has)}
    return {name: version for name, version in wanted.items() if has.get(name, -1) != version}


def _appends(table: Table, snapshot: Snapshot) -> Mapping[str, int]:
    found = read_transactions(table.path, snapshot.version)
    if found is None:
        raise FilesGone(
            f"the log of {table.name} does not say which runs had appended rows at version"
            f" {snapshot.version}",
            fix="choose a newer version",
            table=table.name,
            missing=[],
        )
    return {name: version for name, version in found.items() if name.startswith(APPEND_IDS)}

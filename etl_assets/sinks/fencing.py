"""Fencing tokens in the positions that targets store. Pure decisions.

A target compares its stored position with the one that a delivery begins at, in the transaction that writes
the rows. The token is part of what is stored. So a runner that raises it rejects every delivery that a runner
before it has planned.

Belongs here: what the token makes of a stored position. Does not belong here: deliveries
(`steps/deliver.py`), and the fence of tables (`delta/write/run_fence.py`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from etl_assets.delta.write.run_fence import superseded
from etl_assets.sinks.position import SinkPosition

if TYPE_CHECKING:
    from etl_assets.delta.run_token import RunToken


def placed(stored: SinkPosition | None) -> SinkPosition | None:
    """Return where a target is, without the token; None if nothing was delivered to it."""
    if stored is None or not stored.table_id:
        return None
    return replace(stored, token=0)


def raised(stored: SinkPosition | None, run: RunToken, *, target: str) -> SinkPosition | None:
    """Return the position to store before a run begins; None if its lost runners are rejected already.

    Raises:
        LeaseLost: a runner with a higher token has written to the target.
    """
    before = SinkPosition.of_no_table() if stored is None else stored
    if before.token > run.token:
        raise superseded(run, before.token, what=target)
    if not run.takes_over or before.token > run.lost:
        return None
    return replace(before, token=run.token)


def with_token(after: SinkPosition, stored: SinkPosition | None, run: RunToken | None) -> SinkPosition:
    """Return the position to store with a delivery: with the run's token, and never a lower one."""
    return replace(after, token=max(0 if stored is None else stored.token, 0 if run is None else run.token))

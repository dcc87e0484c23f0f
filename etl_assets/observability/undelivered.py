"""Which sinks lack something: commits of their table, or replays of their dead letters. No Spark.

Belongs here: whether there is anything to deliver. Does not belong here: how much it is (`delivery_lag.py`).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from etl_assets.contracts.tables import REPLAYS
from etl_assets.delta.log.cursor import read_cursors
from etl_assets.delta.write.writing import storage_named
from etl_assets.sinks.replay_requests import done_up_to, newest_request
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table
    from etl_assets.placement.domains import FailureDomain


def undelivered(domain: FailureDomain, *, among: Container[str] | None = None) -> tuple[str, ...]:
    """Return the tables of deliveries whose input has moved on since the last one, or with replays to do.

    Looks at all of them, or at those among some.
    """
    stages = [
        stage for stage in domain.catalog.stages if stage.delivers and (among is None or stage.name in among)
    ]
    replays = replays_of(domain) if stages else None
    return tuple(
        stage.name
        for stage in stages
        if has_undelivered(
            platform_table(stage.name, domain), platform_table(stage.inputs[0], domain), replays
        )
    )


def replays_of(domain: FailureDomain) -> Snapshot | None:
    """Return the table of dead letters that were submitted again; None if there is none."""
    return platform_table(REPLAYS.name, domain).snapshot()


def has_undelivered(deliveries: Table, table: Table, replays: Snapshot | None) -> bool:
    """Return whether a table has moved on since its last delivery, or a key of it was requested again."""
    version = table.version()
    if version < 0:
        return False
    moved_on = read_cursors(deliveries, table.name, [None])[None] != version
    return moved_on or has_requests(deliveries, replays)


def has_requests(deliveries: Table, replays: Snapshot | None) -> bool:
    """Return whether dead letters of a sink were submitted again that no delivery has taken up."""
    if replays is None:
        return False
    settled = done_up_to(read_cursors(deliveries, REPLAYS.name, [None])[None], replays.version)
    with storage_named(deliveries):
        return newest_request(replays, deliveries.name, settled) > settled

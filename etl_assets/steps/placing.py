"""Where a stage runs: the placement's decision, told which domain leads the table the stage writes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from etl_assets.contracts.tables import (
    ALL_TABLES,
    ORDER_STATUS_VIEW,
    RAW_EVENTS,
    RAW_EVENTS_EXCEPTIONS,
    WAREHOUSE_ROWS,
)
from etl_assets.errors import MirrorError, Unanswered
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.placement.policy import Stage
from etl_assets.steps.step import platform_table

_STAGES = {
    RAW_EVENTS.name: Stage.INGEST,
    RAW_EVENTS_EXCEPTIONS.name: Stage.INGEST,
    WAREHOUSE_ROWS.name: Stage.SINK,
    ORDER_STATUS_VIEW.name: Stage.SINK,
}
STAGE_OF: Mapping[str, Stage] = MappingProxyType(
    {contract.name: _STAGES.get(contract.name, Stage.TRANSFORM) for contract in ALL_TABLES}
)
"""The stage that writes each table."""


def place(placement: Placement, stage: Stage, table: str) -> FailureDomain:
    """The domain that runs a stage for a table now: where it ran before, as long as that may and can go on.

    Sensors ask it, and the run asks again, so that both name the same domain.

    Raises:
        DomainUnavailable: no domain may and can run the stage.
    """
    return placement.place(stage, leader=leader(placement, table))


def leader(placement: Placement, table: str) -> str | None:
    """The domain that leads a table; None if nobody does yet, or too few domains answer to tell."""
    mirrored = platform_table(table, placement.domains[0]).replication
    if mirrored is None:
        return None
    try:
        state = mirrored.acknowledged()
    except (MirrorError, Unanswered):
        return None
    return None if state is None or not state.epoch.domain else state.epoch.domain

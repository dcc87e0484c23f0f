"""Where a stage runs: the placement's decision, told which domain leads the table the stage writes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from etl_assets.contracts.tables import (
    ALL_TABLES,
    EFFECTS,
    ORDER_STATUS_VIEW,
    RAW_EVENTS,
    RAW_EVENTS_EXCEPTIONS,
    REPLAYS,
    WAREHOUSE_ROWS,
)
from etl_assets.errors import MirrorError, Unanswered
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.placement.policy import Stage
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.mirroring.record import State

_STAGES = {
    RAW_EVENTS.name: Stage.INGEST,
    RAW_EVENTS_EXCEPTIONS.name: Stage.INGEST,
    WAREHOUSE_ROWS.name: Stage.SINK,
    ORDER_STATUS_VIEW.name: Stage.SINK,
    REPLAYS.name: Stage.INGEST,
    EFFECTS.name: Stage.SINK,
}
STAGE_OF: Mapping[str, Stage] = MappingProxyType(
    {contract.name: _STAGES.get(contract.name, Stage.TRANSFORM) for contract in ALL_TABLES}
)
"""The stage that writes each table."""


def place(placement: Placement, stage: Stage, table: str) -> FailureDomain:
    """The domain that runs a stage for a table now: where it ran before, as long as that may and can go on.

    A domain whose part of the table is lost cannot, however healthy it is: it has to rejoin first, under another leader.
    Sensors ask for the domain, and the run asks again, so that both name the same.

    Raises:
        DomainUnavailable: no domain may and can run the stage.
    """
    state = _acknowledged(placement, table)
    leads = None if state is None else state.epoch.domain or None
    unfit: dict[str, str] = {}
    while True:
        domain = placement.place(stage, table=table, leader=leads, unfit=unfit)
        mirrored = platform_table(table, domain).replication
        problem = None if mirrored is None or state is None else mirrored.problem(state)
        if problem is None:
            return domain
        unfit[domain.name] = problem


def leader(placement: Placement, table: str) -> str | None:
    """The domain that leads a table; None if nobody does yet, or too few domains answer to tell."""
    state = _acknowledged(placement, table)
    return None if state is None else state.epoch.domain or None


def _acknowledged(placement: Placement, table: str) -> State | None:
    mirrored = platform_table(table, placement.domains[0]).replication
    try:
        return None if mirrored is None else mirrored.acknowledged()
    except (MirrorError, Unanswered):
        return None

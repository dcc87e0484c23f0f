"""Where a stage runs: the placement's decision, told which domain leads the table the stage writes."""

from __future__ import annotations

from etl_assets.errors import MirrorError, Unanswered
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.placement.policy import Stage
from etl_assets.steps.step import platform_table


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

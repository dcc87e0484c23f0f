"""Outcomes by day, from file statistics alone: no Spark, no rows read."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import Outcome
from etl_assets.delta.table import Table

if TYPE_CHECKING:
    from etl_assets.pipelines.stage import Stage
    from etl_assets.placement.domains import FailureDomain


def outcomes_by_day(
    domain: FailureDomain, stage: Stage, *, newest: int | None = None
) -> dict[str, Counter[str]]:
    """Return the number of records by outcome, for each day of arrival.

    Outcomes: accepted, duplicate, conflict and rejected.

    Args:
        domain: Failure domain of the tables.
        stage: A stage that reads a source.
        newest: Number of newest days to return; None returns all.
    """
    counts: dict[str, Counter[str]] = {}
    accepted = Table(name=stage.name, domain=domain, contract=stage.table).snapshot()
    if accepted is not None and stage.keeps_records:
        for (day,), rows in accepted.rows_by("partition_date").items():
            counts.setdefault(day, Counter())[Outcome.ACCEPTED.value] += rows
    rejects = stage.rejects
    exceptions = (
        None if rejects is None else Table(name=rejects.name, domain=domain, contract=rejects).snapshot()
    )
    if exceptions is not None:
        for (day, outcome), rows in exceptions.rows_by("partition_date", "outcome").items():
            counts.setdefault(day, Counter())[outcome] += rows
    days = sorted(counts)
    return {day: counts[day] for day in (days if newest is None else days[-newest:])}

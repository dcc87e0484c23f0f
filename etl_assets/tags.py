"""Run tags: the platform's own, and the documented ones of Dagster that it uses."""

from __future__ import annotations

READ_MODE = "etl_assets/read"
"""`incremental` on runs requested by automation.

Manual runs and backfills lack it and read whole partitions.
"""
DOMAIN = "etl_assets/domain"
"""Failure domain that the run's newest stage was placed in."""
REQUEST = "etl_assets/request"
"""Request of the landing sensor (days and cursor). All attempts at one request have the same value."""

PRIORITY = "dagster/priority"
"""Dagster's tag, as documented: of the runs that wait, the one with the highest number is launched first."""
MAX_RETRIES = "dagster/max_retries"
"""Dagster's tag, as documented: how often its daemon restarts a failed run."""


def domain_of(stage: str) -> str:
    """Return the tag for the failure domain of one stage: the stages of a run may have different domains."""
    return f"etl_assets/{stage}_domain"

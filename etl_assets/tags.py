"""Run tags: what a run of the platform says of itself in Dagster's tags, and of Dagster's own those that are documented."""

from __future__ import annotations

READ_MODE = "etl_assets/read"
"""`incremental` on runs that automation asks for; by hand and in backfills absent, and the partition is read whole."""
DOMAIN = "etl_assets/domain"
"""Failure domain the run's newest stage was placed in."""
REQUEST = "etl_assets/request"
"""What the landing sensor asked for: days and cursor; all attempts at the same have the same value."""

MAX_RETRIES = "dagster/max_retries"
"""Dagster's own, as its documentation names it: how often its daemon starts a run again that failed."""


def domain_of(stage: str) -> str:
    """The tag with the failure domain a run placed a stage in: those of one run may differ."""
    return f"etl_assets/{stage}_domain"

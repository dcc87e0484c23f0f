"""Errors as Dagster sees them: a `Failure` with the next action and whether to retry."""

from __future__ import annotations

from typing import Any, cast

import dagster as dg

from etl_assets.delta.session import lost_driver_pid
from etl_assets.error_policy import Decision, advice, decide, told
from etl_assets.errors import DaysFailed, EngineLost

FAILED_PARTITIONS = "failed_partitions"
"""Metadata key in the failure of a step that stored its other partitions."""
_NO_ANSWER = ("Py4JError", "Py4JNetworkError")
"""Errors of a call whose JVM died, besides a lost connection. A bug may raise them as well."""
_DYING_SECONDS = 1.0
"""How long to wait for the process: its connection may end first."""


def as_failure(error: Exception) -> dg.Failure:
    """Convert an error to a Dagster failure; the error policy decides whether Dagster retries."""
    if isinstance(error, dg.Failure):
        return error
    error = _lost_engine(error) or error
    decision = decide(error)
    metadata: dict[str, Any] = {
        "error": type(error).__name__,
        "fix": advice(error),
        "decision": decision.value,
    }
    if isinstance(error, DaysFailed):
        metadata[FAILED_PARTITIONS] = sorted(error.days)
    return dg.Failure(description=told(error), metadata=metadata, allow_retries=decision is Decision.RETRY)


def failed_partitions(failure: dg.Failure | None) -> frozenset[str]:
    """Return the partitions that a failed step names; empty if the failure is not about some of them."""
    named = None if failure is None else failure.metadata.get(FAILED_PARTITIONS)
    return frozenset() if named is None else frozenset(cast("list[str]", named.value))


def _lost_engine(error: Exception) -> EngineLost | None:
    """Return the loss of Spark's JVM if it caused the error, which itself describes only one call."""
    if not isinstance(error, ConnectionError) and type(error).__name__ not in _NO_ANSWER:
        return None
    if (driver := lost_driver_pid(wait_seconds=_DYING_SECONDS)) is None:
        return None
    return EngineLost(
        f"the Spark engine of this process (process {driver}) has ended in the middle of the step",
        fix="nothing, unless it goes on: the step is repeated with another engine, and nothing acknowledged"
        " was lost; if it does, look for the kernel's out-of-memory killer, and raise `spark.driver_memory`"
        " or give the machine more",
        driver=driver,
    )

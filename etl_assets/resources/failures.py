"""Errors as Dagster sees them: a `Failure` that says what to do next and whether to repeat."""

from __future__ import annotations

from typing import Any, cast

import dagster as dg

from etl_assets.delta.session import lost_driver_pid
from etl_assets.error_policy import Decision, advice, decide, told
from etl_assets.errors import DaysFailed, EngineLost

FAILED_PARTITIONS = "failed_partitions"
"""Metadata of the failure of a step that stored its other partitions."""
_NO_ANSWER = ("Py4JError", "Py4JNetworkError")
"""What a call of this process's own JVM ends with when that dies, besides a lost connection; it may be a bug as well."""
_DYING_SECONDS = 1.0
"""A connection may end before the process does."""


def as_failure(error: Exception) -> dg.Failure:
    """The failure of a run by the retry table: repeated only where that may help."""
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
    """The partitions that a failed step names; none where the failure is not about some of them."""
    named = None if failure is None else failure.metadata.get(FAILED_PARTITIONS)
    return frozenset() if named is None else frozenset(cast("list[str]", named.value))


def _lost_engine(error: Exception) -> EngineLost | None:
    """That Spark's JVM is gone, if an error follows from it: the error itself tells of one call."""
    if not isinstance(error, ConnectionError) and type(error).__name__ not in _NO_ANSWER:
        return None
    if (driver := lost_driver_pid(wait_seconds=_DYING_SECONDS)) is None:
        return None
    return EngineLost(
        f"the Spark engine of this process (process {driver}) has ended in the middle of the step",
        fix="nothing, unless it goes on: the step is repeated with another engine, and nothing acknowledged was lost; if it does,"
        " look for the kernel's out-of-memory killer, and raise `spark.driver_memory` or give the machine more",
        driver=driver,
    )

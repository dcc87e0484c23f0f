"""Errors as Dagster sees them: a `Failure` that says what to do next and whether to repeat."""

from __future__ import annotations

import dagster as dg

from etl_assets.errors import EtlAssetsError
from etl_assets.retry_policy import Decision, advice, decide


def as_failure(error: Exception) -> dg.Failure:
    """The failure of a run by the retry table: repeated only where that may help."""
    if isinstance(error, dg.Failure):
        return error
    decision = decide(error)
    message = error.message if isinstance(error, EtlAssetsError) else f"{type(error).__name__}: {error}"
    return dg.Failure(
        description=f"{message}\n  fix: {advice(error)}",
        metadata={"error": type(error).__name__, "fix": advice(error), "decision": decision.value},
        allow_retries=decision is Decision.RETRY,
    )

"""Asset checks of the pipelines' invariants. They block what lies downstream."""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg

from etl_assets.pipelines.invariant import Invariant
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.settings import Settings


def invariant_checks(settings: Settings, pipelines: Sequence[Pipeline]) -> list[dg.AssetChecksDefinition]:
    """Build the blocking checks of some pipelines."""

    def build(invariant: Invariant) -> dg.AssetChecksDefinition:
        @dg.asset_check(
            asset=invariant.table, name=invariant.name, blocking=True, description=invariant.description
        )
        def check() -> dg.AssetCheckResult:
            result = invariant.evaluate(settings.placement().reader())
            return dg.AssetCheckResult(passed=result.passed, metadata=dict(result.metadata))

        return check

    return [build(invariant) for pipeline in pipelines for invariant in pipeline.invariants]

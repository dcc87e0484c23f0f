"""When assets are materialized without being asked: after their inputs, for whatever day these were."""

from __future__ import annotations

from datetime import timedelta

import dagster as dg

from etl_assets import tags
from etl_assets.steps.step import ReadMode

REFERENCE_DATA = dg.AssetSelection.assets("customers")
FRESHNESS = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=48), warn_window=timedelta(hours=26))
"""Events come every day: an asset that got none for more than a day is worth a look, for two it is an alarm."""


def after_inputs() -> dg.AutomationCondition:
    """After any input of the same day was updated, also if the day is not the latest.

    `AutomationCondition.eager` looks at the latest day only. Reference data is left out: a new customer file would
    otherwise ask for every day there is.
    """
    condition = dg.AutomationCondition
    return (
        condition.any_deps_updated().ignore(REFERENCE_DATA).since_last_handled()
        & ~condition.any_deps_missing().ignore(REFERENCE_DATA)
        & ~condition.any_deps_in_progress()
        & ~condition.in_progress()
    ).with_label("after inputs, any day")


def automation_sensor(interval_seconds: int) -> dg.AutomationConditionSensorDefinition:
    """Evaluates the conditions; its runs read what is new."""
    return dg.AutomationConditionSensorDefinition(
        name="downstream_automation",
        target=dg.AssetSelection.all(),
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        run_tags={tags.READ_MODE: ReadMode.INCREMENTAL.value},
        description="Materializes what lies downstream of a materialized day. On by default.",
    )

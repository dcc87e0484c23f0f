"""Automatic materialization: assets follow their inputs, for whatever day was updated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import or_
from pathlib import Path

import dagster as dg

from etl_assets import tags
from etl_assets.steps.step import ReadMode
from etl_assets.worker.lease import running_worker

FRESHNESS = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=48), warn_window=timedelta(hours=26))
"""Events arrive every day: a day without any is worth a look, two days are an alarm."""

_DELIVERED_WITHIN = timedelta(days=2)
"""The days for which rejected rows of a delivery are looked for: today, and yesterday for one at midnight."""


@dataclass(frozen=True, kw_only=True)
class NoWorkerRuns(dg.AutomationCondition):
    """True while no worker keeps the platform's tables up to date. A worker that hangs does not count.

    The condition is evaluated in the code server, which can read the home folder.
    """

    home: str

    @property
    def name(self) -> str:
        """The condition's name in the UI."""
        return "no worker runs"

    def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        """Return all candidates if no worker is alive, else none."""
        worker = running_worker(Path(self.home))
        free = worker is None or worker.is_silent
        return dg.AutomationResult(context, context.candidate_subset if free else context.get_empty_subset())


def after_inputs(
    home: Path, reference: Sequence[str], deliveries: Sequence[str] = ()
) -> dg.AutomationCondition:
    """Materialize a day after any input of that day was updated, unless a worker does it.

    Unlike `AutomationCondition.eager`, this is not limited to the latest day. Reference data is left out: a
    new customer file would otherwise request every existing day.

    Args:
        home: The home folder.
        reference: Names of the assets with reference data.
        deliveries: Names of the deliveries whose rejected rows the asset reads, which are not among its
            inputs for Dagster. A row is rejected on the day of its delivery.
    """
    condition, ignored = dg.AutomationCondition, dg.AssetSelection.assets(*reference)
    due = condition.any_deps_updated().ignore(ignored).since_last_handled() & ~(
        condition.any_deps_missing().ignore(ignored)
    )
    if deliveries:
        delivered = reduce(
            or_, (condition.asset_matches(name, condition.newly_updated()) for name in deliveries)
        )
        due |= (delivered & condition.in_latest_time_window(_DELIVERED_WITHIN)).since_last_handled()
    return (
        due & ~condition.any_deps_in_progress() & ~condition.in_progress() & NoWorkerRuns(home=str(home))
    ).with_label("after inputs, any day")


def automation_sensor(
    interval_seconds: int, target: dg.AssetSelection
) -> dg.AutomationConditionSensorDefinition:
    """Build the sensor that evaluates the conditions of some assets. Its runs read incrementally."""
    return dg.AutomationConditionSensorDefinition(
        name="downstream_automation",
        target=target,
        minimum_interval_seconds=interval_seconds,
        # Dagster's daemon knows neither the platform's own conditions nor the home folder.
        use_user_code_server=True,
        default_status=dg.DefaultSensorStatus.RUNNING,
        run_tags={tags.READ_MODE: ReadMode.INCREMENTAL.value},
        description="Materializes what lies downstream of a materialized day. On by default.",
    )

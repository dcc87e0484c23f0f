"""When assets are materialized without being asked: after their inputs, for whatever day these were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import dagster as dg

from etl_assets import tags
from etl_assets.follow.lease import following
from etl_assets.steps.step import ReadMode

FRESHNESS = dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=48), warn_window=timedelta(hours=26))
"""Events come every day: an asset that got none for more than a day is worth a look, for two it is an alarm."""


@dataclass(frozen=True, kw_only=True)
class NobodyFollows(dg.AutomationCondition):
    """True while no follower keeps the platform's tables up to date by itself; one that hangs does not count.

    It is evaluated where the home folder is: in the code server.
    """

    home: str

    @property
    def name(self) -> str:
        """What the UI shows."""
        return "nobody follows"

    def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        """All that is asked about, or nothing."""
        follower = following(Path(self.home))
        free = follower is None or follower.is_silent
        return dg.AutomationResult(context, context.candidate_subset if free else context.get_empty_subset())


def after_inputs(home: Path, reference: Sequence[str]) -> dg.AutomationCondition:
    """After any input of the same day was updated, also if the day is not the latest, unless a follower does it.

    `AutomationCondition.eager` looks at the latest day only. Reference data is left out: a new customer file would
    otherwise ask for every day there is.

    Args:
        home: The home folder.
        reference: Names of the assets with reference data.
    """
    condition, ignored = dg.AutomationCondition, dg.AssetSelection.assets(*reference)
    return (
        condition.any_deps_updated().ignore(ignored).since_last_handled()
        & ~condition.any_deps_missing().ignore(ignored)
        & ~condition.any_deps_in_progress()
        & ~condition.in_progress()
        & NobodyFollows(home=str(home))
    ).with_label("after inputs, any day")


def automation_sensor(interval_seconds: int) -> dg.AutomationConditionSensorDefinition:
    """Evaluates the conditions; its runs read what is new."""
    return dg.AutomationConditionSensorDefinition(
        name="downstream_automation",
        target=dg.AssetSelection.all(),
        minimum_interval_seconds=interval_seconds,
        # Dagster's daemon knows nothing of conditions of our own, nor of the home folder.
        use_user_code_server=True,
        default_status=dg.DefaultSensorStatus.RUNNING,
        run_tags={tags.READ_MODE: ReadMode.INCREMENTAL.value},
        description="Materializes what lies downstream of a materialized day. On by default.",
    )

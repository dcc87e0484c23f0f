"""The platform as a Dagster resource: settings, placement and session put together into a step's surroundings."""

import datetime as dt
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import dagster as dg

from etl_assets import tags
from etl_assets.errors import SourceUnreadable
from etl_assets.orders.build_steps import source_folders
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domains import FailureDomain
from etl_assets.resources.failures import as_failure
from etl_assets.resources.spark import SparkResource
from etl_assets.settings import Settings
from etl_assets.steps.placing import place, take_up
from etl_assets.steps.step import ReadMode, StepContext
from etl_assets.steps.table_queue import TableQueue


class PlatformResource(dg.ConfigurableResource):
    """Gives assets what their steps need."""

    settings_json: str
    spark: dg.ResourceDependency[SparkResource]

    @property
    def settings(self) -> Settings:
        """The platform file."""
        return Settings.model_validate_json(self.settings_json)

    def step_context(self, context: dg.AssetExecutionContext, stage: PlacementClass) -> StepContext:
        """Place a stage and note the domain on the run. A step that is repeated is placed anew.

        Raises:
            dagster.Failure: no domain may or can run the stage.
        """
        settings = self.settings
        try:
            domain = place(settings.placement(), context.asset_key.to_user_string())
        except Exception as error:
            raise as_failure(error) from error
        placed = {tags.DOMAIN: domain.name, tags.domain_of(stage): domain.name}
        context.instance.add_run_tags(context.run.run_id, placed)
        return StepContext(
            session=lambda: self.spark.session_for(input_bytes(settings, domain, _days(context))),
            domain=domain,
            lock_wait_seconds=settings.runs.lock_wait_seconds,
            domain_problem=lambda: settings.placement().problem(domain),
            take_up=partial(take_up, settings.placement()),
            turns=TableQueue(folder=settings.turns_path),
        )


def _days(context: dg.AssetExecutionContext) -> list[dt.date]:
    partitioned = context.has_partition_key or context.has_partition_key_range
    return [dt.date.fromisoformat(key) for key in context.partition_keys] if partitioned else []


def input_bytes(settings: Settings, domain: FailureDomain, days: Sequence[dt.date]) -> int | None:
    """Size of the landing files of some days: the most a run over them may have to do. None where it is not known."""
    if not days:
        return None
    try:
        listings = [
            folders.list_day(day, now_ns=time.time_ns(), settle_seconds=0)
            for folders in source_folders(settings, domain)
            for day in days
        ]
    except SourceUnreadable:
        return None
    return sum(file.size for listing in listings for file in listing.files)


def read_mode(context: Any) -> ReadMode:
    """Incremental if automation asked for the run, else the whole of its partitions."""
    return ReadMode(context.run.tags.get(tags.READ_MODE, ReadMode.WHOLE.value))

"""The platform as a Dagster resource: settings, placement and session combined into a step's context."""

import datetime as dt
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import dagster as dg

from etl_assets import tags
from etl_assets.errors import SourceRefused, SourceUnavailable, SourceUnreadable
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domains import FailureDomain
from etl_assets.resources.failures import as_failure
from etl_assets.resources.spark import SparkResource
from etl_assets.settings import Settings
from etl_assets.steps.placing import place, take_up
from etl_assets.steps.step import ReadMode, StepContext
from etl_assets.steps.table_queue import TableQueue


class PlatformResource(dg.ConfigurableResource):
    """Provide assets with the context of their steps."""

    settings_json: str
    spark: dg.ResourceDependency[SparkResource]

    @property
    def settings(self) -> Settings:
        """The platform file."""
        return Settings.model_validate_json(self.settings_json)

    def step_context(self, context: dg.AssetExecutionContext, stage: PlacementClass) -> StepContext:
        """Place a stage and tag the run with its domain. A retried step is placed again.

        Raises:
            dagster.Failure: no domain may run the stage, or none can.
        """
        settings, name = self.settings, context.asset_key.to_user_string()
        try:
            domain = place(settings.placement(), name)
        except Exception as error:
            raise as_failure(error) from error
        placed = {tags.DOMAIN: domain.name, tags.domain_of(stage): domain.name}
        context.instance.add_run_tags(context.run.run_id, placed)
        return StepContext(
            session=lambda: self.spark.session_for(input_bytes(settings, domain, _days(context), name)),
            domain=domain,
            lock_wait_seconds=settings.runs.lock_wait_seconds,
            domain_problem=lambda: settings.placement().problem(domain),
            take_up=partial(take_up, settings.placement()),
            turns=TableQueue(folder=settings.turns_path),
        )


def _days(context: dg.AssetExecutionContext) -> list[dt.date]:
    partitioned = context.has_partition_key or context.has_partition_key_range
    return [dt.date.fromisoformat(key) for key in context.partition_keys] if partitioned else []


def input_bytes(
    settings: Settings, domain: FailureDomain, days: Sequence[dt.date], table: str | None = None
) -> int | None:
    """Return the size of the days' source files, an upper bound of a run's work; None if it is unknown.

    Args:
        settings: The platform file.
        domain: The failure domain that the run was placed in.
        days: The days.
        table: A table, for the files of its pipeline only.
    """
    pipelines = [each for each in domain.catalog.pipelines if table in (None, *each.names)]
    sources = [source for each in pipelines for source in each.sources]
    if not days or not sources:
        return None
    try:
        listings = [
            folders.list_day(day, now_ns=time.time_ns(), settle_seconds=0)
            for source in sources
            for folders in [each.scanned() for each in source(settings, domain).folders]
            for day in days
        ]
    except (SourceUnreadable, SourceUnavailable, SourceRefused):
        return None
    return sum(file.size for listing in listings for file in listing.files)


def read_mode(context: Any) -> ReadMode:
    """Return the incremental mode if automation requested the run, else the whole partitions."""
    return ReadMode(context.run.tags.get(tags.READ_MODE, ReadMode.WHOLE.value))

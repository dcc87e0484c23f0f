"""The definitions of a platform: one function for production and tests."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from etl_assets.assets.attributes import IO_MANAGER
from etl_assets.assets.broken_pipelines import broken_pipelines
from etl_assets.assets.stage_asset import stage_asset
from etl_assets.automation import automation_sensor
from etl_assets.checks.contracts import contract_check
from etl_assets.checks.invariants import invariant_checks
from etl_assets.io_managers import DeltaUpsertIOManager
from etl_assets.jobs.compaction import compaction_job, compaction_schedule
from etl_assets.pipelines.pipeline import Pipeline
from etl_assets.resources.platform import PlatformResource
from etl_assets.resources.spark import SparkResource, spark_config
from etl_assets.sensors.changed_pipelines import changed_pipelines_sensor
from etl_assets.sensors.domain_watch import domain_watch_sensor
from etl_assets.sensors.failure_domains import (
    failure_domains_asset,
    failure_domains_check,
    failure_domains_sensor,
)
from etl_assets.sensors.failures import failure_sensor
from etl_assets.sensors.missed_retries import missed_retries_sensor
from etl_assets.sensors.schedules import after_sensors, pipeline_schedules
from etl_assets.sensors.sources import source_sensors
from etl_assets.settings import Settings


def build_definitions(settings: Settings, resources: Mapping[str, Any] | None = None) -> dg.Definitions:
    """Build everything that Dagster loads.

    Args:
        settings: The platform file.
        resources: Resources in place of the platform's own, by key.
    """
    with warnings.catch_warnings():
        # Backfill policies, freshness and automation are beta in Dagster. Its version is pinned, so nothing
        # changes unseen, and an operator cannot act on the warning.
        warnings.simplefilter("ignore", dg.BetaWarning)
        return dg.Definitions.merge(
            pipeline_definitions(settings, settings.catalog().pipelines),
            dg.Definitions(assets=broken_pipelines(settings.installed(), settings.owners)),
            shared_definitions(settings, dg.AssetSelection.all()),
            dg.Definitions(
                resources={**platform_resources(settings), **(resources or {})},
                # One process per run: one per step would start a JVM for each step.
                executor=dg.in_process_executor,
            ),
        )


def pipeline_definitions(settings: Settings, pipelines: Sequence[Pipeline]) -> dg.Definitions:
    """Build what some pipelines have of their own: assets, checks, schedules and sensors."""
    stages = [stage for pipeline in pipelines for stage in pipeline.stages]
    return dg.Definitions(
        assets=[stage_asset(stage, settings) for stage in stages],
        asset_checks=[
            *invariant_checks(settings, pipelines),
            *(contract_check(stage.table, settings) for stage in stages),
        ],
        sensors=[*source_sensors(settings, pipelines), *after_sensors(settings, pipelines)],
        schedules=pipeline_schedules(settings, pipelines),
    )


def shared_definitions(settings: Settings, automated: dg.AssetSelection) -> dg.Definitions:
    """Build what a platform has once, whichever pipelines it runs: upkeep, automation and watching.

    Args:
        settings: The platform file.
        automated: The assets that are materialized after their inputs.
    """
    mirrored = len(settings.domains) > 1
    compact = compaction_job(settings)
    return dg.Definitions(
        assets=[failure_domains_asset(settings)] if mirrored else [],
        asset_checks=[failure_domains_check(settings)] if mirrored else [],
        jobs=[compact],
        schedules=[compaction_schedule(settings, compact)],
        sensors=[
            automation_sensor(settings.runs.sensor_interval_seconds, automated),
            changed_pipelines_sensor(settings),
            failure_sensor(settings),
            missed_retries_sensor(settings),
            failure_domains_sensor(settings) if mirrored else domain_watch_sensor(settings),
        ],
    )


def platform_resources(settings: Settings) -> dict[str, Any]:
    """Return the platform's resources by key. Users' assets may use them as well."""
    spark = SparkResource(spark_config=spark_config(settings.spark), start=settings.spark.start.value)
    domain = settings.placement().domains[0]
    sites = [{"name": site.name, "root": site.root, "role": site.role.value} for site in domain.sites]
    return {
        "spark": spark,
        "platform": PlatformResource(settings_json=settings.model_dump_json(), spark=spark),
        IO_MANAGER: DeltaUpsertIOManager(
            root=str(domain.root),
            domain=domain.name,
            sites=sites,
            health="" if domain.observations is None else str(domain.observations.file),
            timeout_seconds=domain.timeout_seconds,
            spark=spark,
            lock_wait_seconds=settings.runs.lock_wait_seconds,
            home=str(settings.home),
            built_in=list(settings.pipelines.built_in),
            defs_folders=[str(each) for each in settings.defs_folders],
        ),
    }

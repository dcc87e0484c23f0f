"""The definitions of a platform: one function for production and tests."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
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
from etl_assets.resources.platform import PlatformResource
from etl_assets.resources.spark import SparkResource, spark_config
from etl_assets.sensors.domain_watch import domain_watch_sensor
from etl_assets.sensors.failure_domains import (
    failure_domains_asset,
    failure_domains_check,
    failure_domains_sensor,
)
from etl_assets.sensors.failures import failure_sensor
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
        return _build(settings, resources or {})


def _build(settings: Settings, resources: Mapping[str, Any]) -> dg.Definitions:
    stages = settings.catalog().stages
    assets = [stage_asset(stage, settings) for stage in stages]
    invariants = invariant_checks(settings)
    full_contracts = [contract_check(stage.table, settings) for stage in stages]
    mirrored = len(settings.domains) > 1
    compact = compaction_job(settings, assets)
    return dg.Definitions(
        assets=[
            *assets,
            *([failure_domains_asset(settings)] if mirrored else []),
            *broken_pipelines(settings.installed(), settings.owners),
        ],
        asset_checks=[*invariants, *full_contracts, *([failure_domains_check(settings)] if mirrored else [])],
        jobs=[compact],
        schedules=[compaction_schedule(settings, compact)],
        sensors=[
            *source_sensors(settings, assets),
            automation_sensor(settings.runs.sensor_interval_seconds),
            failure_sensor(settings),
            failure_domains_sensor(settings) if mirrored else domain_watch_sensor(settings),
        ],
        resources={**platform_resources(settings), **resources},
        # One process per run: one per step would start a JVM for each step.
        executor=dg.in_process_executor,
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
            builtin_pipelines=list(settings.builtin_pipelines),
        ),
    }

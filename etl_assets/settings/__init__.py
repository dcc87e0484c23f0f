"""The platform file, validated: folders, domains, limits, Spark. One pydantic model per section.

A wrong field raises at load with its name, the value found and what is allowed. Environment variables are in
`environment.py`. Secrets belong in the environment only: Dagster and process lists show the settings.
"""

from __future__ import annotations

from etl_assets.settings.connections import AnyConnection, Connection
from etl_assets.settings.control import ControlSettings
from etl_assets.settings.domains import DomainSettings, HealthSettings, PlacementSettings
from etl_assets.settings.file import (
    expect_landing_folder,
    home_folder,
    load_installation,
    load_settings,
    platform_file,
)
from etl_assets.settings.landing import LandingSettings
from etl_assets.settings.pipelines import PipelineSettings
from etl_assets.settings.platform import Settings
from etl_assets.settings.rest import RestSettings
from etl_assets.settings.runs import MIN_KEPT_VERSIONS, RunSettings, UpkeepSettings, WorkerSettings
from etl_assets.settings.section import Section
from etl_assets.settings.serve import ServeSettings
from etl_assets.settings.spark import JvmStart, SparkSettings

__all__ = [
    "MIN_KEPT_VERSIONS",
    "AnyConnection",
    "Connection",
    "ControlSettings",
    "DomainSettings",
    "HealthSettings",
    "JvmStart",
    "LandingSettings",
    "PipelineSettings",
    "PlacementSettings",
    "RestSettings",
    "RunSettings",
    "Section",
    "ServeSettings",
    "Settings",
    "SparkSettings",
    "UpkeepSettings",
    "WorkerSettings",
    "expect_landing_folder",
    "home_folder",
    "load_installation",
    "load_settings",
    "platform_file",
]

"""The platform's steps outside of Dagster, put together as its assets do it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.installed import built_in_catalog
from etl_assets.orders.pipeline import ORDERS
from etl_assets.settings import DomainSettings, LandingSettings, Settings

DATA_PATH = tuple(stage.name for stage in (*ORDERS.reference, *ORDERS.path))
DERIVED = tuple(stage.name for pipeline in built_in_catalog().pipelines for stage in pipeline.derived)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from etl_assets.steps.step import ReadMode, Step


def platform(home: Path, landing: Path, domains: int = 1) -> Settings:
    """A platform with the default settings, for a landing folder whose files are finished, in one domain or
    several.
    """
    settings = Settings(home=home, landing=LandingSettings(path=landing, settle_seconds=0))
    if domains == 1:
        return settings
    several = tuple(
        DomainSettings(name=f"local/{number}", root=f"domain-{number}") for number in range(domains)
    )
    return settings.model_copy(update={"domains": several})


def steps(settings: Settings, session: Callable[[], SparkSession], mode: ReadMode) -> dict[str, Step]:
    """Every step by the table it writes."""
    from etl_assets.pipelines.placement_class import PlacementClass
    from etl_assets.steps.step import StepArguments, StepContext, step_of

    domain = settings.placement().place(PlacementClass.INGEST)
    context = StepContext(session=session, domain=domain)
    arguments = StepArguments(settings=settings, context=context, mode=mode)
    return {name: step_of(name, arguments) for name in (*DATA_PATH, *DERIVED)}

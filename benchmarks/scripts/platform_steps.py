"""The platform's steps outside of Dagster, put together as its assets do it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.settings import DomainSettings, LandingSettings, Settings
from etl_assets.steps.data_path import DATA_PATH, DERIVED

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from etl_assets.steps.step import ReadMode, Step


def platform(home: Path, landing: Path, domains: int = 1) -> Settings:
    """A platform with the default settings, for a landing folder whose files are finished, in one domain or several."""
    settings = Settings(home=home, landing=LandingSettings(path=landing, settle_seconds=0))
    if domains == 1:
        return settings
    several = tuple(
        DomainSettings(name=f"local/{number}", root=f"domain-{number}") for number in range(domains)
    )
    return settings.model_copy(update={"domains": several})


def steps(settings: Settings, session: Callable[[], SparkSession], mode: ReadMode) -> dict[str, Step]:
    """Every step by the table it writes."""
    from etl_assets.placement.policy import Stage
    from etl_assets.steps.data_path import step_of
    from etl_assets.steps.step import StepContext

    domain = settings.placement().place(Stage.INGEST)
    context = StepContext(session=session, domain=domain)
    return {name: step_of(name, settings, context, mode) for name in (*DATA_PATH, *DERIVED)}

"""A run has the turn at the table that its step writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from etl_assets.assets.customers import customers_asset
from etl_assets.build import platform_resources
from etl_assets.settings import load_settings
from etl_assets.steps.load_customers import LoadCustomers
from etl_assets.steps.step import StepReport
from etl_assets.steps.turns import Turns

# Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


def free(folder: Path) -> bool:
    with Turns(folder=folder).take_if_free("customers") as is_free:
        return is_free


def test_from_the_start_of_its_step_to_the_end(monkeypatch):
    settings, seen = load_settings(), []

    def run(_step: LoadCustomers, _days: Any) -> StepReport:
        with ThreadPoolExecutor(1) as another:
            seen.append(another.submit(free, settings.turns_path).result())
        return StepReport(table="customers", version=-1)

    monkeypatch.setattr(LoadCustomers, "run", run)
    assert dg.materialize([customers_asset(settings)], resources=platform_resources(settings)).success
    assert seen == [False]
    assert free(settings.turns_path)

"""What is materialized without being asked: everything downstream of a day that was, however old, and nothing
twice.
"""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Iterable

import dagster as dg
import pytest

from etl_assets.build import build_definitions
from etl_assets.settings import load_settings
from etl_assets.worker.lease import lease

OLD_DAY = "2026-01-05"
NEXT_DAY = "2026-01-06"
NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
PATH = ("normalized_orders", "warehouse_rows", "dead_letters", "audit_log")


class Automation:
    """Ticks of the automation sensor on an instance, and materializations between them."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance
        self.definitions = build_definitions(load_settings())
        self.cursor = None

    def report(self, assets: Iterable[str], *days: str | None) -> None:
        for name in assets:
            for day in days:
                self.instance.report_runless_asset_event(dg.AssetMaterialization(name, partition=day))

    def tick(self) -> dict[str, set[str | None]]:
        """Days asked for, by asset."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)
            result = dg.evaluate_automation_conditions(
                defs=self.definitions, instance=self.instance, cursor=self.cursor, evaluation_time=NOW
            )
        self.cursor = result.cursor
        asked: dict[str, set[str | None]] = {}
        for each in result.results:
            name = each.key.to_user_string()
            subset = each.true_subset
            if subset.is_empty:
                continue
            asked[name] = (
                set(subset.expensively_compute_partition_keys()) if subset.is_partitioned else {None}
            )
        return asked


@pytest.fixture
def automation():
    with dg.DagsterInstance.ephemeral() as instance:
        automation = Automation(instance)
        automation.report(["customers"], None)
        automation.tick()
        yield automation


def test_a_day_that_is_not_the_latest_goes_all_the_way_down(automation):
    automation.report(["raw_events"], OLD_DAY)
    asked = automation.tick()
    assert {name: asked.get(name) for name in PATH} == {name: {OLD_DAY} for name in PATH}


def test_it_is_asked_for_once(automation):
    automation.report(["raw_events"], OLD_DAY)
    automation.tick()
    assert automation.tick() == {}


def test_several_days_are_asked_for_together(automation):
    automation.report(["raw_events"], OLD_DAY, NEXT_DAY)
    assert automation.tick()["normalized_orders"] == {OLD_DAY, NEXT_DAY}


def test_a_day_without_raw_events_is_not_asked_for(automation):
    automation.report(["normalized_orders"], OLD_DAY)
    asked = automation.tick()
    assert asked.get("warehouse_rows") == {OLD_DAY}
    assert "audit_log" not in asked, "audit_log reads raw_events, which has no such day"


def test_a_run_over_the_whole_path_leaves_nothing_to_ask_for(automation):
    automation.report(["raw_events", *PATH], OLD_DAY)
    automation.report(["order_status_view"], None)
    assert automation.tick() == {}


def test_a_new_customer_file_asks_for_no_day(automation):
    automation.report(["raw_events", *PATH], OLD_DAY, NEXT_DAY)
    automation.report(["order_status_view"], None)
    automation.tick()
    automation.report(["customers"], None)
    assert automation.tick() == {}


def test_while_somebody_follows_nothing_is_asked_for_and_afterwards_only_what_is_behind(automation):
    with lease(load_settings().home):
        automation.report(["raw_events", *PATH], OLD_DAY)
        automation.report(["order_status_view"], None)
        automation.report(["raw_events"], NEXT_DAY)
        assert automation.tick() == {}
        automation.report(["raw_events"], OLD_DAY)
        automation.report(PATH, OLD_DAY)
        assert automation.tick() == {}
    asked = automation.tick()
    assert {name: asked.get(name) for name in PATH} == {name: {NEXT_DAY} for name in PATH}


def test_the_sensor_evaluates_the_conditions_where_the_home_folder_is():
    settings = load_settings()
    repository = build_definitions(settings).get_repository_def()
    sensor = repository.get_sensor_def("downstream_automation")
    cursor = None

    def tick() -> list[str]:
        nonlocal cursor
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)
            context = dg.build_sensor_context(
                instance=instance, cursor=cursor, repository_def=repository, sensor_name=sensor.name
            )
            ticked = sensor.evaluate_tick(context)
        cursor = ticked.cursor
        return [str(request.partition_key) for request in ticked.run_requests or ()]

    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization("customers"))
        tick()
        with lease(settings.home):
            instance.report_runless_asset_event(dg.AssetMaterialization("raw_events", partition=OLD_DAY))
            assert tick() == []
        assert tick() == [OLD_DAY]

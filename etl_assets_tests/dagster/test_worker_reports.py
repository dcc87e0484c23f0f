"""What a worker tells Dagster: figures summed for each asset and day, in the order of what has what,
nothing lost.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path

import dagster as dg
import pytest

from etl_assets.settings import Settings
from etl_assets.steps.step import StepReport
from etl_assets.worker.reports import Reports

DAY, NEXT_DAY = dt.date(2026, 1, 5), dt.date(2026, 1, 6)


class Dagster:
    """Takes events, or does not answer."""

    def __init__(self) -> None:
        self.events: list[dg.AssetMaterialization | dg.AssetCheckEvaluation] = []
        self.answers = 1_000

    def take(self, event: dg.AssetMaterialization | dg.AssetCheckEvaluation) -> None:
        if len(self.events) >= self.answers:
            raise ConnectionError("the database is away")
        self.events.append(event)

    def told(self) -> list[tuple[str, str | None, int | None]]:
        """Asset, day and rows inserted of each materialization, in order."""
        return [
            (
                event.asset_key.to_user_string(),
                event.partition,
                getattr(event.metadata.get("inserted"), "value", None),
            )
            for event in self.events
            if isinstance(event, dg.AssetMaterialization)
        ]


@pytest.fixture
def dagster() -> Dagster:
    return Dagster()


@pytest.fixture
def reports(dagster, tmp_path: Path) -> Reports:
    return Reports(Settings(home=tmp_path), dagster.take, worker="host:1")


def done(table: str, inserted: dict[dt.date | None, int], version: int = 1) -> StepReport:
    counts = {day: Counter(inserted=rows) for day, rows in inserted.items()}
    return StepReport(table=table, version=version, counts=counts, commits=1)


def test_many_micro_batches_are_one_event_for_each_asset_and_day(reports, dagster):
    for batch in range(50):
        reports.add("raw_events", [DAY], done("raw_events", {DAY: 10}, batch), as_of=batch)
        reports.add("order_status_view", [], done("order_status_view", {None: 3}, batch), as_of=batch + 0.5)
    reports.add("raw_events", [NEXT_DAY], done("raw_events", {NEXT_DAY: 7}, 50), as_of=49.2)
    assert reports.tell()
    assert dagster.told() == [
        ("raw_events", DAY.isoformat(), 500),
        ("raw_events", NEXT_DAY.isoformat(), 7),
        ("order_status_view", None, 150),
    ]
    (of_day, *_) = dagster.events
    assert of_day.metadata["table_version"].value == "50"
    assert of_day.metadata["commits"].value == "51"
    assert of_day.metadata["worker"].value == "host:1"
    assert reports.tell()
    assert len(dagster.events) == 3, "what was told is not told again"


def test_a_table_that_lacks_what_its_input_has_got_meanwhile_is_told_before_it(reports, dagster):
    reports.add("audit_log", [DAY], done("audit_log", {DAY: 1}), as_of=1.0)
    reports.add("raw_events", [DAY], done("raw_events", {DAY: 1}), as_of=2.0)
    assert reports.tell()
    assert [asset for asset, _, _ in dagster.told()] == ["audit_log", "raw_events"]


def test_what_dagster_did_not_take_is_told_with_what_came_later(reports, dagster):
    reports.add("raw_events", [DAY], done("raw_events", {DAY: 1}), as_of=1.0)
    reports.add("warehouse_rows", [DAY], done("warehouse_rows", {DAY: 1}), as_of=2.0)
    dagster.answers = 1
    assert not reports.tell()
    reports.add("raw_events", [DAY], done("raw_events", {DAY: 5}), as_of=3.0)
    reports.add("warehouse_rows", [DAY], done("warehouse_rows", {DAY: 5}), as_of=4.0)
    assert not reports.tell()
    dagster.answers = 1_000
    assert reports.tell()
    assert dagster.told() == [
        ("raw_events", DAY.isoformat(), 1),
        ("raw_events", DAY.isoformat(), 5),
        ("warehouse_rows", DAY.isoformat(), 6),
    ]


def test_days_that_dagster_took_before_it_failed_are_not_told_again(reports, dagster):
    last_day = NEXT_DAY + dt.timedelta(days=1)
    days = {DAY: 1, NEXT_DAY: 2, last_day: 3}
    reports.add("raw_events", list(days), done("raw_events", {**days}), as_of=1.0)
    dagster.answers = 1
    assert not reports.tell()
    reports.add("raw_events", [DAY], done("raw_events", {DAY: 10}), as_of=2.0)
    dagster.answers = 3
    assert not reports.tell()
    dagster.answers = 1_000
    assert reports.tell()
    assert dagster.told() == [
        ("raw_events", DAY.isoformat(), 1),
        ("raw_events", DAY.isoformat(), 10),
        ("raw_events", NEXT_DAY.isoformat(), 2),
        ("raw_events", last_day.isoformat(), 3),
    ]


def test_invariants_are_told_as_evaluations_of_the_checks_that_runs_evaluate(reports, dagster):
    from etl_assets.build import build_definitions

    assert reports.check(Settings(home=Path("/nowhere")).catalog().invariants) == {}
    assert reports.tell()
    told = {
        (event.asset_key.to_user_string(), event.check_name, event.passed)
        for event in dagster.events
        if isinstance(event, dg.AssetCheckEvaluation)
    }
    definitions = build_definitions(Settings(home=Path("/nowhere")))
    declared = {
        (spec.asset_key.to_user_string(), spec.name, True)
        for checks in definitions.asset_checks or ()
        for spec in getattr(checks, "check_specs", ())
        if spec.blocking
    }
    assert told == declared

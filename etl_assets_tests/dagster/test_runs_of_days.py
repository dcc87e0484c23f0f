"""Runs that a command starts: the days that fail are named, and the others get to the end of the path."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg
import pytest

from etl_assets import runs
from etl_assets.build import platform_resources
from etl_assets.errors import InputError, RunFailed, SettingsError, SourceUnreadable
from etl_assets.partitions import daily_partitions
from etl_assets.settings import Settings, load_settings
from etl_assets.steps.step import READ, ReadMode, StepReport

# Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

DAYS = [dt.date(2026, 1, day) for day in range(1, 8)]


@dataclass
class Steps:
    """Two assets, one after the other, whose steps know no data: which days went through, and which fail
    where.
    """

    errors: dict[tuple[str, dt.date], Callable[[], Exception]] = field(default_factory=dict)
    done: dict[str, Counter[dt.date]] = field(
        default_factory=lambda: {"first": Counter(), "second": Counter()}
    )

    def definitions(self, settings: Settings) -> dg.Definitions:
        days = daily_partitions(DAYS[0])

        @dg.asset(io_manager_key="delta", partitions_def=days)
        def first() -> Any:
            return Step("first", self)

        @dg.asset(io_manager_key="delta", partitions_def=days, deps=[first])
        def second() -> Any:
            return Step("second", self)

        return dg.Definitions(assets=[first, second], resources=platform_resources(settings))


@dataclass
class Step:
    name: str
    steps: Steps

    def run(self, days: Sequence[dt.date]) -> StepReport:
        for day in days:
            if error := self.steps.errors.get((self.name, day)):
                raise error()
        self.steps.done[self.name].update(days)
        return StepReport(table=self.name, version=0, counts={day: Counter({READ: 1}) for day in days})


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    monkeypatch.setattr(runs, "build_definitions", made.definitions)
    return made


def materialize(days: Sequence[dt.date] = DAYS, **limits: Any) -> list[dg.ExecuteInProcessResult]:
    with dg.instance_for_test() as instance:
        return runs.materialize_days(
            load_settings(), instance, days, mode=ReadMode.INCREMENTAL, assets=["first", "second"], **limits
        )


def unreadable() -> Exception:
    return SourceUnreadable("a file is broken", fix="write it again")


def test_days_that_fail_keep_no_other_day_from_the_end_of_the_path(steps):
    steps.errors = {("first", DAYS[1]): unreadable, ("second", DAYS[4]): unreadable}
    with pytest.raises(RunFailed) as failed:
        materialize()
    good = set(DAYS) - {DAYS[1], DAYS[4]}
    assert set(steps.done["second"]) == good
    assert set(steps.done["first"]) == good | {DAYS[4]}
    for part in (f"{DAYS[1]}: SourceUnreadable: a file is broken", f"{DAYS[4]}: SourceUnreadable"):
        assert part in failed.value.message
    assert not any(f"{day}: " in failed.value.message for day in good)


def test_the_runs_after_one_with_a_day_that_fails_are_begun(steps):
    steps.errors = {("first", DAYS[0]): unreadable}
    with pytest.raises(RunFailed) as failed:
        materialize(max_days=2)
    assert set(steps.done["second"]) == set(DAYS[1:])
    done = [(each.asset_key.to_user_string(), each.partition) for each in failed.value.materializations]
    assert sorted(done) == sorted(
        [("first", DAYS[1].isoformat())]
        + [(name, day.isoformat()) for name in steps.done for day in DAYS[1:]]
    ), "what was stored beside the day that failed is told as well"


def test_a_failure_that_is_not_about_days_ends_it(steps):
    steps.errors = {("first", DAYS[2]): lambda: SettingsError("wrong", fix="correct it")}
    with pytest.raises(RunFailed, match="SettingsError: wrong"):
        materialize(max_days=2)
    assert set(steps.done["second"]) == set(DAYS[:2])


def test_days_that_have_not_come_are_refused_after_the_others_are_done(steps):
    today = dt.datetime.now(dt.UTC).date()
    tomorrow = today + dt.timedelta(days=1)
    with pytest.raises(InputError, match=f"{tomorrow} cannot be materialized"):
        materialize([today, tomorrow])
    assert set(steps.done["second"]) == {today}


def test_a_run_over_few_bytes_has_more_days_than_one_over_many(steps):
    many = [DAYS[0] + dt.timedelta(days=number) for number in range(40)]
    small = load_settings().runs.small_run_bytes
    assert len(materialize(many)) == 2
    assert len(materialize(many, sizes=dict.fromkeys(many, small // 40))) == 1
    assert len(materialize(many, sizes=dict.fromkeys(many, small // 40 + 1))) == 2
    assert set(steps.done["second"]) == set(many)

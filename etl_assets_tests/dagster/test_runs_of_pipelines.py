"""Runs that a command starts, of several pipelines: one that fails keeps no other from its end."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from etl_assets import runs
from etl_assets.build import platform_resources
from etl_assets.errors import EtlAssetsError, ExpectationFailed, RunFailed, SourceUnreadable
from etl_assets.partitions import daily_partitions
from etl_assets.settings import Settings
from etl_assets.steps.step import ReadMode, StepReport

# Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

DAYS = [dt.date(2026, 1, day) for day in (1, 2, 5)]
"""Two runs: there is a gap."""
INPUTS = {
    "raw_events": (), "normalized_orders": ("raw_events",), "good_source": (), "good": ("good_source",),
    "bad_source": (), "bad": ("bad_source",), "near": ("good_source", "bad"),
    "dead_letters": ("normalized_orders", "good", "bad", "near"),
}  # fmt: skip
"""Assets named as tables of the catalog, so that their pipelines are known."""


@dataclass
class Steps:
    """Steps that know no data: for which days each was run, and which fail."""

    errors: dict[str, Callable[[Sequence[dt.date]], EtlAssetsError | None]] = field(default_factory=dict)
    done: dict[str, set[dt.date]] = field(default_factory=dict)

    def definitions(self, settings: Settings) -> dg.Definitions:
        return dg.Definitions(
            assets=[self._asset(name, inputs) for name, inputs in INPUTS.items()],
            resources=platform_resources(settings),
        )

    def _asset(self, name: str, inputs: Sequence[str]) -> dg.AssetsDefinition:
        @dg.asset(
            name=name, io_manager_key="delta", partitions_def=daily_partitions(DAYS[0]), deps=list(inputs)
        )
        def asset() -> Any:
            return _Step(name, self)

        return asset


@dataclass
class _Step:
    name: str
    steps: Steps

    def run(self, days: Sequence[dt.date]) -> StepReport:
        if error := self.steps.errors.get(self.name, lambda _: None)(days):
            raise error
        self.steps.done.setdefault(self.name, set()).update(days)
        return StepReport(table=self.name, version=0, counts={})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    folder = tmp_path / "home" / "pipelines"
    folder.mkdir(parents=True)
    for name in ("bad", "good", "near"):
        looked_up = [{"type": "lookup", "table": "bad", "on": {"id": "id"}, "columns": {"more": "id"}}]
        content = {
            "name": name,
            "source": {"type": "files", "path": f"in/{name}/*.csv"},
            "columns": {"id": "string"},
            "transforms": looked_up if name == "near" else [],
            "table": {"keys": ["id"]},
        }
        (folder / f"{name}.yaml").write_text(json.dumps(content), "utf-8")
    found = Settings(home=tmp_path / "home", start_date=DAYS[0])
    assert {"bad", "good", "near"} <= set(found.catalog().names)
    return found


def materialize(steps: Steps, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "build_definitions", steps.definitions)
    with dg.instance_for_test() as instance:
        runs.materialize_days(settings, instance, DAYS, mode=ReadMode.INCREMENTAL, assets=list(INPUTS))


def test_the_others_reach_their_end_on_all_days(settings, monkeypatch):
    def fails(days: Sequence[dt.date]) -> EtlAssetsError:
        return ExpectationFailed("1 row does not meet the rule", fix="correct it", table="bad")

    steps = Steps(errors={"bad": fails})
    # A table without days fails as a whole.
    monkeypatch.setattr(runs, "_failed_days", lambda result: set())
    with pytest.raises(RunFailed, match="1 row does not meet the rule"):
        materialize(steps, settings, monkeypatch)
    for name in ("normalized_orders", "good", "dead_letters"):
        assert steps.done[name] == set(DAYS), name
    assert "near" not in steps.done, "it would look values up in rows that are missing, and never again"


def test_what_several_pipelines_make_is_made_of_a_day_that_one_of_them_cannot_read(settings, monkeypatch):
    def fails(days: Sequence[dt.date]) -> EtlAssetsError | None:
        return SourceUnreadable("a file is broken", fix="write it again") if DAYS[1] in days else None

    steps = Steps(errors={"bad_source": fails})
    with pytest.raises(RunFailed, match="a file is broken"):
        materialize(steps, settings, monkeypatch)
    assert steps.done["dead_letters"] == steps.done["good"] == set(DAYS)
    assert steps.done["bad"] == steps.done["near"] == set(DAYS) - {DAYS[1]}

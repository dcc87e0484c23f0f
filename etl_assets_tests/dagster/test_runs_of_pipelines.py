"""Runs that a command starts, of several pipelines: one that fails keeps no other from its end."""

from __future__ import annotations

import datetime as dt
import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from etl_assets import runs
from etl_assets.build import build_definitions, platform_resources
from etl_assets.errors import EtlAssetsError, ExpectationFailed, RunFailed, SinkUnavailable, SourceUnreadable
from etl_assets.partitions import daily_partitions
from etl_assets.settings import Settings
from etl_assets.steps.step import ReadMode, StepReport

# Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

DAYS = [dt.date(2026, 1, day) for day in (1, 2, 5)]
"""Two runs: there is a gap."""
SINK = "good_to_postgres"
INPUTS = {
    "raw_events": (), "normalized_orders": ("raw_events",), "good_source": (), "good": ("good_source",),
    "bad_source": (), "bad": ("bad_source",), "near": ("good_source", "bad"),
    SINK: ("good",),
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
            "sinks": [{"type": "postgres", "connection": "warehouse", "table": "marts.good"}]
            if name == "good"
            else [],
        }
        (folder / f"{name}.yaml").write_text(json.dumps(content), "utf-8")
    warehouse = {
        "type": "postgres",
        "host": "127.0.0.1",
        "database": "shop",
        "user": "etl",
        "password": "${WAREHOUSE_PASSWORD}",
        "write": ["marts.*"],
    }
    found = Settings.model_validate(
        {"home": tmp_path / "home", "start_date": DAYS[0], "connections": {"warehouse": warehouse}}
    )
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
    monkeypatch.setattr(runs, "_failed_days", lambda *_: set())
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


def test_a_delivery_that_fails_ends_nothing_else(settings, monkeypatch):
    tried = []

    def fails(days: Sequence[dt.date]) -> EtlAssetsError:
        tried.append(list(days))
        return SinkUnavailable("postgres://127.0.0.1/shop does not answer", fix="start it")

    steps = Steps(errors={SINK: fails})
    with pytest.raises(
        RunFailed, match=f"{SINK}: SinkUnavailable: postgres://127.0.0.1/shop does not answer"
    ) as raised:
        materialize(steps, settings, monkeypatch)
    for name in INPUTS.keys() - {SINK}:
        assert steps.done[name] == set(DAYS), name
    assert "etl-assets run" in str(raised.value.fix), "the next step"
    assert SINK in str(raised.value.fix)
    assert len(tried) == 1, "a target that is down is not waited for in every range of days"


def test_a_delivery_and_a_source_that_fail_leave_each_other_out(settings, monkeypatch):
    def broken(days: Sequence[dt.date]) -> EtlAssetsError | None:
        return SourceUnreadable("a file is broken", fix="write it again") if DAYS[1] in days else None

    def down(days: Sequence[dt.date]) -> EtlAssetsError:
        return SinkUnavailable("the target does not answer", fix="start it")

    steps = Steps(errors={"bad_source": broken, SINK: down})
    with pytest.raises(RunFailed, match="a file is broken") as raised:
        materialize(steps, settings, monkeypatch)
    assert steps.done["dead_letters"] == steps.done["good"] == set(DAYS)
    assert steps.done["bad"] == steps.done["near"] == set(DAYS) - {DAYS[1]}
    assert "everything else is done" not in str(raised.value.fix)


def test_a_run_without_the_command_collects_dead_letters_after_deliveries_and_without_those_that_failed(
    settings,
):
    definitions = build_definitions(settings)
    graph = definitions.resolve_asset_graph()
    dead_letters = graph.get(dg.AssetKey("dead_letters"))
    assert dg.AssetKey("good") in dead_letters.parent_keys
    assert dg.AssetKey(SINK) not in dead_letters.parent_keys
    job = dg.define_asset_job("all", selection=dg.AssetSelection.all())
    plan = dg.Definitions.merge(definitions, dg.Definitions(jobs=[job])).resolve_job_def("all")
    deliveries, collection = (
        int(plan.get_node_named(name).tags.get("dagster/priority", 0)) for name in (SINK, "dead_letters")
    )
    assert collection < deliveries, "it runs when nothing else is left to run"


def test_a_delivery_asks_for_the_dead_letters_of_its_days_alone_and_a_missing_one_holds_none_up(settings):
    now = dt.datetime(2026, 1, 20, 12, tzinfo=dt.UTC)
    definitions, cursor = build_definitions(settings), None

    def asked() -> set[str]:
        nonlocal cursor
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dg.BetaWarning)
            result = dg.evaluate_automation_conditions(
                defs=definitions, instance=instance, cursor=cursor, evaluation_time=now
            )
        cursor = result.cursor
        (found,) = [each for each in result.results if each.key == dg.AssetKey("dead_letters")]
        return set(found.true_subset.expensively_compute_partition_keys())

    with dg.DagsterInstance.ephemeral() as instance:
        graph = definitions.resolve_asset_graph()
        for key in graph.get(dg.AssetKey("dead_letters")).parent_keys:
            for day in (
                ("2026-01-03", "2026-01-18", "2026-01-19") if graph.get(key).partitions_def else (None,)
            ):
                instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=day))
        asked()
        instance.report_runless_asset_event(dg.AssetMaterialization("raw_events", partition="2026-01-03"))
        assert asked() == {"2026-01-03"}, "nothing was ever delivered to the sink"
        instance.report_runless_asset_event(dg.AssetMaterialization(SINK))
        assert asked() == {"2026-01-19", "2026-01-20"}, "today has no rows in the tables"
        assert asked() == set()


def test_a_delivery_is_shown_with_the_kind_of_its_target(settings):
    found = {
        each.key.to_user_string(): set(next(iter(each.specs)).kinds)
        for each in build_definitions(settings).assets or ()
        if isinstance(each, dg.AssetsDefinition)
    }
    assert found[SINK] == {"postgres", "deltalake"}
    assert found["good"] == {"pyspark", "deltalake"}

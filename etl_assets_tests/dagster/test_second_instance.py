"""A second Dagster instance with an empty home folder takes a platform over: the same platform file, the same
roots.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest
import yaml
from deltalake import DeltaTable

from etl_assets import tags
from etl_assets.instance import open_instance
from etl_assets.observability.pending import unread
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.runs import materialize_days
from etl_assets.settings import Settings, load_settings
from etl_assets.steps.step import ReadMode, platform_table
from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline, event

pytestmark = [
    pytest.mark.spark,
    # Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]
PATH = ("raw_events", "normalized_orders", "warehouse_rows")


@pytest.fixture
def use(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Settings]:
    """Work from a home folder of that name; the platform file, its roots and the landing folder lie
    elsewhere.
    """
    file = tmp_path / "shared" / "platform.yaml"
    file.parent.mkdir()
    shared = {
        "start_date": DAY,
        "domains": [{"name": f"rack/{each}", "root": str(tmp_path / each)} for each in "abc"],
        "landing": {"path": str(tmp_path / "landing"), "settle_seconds": 0},
    }
    file.write_text(yaml.safe_dump(shared), "utf-8")
    monkeypatch.setenv("ETL_ASSETS_PLATFORM_FILE", str(file))

    def use(name: str) -> Settings:
        monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path / name))
        monkeypatch.setenv("DAGSTER_HOME", "")
        return load_settings()

    return use


def run(settings: Settings) -> list[dt.date]:
    """What the landing sensor's run does: the days that have unread files, taken as far as the warehouse."""
    days = unread(settings, now=dt.datetime.now(dt.UTC), settle_seconds=0).ready
    with open_instance(settings) as instance:
        for result in materialize_days(
            settings, instance, days, mode=ReadMode.INCREMENTAL, assets=PATH, max_days=31
        ):
            assert result.success
    return list(days)


def rows(settings: Settings, table: str) -> list[dict]:
    found = platform_table(table, settings.placement().reader())
    return DeltaTable(str(found.path), version=found.version()).to_pyarrow_dataset().to_table().to_pylist()


def test_it_reads_nothing_twice_loses_nothing_and_goes_on(use, pipeline, tmp_path):
    landing = Pipeline(root=pipeline.root, landing=tmp_path / "landing", session=pipeline.session)
    landing.land([event(number) for number in range(4)])
    first = use("first")
    assert run(first) == [DAY]
    before = {name: platform_table(name, first.placement().reader()).version() for name in PATH}
    # What came in after the last run of the first instance.
    landing.land([event(number) for number in range(3, 6)], name="late.jsonl")
    landing.land([event(7, day=NEXT_DAY)], day=NEXT_DAY)

    # The machine of the first instance is lost, and with it one of the roots.
    away = (tmp_path / "a").rename(tmp_path / "a-away")
    second = use("second")
    assert not second.home.exists()
    seen = {name: platform_table(name, second.placement().reader()).version() for name in PATH}
    assert seen == before, "a look says what there is, and makes nothing"
    assert not second.home.exists()
    assert run(second) == [DAY, NEXT_DAY]
    assert not (tmp_path / "a").exists(), "the missing disk was not made anew"
    expected = Counter(f"event-{number}" for number in (0, 1, 2, 3, 4, 5, 7))
    for table in PATH:
        assert Counter(row["event_id"] for row in rows(second, table)) == expected
    assert sorted(row["offset"] for row in rows(second, "raw_events")) == list(range(7))
    assert run(second) == []
    with open_instance(second) as instance:
        (taken_over,) = instance.get_runs()
        assert {taken_over.tags[tags.domain_of(stage)] for stage in PlacementClass} == {"rack/b"}
        assert instance.get_latest_materialization_event(dg.AssetKey("raw_events")) is not None

    # The first one comes back with its old home: it finds nothing to do, and everything there once.
    away.rename(tmp_path / "a")
    assert json.loads((second.home / "domains.json").read_text())["rack/a"]["root_id"] == ""
    assert second.placement().problem(second.placement().domains[0]) is None
    first = use("first")
    assert run(first) == []
    landing.land([event(8, day=NEXT_DAY)], day=NEXT_DAY, name="b.jsonl")
    assert run(first) == [NEXT_DAY]
    for table in PATH:
        assert Counter(row["event_id"] for row in rows(use("second"), table)) == expected + Counter(
            ["event-8"]
        )

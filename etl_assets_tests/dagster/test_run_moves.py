"""A run whose domain is drained, and then another one lost, while it commits: it goes on elsewhere, and is no
failed run.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import yaml
from deltalake import DeltaTable

from etl_assets import tags
from etl_assets.instance import open_instance
from etl_assets.mirroring.protocol.mirror import Mirror
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domain_registry import AdminState
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.runs import materialize_days
from etl_assets.settings import load_settings
from etl_assets.steps.step import ReadMode, platform_table
from etl_assets_tests.pipeline import DAY, Pipeline, event

pytestmark = [
    pytest.mark.spark,
    # Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]
PATH = tuple(contract.name for contract in (RAW_EVENTS, NORMALIZED_ORDERS, WAREHOUSE_ROWS))
DOMAINS = ("rack/a", "rack/b", "rack/c")


def test_a_run_goes_on_elsewhere_when_its_domain_is_drained_and_the_next_one_lost(
    pipeline, tmp_path, monkeypatch
):
    landing = Pipeline(root=pipeline.root, landing=tmp_path / "landing", session=pipeline.session)
    landing.land([event(number) for number in range(3)])
    (tmp_path / "platform.yaml").write_text(
        yaml.safe_dump(
            {
                "start_date": DAY,
                "domains": [{"name": name, "root": name[-1]} for name in DOMAINS],
                "landing": {"settle_seconds": 0},
            }
        ),
        "utf-8",
    )
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    settings = load_settings()
    placement = settings.placement()

    def drained() -> None:
        """What an operator does, and then the sensor, before the commit of this run is acknowledged."""
        placement.memory.set_standing("rack/a", AdminState.DRAINED)
        reconcile_replicas(placement)

    def lost() -> None:
        (tmp_path / "b").rename(tmp_path / "b-lost")

    todo = {NORMALIZED_ORDERS.name: drained, WAREHOUSE_ROWS.name: lost}
    acknowledge = Mirror.acknowledge

    def meanwhile(self, lead, entry):
        if (befalls := todo.get(self.table.name)) is not None and b"event-" in entry:
            del todo[self.table.name]
            befalls()
        acknowledge(self, lead, entry)

    monkeypatch.setattr(Mirror, "acknowledge", meanwhile)
    with open_instance(settings) as instance:
        (result,) = materialize_days(
            settings, instance, [DAY], mode=ReadMode.INCREMENTAL, assets=PATH, max_days=31
        )
        assert result.success
        (run,) = instance.get_runs()
        assert {stage.value: run.tags[tags.domain_of(stage)] for stage in PlacementClass} == {
            "ingest": "rack/a",
            "transform": "rack/b",
            "sink": "rack/c",
        }
    assert todo == {}
    for name in PATH:
        table = platform_table(name, placement.reader())
        rows = (
            DeltaTable(str(table.path), version=table.version()).to_pyarrow_dataset().to_table().to_pylist()
        )
        assert Counter(row["event_id"] for row in rows) == Counter(f"event-{number}" for number in range(3))
    assert not Path(tmp_path / "b").exists()

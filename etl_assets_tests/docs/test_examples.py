"""The examples of docs/ run as they are printed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import dagster as dg
import pytest
from deltalake import DeltaTable

from etl_assets.io_managers import DeltaUpsertIOManager

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
GUIDE = EXAMPLES.parent / "delta-upsert-io-manager.md"
HEADER = "station,day,hour,celsius,sent_at\n"
NORTH = "north,2026-01-01,2026-01-01T09:00:00Z,-4.5,2026-01-01T10:00:00Z\n"
SOUTH = "south,2026-01-01,2026-01-01T09:00:00Z,7.5,2026-01-01T10:00:00Z\n"
NEXT_DAY = "north,2026-01-02,2026-01-02T09:00:00Z,1.5,2026-01-02T10:00:00Z\n"
CORRECTION = "north,2026-01-01,2026-01-01T09:00:00Z,-3.5,2026-01-03T08:00:00Z\n"
BOTH_DAYS = {
    "dagster/asset_partition_range_start": "2026-01-01",
    "dagster/asset_partition_range_end": "2026-01-02",
}


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_guide_prints_the_example_as_it_is_and_it_stays_below_forty_lines():
    source = (EXAMPLES / "own_asset.py").read_text(encoding="utf-8")
    assert source in GUIDE.read_text(encoding="utf-8")
    assert len(source.splitlines()) < 40


@pytest.mark.spark
@pytest.mark.slow
# Dagster's own call, when one resource is given another.
@pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")
def test_an_own_asset_gets_upserts_backfills_in_one_run_and_figures(engine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    example = _load("own_asset")
    folder = tmp_path / "readings"
    folder.mkdir()
    (folder / "2026-01-01.csv").write_text(HEADER + NORTH + SOUTH, encoding="utf-8")
    (folder / "2026-01-02.csv").write_text(HEADER + NEXT_DAY, encoding="utf-8")
    resources = {"spark": engine, "delta": DeltaUpsertIOManager(root=str(tmp_path / "data"), spark=engine)}

    backfill = dg.materialize([example.readings], resources=resources, tags=BOTH_DAYS)
    events = backfill.asset_materializations_for_node("readings")
    inserted = {event.partition: event.metadata["inserted"].value for event in events if event.partition}
    assert inserted == {"2026-01-01": 2, "2026-01-02": 1}

    (folder / "2026-01-01.csv").write_text(HEADER + NORTH + SOUTH + CORRECTION, encoding="utf-8")
    assets = [example.readings, example.warmest]
    again = dg.materialize(assets, resources=resources, partition_key="2026-01-01")
    (event,) = [e for e in again.asset_materializations_for_node("readings") if e.partition]
    figures = {name: event.metadata[name].value for name in ("read", "inserted", "updated", "ignored")}
    assert figures == {"read": 2, "inserted": 0, "updated": 1, "ignored": 1}
    assert event.metadata["dagster/partition_row_count"].value == 2

    rows = (
        DeltaTable(str(tmp_path / "data/tables/warmest/g000001")).to_pyarrow_dataset().to_table().to_pylist()
    )
    assert {row["station"]: row["celsius"] for row in rows} == {"north": 1.5, "south": 7.5}

"""The data path over two domains of this machine and one on a real object store: each is lost in turn, and
comes back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from etl_assets.mirroring.stores.opening import open_store
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domains import Placement
from etl_assets.placement.health import HealthState
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.settings import load_settings
from etl_assets_tests.pipeline import DAY, Pipeline, event
from etl_assets_tests.reference.object_store_server import BUCKET, ObjectStoreServer, running
from etl_assets_tests.reference.tables import ALL_TABLES

pytestmark = pytest.mark.spark

A, B, STORE = "local/a", "local/b", "store/copies"
STEPS = ["raw_events", "normalized_orders", "warehouse_rows"]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStoreServer]:
    yield from running(monkeypatch)


@pytest.fixture
def placement(server: ObjectStoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Placement:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    domains = [
        {"name": A, "root": "a"},
        {"name": B, "root": "b"},
        {"name": STORE, "root": f"s3://{BUCKET}/platform"},
    ]
    (tmp_path / "platform.yaml").write_text(yaml.safe_dump({"domains": domains}), "utf-8")
    found = load_settings().placement()
    found.place(PlacementClass.INGEST)
    return found


def held(placement: Placement, name: str, table: str) -> Mapping[str, bytes]:
    """The newest folder of a domain's replica, read through its store: every log entry and every data file in
    it.
    """
    store = open_store(placement.site(name).root)
    keys = [key for key in store.list(f"tables/{table}/") if key.split("/")[2].startswith("g")]
    folder = max(key.split("/")[2] for key in keys)
    found = {
        key.split("/", 3)[3]: b"".join(store.read(key) or ()) for key in keys if key.split("/")[2] == folder
    }
    # Hadoop's checksums are its own affair: they are made where Spark writes, and not copied.
    return {key: content for key, content in found.items() if not key.endswith(".crc")}


def expect_whole(placement: Placement, ids: list[str], pipelines: tuple[Pipeline, ...]) -> None:
    """Every replica of every table has the same bytes, and the rows are there once."""
    for contract in ALL_TABLES:
        if pipelines[0].context.table(contract.name).version() < 0:
            continue
        first = held(placement, A, contract.name)
        assert any(key.endswith(".json") for key in first)
        assert held(placement, B, contract.name) == first
        assert held(placement, STORE, contract.name) == first
    for pipeline in pipelines:
        for table in STEPS:
            assert sorted(row["event_id"] for row in pipeline.rows(table)) == sorted(ids)


def test_each_of_two_folders_and_a_bucket_is_lost_in_turn_and_everything_is_whole_again(
    pipeline, placement, server
):
    first, second = (dataclasses.replace(pipeline, works_in=domain) for domain in placement.domains)
    ids = [f"event-{number}" for number in range(5)]
    first.land([event(number) for number in range(5)])
    first.run(only=STEPS)
    assert reconcile_replicas(placement) == []
    expect_whole(placement, ids, (first, second))

    # A folder is lost: the other one and the bucket are a majority.
    root = first.domain.root
    away = root.rename(root.with_name("away"))
    placement.watch.probe_all(placement.sites)
    assert placement.place(PlacementClass.INGEST, leader=A).name == B
    second.land([event(number) for number in range(5, 8)], name="b.jsonl")
    second.run(only=STEPS)
    ids += [f"event-{number}" for number in range(5, 8)]
    away.rename(root)
    for _ in range(3):
        placement.watch.probe(placement.site(A))
    reconcile_replicas(placement)
    expect_whole(placement, ids, (first, second))

    # The object store is killed: the two folders are.
    server.kill()
    assert placement.watch.probe_all(placement.sites)[STORE].state is HealthState.UNAVAILABLE
    second.land([event(8)], name="c.jsonl")
    second.run([DAY], only=STEPS)
    ids.append("event-8")
    assert sorted(row["event_id"] for row in first.rows("raw_events")) == sorted(ids)

    # It comes back empty: it must not vote from a blank memory, and is filled again once somebody says so.
    server.start()
    for _ in range(3):
        placement.watch.probe(placement.site(STORE))
    assert "emptied" in (placement.problem(placement.site(STORE)) or "")
    assert reconcile_replicas(placement) == []
    assert list(open_store(placement.site(STORE).root).list("")) == []
    placement.heal(STORE, new_root=True)
    placement.place(PlacementClass.INGEST)
    kept = {each.table: each for each in reconcile_replicas(placement)}
    assert all(each.problem is None for each in kept.values())
    assert all(kept[table].rejoined == (STORE,) for table in STEPS)
    assert reconcile_replicas(placement) == []
    expect_whole(placement, ids, (first, second))

    # And it counts again.
    root.rename(away)
    second.land([event(9)], name="d.jsonl")
    second.run(only=STEPS)
    assert "event-9" in {row["event_id"] for row in second.rows("warehouse_rows")}

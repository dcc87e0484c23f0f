"""Events flow through Spark while runs are killed and paused and domains are lost, cut off, full, emptied and
damaged.

`CHAOS_ROUNDS` and `CHAOS_SEED` say how long and from where; a failure names its seed. `make chaos` runs a
hundred rounds, each time from elsewhere; without the variable it is always the same place. The rounds are
shared out to worlds of at most
25: three domains on disks, and two on disks with one on an object store behind a bad network.
"""

from __future__ import annotations

import os
import random
import subprocess

import pytest

from etl_assets_tests.chaos.checks import problems, rows_of
from etl_assets_tests.chaos.roots import Bucket, Disk, Root
from etl_assets_tests.chaos.run_process import ORDERS
from etl_assets_tests.chaos.troubles import Troubles
from etl_assets_tests.chaos.world import DAYS, World
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.pipeline import Pipeline
from etl_assets_tests.reference.fault_proxy import FaultProxy
from etl_assets_tests.reference.object_store_server import ObjectStoreServer

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "2"))
SEED = int(os.environ.get("CHAOS_SEED") or 0)
MAX_ROUNDS = 25
WORLDS = 2 * -(-ROUNDS // (2 * MAX_ROUNDS))

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300 + ROUNDS * 300)]

OWN = ("offset", "raw_offset", "normalized_offset", "batch_id", "committed_at", "ingested_at")
"""Columns that say when, where and in which order work was done: they differ from a platform without
troubles.
"""


@pytest.fixture
def world(request, spark, tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    dice = random.Random(f"{SEED} {request.param}")
    roots: list[Root] = [Disk(name=f"local/{name}", path=tmp_path / name) for name in "abc"]
    if request.param % 2:
        server = ObjectStoreServer()
        network = FaultProxy(server.port, random.Random(dice.random()))
        server.addressed(monkeypatch, port=network.port)
        roots[-1] = Bucket(name="cloud/c", server=server, network=network)
    found = World(home=tmp_path, gateway=Gateway.of(spark), dice=dice, roots=tuple(roots))
    try:
        found.begin()
        yield found
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a disk of a domain's own cannot be mounted by this user: {error.stderr}")
    finally:
        found.end()


def comparable(rows) -> list[dict]:
    kept = [{name: row[name] for name in row if name not in OWN and "domain" not in name} for row in rows]
    return sorted(kept, key=lambda row: row["event_id"])


@pytest.mark.parametrize(
    ("world", "rounds"),
    [(number, ROUNDS // WORLDS + (number < ROUNDS % WORLDS)) for number in range(WORLDS)],
    ids=[f"{('disks', 'bucket')[number % 2]}-{number // 2}" for number in range(WORLDS)],
    indirect=["world"],
)
def test_whatever_happens_the_tables_are_those_of_a_platform_to_which_nothing_happened(
    world, rounds, pipeline, tell
):
    troubles = Troubles(world)
    try:
        world.land()
        world.settle()
        for _ in range(rounds):
            world.land()
            emptied = troubles.round()
            world.settle(emptied=emptied)
            assert problems(world) == []
    except BaseException as error:
        error.add_note(f"seed {SEED}, after {dict(world.befell)}; the last round: {troubles.last}")
        raise
    calm = Pipeline(root=pipeline.root, landing=world.home / "landing", session=pipeline.session)
    calm.run(DAYS, only=ORDERS)
    for table in ORDERS:
        assert comparable(rows_of(world, table)) == comparable(calm.rows(table))
    tell(
        f"seed {SEED}, {rounds} rounds with {', '.join(world.names)}: {dict(world.befell)};"
        f" {len(world.landed)} events,"
        f" {len(world.acknowledged())} commits acknowledged, none lost, none doubled"
    )

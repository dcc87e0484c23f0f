"""Events flow through Spark while runs are killed and paused and domains are lost, full, read-only, emptied and damaged.

`CHAOS_ROUNDS` and `CHAOS_SEED` say how long and from where; a failure names its seed. `make chaos` runs a hundred rounds,
each time from elsewhere; without the variable it is always the same place.
"""

from __future__ import annotations

import os
import random
import subprocess
import time

import pytest

from etl_assets_tests.chaos.run_process import STEPS
from etl_assets_tests.chaos.world import DAYS, World
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.pipeline import Pipeline

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "10"))
SEED = int(os.environ.get("CHAOS_SEED", "0") or time.time_ns() % 1_000_000)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300 + ROUNDS * 300)]

OWN = ("offset", "raw_offset", "normalized_offset", "batch_id", "committed_at", "ingested_at")
"""Columns that say when, where and in which order work was done: they differ from a platform without troubles."""


@pytest.fixture
def world(spark, tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    found = World(home=tmp_path, gateway=Gateway.of(spark), dice=random.Random(SEED))
    try:
        found.begin()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"a disk of a domain's own cannot be mounted by this user: {error.stderr}")
    yield found
    found.end()


def comparable(rows) -> list[dict]:
    kept = [{name: row[name] for name in row if name not in OWN and "domain" not in name} for row in rows]
    return sorted(kept, key=lambda row: row["event_id"])


def test_whatever_happens_the_tables_are_those_of_a_platform_to_which_nothing_happened(world, pipeline, tell):
    try:
        world.land()
        world.settle()
        for _ in range(ROUNDS):
            world.land()
            world.trouble()
            world.settle()
            world.check()
    except BaseException as error:
        error.add_note(f"seed {SEED}, after {dict(world.befell)}")
        raise
    calm = Pipeline(root=pipeline.root, landing=world.home / "landing", session=pipeline.session)
    calm.run(DAYS, only=STEPS)
    for table in STEPS:
        assert comparable(world.rows(table)) == comparable(calm.rows(table))
    told = (
        f"seed {SEED}, {dict(world.befell)}: {len(world.landed)} events, {len(world.acknowledged())} commits"
        " acknowledged, none lost, none doubled"
    )
    tell(told)

"""Random landing files, commands and kills against a reference in plain Python, all through the command line.

`CAMPAIGN_ROUNDS` and `CAMPAIGN_SEED` say how long and from where. `make campaign` runs a hundred rounds, each
time from elsewhere; without the variable it is always the same place. Rounds are shared out to homes, whose
histories grow; each is a test of its own. A home that deviates is kept, and named with its seed and all that
happened to it. A seed gives the same files and commands again; moments of kills are as exact as the machine's
timing.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from etl_assets_tests.campaign.rounds import Life
from etl_assets_tests.commands.home import Home

ROUNDS = int(os.environ.get("CAMPAIGN_ROUNDS") or 2)
SEED = int(os.environ.get("CAMPAIGN_SEED") or 0)
ROUNDS_OF_A_HOME = 10
HOMES = range(SEED, SEED + -(-ROUNDS // ROUNDS_OF_A_HOME))

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(600 + ROUNDS_OF_A_HOME * 240)]


@pytest.mark.parametrize("seed", HOMES)
def test_whatever_happens_the_tables_are_those_of_the_reference(seed, tell):
    folder = Path(tempfile.mkdtemp(prefix=f"etl-assets-campaign-{seed}-"))
    rounds = min(ROUNDS_OF_A_HOME, ROUNDS - (seed - SEED) * ROUNDS_OF_A_HOME)
    life = Life(Home(path=folder / "home"), str(seed))
    try:
        life.begin()
        for _ in range(rounds):
            life.round()
        life.settle()
    finally:
        life.end()
        # Shown if it fails.
        sys.stdout.write("\n".join([f"seed {seed}, home {folder}, what happened:", *life.home.history, ""]))
    rows = {name: len(life.home.rows(name)) for name in ("raw_events", "warehouse_rows", "dead_letters")}
    tell(f"campaign, seed {seed}: {rounds} rounds, {rows}")
    shutil.rmtree(folder)

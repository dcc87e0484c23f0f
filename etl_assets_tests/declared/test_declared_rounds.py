"""Declared pipelines against a reference in plain Python: random files, commands and kills, all through the
command line.

`DECLARED_ROUNDS` and `DECLARED_SEED` say how long and from where. In the gate it is a few rounds, always the
same. Each home has ten rounds; one that deviates is kept, and named with its seed and all that happened to
it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from etl_assets_tests.commands.home import Home
from etl_assets_tests.declared.life import Life

ROUNDS = int(os.environ.get("DECLARED_ROUNDS") or 0)
SEED = int(os.environ.get("DECLARED_SEED") or 0)
ROUNDS_OF_A_HOME = 10
IN_THE_GATE = ("failpoint", "replay")
"""Those that show the most in little time."""
HOMES = range(SEED, SEED + max(1, -(-ROUNDS // ROUNDS_OF_A_HOME)))

pytestmark = [pytest.mark.kill, pytest.mark.slow, pytest.mark.timeout(600 + ROUNDS_OF_A_HOME * 240)]


@pytest.mark.parametrize("seed", HOMES)
def test_whatever_happens_the_tables_are_those_of_the_reference(seed, tell):
    folder = Path(tempfile.mkdtemp(prefix=f"etl-assets-declared-{seed}-"))
    life = Life(Home(path=folder / "home"), str(seed))
    rounds = min(ROUNDS_OF_A_HOME, ROUNDS - (seed - SEED) * ROUNDS_OF_A_HOME)
    names: Sequence[str | None] = [None] * rounds if ROUNDS else IN_THE_GATE
    try:
        life.begin()
        for name in names:
            life.round(name)
        life.settle()
    finally:
        life.end()
        # Shown if it fails.
        sys.stdout.write("\n".join([f"seed {seed}, home {folder}, what happened:", *life.home.history, ""]))
    rows = {pipe.name: len(life.home.rows(pipe.name)) for pipe in life.pipes}
    tell(f"declared pipelines, seed {seed}: {len(names)} rounds, {rows}")
    shutil.rmtree(folder)

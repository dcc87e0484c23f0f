"""Memory of the processes that take up a transaction does not depend on how large it is."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.queues import Queue
from pathlib import Path

import pytest

from etl_assets.pipelines.capture_files import find_capture
from etl_assets.sources.captures.connect import capture_reader
from etl_assets_tests.commands.home import Home
from etl_assets_tests.reference.peak_memory import growth
from etl_assets_tests.sources import captured
from etl_assets_tests.sources.captured import CAPTURE, Captured

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["deltalake", "pyarrow", "psycopg", __name__])
ALLOWED, MORE_MIB = 1.3, 12
"""How much more memory four times as many changes may need: a share, and what varies anyway."""


@pytest.mark.parametrize(
    "changes", [20_000, pytest.param(250_000, marks=[pytest.mark.full, pytest.mark.timeout(1_800)])]
)
def test_a_transaction_four_times_as_large_needs_no_more_memory(postgres_server, tmp_path, tell, changes):
    needed = {}
    for times in (1, 4):
        shop = Captured.create(
            postgres_server,
            tmp_path / str(times),
            max_batch_records=1_000,
            max_transaction_records=changes // 2,
        )
        shop.make_tables("item")
        shop.discover()
        shop.settle("item")
        # 1. Rows and rows that change again, with texts of some hundred characters.
        shop.execute(
            "ALTER TABLE item ALTER title TYPE text",
            "BEGIN",
            "INSERT INTO item SELECT i, repeat(md5(i::text), 10), i"
            f" FROM generate_series(10, {times * changes // 2 + 9}) i",
            "UPDATE item SET n = n + 1 WHERE id >= 10",
            "COMMIT",
        )
        shop.discover()
        # 2. The reader, and the steps as a worker takes turns with them, each in a process of its own.
        needed[times] = [peak_of(shop.home, each) for each in (_look, _take_turns)]
        assert len(shop.home.rows(f"{CAPTURE}_item")) == times * changes // 2 + 3
        shop.close()
    for name, small, large in zip(("reader", "steps"), *needed.values(), strict=True):
        tell(f"a transaction of {changes:,} changes: {name} {small} MiB; of {4 * changes:,}: {large} MiB")
    for small, large in zip(*needed.values(), strict=True):
        assert large <= ALLOWED * small + MORE_MIB


def peak_of(home: Home, work: Callable[[Home], object]) -> int:
    """Return how much memory some work needs at most in a new process, in MiB."""
    answers: Queue[int] = _processes.Queue()
    process = _processes.Process(
        target=_measure, args=(home.path, os.environ["SHOP_PASSWORD"], work, answers)
    )
    process.start()
    process.join(1_000)
    assert process.exitcode == 0
    return answers.get(timeout=10)


def _measure(home: Path, password: str, work: Callable[[Home], object], answers: Queue[int]) -> None:
    os.environ["SHOP_PASSWORD"] = password
    with growth() as grown:
        work(Home(path=home))
    answers.put(grown.mib)


def _look(home: Home) -> None:
    settings = captured.settings_of(home)
    capture_reader(settings, find_capture(settings.home, CAPTURE)).look(at_once=True)


def _take_turns(home: Home) -> None:
    while captured.ingest(home, "item", 1).commits:
        captured._run(home, f"{CAPTURE}_item", None)

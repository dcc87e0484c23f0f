"""Who follows is told by the lock; who did, and may have left things undone, by the file."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import WorkerRunning
from etl_assets.worker.lease import (
    SILENT_AFTER_SECONDS,
    found_done,
    lease,
    left_undone,
    running_worker,
)


def hold(home: Path, begun: Any, leave: Any) -> None:
    with lease(home):
        begun.set()
        leave.wait(30)


@pytest.fixture
def other(tmp_path: Path):
    """A process that follows, and how to have it leave."""
    context = multiprocessing.get_context("forkserver")
    begun, leave = context.Event(), context.Event()
    process: Any = context.Process(target=hold, args=(tmp_path, begun, leave))
    process.start()
    assert begun.wait(30)
    yield process, leave
    process.kill()
    process.join()


def test_nobody_follows_where_nobody_ever_did(tmp_path):
    assert running_worker(tmp_path) is None
    assert left_undone(tmp_path) is None
    found_done(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_second_worker_is_refused_with_the_name_of_the_first(tmp_path, other):
    process, _ = other
    with pytest.raises(WorkerRunning, match=f"process {process.pid}"), lease(tmp_path):
        pass
    found = running_worker(tmp_path)
    assert found is not None
    assert found.pid == process.pid
    assert not found.is_silent
    assert left_undone(tmp_path) is None, "it is at it"


def test_one_that_was_killed_follows_no_more_and_may_have_left_things_undone(tmp_path, other):
    process, _ = other
    found_done(tmp_path)
    process.kill()
    process.join()
    assert running_worker(tmp_path) is None
    undone = left_undone(tmp_path)
    assert undone is not None
    assert undone.pid == process.pid
    found_done(tmp_path)
    assert left_undone(tmp_path) is None
    with lease(tmp_path):
        pass


def test_one_that_gives_no_sign_of_life_is_silent_until_it_does(tmp_path):
    with lease(tmp_path) as held:
        (file,) = tmp_path.iterdir()
        long_ago = time.time() - SILENT_AFTER_SECONDS - 1
        os.utime(file, (long_ago, long_ago))
        found = running_worker(tmp_path)
        assert found is not None
        assert found.is_silent
        held.alive()
        found = running_worker(tmp_path)
        assert found is not None
        assert not found.is_silent

"""What a worker does with runs and states: it stops between steps, and waits for no store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl_assets.control.run_controls import RunControls
from etl_assets.control.states import ControlState, RunStatus
from etl_assets.control.store import ControlStore, open_store
from etl_assets.errors import InputError, SourceUnavailable
from etl_assets.settings import ControlSettings, Settings
from etl_assets.worker.carried_runs import CarriedRuns

LEASE = 10.0


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path, control=ControlSettings(lease_seconds=LEASE))


@pytest.fixture
def store(settings: Settings) -> Iterator[ControlStore]:
    made = open_store(settings)
    yield made
    made.close()


@pytest.fixture
def client(store: ControlStore) -> RunControls:
    return RunControls(store)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def begun() -> list[str]:
    return []


@pytest.fixture
def runs(settings: Settings, clock: Clock, begun: list[str]) -> Iterator[CarriedRuns]:
    made = CarriedRuns(settings, "worker", pipelines=lambda: ["p", "q"], begun=begun.append, clock=clock)
    yield made
    made.release()


def may_work(runs: CarriedRuns, pipeline: str = "p") -> bool:
    with runs.working_on(pipeline) as permit:
        return bool(permit)


def test_without_run_control_every_pipeline_is_followed_and_no_store_is_made(settings, runs):
    runs.look()
    assert may_work(runs)
    assert not (settings.home / "control.db").exists()


def test_pipelines_that_are_paused_are_left_alone_until_they_are_resumed(client, runs):
    client.pause("p", "a")
    runs.look()
    assert (may_work(runs), may_work(runs, "q")) == (False, True)
    client.resume("p", "a")
    runs.look()
    assert may_work(runs)


def test_a_run_is_claimed_carried_and_ended_with_its_figures(client, runs, begun):
    asked = client.request_run("p", "a")
    runs.look()
    assert begun == ["p"]
    assert may_work(runs)
    runs.add_rows("p", 100, 1)
    runs.add_batch("p", 2.0)
    runs.complete("p")
    runs.look()
    done = client.run(asked.id)
    assert (done.status, done.batches, done.rows, done.rows_per_second) == (RunStatus.SUCCEEDED, 1, 100, 50.0)
    assert runs.run_of("p") is None
    assert may_work(runs)


def test_a_pause_waits_for_the_steps_under_way_and_lets_no_other_begin(client, runs):
    client.request_run("p", "a")
    runs.look()
    with runs.working_on("p") as may:
        assert may
        client.pause("p", "a")
        runs.look()
        assert client.state_of("p").state is ControlState.PAUSE_REQUESTED
        assert not may_work(runs)
    runs.look()
    assert client.state_of("p").state is ControlState.PAUSED
    assert not may_work(runs)


def test_a_pause_that_is_withdrawn_lets_the_run_go_on(client, runs):
    client.request_run("p", "a")
    runs.look()
    with runs.working_on("p"):
        client.pause("p", "a")
        runs.look()
        client.resume("p", "a")
    runs.look()
    assert may_work(runs)
    assert client.state_of("p").state is ControlState.RUNNING


def test_an_attempt_that_fails_is_followed_by_another_or_the_pipeline_has_failed(client, runs):
    asked = client.request_run("p", "a")
    runs.look()
    runs.fail("p", SourceUnavailable("away", fix="bring it back", source="s"))
    assert not may_work(runs), "no step begins after the error"
    runs.look()
    assert client.run(asked.id).next_attempt_at is not None
    client.retry("p", "a")
    runs.look()
    runs.fail("p", InputError("broken", fix="write it again"))
    runs.complete("p")
    runs.look()
    assert client.state_of("p").state is ControlState.FAILED
    assert (client.run(asked.id).attempts, client.run(asked.id).solution) == (2, "write it again")
    assert not may_work(runs)


def test_a_run_whose_lease_was_lost_is_dropped(client, runs, settings, store, clock):
    client.request_run("p", "a")
    runs.look()
    observer = RunControls(store, monotonic=clock)
    observer.recover("other")
    clock.now += LEASE + 1
    assert not may_work(runs), "others may have taken the run over by now"
    assert observer.claim("other") is not None
    runs.look()
    assert runs.run_of("p") is None
    assert not may_work(runs)
    runs.fail("p", InputError("late", fix="nothing"))
    runs.complete("p")
    runs.look()
    assert client.state_of("p").state is ControlState.RUNNING


def test_a_worker_that_leaves_gives_its_run_back_but_for_one_with_a_step_under_way(client, runs):
    client.request_run("p", "a")
    client.request_run("q", "a")
    runs.look()
    with runs.working_on("q"):
        runs.release()
    assert client.state_of("p").state is ControlState.RUN_REQUESTED
    assert client.state_of("q").state is ControlState.RUNNING


def test_while_the_store_is_away_pipelines_are_followed_as_last_known(settings, client, store, runs, clock):
    client.pause("p", "a")
    client.request_run("q", "a")
    runs.look()
    store.close()
    for file in settings.home.glob("control.db*"):
        file.unlink()
    (settings.home / "control.db").mkdir()
    runs.look()
    assert not may_work(runs)
    assert may_work(runs, "q"), "its lease holds"
    clock.now += LEASE + 1
    assert not may_work(runs, "q"), "its lease may be lost"
    assert may_work(runs, "r")

    after = CarriedRuns(settings, "another process", pipelines=lambda: ["p"])
    after.look()
    assert (may_work(after), may_work(after, "r")) == (False, True), "from the copy in the home folder"


def test_a_batch_ends_with_a_look_at_the_state_but_does_not_wait_for_ever(client, runs):
    client.request_run("p", "a")
    runs.look()
    client.pause("p", "a")
    looking = threading.Timer(0.1, runs.look)
    looking.start()
    runs.wait_for_look("p")
    looking.join()
    assert not may_work(runs)
    runs.wait_for_look("q")

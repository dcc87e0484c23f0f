"""The worker's loop carries runs: to their ends, or to FAILED. Steps only say how they ended."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from etl_assets.control.run_controls import RunControls
from etl_assets.control.states import ControlState, RetryPolicy, RunStatus
from etl_assets.control.store import ControlStore, open_store
from etl_assets.errors import ConnectionBusy, InputError, SourceUnavailable
from etl_assets.settings import RunSettings, Settings, WorkerSettings
from etl_assets.steps.step import StepReport
from etl_assets.worker.session import Session
from etl_assets.worker.step_runner import StepOutcome, StepRunner
from etl_assets.worker.worker import Worker

FILMS = """
name: films
source: {type: files, path: "in/*.csv", settle_seconds: 0}
columns: {id: bigint}
table: {keys: [id]}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "films.yaml").write_text(FILMS, "utf-8")
    (tmp_path / "in").mkdir()
    return Settings.model_validate(
        {
            "home": tmp_path,
            "pipelines": {"built_in": []},
            "runs": RunSettings(retry_delay_seconds=0, max_retries=0),
            "worker": WorkerSettings(batch_interval_seconds=0.05, derived_interval_seconds=0.05),
        }
    )


@pytest.fixture
def store(settings: Settings) -> Iterator[ControlStore]:
    made = open_store(settings)
    yield made
    made.close()


@pytest.fixture
def client(store: ControlStore) -> RunControls:
    return RunControls(store)


class Work:
    """A worker in a thread. Its steps fail with an error while there is one, and read the file otherwise."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.error: Exception | None = None
        self.ran: list[str] = []
        monkeypatch.setattr(Session, "__call__", lambda session: None)
        monkeypatch.setattr(StepRunner, "run", lambda crew, table, days, **_: self._step(table, days))
        monkeypatch.setattr(StepRunner, "tidy", lambda crew, table: None)
        self.file = settings.home / "in" / "a.csv"
        self.worker = Worker(settings, lambda event: None)
        self.thread = threading.Thread(target=self.worker.run)
        self.thread.start()

    def _step(self, table: str, days: Sequence[dt.date]) -> StepOutcome:
        self.ran.append(table)
        if self.error is not None:
            return StepOutcome(began=0.0, report=None, failed={None: self.error})
        self.file.unlink(missing_ok=True)
        counts = {day: Counter(read=7) for day in days}
        return StepOutcome(
            began=0.0, report=StepReport(table=table, version=1, counts=counts, commits=1), failed={}
        )

    def leave(self) -> None:
        self.worker._end_with(InterruptedError("the test is over"))
        self.thread.join(30)


@pytest.fixture
def work(settings, monkeypatch) -> Iterator[Work]:
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    made = Work(settings, monkeypatch)
    yield made
    made.leave()


def until(client: RunControls, *states: ControlState) -> ControlState:
    waited = threading.Event()
    for _ in range(600):
        if (found := client.state_of("films").state) in states:
            return found
        waited.wait(0.05)
    raise AssertionError(f"still {client.state_of('films')}")


def paused(client: RunControls, work: Work) -> None:
    """Pause the pipeline, and wait until the worker has seen it."""
    client.pause("films", "a")
    for _ in range(600):
        with work.worker._runs.working_on("films") as may_work:
            if not may_work:
                return
        threading.Event().wait(0.05)
    raise AssertionError("the worker goes on")


def test_a_run_succeeds_with_what_it_has_read(client, work):
    paused(client, work)
    work.file.write_text("id\n1\n")
    asked = client.request_run("films", "a")
    client.resume("films", "a")
    until(client, ControlState.IDLE)
    done = client.run(asked.id)
    assert (done.status, done.batches, done.rows) == (RunStatus.SUCCEEDED, 1, 7)


def test_a_run_whose_step_fails_for_good_has_failed_and_nothing_is_tried_until_a_retry(client, work):
    work.error = InputError("a file is broken", fix="write it again")
    paused(client, work)
    work.file.write_text("id\n1\n")
    asked = client.request_run("films", "a")
    client.resume("films", "a")
    until(client, ControlState.FAILED)
    failed = client.run(asked.id)
    assert (failed.error, failed.solution) == ("InputError: a file is broken", "write it again")
    assert failed.retry_policy is RetryPolicy.MANUAL
    tried = len(work.ran)
    threading.Event().wait(0.3)
    assert len(work.ran) == tried
    work.error = None
    client.retry("films", "a")
    until(client, ControlState.IDLE)
    assert client.run(asked.id).status is RunStatus.SUCCEEDED


def test_a_step_that_waits_for_a_connection_is_no_failure_of_its_run(client, work):
    work.error = ConnectionBusy("all slots are in use", fix="nothing")
    paused(client, work)
    work.file.write_text("id\n1\n")
    asked = client.request_run("films", "a")
    client.resume("films", "a")
    until(client, ControlState.RUNNING)
    tried = len(work.ran)
    for _ in range(600):
        if len(work.ran) > tried + 2:
            break
        threading.Event().wait(0.05)
    assert client.run(asked.id).status is RunStatus.RUNNING
    work.error = None
    until(client, ControlState.IDLE)
    assert (client.run(asked.id).status, client.run(asked.id).attempts) == (RunStatus.SUCCEEDED, 1)


def test_what_may_pass_is_tried_three_times_and_then_waits_for_its_time(client, work):
    work.error = SourceUnavailable("the disk is away", fix="bring it back", source="films")
    paused(client, work)
    work.file.write_text("id\n1\n")
    asked = client.request_run("films", "a")
    client.resume("films", "a")
    until(client, ControlState.FAILED)
    failed = client.run(asked.id)
    assert (failed.attempts, failed.retry_policy) == (3, RetryPolicy.TIMED)
    assert failed.next_attempt_at is not None


def test_a_pipeline_with_a_schedule_is_read_at_its_ticks_alone_each_once(settings, client, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    declaration = settings.home / "pipelines" / "films.yaml"
    declaration.write_text(FILMS + "schedule: {every_seconds: 86400}\n", "utf-8")
    work = Work(settings, monkeypatch)
    try:
        work.file.write_text("id\n1\n")
        threading.Event().wait(1.5)
        assert work.ran == []
        declaration.write_text(FILMS + "schedule: {every_seconds: 1}\n", "utf-8")
        for _ in range(200):
            if work.ran and len(client.runs("films")) > 1:
                break
            threading.Event().wait(0.05)
        assert work.ran
    finally:
        work.leave()
    ticks = [each.reason for each in client.runs("films")]
    assert len(ticks) > 1
    assert len(set(ticks)) == len(ticks)

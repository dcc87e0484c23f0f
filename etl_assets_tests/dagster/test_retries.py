"""The retry table as Dagster carries it out: transient errors are repeated, others are not, and lost runs are
noticed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import Mock

import dagster as dg
import pytest
from dagster._core.events import EngineEventData
from dagster._core.launcher import WorkerStatus
from dagster._core.test_utils import create_run_for_test
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from etl_assets.build import platform_resources
from etl_assets.errors import SettingsError, TableBusy
from etl_assets.launcher import WatchedRunLauncher
from etl_assets.resources.failures import as_failure
from etl_assets.resources.spark import SparkResource
from etl_assets.settings import load_settings
from etl_assets.steps.step import StepReport

# Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


@dataclass
class FailingStep:
    """A step that fails with the same error a number of times."""

    error: Callable[[], Exception]
    times: int
    calls: list[Any] = field(default_factory=list)

    def run(self, days: Any) -> StepReport:
        self.calls.append(days)
        if len(self.calls) <= self.times:
            raise self.error()
        return StepReport(table="mine", version=0)


def materialize(step: FailingStep) -> dg.ExecuteInProcessResult:
    @dg.asset(io_manager_key="delta", retry_policy=dg.RetryPolicy(max_retries=2, delay=0.01))
    def mine() -> Any:
        return step

    return dg.materialize([mine], resources=platform_resources(load_settings()), raise_on_error=False)


def test_a_transient_error_is_repeated_until_it_is_over():
    step = FailingStep(lambda: TableBusy("another run writes", fix="wait"), times=2)
    assert materialize(step).success
    assert len(step.calls) == 3


def test_a_transient_error_that_stays_fails_after_the_last_repetition():
    step = FailingStep(lambda: ConnectionResetError("gone"), times=99)
    assert not materialize(step).success
    assert len(step.calls) == 3


@pytest.mark.parametrize(
    "error", [SettingsError("wrong", fix="mend it"), KeyError("a bug"), PermissionError(13, "no")]
)
def test_a_terminal_error_is_not_repeated_and_says_what_to_do(error):
    step = FailingStep(lambda: error, times=99)
    result = materialize(step)
    assert not result.success
    assert len(step.calls) == 1
    (failure,) = (event for event in result.all_events if event.is_step_failure)
    told = failure.step_failure_data.user_failure_data
    assert told is not None
    description = str(told.description)
    assert description.startswith(f"{type(error).__name__}: "), "what the runbook lists it by"
    assert "\n  fix: " in description


def test_a_step_that_lost_its_session_at_a_server_is_repeated_in_another_one(monkeypatch):
    resources, sessions, made = platform_resources(load_settings()), [], iter(range(9))
    monkeypatch.setattr(
        "etl_assets.resources.spark._session", lambda *_, **__: Mock(number=next(made), _sc=None)
    )

    @dg.asset(io_manager_key="delta", retry_policy=dg.RetryPolicy(max_retries=1, delay=0.01))
    def mine(spark: SparkResource) -> Any:
        assert spark.spark_session is spark.spark_session
        sessions.append(spark.spark_session)
        return FailingStep(lambda: SparkConnectGrpcException("no answer"), times=2 - len(sessions))

    assert dg.materialize([mine], resources=resources, raise_on_error=False).success
    assert [session.number for session in sessions] == [0, 1]


@pytest.fixture
def dead_driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """What is taken for the JVM of this process, and has just been killed."""
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr("etl_assets.delta.session._started_driver", lambda: process)
        process.kill()
        yield process


@pytest.mark.parametrize(
    "error",
    [Py4JError("An error occurred while calling o1.x"), Py4JNetworkError("no"), ConnectionRefusedError()],
)
def test_a_call_that_fails_because_the_jvm_is_gone_says_so_and_is_repeated(dead_driver, error):
    failure = as_failure(error)
    assert failure.allow_retries
    assert f"process {dead_driver.pid}" in str(failure.description)
    assert failure.metadata["error"].value == "EngineLost"


def test_the_jvm_is_not_to_blame_for_what_it_reported_before_it_ended(dead_driver):
    assert as_failure(TableBusy("another run writes", fix="wait")).metadata["error"].value == "TableBusy"
    assert as_failure(KeyError("a bug")).metadata["error"].value == "KeyError"


def test_a_plain_error_of_a_jvm_that_is_there_is_a_bug(monkeypatch):
    with subprocess.Popen(["sleep", "60"]) as process:
        monkeypatch.setattr("etl_assets.delta.session._started_driver", lambda: process)
        monkeypatch.setattr("etl_assets.resources.failures._DYING_SECONDS", 0.0)
        failure = as_failure(Py4JError("method x does not exist"))
        process.kill()
    assert not failure.allow_retries
    assert failure.metadata["error"].value == "Py4JError"


@pytest.fixture
def launcher():
    with dg.instance_for_test(
        overrides={"run_launcher": {"module": "etl_assets.launcher", "class": "WatchedRunLauncher"}}
    ) as instance:
        assert isinstance(instance.run_launcher, WatchedRunLauncher)
        yield instance.run_launcher


def health(launcher: WatchedRunLauncher, pid: int | None) -> WorkerStatus:
    instance = launcher._instance
    run = create_run_for_test(instance, status=dg.DagsterRunStatus.STARTED)
    if pid is not None:
        instance.report_engine_event("started", run, EngineEventData.in_process(pid))
    return launcher.check_run_worker_health(run).status


def test_a_run_whose_process_is_gone_is_noticed(launcher):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert health(launcher, gone.pid) is WorkerStatus.FAILED
    assert launcher.supports_check_run_worker_health


def test_a_run_that_is_being_started_or_executed_is_left_alone(launcher):
    assert health(launcher, None) is WorkerStatus.RUNNING
    assert health(launcher, os.getpid()) is WorkerStatus.RUNNING


def test_another_process_with_the_id_of_a_lost_one_is_not_taken_for_it():
    from etl_assets.launcher import process_runs

    assert process_runs(os.getpid(), time.time())
    assert not process_runs(os.getpid(), time.time() - 100_000)

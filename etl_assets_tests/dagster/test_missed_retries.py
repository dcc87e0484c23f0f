"""A failed run is retried even if Dagster looks at its failure before the run is marked as failed."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import dagster as dg
import pytest
from dagster import DagsterRun, DagsterRunStatus
from dagster._core.test_utils import create_run_for_test
from dagster._daemon.auto_run_reexecution.event_log_consumer import EventLogConsumerDaemon

from etl_assets.sensors import missed_retries
from etl_assets.sensors.failures import failure_sensor
from etl_assets.sensors.missed_retries import missed_retries_sensor
from etl_assets.settings import Settings

RETRIES = {"run_retries": {"enabled": True, "max_retries": 2, "retry_on_asset_or_op_failure": False}}


class Daemon:
    """Dagster's own look at failures; it notes which runs it would start again."""

    def __init__(self, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
        self.instance, self.retried = instance, []
        self._consumer = EventLogConsumerDaemon()
        self._consumer._logger = logging.getLogger("daemon")
        monkeypatch.setattr(
            "dagster._daemon.auto_run_reexecution.auto_run_reexecution.retry_run",
            lambda run, _workspace: self.retried.append(run.run_id),
        )

    def look(self) -> None:
        class Workspace:
            instance = self.instance

        for _ in self._consumer.run_iteration(Workspace()):  # ty: ignore[invalid-argument-type]
            pass


@pytest.fixture
def instance(tmp_path) -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test(temp_dir=str(tmp_path), overrides=RETRIES) as made:
        yield made


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(home=tmp_path / "installation")


@pytest.fixture
def daemon(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    made = Daemon(instance, monkeypatch)
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # logger.warn
        made.look()  # from here on it has a cursor
    return made


def fail(instance: dg.DagsterInstance, run: DagsterRun) -> None:
    instance.report_run_failed(run, "the process of the run is gone")


def fail_while_the_daemon_looks(instance, run: DagsterRun, daemon: Daemon, monkeypatch) -> None:
    """The daemon looks after the event is stored and before the run is marked."""
    storage = type(instance.run_storage)
    marked = storage.handle_run_event

    def later(self, *arguments, **named):
        daemon.look()
        return marked(self, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(storage, "handle_run_event", later)
        fail(instance, run)


def tick(instance: dg.DagsterInstance, settings: Settings) -> None:
    missed_retries_sensor(settings)(dg.build_sensor_context(instance=instance))


def test_a_failure_that_the_daemon_saw_too_early_is_reported_again(instance, daemon, settings, monkeypatch):
    monkeypatch.setattr(missed_retries, "PATIENCE_SECONDS", 0.0)
    run = create_run_for_test(instance, status=DagsterRunStatus.STARTED)
    fail_while_the_daemon_looks(instance, run, daemon, monkeypatch)
    daemon.look()
    assert daemon.retried == [], "otherwise Dagster has corrected it, and the sensor is no longer needed"

    tick(instance, settings)
    daemon.look()
    assert daemon.retried == [run.run_id]


def test_a_failure_that_the_daemon_handles_is_left_alone(instance, daemon, settings, monkeypatch):
    run = create_run_for_test(instance, status=DagsterRunStatus.STARTED)
    fail(instance, run)
    events = len(instance.all_logs(run.run_id))
    tick(instance, settings)
    assert len(instance.all_logs(run.run_id)) == events, "the daemon has not had its time yet"

    monkeypatch.setattr(missed_retries, "PATIENCE_SECONDS", 0.0)
    instance.add_run_tags(run.run_id, {"dagster/auto_retry_run_id": "the retry"})
    tick(instance, settings)
    assert len(instance.all_logs(run.run_id)) == events, "it is retried"


def test_a_run_that_is_not_to_be_retried_is_left_alone(instance, daemon, settings, monkeypatch):
    monkeypatch.setattr(missed_retries, "PATIENCE_SECONDS", 0.0)
    run = create_run_for_test(instance, status=DagsterRunStatus.STARTED, tags={"dagster/max_retries": "0"})
    fail(instance, run)
    events = len(instance.all_logs(run.run_id))
    tick(instance, settings)
    assert len(instance.all_logs(run.run_id)) == events


def test_a_failure_that_is_reported_again_is_one_alert(instance, daemon, settings, monkeypatch):
    monkeypatch.setattr(missed_retries, "PATIENCE_SECONDS", 0.0)
    run = create_run_for_test(instance, status=DagsterRunStatus.STARTED)
    fail(instance, run)
    tick(instance, settings)
    alerts = settings.home / "alerts.jsonl"
    for event in instance.all_logs(run.run_id, of_type=dg.DagsterEventType.RUN_FAILURE):
        assert event.dagster_event is not None
        context = dg.build_run_status_sensor_context(
            sensor_name="run_failures",
            dagster_event=event.dagster_event,
            dagster_instance=instance,
            dagster_run=run,
        ).for_run_failure()
        failure_sensor(settings)(context)
    assert len(alerts.read_text().splitlines()) == 1

"""Two control planes and three runners, each a process, on one store, with kills and pauses."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from etl_assets.control.rows import read_leases
from etl_assets.control.run_controls import RunControls
from etl_assets.control.states import Action, ControlState, RunStatus
from etl_assets.control.store import ControlStore, open_store
from etl_assets.errors import TransitionRefused
from etl_assets.settings import Settings
from etl_assets_tests.control.participant import PIPELINES

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["sqlite", "postgres"])
def home(request, tmp_path, monkeypatch) -> Path:
    """A folder with the settings of a store."""
    found: dict[str, object] = {"home": str(tmp_path)}
    if request.param == "postgres":
        server = request.getfixturevalue("postgres_server")
        monkeypatch.setenv("CONTROL_PROCESSES", server.password)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS control_processes")
            connection.execute("CREATE DATABASE control_processes")
        connection = {
            "type": "postgres",
            "host": "127.0.0.1",
            "port": server.port,
            "database": "control_processes",
            "user": server.user,
            "password": "${CONTROL_PROCESSES}",
        }
        found |= {"control": {"connection": "control"}, "connections": {"control": connection}}
    (tmp_path / "settings.json").write_text(json.dumps(found), "utf-8")
    return tmp_path


@contextmanager
def processes(home: Path) -> Generator[Callable[[str, int], subprocess.Popen]]:
    started: list[subprocess.Popen] = []

    def start(role: str, number: int) -> subprocess.Popen:
        command = [sys.executable, "-m", "etl_assets_tests.control.participant", role, str(home), str(number)]
        started.append(subprocess.Popen(command, cwd=ROOT))
        return started[-1]

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.wait()


def _settle(controls: RunControls) -> None:
    """Wait until nothing is open. A run that failed by kills is retried, as a person would."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = [each for each in controls.all() if each.state is not ControlState.IDLE]
        if not found:
            return
        for each in found:
            try:
                if each.state is ControlState.FAILED:
                    controls.retry(each.pipeline, "test")
                elif each.state is ControlState.PAUSED:
                    controls.resume(each.pipeline, "test")
            except TransitionRefused:
                pass
        time.sleep(0.1)
    raise AssertionError(f"not settled: {controls.all()}")


def _kill_within_a_run(store: ControlStore, runners: list[subprocess.Popen]) -> subprocess.Popen:
    """Kill a runner that holds a lease: stopped first, so that it still holds it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for runner in runners:
            runner.send_signal(signal.SIGSTOP)
            with store.reading() as connection:
                held = [lease.runner for lease in read_leases(connection)]
            if f"runner {runner.pid}" in held:
                runner.kill()
                runner.wait()
                return runner
            runner.send_signal(signal.SIGCONT)
        time.sleep(0.02)
    raise AssertionError("no runner carried a run")


@pytest.mark.kill
def test_under_kills_and_pauses_no_run_is_carried_twice_at_once_and_no_request_is_lost(home):
    chance = random.Random(7)
    store = open_store(Settings.model_validate_json((home / "settings.json").read_text("utf-8")))
    with processes(home) as start:
        controls = RunControls(store)
        runners = [start("runner", number) for number in range(3)]
        clients = [start("client", number) for number in range(2)]
        for number in range(2):
            time.sleep(chance.uniform(0, 0.3))
            runners.remove(_kill_within_a_run(store, runners))
            runners.append(start("runner", 3 + number))
        assert [client.wait(60) for client in clients] == [0, 0]
        _settle(controls)
        asked = (home / "asked").read_text("utf-8").split()
        entries = controls.history(limit=10_000)
        lost = [entry for entry in entries if entry.action is Action.LOSE]
        statuses = {controls.run(each).status for each in asked}
    store.close()
    assert len(asked) == 20
    assert not (home / "twice").exists()
    assert statuses == {RunStatus.SUCCEEDED}
    assert len(lost) >= 2, "each runner that was killed within a run is noticed"
    for pipeline in PIPELINES:
        tokens = [entry.token for entry in entries if entry.pipeline == pipeline and entry.action == "claim"]
        assert tokens == sorted(set(tokens), reverse=True)

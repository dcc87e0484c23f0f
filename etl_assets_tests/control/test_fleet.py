"""Two control planes and three workers under kills, pauses longer than the lease, and clocks that jump.

The short form uses SQLite, the long form PostgreSQL and several seeds. `CONTROL_SEED` sets another first
seed, and `CONTROL_REQUESTS` how many runs each client asks for.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from etl_assets.control.states import ControlState
from etl_assets.errors import TransitionRefused
from etl_assets.sinks.files.reader import read_manifest
from etl_assets_tests.control import jumping_clock
from etl_assets_tests.control.fleet import PIPELINES, Fleet, fleet, tokens_of_commits
from etl_assets_tests.control.rest_client import Client, read_column
from etl_assets_tests.control.run_control_invariants import (
    broken_chain,
    lost_requests,
    overtaken_commits,
    wrong_progress,
    wrong_rows,
)
from etl_assets_tests.control.warm_commands import WarmCommands
from etl_assets_tests.kill.dying_run import Gateway

pytestmark = [pytest.mark.spark, pytest.mark.kill]

SEED = int(os.environ.get("CONTROL_SEED", "1"))
SEEDS = int(os.environ.get("CONTROL_SEEDS", "5"))
SETTLE_SECONDS = 90


def test_two_control_planes_and_three_workers_lose_no_request_and_carry_no_run_twice(spark, tmp_path, tell):
    with _started(tmp_path, {}, spark, row_bytes=100) as found:
        _prove(found, SEED, number=2, requests=2, faults=4, tell=tell)


def test_the_wall_clock_of_a_process_jumps_and_its_monotonic_clock_does_not(tmp_path):
    library = jumping_clock.built_in(tmp_path)
    if library is None:
        pytest.skip("no C compiler: clocks do not jump here")
    jumping_clock.set_clock(tmp_path / "clock", -3_600)
    environment = jumping_clock.environment(tmp_path / "clock") | {"LD_PRELOAD": str(library)}
    code = "import datetime, time; print(datetime.datetime.now().timestamp(), time.time(), time.monotonic())"
    said = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, stdout=subprocess.PIPE, check=True
    )
    date, wall, monotonic = map(float, said.stdout.split())
    assert time.time() - date == pytest.approx(3_600, abs=60)
    assert time.time() - wall == pytest.approx(3_600, abs=60)
    assert time.monotonic() - monotonic == pytest.approx(0, abs=60)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
def test_so_do_they_on_postgresql_for_longer(seed, spark, tmp_path, postgres_server, monkeypatch, tell):
    name = f"control_fleet_{seed}"
    monkeypatch.setenv("CONTROL_FLEET", postgres_server.password)
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name}".encode())
        connection.execute(f"CREATE DATABASE {name}".encode())
    store = {
        "type": "postgres",
        "host": "127.0.0.1",
        "port": postgres_server.port,
        "database": name,
        "user": postgres_server.user,
        "password": "${CONTROL_FLEET}",
    }
    platform = {"control": {"connection": "control"}, "connections": {"control": store}}
    requests = int(os.environ.get("CONTROL_REQUESTS", "12"))
    secret = {"CONTROL_FLEET": postgres_server.password}
    with _started(tmp_path, platform, spark, row_bytes=10_000, environment=secret) as found:
        _prove(found, seed, number=3, requests=requests, faults=requests * 2, tell=tell)


@contextmanager
def _started(folder: Path, platform: dict[str, Any], spark: Any, **given: Any) -> Generator[Fleet]:
    library = jumping_clock.built_in(folder)
    with (
        WarmCommands(library, Gateway.of(spark)) as commands,
        fleet(folder, platform, commands, has_jumps=library is not None, **given) as found,
    ):
        found.wait_for_servers()
        yield found


def _prove(found: Fleet, seed: int, *, number: int, requests: int, faults: int, tell: Any) -> None:
    chance = random.Random(seed)
    clients = [
        Client(fleet=found, number=each, chance=random.Random(f"{seed}.{each}")) for each in range(number)
    ]
    left = found.plan(chance, faults)
    threads = [threading.Thread(target=each.work, args=(requests, lambda: not left)) for each in clients]
    for thread in threads:
        thread.start()
    # 1. Faults, while clients ask.
    while left:
        left[-1](chance)
        left.pop()
        time.sleep(chance.uniform(0, 0.3))
    for thread in threads:
        thread.join()
    # 2. Everything that was asked for comes to its end, and a last run of each pipeline reads what is left.
    _settle(found)
    for name in PIPELINES:
        found.controls.request_run(name, "test", "the last one")
    _settle(found)
    problems = [problem for client in clients for problem in client.problems]
    for name in PIPELINES:
        problems += _problems(found, name, clients)
    # 3. Figures.
    entries = found.controls.history(limit=100_000)
    answered = Counter(each.action.value for client in clients for each in client.accepted)
    shown = [f"seed {seed}", *_shown(found.faults), "accepted:", *_shown(answered)]
    refused = sum(client.refused for client in clients)
    happened_to_runs = Counter(each.action.value for each in entries if each.action.party != "client")
    tell(", ".join([*shown, f"{refused} refused", "runs:", *_shown(happened_to_runs)]))
    assert not problems, "\n".join([*problems, found.logs()])


def _problems(found: Fleet, name: str, clients: list[Client]) -> list[str]:
    """Return what is wrong with a pipeline."""
    controls = found.controls
    entries = tuple(reversed(controls.history(name, limit=100_000)))
    runs = {run.id: run for run in controls.runs(name, limit=100_000)}
    accepted = [each for client in clients for each in client.accepted if each.pipeline == name]
    problems = broken_chain(entries, controls.state_of(name).state)
    problems += lost_requests(entries, accepted, runs)
    # The tables.
    landed = found.ids(name)
    for table in sorted((found.folder / "data" / "tables").glob(f"{name}*/g*")):
        wrong = overtaken_commits(tokens_of_commits(table), entries)
        problems += [f"{table.parent.name}: {each}" for each in wrong]
    source = f"{name}_source"
    (folder,) = (found.folder / "data" / "tables" / source).glob("g*")
    by_version = Counter(read_column(found, source, "batch_id"))
    problems += wrong_progress(entries, runs.values(), by_version, tokens_of_commits(folder))
    ids = [int(each) for each in read_column(found, source, "record_id")]
    problems += wrong_rows("accepted rows", ids, landed)
    problems += wrong_rows("table", clients[0].in_table(name), landed)
    problems += wrong_rows("target", clients[0].in_target(name), landed)
    # The position of the target: the newest version of the table that has rows, and no token but the newest.
    position = read_manifest(str(found.folder / "out" / name)).manifest.position
    newest = max(read_column(found, name, "_batch_id"))
    if position.version < newest:
        problems.append(f"{name}: the target is at {position.version}, the table's newest rows at {newest}")
    if position.token > max(entry.token for entry in entries):
        problems.append(f"{name}: the target has the token {position.token}, which nobody claimed")
    return [f"{name}: {each}" for each in problems]


def _settle(found: Fleet) -> None:
    """Wait until nothing is open; retry what failed, and resume what is paused, as a person would."""
    controls, deadline = found.controls, time.monotonic() + SETTLE_SECONDS
    calm = 0
    while calm < 3:  # a request that a stopped control plane has still in hand comes late
        states = controls.all()
        calm = calm + 1 if states and all(each.state is ControlState.IDLE for each in states) else 0
        assert time.monotonic() < deadline, f"not settled: {states}\n{found.logs()}"
        for each in states:
            try:
                if each.state is ControlState.FAILED:
                    controls.retry(each.pipeline, "test")
                elif each.state in (ControlState.PAUSED, ControlState.CANCELED):
                    controls.resume(each.pipeline, "test")
            except TransitionRefused:
                pass
        time.sleep(0.1)


def _shown(counted: Counter[str]) -> list[str]:
    return [f"{number} {name}" for name, number in sorted(counted.items())]

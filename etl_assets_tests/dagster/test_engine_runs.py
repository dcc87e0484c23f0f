"""The engine executes runs in children of its own, and only runs that mean what it has loaded.

Without Spark: the platform's Spark is elsewhere, and runs over days without files never ask for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableRepository
from dagster._core.remote_origin import (
    ManagedGrpcPythonEnvCodeLocationOrigin,
    RemoteJobOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._serdes import serialize_value

from etl_assets.engine.ipc import Asked, hand_over, status
from etl_assets.instance import open_instance
from etl_assets.processes import started_at
from etl_assets.settings import load_settings

PLATFORM = """
start_date: 2026-01-01
spark: {master: 'spark://127.0.0.1:1'}
runs: {engine_locations: [my_project]}
"""
OWN_DEFINITIONS = """
import dagster as dg

@dg.asset
def films() -> dg.MaterializeResult:
    import titles

    return dg.MaterializeResult(metadata={"count": titles.COUNT})

defs = dg.Definitions(assets=[films])
"""
TABLE = dg.AssetKey("raw_events")


@pytest.fixture
def home() -> Path:
    home = Path(os.environ["ETL_ASSETS_HOME"])
    home.mkdir()
    (home / "platform.yaml").write_text(PLATFORM)
    return home


@pytest.fixture
def engine(home: Path) -> Iterator[subprocess.Popen[bytes]]:
    with running("etl_assets.cli.main", home, "engine") as process:
        yield process


@contextlib.contextmanager
def running(module: str, home: Path, *arguments: str) -> Generator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", module, *arguments])
    try:
        wait_until(lambda: is_ready(home), 60)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def instance(home: Path) -> Iterator[dg.DagsterInstance]:
    with open_instance(load_settings()) as instance:
        yield instance


def test_runs_are_executed_there_until_what_is_loaded_is_out_of_date(
    home: Path, engine: subprocess.Popen[bytes], instance: dg.DagsterInstance
):
    launcher: Any = instance.run_launcher

    run = new_run(instance)
    assert launcher._handed_over(run)
    wait_until(lambda: found(instance, run).is_finished, 60)
    assert found(instance, run).is_success
    said = " ".join(record.user_message for record in instance.all_logs(run.run_id))
    child, _ = launcher._handed_to(run)
    assert f"Executing steps in process (pid: {child})" in said
    assert child != engine.pid

    # Whoever asks and goes away has asked for nothing.
    unwanted = new_run(instance)
    pids: list[int] = []
    with contextlib.suppress(RuntimeError):
        hand_over(home, asked(instance, unwanted), lambda pid: pids.append(pid) or give_up())
    wait_until(lambda: started_at(pids[0]) is None, 20)
    assert found(instance, unwanted).status is dg.DagsterRunStatus.NOT_STARTED

    with pytest.MonkeyPatch.context() as environ:
        environ.setenv("ETL_ASSETS_SPARK_MASTER", "local[secret]")
        assert not launcher._handed_over(unwanted)
    said = instance.all_logs(unwanted.run_id)[-1].message
    assert "another ETL_ASSETS_SPARK_MASTER than the run's" in said
    assert "secret" not in said

    # Settings that cannot be loaded do not end it: it waits until they can.
    (home / "platform.yaml").write_text(PLATFORM + "owners: [")
    assert not hand_over(home, asked(instance, unwanted), never)
    wait_until(lambda: status(home) is None, 20)
    with pytest.raises(subprocess.TimeoutExpired):
        engine.wait(3)
    # It begins anew, as the same process, with the new settings.
    (home / "platform.yaml").write_text(PLATFORM + "owners: ['team:others']\n")
    wait_until(lambda: is_ready(home), 60)
    assert engine.poll() is None
    assert launcher._handed_over(unwanted)
    wait_until(lambda: found(instance, unwanted).is_success, 60)


def test_it_executes_runs_of_the_code_locations_that_the_platform_file_names_and_of_no_others(
    home: Path, engine: subprocess.Popen[bytes], instance: dg.DagsterInstance, tmp_path: Path
):
    (tmp_path / "own_definitions.py").write_text(OWN_DEFINITIONS)
    (tmp_path / "titles.py").write_text("COUNT = 3\n")
    launcher: Any = instance.run_launcher

    def handed_over(location: str) -> dg.DagsterRun | None:
        run = own_run(instance, tmp_path, location)
        return run if launcher._handed_over(run) else None

    assert handed_over("another_project") is None
    # Its module was never loaded there before: each child imports it as it is now.
    for count in (3, 12):
        (tmp_path / "titles.py").write_text(f"COUNT = {count}\n")
        run = handed_over("my_project")
        assert run is not None
        wait_until(lambda run=run: found(instance, run).is_finished, 60)
        assert found(instance, run).is_success
        event = instance.get_latest_materialization_event(dg.AssetKey("films"))
        assert event is not None
        assert event.run_id == run.run_id
        assert event.asset_materialization is not None
        assert event.asset_materialization.metadata["count"].value == count

    # Settings with problems are no reason for a run of other code not to be launched.
    (home / "platform.yaml").write_text("owners: [")
    assert handed_over("my_project") is None


def test_what_it_has_started_goes_with_it(
    home: Path, engine: subprocess.Popen[bytes], instance: dg.DagsterInstance
):
    children: list[int] = []

    def kill(pid: int) -> None:
        assert started_at(pid) is not None
        children.append(pid)
        os.kill(engine.pid, signal.SIGKILL)
        wait_until(lambda: started_at(pid) is None, 10)

    run = new_run(instance)
    # Whether the word to go is still taken by the dying engine's end of the connection is a matter of
    # microseconds.
    hand_over(home, asked(instance, run), kill)
    assert len(children) == 1
    assert found(instance, run).status is dg.DagsterRunStatus.NOT_STARTED
    assert status(home) is None


def test_it_ends_when_told_to_and_leaves_no_socket(home: Path, engine: subprocess.Popen[bytes]):
    engine.send_signal(signal.SIGTERM)
    assert engine.wait(20) == 0
    assert status(home) is None
    assert not list(home.glob("*.sock"))


def test_a_second_one_ends_at_once_also_when_both_have_just_been_started(
    home: Path, engine: subprocess.Popen[bytes]
):
    (home / "engine.sock").unlink()  # as before the first has made it
    second = subprocess.run(
        [sys.executable, "-m", "etl_assets.cli.main", "engine"],
        stderr=subprocess.PIPE,
        timeout=60,
        check=True,
    )
    assert b"another engine serves this installation" in second.stderr
    assert engine.poll() is None


def test_when_its_spark_dies_the_runs_there_go_too_and_it_survives_what_keeps_it_from_another(
    home: Path, instance: dg.DagsterInstance
):
    (home / "platform.yaml").write_text(PLATFORM.replace("spark://127.0.0.1:1", "local[1]"))
    with running("etl_assets_tests.dagster.engine_without_spark", home) as engine:
        first = spark_of(home)
        scratch = home / "engine"
        assert len(list(scratch.iterdir())) == 1
        children: list[int] = []

        def end_spark(child: int) -> None:
            children.append(child)
            assert started_at(child) is not None
            # Nothing can be made there, as on a full disk.
            scratch.rename(home / "away")
            scratch.touch()
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: started_at(child) is None, 10)

        with contextlib.suppress(OSError):
            hand_over(home, asked(instance, new_run(instance)), end_spark)
        assert len(children) == 1
        wait_until(lambda: status(home) is not None and not is_ready(home), 10)
        time.sleep(1)
        assert engine.poll() is None
        assert not is_ready(home)
        scratch.unlink()
        wait_until(lambda: is_ready(home), 30)
        assert engine.poll() is None
        assert spark_of(home) != first


def spark_of(home: Path) -> int:
    found = status(home)
    assert found is not None
    return found["spark"]


def new_run(instance: dg.DagsterInstance) -> dg.DagsterRun:
    job = ReconstructableRepository.for_module("etl_assets.definitions", "defs").get_reconstructable_job(
        "__ASSET_JOB"
    )
    return instance.create_run_for_job(
        job_def=job.get_definition().get_subset(asset_selection={TABLE}),
        asset_selection=frozenset({TABLE}),
        tags={"dagster/partition": "2026-01-01"},
        job_code_origin=job.get_python_origin(),
    )


def own_run(instance: dg.DagsterInstance, folder: Path, location: str) -> dg.DagsterRun:
    """A run of a project of the user's, as the UI creates it."""
    with pytest.MonkeyPatch.context() as here:
        here.syspath_prepend(str(folder))
        job = ReconstructableRepository.for_module(
            "own_definitions", "defs", working_directory=str(folder)
        ).get_reconstructable_job("__ASSET_JOB")
        target = LoadableTargetOrigin(module_name="own_definitions", working_directory=str(folder))
        origin = ManagedGrpcPythonEnvCodeLocationOrigin(target, location_name=location)  # ty: ignore[abstract-class-instantiation] - Dagster's own classes are made so
        return instance.create_run_for_job(
            job_def=job.get_definition(),
            job_code_origin=job.get_python_origin(),
            remote_job_origin=RemoteJobOrigin(
                RemoteRepositoryOrigin(origin, "__repository__"), "__ASSET_JOB"
            ),
        )


def asked(instance: dg.DagsterInstance, run: dg.DagsterRun, **variables: str) -> Asked:
    return Asked(
        run_id=run.run_id,
        instance=serialize_value(instance.get_ref()),
        executable=sys.executable,
        working_directory=str(Path.cwd()),
        environment={**os.environ, **variables},
    )


def found(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRun:
    again = instance.get_run_by_id(run.run_id)
    assert again is not None
    return again


def is_ready(home: Path) -> bool:
    answer = status(home)
    return answer is not None and answer["ready"]


def give_up() -> None:
    raise RuntimeError("the launcher has died")


def never(_: int) -> None:
    raise AssertionError("the engine took a run that it has to refuse")


def wait_until(look: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, f"waited {seconds} s in vain"
        time.sleep(0.05)

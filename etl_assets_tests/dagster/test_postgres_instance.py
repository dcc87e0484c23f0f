"""The instance on PostgreSQL: one setting, and runs are stored there."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from etl_assets.instance import open_instance
from etl_assets.settings import load_settings


def _server_binaries() -> Path | None:
    for folder in (*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True), Path("/usr/local/bin")):
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    return None


def _unprivileged() -> Callable[[], None] | None:
    """PostgreSQL refuses to run as root: what to do in the child process instead, None if this user is not
    root.
    """
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue

        def change(user: pwd.struct_passwd = user) -> None:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)

        return change
    pytest.skip("PostgreSQL does not run as root, and neither postgres nor nobody exists")


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A server of its own on a free port."""
    binaries = _server_binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL's server binaries (Debian: apt-get install postgresql)")
    change = _unprivileged()
    # Not below pytest's folder, which other users cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="etl-assets-postgres-"))
    folder.chmod(0o777)
    data = folder / "data"
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port = opened.getsockname()[1]

    def run(*command: str) -> None:
        subprocess.run(
            command,
            preexec_fn=change,
            cwd=folder,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=120,
        )

    try:
        run(str(binaries / "initdb"), "-D", str(data), "-U", "dagster", "-A", "trust", "--no-sync")
        options = f"-p {port} -k {folder} -h 127.0.0.1 -F"
        run(
            str(binaries / "pg_ctl"), "-D", str(data), "-l", str(folder / "log"), "-o", options, "-w", "start"
        )
        try:
            yield f"postgresql://dagster@127.0.0.1:{port}/postgres"
        finally:
            run(str(binaries / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dg.op
def nothing() -> None:
    return None


@dg.job
def trivial() -> None:
    nothing()


def test_one_setting_moves_the_instance_to_postgresql(postgres_url, monkeypatch):
    psycopg2 = pytest.importorskip("psycopg2", reason="needs the extra `postgres`")
    monkeypatch.setenv("ETL_ASSETS_POSTGRES_URL", postgres_url)
    settings = load_settings()
    with open_instance(settings) as instance:
        result = trivial.execute_in_process(instance=instance)
        run_id = result.run_id
    assert postgres_url not in (settings.dagster_home / "dagster.yaml").read_text("utf-8")
    assert not list(settings.dagster_home.rglob("*.db"))
    with open_instance(settings) as instance:
        run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.SUCCESS
    connection = psycopg2.connect(postgres_url)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT status FROM runs WHERE run_id = %s", (run_id,))
            assert cursor.fetchall() == [("SUCCESS",)]
    finally:
        connection.close()


def test_without_it_the_instance_is_sqlite_and_keeps_to_the_local_settings():
    settings = load_settings()
    with open_instance(settings) as instance:
        trivial.execute_in_process(instance=instance)
        assert not instance.telemetry_enabled
        assert instance.run_monitoring_enabled
        assert instance.run_launcher.supports_check_run_worker_health
    assert list(settings.dagster_home.rglob("*.db"))

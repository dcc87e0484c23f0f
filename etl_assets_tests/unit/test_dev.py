"""`etl-assets dev`, as far as it goes before Dagster: one on a home folder, on a port that is free."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HOLD = """
import os, sys
from pathlib import Path
from etl_assets.cli.only_one import hold_home
hold_home(Path(os.environ["ETL_ASSETS_HOME"]))
# As `dev` does: another program takes over this process, and children of it do not hold what it holds.
os.execv(sys.executable, [sys.executable, "-c",
    "import subprocess, sys, time;"
    "subprocess.Popen(['sleep', '30'], stdout=subprocess.DEVNULL);"
    "print('held', flush=True); sys.stdin.read()"])
"""


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def dev(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "etl_assets.cli.main", "dev", "--no-engine", *options],
        env={**os.environ, "ETL_ASSETS_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_port_in_use_is_said_before_anything_is_started_or_an_address_is_shown(tmp_path, taken):
    done = dev(tmp_path, "--port", str(taken))
    assert done.returncode == 1
    assert f"error: AddressUnusable: port {taken} of 127.0.0.1 is in use" in done.stderr
    assert "fix: " in done.stderr
    assert "--port " in done.stderr
    assert "Dagster UI on" not in done.stderr


def test_an_address_that_is_not_of_this_machine_is_named(tmp_path):
    done = dev(tmp_path, "--host", "192.0.2.1")
    assert done.returncode == 1
    assert "192.0.2.1" in done.stderr
    assert "--host" in done.stderr


def test_where_the_ui_is_behind_a_login_it_listens_on_no_address_that_others_reach(tmp_path):
    platform = tmp_path / "platform.yaml"
    platform.write_text("serve: {ui: {address: 'http://127.0.0.1:3000'}}\n", "utf-8")
    done = dev(tmp_path, "--host", "0.0.0.0")
    assert done.returncode == 1
    assert "error: SettingsError" in done.stderr
    assert "leave out --host" in done.stderr
    platform.unlink()
    assert "warning: everybody who reaches this address" in dev(tmp_path, "--host", "192.0.2.1").stderr


def test_a_second_one_on_a_home_folder_is_refused_with_the_process_of_the_first(tmp_path, taken):
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "ETL_ASSETS_HOME": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        done = dev(tmp_path, "--port", str(taken))
        assert done.returncode == 1
        assert f"error: DevRunning: process {first.pid} on {socket.gethostname()}" in done.stderr
        assert "in use" not in done.stderr, "one home folder is the nearer reason"
    finally:
        first.kill()
        first.communicate()
    after = dev(tmp_path, "--port", str(taken))
    assert "is in use" in after.stderr, "what a killed one held is free, although its children live"

"""A folder without an installation is said to be one: it must not look like an empty, healthy platform."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from etl_assets.cli.main import cli
from etl_assets.errors import NoInstallation
from etl_assets.settings import load_installation, load_settings
from etl_assets_tests.reference.written_tables import write_table

COMMANDS = (
    "run",
    "tables",
    "tables verify",
    "tables repair",
    "tables relocate raw_events --to local",
    "tables restore raw_events --to-version 1",
    "tables compact raw_events",
    "tables vacuum raw_events",
    "tables clean-log raw_events",
    "pipelines list",
    "pipelines validate",
    "reprocess --from 2026-03-01 --to 2026-03-01",
    "dead-letters list",
    "dead-letters show aa",
    "dead-letters replay aa",
    "dead-letters discard aa --reason x",
    "effects list",
    "trace 01a1dcac-717f-7e0b-8db9-aeca2d71850d",
    "domains list",
    "domains probe local",
    "domains remove other",
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_reads_refuses_a_folder_without_an_installation(home, command):
    (home / "something else").mkdir()
    result = CliRunner().invoke(cli, command.split())
    assert isinstance(result.exception, NoInstallation), result.output
    assert str(home) in result.exception.message
    assert "ETL_ASSETS_HOME" in result.exception.fix
    assert [entry.name for entry in home.iterdir()] == ["something else"]


@pytest.mark.parametrize("command", ["tables", "doctor"])
def test_its_exit_code_is_1_and_the_folder_is_named(tmp_path, command):
    home = tmp_path / "nope"
    done = subprocess.run(
        [sys.executable, "-m", "etl_assets.cli.main", command],
        env={**os.environ, "ETL_ASSETS_HOME": str(home), "ETL_ASSETS_HOM": "x"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert f"there is no installation in {home}" in said
    assert "ETL_ASSETS_HOM is set: did you mean ETL_ASSETS_HOME?" in said
    assert not home.exists()


def test_help_needs_no_installation(home):
    assert CliRunner().invoke(cli, ["tables", "--help"]).exit_code == 0


def test_a_platform_file_a_landing_folder_or_tables_make_an_installation(home):
    with pytest.raises(NoInstallation):
        load_installation()
    (home / "landing").mkdir()
    assert load_installation() == load_settings()
    (home / "landing").rmdir()
    (home / "platform.yaml").write_text("")
    assert load_installation() == load_settings()
    (home / "platform.yaml").unlink()
    write_table(load_settings().placement().domains[0], "dead_letters", [])
    assert load_installation() == load_settings()


@pytest.mark.parametrize("command", ["run", "dev --port 0", "worker"])
def test_a_landing_path_that_is_a_file_is_named_with_its_field(home, command):
    (home / "in").write_text("")
    (home / "platform.yaml").write_text("landing: {path: in}")
    result = CliRunner().invoke(cli, command.split())
    assert f"landing.path = {home / 'in'} is a file" in str(result.exception)

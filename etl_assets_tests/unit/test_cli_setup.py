"""`etl-assets setup`, and what a demo does of it by itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from etl_assets.cli.main import cli
from etl_assets.errors import RuntimeMissing
from etl_assets.orders.cli.demo import _expect_jars
from etl_assets.runtime import jars, java, machine
from etl_assets.runtime.java import Java
from etl_assets.settings import load_settings

JAVA = Java(home=Path("/java"), version=17, release="17.0.1")


@pytest.fixture
def fetched(tmp_path, monkeypatch) -> list[Path]:
    """An empty folder for the jars; the folders into which they were fetched."""
    monkeypatch.setenv("ETL_ASSETS_JARS", str(tmp_path / "jars"))
    monkeypatch.setattr(java, "find_java", lambda: JAVA)
    monkeypatch.setattr(machine, "find_java", lambda: JAVA)
    folders: list[Path] = []
    monkeypatch.setattr(jars, "_fetch", lambda _, folder: folders.append(folder))
    return folders


def test_a_check_says_what_is_missing_and_the_command_that_brings_it(fetched, tmp_path):
    result = CliRunner().invoke(cli, ["setup", "--check"])
    assert isinstance(result.exception, RuntimeMissing)
    assert str(tmp_path / "jars") in result.exception.message
    assert result.exception.fix == "run `etl-assets setup`"
    assert fetched == []


def test_a_demo_fetches_the_jars_that_are_missing(fetched, tmp_path):
    with pytest.raises(RuntimeMissing):  # what was put in place of the fetching brings none
        _expect_jars(load_settings())
    assert fetched == [tmp_path / "jars"]


def test_a_demo_at_a_spark_connect_server_needs_no_jars(fetched, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_SPARK_MASTER", "sc://spark.example:15002")
    _expect_jars(load_settings())
    assert fetched == []

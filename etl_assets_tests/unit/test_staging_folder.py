"""Folders for files in the making: what a killed process left goes, what another still uses stays."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl_assets.steps.step import platform_table, staging_folder
from etl_assets_tests.reference.tables import local_domain


@pytest.fixture(params=["/proc", "/nowhere"], autouse=True)
def _system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that tells less of its processes."""
    monkeypatch.setattr("etl_assets.processes._PROC", Path(request.param))


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    """Another process of this machine."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_a_folder_goes_with_its_process_and_not_before(tmp_path: Path, other):
    table = platform_table("raw_events", local_domain(tmp_path))
    with staging_folder(table, 1) as own:
        host = own.name.split("-", 1)[1].rsplit("-", 2)[0]
        of_other = own.with_name(f"1-{host}-{other.pid}-0123abcd")
        of_other.mkdir()
        with staging_folder(table, 2):
            assert own.is_dir()
            assert of_other.is_dir()
        other.kill()
        other.wait()
        with staging_folder(table, 3):
            assert own.is_dir()
            assert not of_other.exists()
    assert not own.exists()

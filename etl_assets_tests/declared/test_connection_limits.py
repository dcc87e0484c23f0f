"""Limits of a connection bind commands and their Dagster runs, and `doctor` names who has the slots."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dagster import DagsterInstance

from etl_assets.observability.connection_slot_checks import check_connection_slots
from etl_assets.observability.findings import Status
from etl_assets.settings import Settings, load_settings
from etl_assets.sinks.files.reader import read_manifest
from etl_assets.steps.connection_slots import limits_of, slots_taken

pytestmark = pytest.mark.e2e

PIPELINE = """
name: films
source: {type: files, path: "in/*.csv", settle_seconds: 0}
columns: {id: bigint}
table: {keys: [id]}
sinks: [{type: folder, connection: exports, target: films}]
"""


@pytest.fixture
def settings() -> Settings:
    home = Path(os.environ["ETL_ASSETS_HOME"])
    for folder in ("pipelines", "in", "out"):
        (home / folder).mkdir(parents=True)
    content = {
        "start_date": "2026-01-01",
        "pipelines": {"built_in": []},
        "connections": {
            "exports": {"type": "folder", "path": "out", "write": ["*"], "max_concurrency_per_target": 1}
        },
        "runs": {"connection_wait_seconds": 0.2, "max_retries": 0},
    }
    (home / "platform.yaml").write_text(yaml.safe_dump(content), "utf-8")
    (home / "pipelines" / "films.yaml").write_text(PIPELINE, "utf-8")
    (home / "in" / "a.csv").write_text("id\n1\n2\n", "utf-8")
    return load_settings()


def delivered(settings: Settings) -> int:
    return read_manifest(str(settings.home / "out" / "films")).manifest.rows


def run() -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "etl_assets.cli.main", "run"],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )


def failures_in_dagster(settings: Settings) -> str:
    with DagsterInstance.from_config(str(settings.dagster_home)) as instance:
        events = [each for run in instance.get_runs() for each in instance.all_logs(run.run_id)]
    return "\n".join(str(each.dagster_event) for each in events if each.dagster_event is not None)


def test_the_dagster_run_of_a_command_waits_for_a_slot_of_its_target_and_says_who_has_it(settings):
    limits = limits_of(settings, "exports", "films")
    with slots_taken(limits, settings.slots_path, "books_to_folder", 1):
        refused = run()
        found = [each for each in check_connection_slots(settings) if each.status is Status.WARN]
    assert refused.returncode != 0
    said = failures_in_dagster(settings)
    assert "ConnectionBusy" in said
    assert "the target films of the connection exports: 1 of 1 slots are in use, by books_to_folder" in said
    assert "books_to_folder" in found[0].detail
    done = run()
    assert done.returncode == 0, done.stdout
    assert delivered(settings) == 2
    assert [each.status for each in check_connection_slots(settings)] == [Status.OK]

"""Commands, sensors and the doctor obey run control, and say so."""

from __future__ import annotations

import datetime as dt
import json
import socket
import time
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from click.testing import CliRunner

from etl_assets.cli.main import cli
from etl_assets.control.known_states import look_at_states
from etl_assets.control.run_controls import RunControls
from etl_assets.control.store import open_store
from etl_assets.errors import InputError
from etl_assets.observability.control_checks import check_control
from etl_assets.sensors.sources import source_sensor
from etl_assets.settings import Settings, load_settings
from etl_assets.sources.ranges import Lag
from etl_assets.sources.unread_days import WatchCursor, Watched
from etl_assets.worker.run_ends import has_read_all
from etl_assets_tests.control.model import NOW, later

DECLARED = """
name: {name}
source: {{type: files, path: "in/{name}/*.csv", settle_seconds: 0}}
columns: {{id: bigint}}
table: {{keys: [id]}}
"""


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    (tmp_path / "platform.yaml").write_text('{"pipelines": {"built_in": []}}', "utf-8")
    (tmp_path / "pipelines").mkdir()
    for name in ("films", "books"):
        (tmp_path / "pipelines" / f"{name}.yaml").write_text(DECLARED.format(name=name), "utf-8")
        (tmp_path / "in" / name).mkdir(parents=True)
    (tmp_path / "in" / "films" / "a.csv").write_text("id\n1\n", "utf-8")
    return load_settings()


def typed(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(cli, list(words))
    assert done.exit_code == code, done.output
    return done.output


def test_a_run_reads_no_source_of_a_paused_pipeline_and_names_what_resumes_it(settings):
    typed("pipelines", "pause", "films", "--reason", "upgrade")
    said = typed("run")
    assert "films is PAUSED and left alone" in said
    assert "pipelines resume films" in said
    assert "nothing to do" in said


def test_the_sensor_of_a_paused_pipeline_asks_for_nothing(settings):
    typed("pipelines", "pause", "films")
    stage = settings.catalog().stage("films_source")
    films: Any = source_sensor(settings, stage, ["films_source", "films", "books"], name="films_files")
    definitions = dg.Definitions(sensors=[films])
    with dg.DagsterInstance.ephemeral() as instance:
        skipped = films(dg.build_sensor_context(instance, definitions=definitions))
        assert "films is PAUSED" in skipped.skip_reason.skip_message
        typed("pipelines", "resume", "films")
        typed("pipelines", "pause", "books")
        (request,) = films(dg.build_sensor_context(instance, definitions=definitions)).run_requests
    assert dg.AssetKey("films") in request.asset_selection
    assert dg.AssetKey("books") not in request.asset_selection


def test_commands_show_what_became_of_runs_and_refuse_what_a_state_does_not_allow(settings):
    run = json.loads(typed("pipelines", "run", "films", "--json", "--reason", "late"))["run"]
    controls = RunControls(open_store(settings))
    lease = controls.claim("worker")
    assert lease is not None
    controls.fail(lease, InputError("a file is broken", fix="write it again"))
    shown = typed("pipelines", "runs", "films")
    for part in ("films is FAILED", run, "a file is broken", "fix: write it again", "run by", ": late"):
        assert part in shown
    refused = CliRunner().invoke(cli, ["pipelines", "resume", "films"])
    assert "FAILED" in str(refused.exception)
    assert "films is RUN_REQUESTED" in typed("pipelines", "retry", "films")
    assert "films is CANCELED" in typed("pipelines", "cancel", "films")
    assert "did you mean `films`" in typed("pipelines", "pause", "film", code=2)


def test_the_doctor_names_pipelines_that_are_not_followed_and_runs_without_a_worker(settings):
    (unused,) = check_control(settings)
    assert unused.status == "ok"
    typed("pipelines", "pause", "films")
    typed("pipelines", "run", "books")
    found = {finding.detail: finding.fix for finding in check_control(settings)}
    assert "`etl-assets pipelines resume films`" in found.values()
    assert "`etl-assets worker`" in found.values()


def test_the_doctor_names_a_run_whose_runner_is_gone_and_that_nobody_takes_over(settings):
    store = open_store(settings)
    controls = RunControls(store, lease_seconds=0.01)
    controls.request_run("films", "test")
    assert controls.claim("gone") is not None
    time.sleep(0.05)
    store.close()
    (found,) = (each for each in check_control(settings) if "has expired" in each.detail)
    assert "the lease of the run of films" in found.detail
    assert "`etl-assets worker`" in str(found.fix)


def test_the_doctor_says_since_when_the_store_is_away_and_what_is_used_instead(settings):
    typed("pipelines", "pause", "films")
    list(check_control(settings))
    for file in settings.home.glob("control.db*"):
        file.unlink()
    (settings.home / "control.db").mkdir()
    first, second = check_control(settings)
    assert "does not answer" in first.detail
    assert f"{dt.datetime.now(dt.UTC):%Y-%m-%d}" in first.detail
    assert "films is PAUSED" in second.detail
    assert "films is PAUSED and left alone" in typed("run")


def test_a_store_that_is_silent_holds_nothing_up(settings, monkeypatch):
    """The server takes connections and answers nothing."""
    monkeypatch.setenv("CONTROL_SILENT", "p")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = {
            "type": "postgres", "host": "127.0.0.1", "port": silent.getsockname()[1], "database": "d",
            "user": "u", "password": "${CONTROL_SILENT}", "connect_timeout_seconds": 2,
        }  # fmt: skip
        found = {**settings.model_dump(include={"home"}), "control": {"connection": "c"}}
        began = time.monotonic()
        known = look_at_states(Settings.model_validate({**found, "connections": {"c": connection}}))
    assert "does not answer" in (known.problem or "")
    assert known.of("films").is_followed
    assert time.monotonic() - began < 20


def watched(**found: Any) -> Watched:
    none: dict[str, Any] = {
        "ready": (),
        "unsettled": 0,
        "left": 0,
        "outside": (),
        "strangers": (),
        "folder": None,
    }
    return Watched(cursor=WatchCursor(), **{**none, **found})


NEWEST_NS = int(later(3_600).timestamp() * 1e9)
"""The clock of the files is an hour ahead."""


@pytest.mark.parametrize(
    ("found", "after", "read", "is_read"),
    [
        (watched(), 0, 0, True),
        (watched(left=1), 0, 0, False),
        (watched(unsettled=1), 1, 0, False),
        (watched(unsettled=1), 3, 0, True),
        (watched(files=1, oldest_ns=NEWEST_NS), 9, 0, False),
        (watched(files=1, oldest_ns=NEWEST_NS + 1), 9, 0, True),
        (watched(lag=Lag(records=0, oldest=None)), 0, 0, True),
        (watched(lag=Lag(records=5, oldest=later(-1))), 0, 0, False),
        (watched(lag=Lag(records=5, oldest=later(1))), 0, 0, False),
        (watched(lag=Lag(records=None, oldest=later(-1))), 0, 0, False),
        (watched(lag=Lag(records=None, oldest=later(1))), 0, 0, True),
        (watched(lag=Lag(records=5, oldest=None)), 0, 99, False),
        (watched(lag=Lag(records=5, oldest=None)), 0, 100, True),
        (watched(lag=Lag(records=None, oldest=None)), 0, 0, False),
    ],
)
def test_a_run_has_read_all_once_what_is_unread_came_after_it_began(found, after, read, is_read):
    assert is_read is has_read_all(
        found,
        begun=NOW,
        elapsed_seconds=after,
        settle_seconds=2,
        read=read,
        first_records=100,
        newest_ns=NEWEST_NS,
    )

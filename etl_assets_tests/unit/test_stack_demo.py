"""The demo over real servers, without them: its files, its ports, what it lists as running, its verdict."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import subprocess
import sys
from collections import Counter

import pytest
from click.testing import CliRunner

from etl_assets.cli.doctor import doctor
from etl_assets.errors import DevRunning
from etl_assets.orders.cli.demo import demo
from etl_assets.orders.stack_demo.comparison import PipelineFigures, _differences
from etl_assets.orders.stack_demo.feed import FILES, HTTP, KAFKA, Lot, send_files, sent_files, sent_http
from etl_assets.orders.stack_demo.installation import pipeline_names, write_example
from etl_assets.orders.stack_demo.report import as_json, verdict
from etl_assets.processes import is_there
from etl_assets.settings import load_settings
from etl_assets.stack import full
from etl_assets.stack.full import PORTS, FullStack, choose_ports, place_of_cluster
from etl_assets.stack.running import (
    DEMO_HOME,
    demo_home,
    end_left_over,
    read_running,
    running_server,
    write_running,
)

TODAY = dt.date(2026, 2, 3)
OTHER_PORTS = {name: port + 1_000 for name, port in PORTS.items()}


@pytest.fixture
def sleeper():
    """A process that stands for a server."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


def settings_of(home):
    return load_settings({"ETL_ASSETS_HOME": str(home)})


# Files


def test_the_example_is_an_installation_without_problems(tmp_path):
    write_example(tmp_path, PORTS, TODAY)
    settings = settings_of(tmp_path)
    assert settings.start_date == TODAY
    files = settings.installed().files
    assert [(file.path.stem, file.problems) for file in files] == [(name, ()) for name in pipeline_names()]
    sinks = {"postgres", "search", "kafka", "object_store", "duckdb"}
    for name in pipeline_names():
        delivered = {
            each.name.removeprefix(f"{name}_to_") for each in settings.catalog().stages if each.delivers
        }
        assert sinks <= delivered


def test_ports_in_use_are_corrected_in_the_file_and_the_rest_of_it_stays(tmp_path):
    write_example(tmp_path, PORTS, TODAY)
    file = tmp_path / "platform.yaml"
    file.write_text(file.read_text("utf-8") + "\n# a note of the user's: 99\nowners: [team:mine]\n", "utf-8")
    before = file.read_text("utf-8")
    (tmp_path / "pipelines" / "rentals.yaml").write_text("name: rentals # mine\n", "utf-8")
    write_example(tmp_path, OTHER_PORTS, TODAY + dt.timedelta(days=1))
    after = file.read_text("utf-8")
    assert len(after.splitlines()) == len(before.splitlines())
    assert "# a note of the user's: 99" in after
    settings = settings_of(tmp_path)
    assert (settings.start_date, settings.owners) == (TODAY, ("team:mine",))
    connections = settings.connections
    assert connections["shop"].port == OTHER_PORTS["postgres"]
    assert connections["events"].bootstrap_servers == (f"127.0.0.1:{OTHER_PORTS['kafka']}",)
    assert connections["search"].urls == (f"http://127.0.0.1:{OTHER_PORTS['opensearch']}",)
    assert connections["lake"].endpoint == f"http://127.0.0.1:{OTHER_PORTS['s3']}"
    assert settings.serve.port == OTHER_PORTS["http"]
    assert (tmp_path / "pipelines" / "rentals.yaml").read_text("utf-8") == "name: rentals # mine\n"
    write_example(tmp_path, PORTS, TODAY)
    assert file.read_text("utf-8") == before


def test_a_server_elsewhere_keeps_its_address(tmp_path):
    write_example(tmp_path, PORTS, TODAY)
    file = tmp_path / "platform.yaml"
    file.write_text(file.read_text("utf-8").replace("host: 127.0.0.1", "host: db.example.org"), "utf-8")
    write_example(tmp_path, OTHER_PORTS, TODAY)
    assert settings_of(tmp_path).connections["shop"].host == "db.example.org"


def test_the_demo_has_a_home_of_its_own_below_the_usual_one(tmp_path):
    assert demo_home(tmp_path, DEMO_HOME) == tmp_path / "stack"
    (tmp_path / "stack" / "servers").mkdir(parents=True)
    assert demo_home(tmp_path / "stack", DEMO_HOME) == tmp_path / "stack"


def test_options_of_the_demo_without_servers_are_refused():
    refused = CliRunner().invoke(demo, ["--stack", "full", "--days", "3"])
    assert refused.exit_code == 2
    assert "--days is not for --stack full" in refused.output


# Servers


def test_a_port_that_is_free_is_taken_again_and_one_in_use_is_not(tmp_path, monkeypatch):
    with socket.socket() as one, socket.socket() as other:
        for each in (one, other):
            each.bind(("127.0.0.1", 0))
        used, free = (each.getsockname()[1] for each in (one, other))
        one.listen()
        other.close()
        monkeypatch.setattr(full, "PORTS", {"kafka": used, "postgres": free})
        chosen = choose_ports(tmp_path)
        assert chosen["kafka"] != used
        assert chosen["postgres"] == free
        assert choose_ports(tmp_path) == chosen
    assert choose_ports(tmp_path) == chosen
    (tmp_path / "ports.json").write_text("{")
    assert choose_ports(tmp_path)["postgres"] == free


def test_doctor_shows_what_runs_where_and_since_when(tmp_path, monkeypatch, sleeper):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    folder = tmp_path / "stack" / "servers"
    folder.mkdir(parents=True)

    def shown() -> list[str]:
        findings = json.loads(CliRunner().invoke(doctor, ["--json"]).stdout)
        return [each["detail"] for each in findings if each["check"] == "servers"]

    assert shown() == ["none of the demo's (`etl-assets demo --stack full`) runs"]
    write_running(folder, [running_server("Kafka", "127.0.0.1:19092", sleeper.pid)])
    (line,) = shown()
    assert line.startswith(f"Kafka on 127.0.0.1:19092 since {dt.datetime.now(dt.UTC):%Y-%m-%dT}")
    assert line.endswith(f"; process {sleeper.pid}, ends with process {os.getpid()}")
    sleeper.kill()
    sleeper.wait()
    assert shown() == ["none of the demo's (`etl-assets demo --stack full`) runs"]


def test_a_list_that_is_damaged_or_names_a_reused_process_id_lists_nothing(tmp_path, sleeper):
    write_running(tmp_path, [running_server("Kafka", "127.0.0.1:19092", sleeper.pid)])
    file = tmp_path / "running.json"
    content = json.loads(file.read_text("utf-8"))
    content["servers"][0]["ticks"] = "1"
    file.write_text(json.dumps(content), "utf-8")
    assert read_running(tmp_path) == ()
    file.write_text('{"servers": ', "utf-8")
    assert read_running(tmp_path) == ()


def test_what_a_killed_process_has_left_is_ended_before_the_next_start(tmp_path, sleeper, monkeypatch):
    monkeypatch.setattr("etl_assets.stack.running._ENDING_SECONDS", 0.2)
    write_running(tmp_path, [running_server("Kafka", "127.0.0.1:19092", sleeper.pid)])
    end_left_over(tmp_path)
    assert sleeper.wait(5) == -9
    assert not is_there(sleeper.pid)


def test_two_processes_do_not_run_servers_on_one_folder(tmp_path, sleeper):
    write_running(tmp_path, [running_server("Kafka", "127.0.0.1:19092", sleeper.pid)])
    named = f"process {os.getpid()} runs the servers of"
    with full._held(tmp_path), pytest.raises(DevRunning, match=named):
        FullStack(tmp_path, lambda line: None).__enter__()
    assert sleeper.poll() is None
    with full._held(tmp_path):
        pass  # free again


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's PostgreSQL runs as another account")
def test_roots_cluster_is_where_its_account_can_enter(tmp_path, monkeypatch):
    clusters = tmp_path / "clusters"
    monkeypatch.setattr(full, "ROOTS_CLUSTERS", clusters)
    closed = tmp_path / "closed"
    folder = closed / "servers"
    folder.mkdir(parents=True)
    closed.chmod(0o700)
    place = place_of_cluster(folder)
    assert place.parent == clusters
    assert place.stat().st_mode & 0o001
    assert place_of_cluster(folder) == place
    (folder / "postgres.folder").unlink()
    again = place_of_cluster(folder)
    assert again != place
    assert not place.exists(), "a cluster that no folder names is removed"


# Events, and what is said of them


def test_the_same_lot_has_the_same_lines_and_each_channel_and_lot_its_own_ids(tmp_path):
    def ids(lot, channel):
        return {json.loads(line)["event_id"] for _, line in lot.of(channel) if line.endswith(b"}")}

    lot, other = Lot(number=1, events=3_000), Lot(number=2, events=3_000)
    assert list(lot.of(KAFKA)) == list(lot.of(KAFKA))
    assert not ids(lot, KAFKA) & ids(lot, HTTP)
    assert not ids(lot, KAFKA) & ids(other, KAFKA)
    assert (
        sum(1 for channel in (FILES, KAFKA, HTTP) for each in ids(lot, channel) if "invalid" not in each)
        == 3_000
    )
    assert all(line.endswith(b"}") for _, line in lot.of(HTTP))
    send_files(lot, tmp_path)
    send_files(lot, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["lot-000001.jsonl"]
    assert sent_files(tmp_path) == len(list(lot.of(FILES)))


def test_headers_of_the_journal_are_no_events(tmp_path):
    (tmp_path / "2026-01-01").mkdir()
    (tmp_path / "2026-01-01" / "a.jsonl").write_bytes(b'#{"events":2}\n{"id":1}\n{"id":2}\n')
    assert sent_http(tmp_path) == 2


def test_rows_that_are_missing_or_there_twice_are_differences():
    def of(found, expected):
        return list(_differences("Kafka", Counter(found), "the table", Counter(expected)))

    assert of(["a", "b"], ["b", "a"]) == []
    assert of(["a", "a"], ["a"]) == ["Kafka has 1 rows more than the table, such as a"]
    assert of(["a"], ["a", "b"]) == ["Kafka lacks 1 rows of the table, such as b"]


def test_the_verdict_is_one_line_and_names_what_is_not_equal():
    def figures(*wrong: str) -> list[PipelineFigures]:
        delivered = {"PostgreSQL": 5, "search": 5, "DuckDB": 5}
        return [
            PipelineFigures(
                pipeline="orders",
                input=9,
                accepted=5,
                duplicates=3,
                rejected=1,
                rows=5,
                delivered=delivered,
                wrong=wrong,
            )
        ]

    assert verdict(figures(), 7).startswith(
        "All equal: every record has one outcome, and the 5 rows of 1 tables are in PostgreSQL, search and"
        " DuckDB"
    )
    assert verdict(figures("orders: search lacks 1 rows of the table, such as 4"), 7).splitlines() == [
        "NOT EQUAL (1 differences, 7 s)",
        "orders: search lacks 1 rows of the table, such as 4",
    ]
    assert json.loads(as_json(figures("x"), 7))["equal"] is False

"""Dagster is asked to load declarations that have changed, once, and by whom it may be asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from etl_assets.cli.dev import _address
from etl_assets.sensors.changed_pipelines import AGAIN_SECONDS, changed_pipelines_sensor
from etl_assets.settings import Settings

SUPPLIERS = """
name: suppliers
source: {type: files, path: incoming/*.csv}
columns: {id: bigint}
table: {keys: [id]}
"""


class WebServer:
    """Answers as Dagster's web server does.

    Attributes:
        asked: The code locations that it was asked to load.
        answer: What it says.
        hangs: Whether it does not answer at all.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answer: dict[str, Any] = {"__typename": "WorkspaceLocationEntry"}
        self.hangs = threading.Event()
        self.ends = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(body["variables"]["name"])
                if outer.hangs.is_set():
                    outer.ends.wait(20)
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps({"data": {"reloadRepositoryLocation": outer.answer}}).encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def web_server(monkeypatch) -> Iterator[WebServer]:
    found = WebServer()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    monkeypatch.setenv("ETL_ASSETS_DAGSTER_URL", found.url)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    yield found
    found.ends.set()
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture
def settings(tmp_path, monkeypatch) -> Settings:
    origin = SimpleNamespace(location_name="etl_assets")
    monkeypatch.setattr(dg.SensorEvaluationContext, "code_location_origin", origin)
    (tmp_path / "pipelines").mkdir()
    return Settings(home=tmp_path)


def tick(sensor: dg.SensorDefinition) -> str:
    found = sensor(dg.build_sensor_context())
    assert isinstance(found, dg.SkipReason)
    return str(found.skip_message)


def declare(settings: Settings, text: str = SUPPLIERS) -> None:
    (settings.home / "pipelines" / "suppliers.yaml").write_text(text, "utf-8")


def test_a_change_is_asked_for_once_and_again_if_it_does_not_come(settings, web_server):
    now = 0.0
    sensor = changed_pipelines_sensor(settings, lambda: now)
    assert "as they are" in tick(sensor)
    assert web_server.asked == []
    declare(settings)
    assert "loads them" in tick(sensor)
    assert "loads them" in tick(sensor)
    assert web_server.asked == ["etl_assets"]
    now += AGAIN_SECONDS
    tick(sensor)
    assert len(web_server.asked) == 2
    assert "as they are" in tick(changed_pipelines_sensor(settings)), "it is loaded"


def test_a_file_that_is_written_again_and_a_broken_one(settings, web_server):
    declare(settings)
    sensor = changed_pipelines_sensor(settings)
    declare(settings)
    assert "as they are" in tick(sensor), "it says the same"
    declare(settings, SUPPLIERS.replace("files", "fils"))
    tick(sensor)
    (settings.home / "pipelines" / "suppliers.yaml").unlink()
    tick(changed_pipelines_sensor(settings))
    assert web_server.asked == ["etl_assets"]


def test_an_answer_that_comes_with_the_reload_is_not_waited_for(settings, web_server):
    sensor = changed_pipelines_sensor(settings)
    declare(settings)
    web_server.hangs.set()
    assert "loads them" in tick(sensor)


def test_without_a_web_server_it_says_what_to_do(settings, monkeypatch):
    monkeypatch.delenv("ETL_ASSETS_DAGSTER_URL", raising=False)
    sensor = changed_pipelines_sensor(settings)
    declare(settings)
    assert "reload the code location, or set ETL_ASSETS_DAGSTER_URL" in tick(sensor)


def test_a_server_that_refuses_or_is_another_one_fails_the_tick(settings, web_server, monkeypatch):
    declare(settings)
    changed = changed_pipelines_sensor(settings)
    declare(settings, SUPPLIERS.replace("bigint", "string"))
    web_server.answer = {"__typename": "UnauthorizedError", "message": "not allowed"}
    with pytest.raises(RuntimeError, match="not allowed"):
        tick(changed)
    monkeypatch.setenv("ETL_ASSETS_DAGSTER_URL", "http://127.0.0.1:1")
    with pytest.raises(RuntimeError, match="ETL_ASSETS_DAGSTER_URL has to be"):
        tick(changed_pipelines_sensor_of_old(settings))


def changed_pipelines_sensor_of_old(settings: Settings) -> dg.SensorDefinition:
    """One that has loaded other declarations than those that are there."""
    text = (settings.home / "pipelines" / "suppliers.yaml").read_text("utf-8")
    declare(settings, SUPPLIERS)
    made = changed_pipelines_sensor(settings)
    declare(settings, text)
    return made


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:3000"),
        ("0.0.0.0", "http://127.0.0.1:3000"),
        ("::", "http://[::1]:3000"),
        ("etl.example.org", "http://etl.example.org:3000"),
    ],
)
def test_the_ui_is_reached_by_an_address_of_this_machine(host, address):
    assert _address(host, 3000) == address

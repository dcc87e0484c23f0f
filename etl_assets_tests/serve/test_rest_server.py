"""The REST API of a real server: whatever its description allows, and the commands of its page. No Spark."""

from __future__ import annotations

import itertools
import re
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from etl_assets.control.routes.validation import EXAMPLE_DECLARATION
from etl_assets.control.snapshot_rounds import ROUND_SECONDS
from etl_assets.serve.service import now_utc
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets.settings import load_settings
from etl_assets_tests.docs.test_first_pipeline import blocks, shell
from etl_assets_tests.serve.ingest_process import ingest
from etl_assets_tests.serve.server_process import PIPELINE, ServerProcess, serving, write_installation

DOCS = Path(__file__).parents[2] / "docs"
DECLARED = EXAMPLE_DECLARATION["name"]
CONNECTION = {"name": "hooks", "type": "webhook", "url": "http://127.0.0.1:1"}
DESCRIBED = [status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("rest")
    write_installation(home, rest={"hosts": ["127.0.0.1:1"], "networks": ["127.0.0.0/8"]})
    _, token = Tokens(home).add("test", now=now_utc(), scopes=[Scope.INGEST, Scope.ADMIN])
    with serving(home, token) as started, pytest.MonkeyPatch.context() as patch:
        with started.client() as client:
            client.post(started.events, json=[{"id": 1, "film": "M"}, {"film": "no id"}])
            made = client.post(f"{started.url}/v1/pipelines", json=EXAMPLE_DECLARATION)
            assert made.status_code == 201, made.text
            made = client.post(f"{started.url}/v1/connections", json=CONNECTION)
            assert made.status_code == 201, made.text
        patch.setenv("ETL_ASSETS_HOME", str(home))
        ingest()
        yield started


@pytest.fixture(scope="module")
def schema(server):
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


OPERATIONS = [
    ("GET", "/v1/pipelines"),
    ("GET", "/v1/pipelines/{name}"),
    ("GET", "/v1/pipelines/{name}/tables"),
    ("GET", "/v1/pipelines/{name}/dead-letters"),
    ("GET", "/v1/events/{id}/trace"),
    ("GET", "/v1/schema"),
    ("GET", "/metrics"),
    ("POST", "/v1/pipelines/validate"),
    ("POST", "/v1/pipelines/{name}/validate"),
    ("POST", "/v1/pipelines"),
    ("PUT", "/v1/pipelines/{name}"),
    ("GET", "/v1/pipelines/{name}/revisions"),
    ("GET", "/v1/pipelines/{name}/revisions/{revision}"),
    *(("POST", f"/v1/pipelines/{{name}}/{each}") for each in ("run", "pause", "resume", "cancel", "retry")),
    ("GET", "/v1/pipelines/{name}/state"),
    ("GET", "/v1/pipelines/{name}/runs"),
    ("GET", "/v1/pipelines/{name}/runs/{id}"),
    ("DELETE", "/v1/pipelines/{name}"),
    ("GET", "/v1/connections"),
    ("POST", "/v1/connections"),
    ("GET", "/v1/connections/{name}"),
    ("PUT", "/v1/connections/{name}"),
    ("POST", "/v1/connections/{name}/test"),
    ("DELETE", "/v1/connections/{name}"),
]
CHANGES = ("PUT", "DELETE")


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_no_answer_is_other_than_described_and_none_is_a_failure(server, schema, method, path):
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(case=schema[path][method].as_strategy())
    def check(case):
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {server.token}"}
        if path.startswith("/v1/connections/{name}"):
            case.path_parameters = {**case.path_parameters, "name": CONNECTION["name"]}
        elif "{name}" in path:
            name = DECLARED if method in CHANGES or "revision" in path else PIPELINE
            case.path_parameters = {**case.path_parameters, "name": name}
        answer = case.call()
        case.validate_response(answer, checks=DESCRIBED)
        # That a system outside is not reached is what a test of a connection is for.
        is_outside = path.endswith("/test") and answer.status_code == 502
        assert answer.status_code < 500 or is_outside, answer.content

    check()


def test_a_record_is_found_by_its_id_and_a_refused_one_by_its_pipeline(server):
    with server.client() as client:
        trace = client.get(f"{server.url}/v1/events/1/trace", params={"pipeline": PIPELINE})
        assert trace.status_code == 200, trace.text
        assert trace.json()["happenings"][0]["outcome"] == "accepted"
        tables = client.get(f"{server.url}/v1/pipelines/{PIPELINE}/tables").json()["data"]
        assert {each["name"]: each["rows"] for each in tables}["ratings_source"] == 1
        letters = client.get(f"{server.url}/v1/pipelines/{PIPELINE}/dead-letters")
        assert letters.status_code == 200


def test_the_commands_of_the_page_do_what_it_says(tmp_path, monkeypatch):
    home = tmp_path / ".etl-assets"
    write_installation(home)
    (pipeline,) = (text for text in blocks(DOCS / "http.md", "yaml") if text.startswith("name: film_ratings"))
    (home / "pipelines" / "film_ratings.yaml").write_text(pipeline, "utf-8")
    begin, *commands = blocks(DOCS / "rest-api.md", "sh")
    (add,) = re.findall(r"\$\((.*)\)", begin)
    token = shell(tmp_path, add).strip()
    with serving(home, token) as server:
        monkeypatch.setenv("TOKEN", token)
        text = "\n".join(commands).replace("http://127.0.0.1:8080", server.url)
        printed = shell(tmp_path, text)
    for expected in (
        '"name":"film_ratings","tenant":"default","origin":"file","read_only":true,"state":"ok"',
        '"declaration":{"name":"film_ratings"',
        '"name":"film_ratings_source"',
        '{"data":[],"next":null}',
        '"status":404',
        '"field":"source.type","message":"`type`: `htp` is not known"',
        '"origin":"rest","read_only":false,"state":"ok"',
        '"field":"columns.title.type"',
        '"revision":2,"at":"',
        '"status":"requested"',
        '"state":"PAUSED"',
        '"type":"urn:etl-assets:problem:transition-refused"',
        '"status":"canceled"',
    ):
        assert expected in printed, printed


def test_every_acknowledged_declaration_outlives_a_kill_of_the_server(tmp_path, monkeypatch):
    write_installation(tmp_path)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    _, token = Tokens(tmp_path).add("robot", now=now_utc(), scopes=[Scope.ADMIN])
    acknowledged: dict[str, int] = {}

    def declare(server: ServerProcess) -> None:
        with server.client() as client, suppress(httpx.HTTPError):
            for number in itertools.count():
                content = {**EXAMPLE_DECLARATION, "name": f"films_{number % 4}", "description": f"{number}"}
                path = f"{server.url}/v1/pipelines"
                if number < 4:
                    answer = client.post(path, json=content)
                else:
                    path, any_revision = f"{path}/{content['name']}", {"if-match": "*"}
                    answer = client.put(path, json=content, headers=any_revision)
                assert answer.status_code in (200, 201), answer.text
                acknowledged[content["name"]] = number

    with serving(tmp_path, token) as server:
        thread = threading.Thread(target=declare, args=[server])
        thread.start()
        ends = time.monotonic() + 30
        while len(acknowledged) < 4 and time.monotonic() < ends:
            time.sleep(0.01)
        time.sleep(0.2)
        server.kill()
        thread.join(30)
    assert len(acknowledged) == 4
    # What runs read is whole at any time, and has all that was acknowledged.
    specs = [each.spec for each in load_settings().installed().files]
    found = {each.name: int(each.description or 0) for each in specs if each is not None}
    assert all(found[name] >= number for name, number in acknowledged.items())
    with serving(tmp_path, token) as server, server.client() as client:
        for name, number in acknowledged.items():
            path = f"{server.url}/v1/pipelines/{name}"
            shown = client.get(path).json()
            assert (shown["state"], int(shown["declaration"]["description"]) >= number) == ("ok", True)
            revisions = client.get(f"{path}/revisions?limit=1000").json()["data"]
            assert [each["revision"] for each in revisions] == [*range(len(revisions), 0, -1)]
            # One that was stored and not acknowledged is in use with the server's first round.
            ends = time.monotonic() + 6 * ROUND_SECONDS
            while shown["revision"] != revisions[0]["revision"] and time.monotonic() < ends:
                time.sleep(0.1)
                shown = client.get(path).json()
            assert shown["revision"] == revisions[0]["revision"]

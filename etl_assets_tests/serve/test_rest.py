"""Pipelines, tables, dead letters and validation over REST, in the app itself; no Spark."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import time

import httpx
import pytest

from etl_assets import errors
from etl_assets.control.routes import tables
from etl_assets.pipelines.rest_rights import sql_problem
from etl_assets.serve import error_problems
from etl_assets.serve.app import build_app
from etl_assets.serve.journal import Journal
from etl_assets.serve.service import Service, now_utc
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets.settings import load_settings
from etl_assets_tests.reference.written_tables import write_table
from etl_assets_tests.serve.server_process import PIPELINE, write_installation

FILMS = {
    "name": "films",
    "source": {"type": "http", "id": ["id"]},
    "columns": {"id": "bigint", "film": "string"},
    "table": {"keys": ["id"]},
}


@pytest.fixture
def service(tmp_path, monkeypatch):
    rest = {"variables": ["FOLDER"], "modules": ["shop.transforms"], "folders": ["landing"]}
    write_installation(tmp_path, rest=rest)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("FOLDER", "landing")
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "hunter2hunter2")
    settings = load_settings()
    return Service(settings=settings, journal=Journal(settings.placement(), timeout_seconds=20))


def asked(service, script, *, scopes=(Scope.ADMIN, Scope.INGEST)):
    """Run `script(client)` against the app."""
    _, secret = Tokens(service.settings.home).add("client", now=now_utc(), scopes=scopes)

    async def run():
        headers = {"authorization": f"Bearer {secret}"}
        transport = httpx.ASGITransport(build_app(service), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:
            return await script(client)

    return asyncio.run(run())


def get(service, path, **given):
    return asked(service, lambda client: client.get(path, **given))


def validated(service, body, path="/v1/pipelines/validate"):
    answer = asked(service, lambda client: client.post(path, json=body))
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_pages_of_a_list_join_to_the_whole_and_a_made_up_cursor_is_refused(service):
    for number in range(5):
        text = (service.settings.home / "pipelines" / f"{PIPELINE}.yaml").read_text("utf-8")
        name = f"more_{number}"
        (service.settings.home / "pipelines" / f"{name}.yaml").write_text(
            text.replace(PIPELINE, name), "utf-8"
        )
    (service.settings.home / "pipelines" / "broken.yaml").write_text("name: broken\n", "utf-8")

    async def pages(client):
        found, cursor = [], None
        while True:
            given = {"limit": 2} | ({} if cursor is None else {"cursor": cursor})
            page = (await client.get("/v1/pipelines", params=given)).json()
            found += page["data"]
            if (cursor := page["next"]) is None:
                return found

    found = asked(service, pages)
    assert [each["name"] for each in found] == [
        "broken", "dead_letters", *(f"more_{number}" for number in range(5)), PIPELINE
    ]  # fmt: skip
    assert found[0]["state"] == "broken"
    assert found[0]["problems"]
    for wrong in ({"cursor": "x"}, {"cursor": "WzFd"}, {"cursor": "é"}, {"limit": 0}, {"limit": "٣"}):
        assert get(service, "/v1/pipelines", params=wrong).status_code == 422, wrong
        assert get(service, f"/v1/pipelines/{PIPELINE}/dead-letters", params=wrong).status_code == 422, wrong


def test_a_declaration_has_its_defaults_and_a_tag(service):
    answer = get(service, f"/v1/pipelines/{PIPELINE}")
    assert answer.json()["declaration"]["source"]["max_record_bytes"] == 1_024
    assert (answer.json()["origin"], answer.json()["read_only"]) == ("file", True)
    tag = answer.headers["etag"]
    again = get(service, f"/v1/pipelines/{PIPELINE}", headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content) == (304, b"")
    file = service.settings.home / "pipelines" / f"{PIPELINE}.yaml"
    file.write_text(file.read_text("utf-8") + "description: changed\n", "utf-8")
    service._looked_at = float("-inf")
    assert get(service, f"/v1/pipelines/{PIPELINE}", headers={"If-None-Match": tag}).status_code == 200


def test_a_built_in_pipeline_is_shown_without_a_declaration(service):
    found = get(service, "/v1/pipelines/dead_letters").json()
    assert (found["origin"], found["declaration"]) == ("built_in", None)
    assert found["tables"][0]["name"] == "dead_letters"


def test_tables_are_those_of_the_pipeline_alone(service):
    found = get(service, f"/v1/pipelines/{PIPELINE}/tables").json()["data"]
    names = ["ratings_source", "ratings_source_rejects", "ratings", "ratings_rejects"]
    assert sorted(each["name"] for each in found) == sorted(names)
    assert found[0]["version"] is None


def test_dead_letters_come_in_pages_without_records_and_those_of_other_pipelines_do_not(service):
    (domain,) = service.settings.placement().domains
    at = dt.datetime(2026, 2, 1, 12, tzinfo=dt.UTC)
    common = {
        "reason": "MalformedJson", "record": "hunter2hunter2", "record_encoding": "utf-8", "source": "http",
        "source_position": "x:1", "attempts": 1, "state": "open", "failed_at": at,
    }  # fmt: skip
    own = [f"{number:064x}" for number in range(3)]
    letters = [common | {"dead_letter_id": each, "stage": "ratings_source"} for each in own]
    foreign = common | {"dead_letter_id": "f" * 64, "stage": "ingest"}
    write_table(domain, "dead_letters", [*letters, foreign])
    path = f"/v1/pipelines/{PIPELINE}/dead-letters"
    first = get(service, path, params={"limit": 2})
    rest = get(service, path, params={"limit": 2, "cursor": first.json()["next"]})
    found = [*first.json()["data"], *rest.json()["data"]]
    assert [each["dead_letter_id"] for each in found] == own[::-1]
    assert rest.json()["next"] is None
    assert not any("record" in each for each in found)
    assert get(service, path, params={"state": "discarded"}).json()["data"] == []


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"source": {"type": "htp"}}, "source.type", "htp"),
        ({"source": {"type": "http", "id": ["id"], "more": 1}}, "source.more", "no field"),
        ({"columns": {"id": "bigint", "x": "strin"}}, "columns.x.type", "strin"),
        ({"table": {"keys": ["no"]}}, "table.keys[0]", "no column"),
        ({"name": PIPELINE}, "name", "taken by ratings.yaml"),
        ({"name": "dead_letters"}, "name", "built-in"),
        ({"source": {"type": "files", "path": "${SECRET_OF_THE_SERVER}/*.csv"}}, "source.path", "SECRET_OF"),
        ({"source": {"type": "files", "path": "/etc/*.csv"}}, "source.path", "may not read files"),
        ({"source": {"type": "files", "path": "landing/../../x/*.csv"}}, "source.path", "landing/../../x"),
        ({"source": {"type": "files", "path": "landing_2/*.csv"}}, "source.path", "may not read files"),
        (
            {"source": {"type": "kafka", "connection": "broker", "topic": "t", "format": "json"}},
            "source.connection",
            "broker",
        ),
        ({"transforms": [{"type": "python", "function": "os:system"}]}, "transforms[0].function", "`os`"),
        (
            {"transforms": [{"type": "map", "columns": {"film": {
                "expression": "java_method('java.lang.System', 'getenv', 'HOME')", "type": "string"}}}]},
            "transforms[0].columns.film.expression",
            "java_method",
        ),
        (
            {"transforms": [{"type": "sql", "select": "select * from csv.`/etc/passwd`"}]},
            "transforms[0].select",
            "format and path",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_declaration_is_said_by_field(service, change, field, says):
    found = validated(service, FILMS | change)
    assert not found["valid"]
    assert (field, True) in [(each["field"], says in each["message"]) for each in found["problems"]], found
    assert all(each["fix"] for each in found["problems"])
    assert "hunter2hunter2" not in str(found)


def test_a_wrong_value_comes_with_those_that_are_allowed(service):
    (problem,) = validated(service, FILMS | {"source": {"type": "htp"}})["problems"]
    assert (problem["value"], "http" in problem["allowed"]) == ("htp", True)


def test_what_is_allowed_is_valid_and_nothing_is_stored(service):
    allowed = FILMS | {
        "source": {"type": "files", "path": "${FOLDER}/films/*.csv"},
        "transforms": [
            {"type": "python", "function": "shop.transforms:tidy"},
            {"type": "filter", "where": "film like 'csv.%' and extract(year from current_date()) > 1"},
        ],
    }
    found = validated(service, allowed, "/v1/pipelines/films/validate")
    assert found["valid"], found["problems"]
    assert found["declaration"]["source"]["path"] == "${FOLDER}/films/*.csv"
    assert not list(service.settings.home.glob("pipelines/films*"))
    assert [each["name"] for each in get(service, "/v1/pipelines").json()["data"]] == [
        "dead_letters",
        PIPELINE,
    ]


def test_a_declaration_for_one_name_is_none_for_another(service):
    assert not validated(service, FILMS, "/v1/pipelines/movies/validate")["valid"]
    unnamed = {key: value for key, value in FILMS.items() if key != "name"}
    assert validated(service, unnamed, "/v1/pipelines/movies/validate")["declaration"]["name"] == "movies"


@pytest.mark.parametrize(
    "text",
    [
        "select * from parquet.`x`", "select * from delta.x", "select * from input, csv.`a`",
        "select * from (csv.`/x`)", "select reflect('a','b')", "select `TRY_REFLECT`('a', 'b')",
        "select * from json /* */ . `/etc/x`", "select * from other.tables", "select * from \"org.x\".`/y`",
        "select * from `org.apache.spark.x`.`y`", "select * from input, `org.apache.spark.x`.`/etc/y`",
        "select transform(a) using 'sh -c id' as (b) from input", 'select transform(a) USING\n"cat"',
        "select transform(a) using r'cat' from input", "from input map a using/**/'cat' as b",
    ],
)  # fmt: skip
def test_sql_that_reads_other_than_its_inputs_is_refused(text):
    assert sql_problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "a.b > 1",
        "film = 'csv.`/x`'",
        "select i.id, i.`two words` from input i -- csv.`x`",
        "avro_size * 1.5",
        "select transform(tags, each -> upper(each)) as tags, x.* from input x join y using (id)",
    ],
)
def test_sql_on_columns_is_not(text):
    assert sql_problem(text) is None


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400), (b"[]", {}, 422), (b"\xff", {}, 400), (b"{}", {"content-type": "text/plain"}, 415),
        (b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", {}, 422), (b'{"a":[' + b"1," * 60_000 + b"1]}", {}, 413),
        (b'{"a":"' + b"x" * 1_100_000 + b'"}', {}, 413), (b'{"name":"\\ud800"}', {}, 400),
    ],
)  # fmt: skip
def test_a_body_that_is_no_declaration_is_the_callers_error(service, body, headers, status):
    answer = asked(
        service, lambda client: client.post("/v1/pipelines/validate", content=body, headers=headers)
    )
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_errors_of_the_caller_and_of_systems_outside_are_told_apart():
    def status(kind):
        return error_problems.problem_of(kind("it is /root/of/x", fix="do that")).status

    assert status(errors.NotFound) == 404
    assert (status(errors.InputError), status(errors.ContractError)) == (422, 422)
    assert (status(errors.SourceRefused), status(errors.SourceUnavailable)) == (502, 503)
    assert (status(errors.Unanswered), status(errors.QuorumUnavailable)) == (504, 503)
    assert status(errors.EngineLost) == 500
    for hidden in (errors.Unanswered, errors.StorageFailed, errors.EngineLost):
        assert "/root" not in str(error_problems.problem_of(hidden("it is /root/of/x", fix="")).content)


def test_an_unexpected_error_while_tables_are_read_is_a_problem_too(service, monkeypatch):
    def fails(*_, **__):
        raise errors.QuorumUnavailable("no majority", fix="wait")

    monkeypatch.setattr(tables, "table_states", fails)
    answer = get(service, f"/v1/pipelines/{PIPELINE}/tables")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_events_are_taken_as_ever_while_tables_are_read_slowly(service, monkeypatch):
    go_on, running, most = threading.Event(), [], []

    def slow(*_, **__):
        running.append(1)
        most.append(len(running))
        go_on.wait(20)
        running.pop()
        return []

    monkeypatch.setattr(tables, "table_states", slow)
    for number in range(60):
        text = (service.settings.home / "pipelines" / f"{PIPELINE}.yaml").read_text("utf-8")
        name = f"more_{number}"
        (service.settings.home / "pipelines" / f"{name}.yaml").write_text(
            text.replace(PIPELINE, name), "utf-8"
        )

    async def script(client):
        names = [PIPELINE, *(f"more_{number}" for number in range(60)), PIPELINE]
        reads = [asyncio.create_task(client.get(f"/v1/pipelines/{name}/tables")) for name in names]
        await asyncio.sleep(0.2)
        began = time.monotonic()
        sent = [
            (await client.post(f"/v1/pipelines/{PIPELINE}/events", json={"id": number})).status_code
            for number in range(5)
        ]
        took = time.monotonic() - began
        go_on.set()
        return sent, took, [each.status_code for each in await asyncio.gather(*reads)]

    sent, took, reads = asked(service, script)
    assert sent == [202] * 5
    assert took < 5
    assert max(most) == 2
    # Of those that are too many some are refused; equal ones share a read.
    assert set(reads) == {200, 503}
    assert (reads[0], reads[-1]) == (200, 200)


def test_a_read_that_hangs_is_answered_in_time_and_others_share_it(service, monkeypatch):
    go_on, calls = threading.Event(), []
    monkeypatch.setattr(tables, "table_states", lambda *_, **__: calls.append(1) or go_on.wait(20) or [])
    service.reads._seconds = 0.2

    async def script(client):
        try:
            reads = (client.get(f"/v1/pipelines/{PIPELINE}/tables") for _ in range(5))
            return [each.status_code for each in await asyncio.gather(*reads)]
        finally:
            go_on.set()

    assert asked(service, script) == [504] * 5
    assert len(calls) == 1


def test_metrics_are_prometheus_text(service):
    answer = get(service, "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'etl_assets_declared_pipelines{state="ok"} 1' in answer.text.splitlines()

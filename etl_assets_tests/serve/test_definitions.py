"""Pipelines declared over REST: in the app itself, with a control store in SQLite; no Spark."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl_assets.cli.pipelines import pipelines as commands
from etl_assets.control import definitions
from etl_assets.control.control_plane import ControlPlane
from etl_assets.control.definitions import Definitions
from etl_assets.control.revisions import Revisions
from etl_assets.control.snapshot import refresh_snapshot
from etl_assets.control.snapshot_rounds import keep_refreshing
from etl_assets.control.store import FILE, sqlite_store
from etl_assets.errors import NotFound, SinkRefused, StorageFailed
from etl_assets.pipelines.rest_declaration import snapshot_path
from etl_assets.pipelines.rest_rights import SQL_FIELDS
from etl_assets.pipelines.spec import PipelineSpec
from etl_assets.settings import load_settings
from etl_assets.sinks.open_sink import open_sink
from etl_assets.steps.step import ReadMode, StepArguments, StepContext
from etl_assets_tests.serve.rest_calls import RestClient, new_service
from etl_assets_tests.serve.server_process import PIPELINE, write_installation

FILMS: dict[str, Any] = {
    "name": "films",
    "source": {"type": "http", "id": ["id"]},
    "columns": {"id": "bigint", "film": "string"},
    "table": {"keys": ["id"]},
}
LOOKS_UP: dict[str, Any] = {
    "name": "tickets",
    "source": {"type": "http", "id": ["id"]},
    "columns": {"id": "bigint", "film_id": "bigint"},
    "transforms": [
        {"type": "lookup", "table": "films", "on": {"film_id": "id"}, "columns": {"film": "film"}}
    ],
    "table": {"keys": ["id"]},
}
FOLLOWS: dict[str, Any] = {
    "name": "tickets",
    "source": {"type": "table", "table": "films"},
    "columns": {"id": "bigint", "film": "string"},
    "table": {"keys": ["id"]},
}
WAREHOUSE = {
    "type": "postgres",
    "host": "127.0.0.1",
    "database": "shop",
    "write": ["public.*", "private.*"],
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    write_installation(tmp_path, connections={"warehouse": WAREHOUSE})
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def client(home):
    return RestClient(new_service())


def changed(home, **platform):
    """Change the platform file."""
    file = home / "platform.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text("utf-8")) | platform), "utf-8")


def declared(client) -> dict[str, dict]:
    return {each["name"]: each for each in client.get("/v1/pipelines").json()["data"]}


def declaration_of(name: str) -> Any:
    return load_settings().installed().declaration(name)


def revision_of(name: str) -> int:
    return declaration_of(name).revision


def kind_of(answer) -> str:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.json()["type"].rpartition(":")[2]


def test_a_pipeline_lives_from_post_over_put_to_delete(client):
    made = client.post("/v1/pipelines", FILMS)
    assert (made.status_code, made.headers["location"]) == (201, "/v1/pipelines/films")
    assert (made.json()["origin"], made.json()["read_only"], made.json()["revision"]) == ("rest", False, 1)
    read = client.get("/v1/pipelines/films")
    assert (read.json(), read.headers["etag"]) == (made.json(), made.headers["etag"])

    longer = FILMS | {"description": "films of the festival"}
    replaced = client.put("/v1/pipelines/films", longer, made.headers["etag"])
    assert (replaced.status_code, replaced.json()["revision"]) == (200, 2)
    assert client.get("/v1/pipelines/films").headers["etag"] == replaced.headers["etag"]

    revisions = client.get("/v1/pipelines/films/revisions").json()["data"]
    assert [(each["revision"], each["actor"], each["deleted"]) for each in revisions] == [
        (2, "robot", False),
        (1, "robot", False),
    ]
    assert client.get("/v1/pipelines/films/revisions/1").json()["declaration"] == FILMS
    assert client.get("/v1/pipelines/films/revisions/3").status_code == 404

    assert client.delete("/v1/pipelines/films", made.headers["etag"]).status_code == 412
    assert client.delete("/v1/pipelines/films", replaced.headers["etag"]).status_code == 204
    assert client.get("/v1/pipelines/films").status_code == 404
    assert client.delete("/v1/pipelines/films").status_code == 404
    assert "films" not in declared(client)

    again = client.post("/v1/pipelines", FILMS)
    assert again.json()["revision"] == 4
    page = client.get("/v1/pipelines/films/revisions", params={"limit": 3}).json()
    rest = client.get("/v1/pipelines/films/revisions", params={"cursor": page["next"]}).json()
    assert [each["revision"] for each in page["data"] + rest["data"]] == [4, 3, 2, 1]
    assert [each["deleted"] for each in page["data"]] == [False, True, False]


def test_it_takes_events_at_once_and_is_a_pipeline_for_commands_and_a_fresh_process(client, home):
    client.post("/v1/pipelines", FILMS)
    sender = RestClient(client.service, scopes=["ingest"])
    assert sender.post("/v1/pipelines/films/events", {"id": 1, "film": "M"}).status_code == 202
    listed = json.loads(CliRunner().invoke(commands, ["list", "--json"]).stdout)
    assert [(each["name"], each["state"], each["file"]) for each in listed] == [
        (PIPELINE, "ok", str(home / "pipelines" / f"{PIPELINE}.yaml")),
        ("films", "ok", "films (REST)"),
    ]
    script = (
        "import sys; from etl_assets.settings import load_settings;"
        "print('films' in load_settings().catalog().names, 'sqlalchemy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "False"]


def test_a_change_on_an_older_revision_or_on_none_changes_nothing(client):
    first = client.post("/v1/pipelines", FILMS).headers["etag"]
    second = client.put("/v1/pipelines/films", FILMS | {"description": "a"}, first).headers["etag"]
    lost = client.put("/v1/pipelines/films", FILMS | {"description": "b"}, first)
    assert (lost.status_code, kind_of(lost), lost.json()["revision"]) == (412, "changed", 2)
    for tag in ('"2"', f"W/{second}", "2", '"x-000000000000"', ""):
        assert client.put("/v1/pipelines/films", FILMS, tag).status_code == 412, tag
    assert client.put("/v1/pipelines/films", FILMS, None).status_code == 428
    assert client.put("/v1/pipelines/films", FILMS, f'"9-000000000000", {second}').json()["revision"] == 3
    assert client.put("/v1/pipelines/films", FILMS | {"description": "c"}, "*").json()["revision"] == 4


def test_a_request_that_is_repeated_because_its_answer_was_lost_stores_nothing(client):
    first = client.post("/v1/pipelines", FILMS)
    again = client.post("/v1/pipelines", FILMS)
    assert (again.status_code, again.json(), again.headers["etag"]) == (
        200,
        first.json(),
        first.headers["etag"],
    )
    for _ in range(2):
        put = client.put("/v1/pipelines/films", FILMS | {"description": "a"}, first.headers["etag"])
        assert (put.status_code, put.json()["revision"]) == (200, 2)
    other = client.post("/v1/pipelines", FILMS)
    assert (other.status_code, kind_of(other)) == (409, "exists")


def test_a_broken_declaration_is_refused_with_field_value_and_allowed_values(client, home):
    for method in ("post", "put"):
        before = snapshot_path(home).read_bytes() if snapshot_path(home).exists() else None
        wrong = FILMS | {"source": {"type": "htp"}, "columns": {"id": "bigint", "film": "strin"}}
        if method == "post":
            answer = client.post("/v1/pipelines", wrong)
            assert client.post("/v1/pipelines", FILMS).status_code == 201
        else:
            answer = client.put("/v1/pipelines/films", wrong, "*")
            assert snapshot_path(home).read_bytes() == before
        assert (answer.status_code, kind_of(answer)) == (422, "invalid-declaration")
        found = {each["field"]: each for each in answer.json()["errors"]}
        assert found["source.type"]["value"] == "htp"
        assert "http" in found["source.type"]["allowed"]
        assert "strin" in found["columns.film.type"]["message"]
    assert declared(client)["films"]["state"] == "ok"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(
        ["files", "kafka", "sql", "bigint", "decimal(99,1)", "${HOME}", "select 1", "id", "films"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
PLACES = [
    ("name",), ("source",), ("source", "type"), ("source", "id"), ("columns",), ("columns", "film"),
    ("columns", "id"), ("table",), ("table", "keys"), ("transforms",), ("transforms", 0),
    ("transforms", 0, "table"), ("transforms", 0, "on"), ("transforms", 0, "columns"), ("sinks",),
    ("schedule",), ("owners",), ("description",), ("expectations",),
]  # fmt: skip


def with_value(content: Any, place: tuple, value: Any) -> Any:
    """Return a declaration with another value at a place."""
    if not place:
        return value
    if isinstance(place[0], int):
        return [with_value(content[0], place[1:], value)]
    return {**content, place[0]: with_value(content.get(place[0], {}), place[1:], value)}


def test_no_declaration_makes_the_server_fail(client):
    client.post("/v1/pipelines", FILMS)

    @settings(max_examples=80, deadline=None, suppress_health_check=[*HealthCheck], database=None)
    @given(place=st.sampled_from(PLACES), value=JSON)
    def check(place, value):
        content = json.dumps(with_value(LOOKS_UP, place, value)).encode()
        for method, path, tag in (
            ("POST", "/v1/pipelines", {}),
            ("POST", "/v1/pipelines/validate", {}),
            ("PUT", "/v1/pipelines/tickets", {"if-match": "*"}),
            ("GET", "/v1/pipelines", {}),
        ):
            answer = client.send(method, path, content=content, headers=tag)
            assert answer.status_code < 500, (content, answer.text)

    check()
    assert declared(client)["films"]["state"] == "ok"
    assert all(each["state"] == "ok" for each in declared(client).values())


def test_tables_of_the_platform_and_of_other_tenants_are_not_there_for_sql_of_a_tenant(client):
    client.post("/v1/pipelines", FILMS)
    reads = {"transforms": [{"type": "sql", "select": "select input.* from input, films, ratings"}]}
    for tenant, name, readable in (("default", "mine", True), ("acme", "theirs", False)):
        by = RestClient(client.service, tenant=tenant)
        assert by.post("/v1/pipelines", FILMS | reads | {"name": name}).status_code == 201
        (stage,) = [each for each in load_settings().catalog().stages if each.name == name]
        step: Any = stage.build_step(arguments())
        contract_of = step.tables.contract_of
        for table in ("films", "ratings", "dead_letters"):
            if readable:
                assert contract_of(table).name == table
            else:
                with pytest.raises(NotFound):
                    contract_of(table)


def arguments() -> Any:
    settings = load_settings()
    domain = settings.placement().domains[0]
    no_session: Any = None
    context = StepContext(session=no_session, domain=domain)
    return StepArguments(settings=settings, context=context, mode=ReadMode.INCREMENTAL)


def test_every_field_with_spark_sql_is_checked():
    def fields(value: Any) -> Iterator[str]:
        for name, each in value.items() if isinstance(value, dict) else ():
            if isinstance(each, dict) and "Spark SQL" in json.dumps(
                [each.get("description"), each.get("anyOf")]
            ):
                yield name
            yield from fields(each)

    found = set(fields(PipelineSpec.model_json_schema())) - {"SqlText"}
    assert {"where", "select", "expression", "condition"} <= found
    assert found <= SQL_FIELDS


@pytest.mark.parametrize("field", ["apply_as_deletes", "apply_as_truncates"])
def test_conditions_of_the_table_name_no_files(client, field):
    table = {"keys": ["id"], "sequence_by": "id", "write_mode": "apply_changes"}
    content = FILMS | {"table": table | {field: "exists(select * from csv.`/etc/passwd`)"}}
    (problem,) = client.post("/v1/pipelines/validate", content).json()["problems"]
    assert (problem["field"], "format and path" in problem["message"]) == (f"table.{field}", True)


@pytest.mark.parametrize("content", [{}, {"name": 7}, {"name": "No Name"}, {"name": "x" * 3_000}])
def test_a_declaration_without_a_usable_name_is_refused_by_its_field(client, content):
    answer = client.post("/v1/pipelines", FILMS | {"name": None} | content)
    assert answer.status_code == 422
    assert "name" in [each["field"] for each in answer.json()["errors"]]


def test_pipelines_of_files_and_of_code_are_read_only(client):
    for name, why in ((PIPELINE, f"{PIPELINE}.yaml"), ("dead_letters", "built into")):
        for answer in (
            client.put(f"/v1/pipelines/{name}", FILMS | {"name": name}, "*"),
            client.delete(f"/v1/pipelines/{name}"),
        ):
            assert (answer.status_code, kind_of(answer)) == (409, "read-only")
            assert why in answer.json()["detail"]
        answer = client.post("/v1/pipelines", FILMS | {"name": name})
        assert (answer.status_code, kind_of(answer)) == (409, "name-taken")
        assert client.get(f"/v1/pipelines/{name}/revisions").json() == {"data": [], "next": None}


def test_a_name_stays_its_tenants_and_other_tenants_learn_nothing_of_it(client):
    client.post("/v1/pipelines", FILMS)
    other = RestClient(client.service, tenant="acme")
    assert declared(other) == {}
    for answer in (
        other.get("/v1/pipelines/films"),
        other.get("/v1/pipelines/films/revisions"),
        other.put("/v1/pipelines/films", FILMS, "*"),
        other.delete("/v1/pipelines/films"),
    ):
        assert (answer.status_code, kind_of(answer)) == (404, "no-such-pipeline")
    for _ in range(2):
        taken = other.post("/v1/pipelines", FILMS)
        assert (taken.status_code, kind_of(taken)) == (409, "name-taken")
        client.delete("/v1/pipelines/films")
    client.post("/v1/pipelines", FILMS)
    same_table = other.post(
        "/v1/pipelines", FILMS | {"name": "movies", "table": {"name": "films", "keys": ["id"]}}
    )
    assert same_table.status_code == 422
    assert "another tenant" in same_table.json()["detail"]
    texts = [other.post("/v1/pipelines", LOOKS_UP).text]
    hidden = LOOKS_UP | {"transforms": [LOOKS_UP["transforms"][0] | {"table": "no_table"}]}
    texts.append(other.post("/v1/pipelines", hidden).text.replace("no_table", "films"))
    assert texts[0] == texts[1]  # a table of another tenant is as one that does not exist
    assert PIPELINE not in texts[0]
    followed = other.post("/v1/pipelines", FOLLOWS)
    assert followed.status_code == 422
    assert "there is no table `films`" in followed.text


def test_a_token_that_is_bound_to_pipelines_declares_those_alone(client):
    bound = RestClient(client.service, pipelines=["films"])
    assert bound.post("/v1/pipelines", FILMS | {"name": "movies"}).status_code == 403
    assert bound.post("/v1/pipelines", FILMS).status_code == 201


@pytest.mark.parametrize("reader", [LOOKS_UP, FOLLOWS], ids=["lookup", "table"])
def test_what_other_pipelines_need_is_kept(client, reader):
    tag = client.post("/v1/pipelines", FILMS).headers["etag"]
    assert client.post("/v1/pipelines", reader).status_code == 201
    without = FILMS | {"columns": {"id": "bigint", "title": "string"}}
    for answer in (client.put("/v1/pipelines/films", without, tag), client.delete("/v1/pipelines/films")):
        assert (answer.status_code, kind_of(answer)) == (409, "in-use")
        assert "tickets" in answer.json()["detail"]
    assert client.delete("/v1/pipelines/tickets").status_code == 204
    assert client.delete("/v1/pipelines/films").status_code == 204


def test_a_tenant_has_no_more_pipelines_than_the_platform_file_says(client, home):
    changed(home, rest={"max_pipelines": 1})
    client = RestClient(new_service())
    assert client.post("/v1/pipelines", FILMS).status_code == 201
    full = client.post("/v1/pipelines", FILMS | {"name": "movies"})
    assert (full.status_code, kind_of(full)) == (409, "too-many-pipelines")
    assert (
        RestClient(client.service, tenant="b").post("/v1/pipelines", FILMS | {"name": "movies"}).status_code
        == 201
    )


def sink_to(table: str) -> dict:
    return FILMS | {"sinks": [{"type": "postgres", "connection": "warehouse", "table": table}]}


def test_targets_are_those_that_the_platform_file_lists_at_the_definition(client, home):
    def problem(table: str):
        answer = RestClient(new_service()).post("/v1/pipelines/validate", sink_to(table))
        return [(each["field"], each["value"], each["allowed"]) for each in answer.json()["problems"]]

    assert problem("public.films") == [("sinks[0].connection", "warehouse", [])]
    changed(home, rest={"connections": ["warehouse"], "write": ["warehouse/public.*"]})
    assert problem("public.films") == []
    assert problem("private.films") == [("sinks[0].table", "private.films", ["warehouse/public.*"])]
    changed(home, rest={"connections": ["*"], "write": []})
    assert problem("public.films") == [("sinks[0].table", "public.films", [])]


@pytest.mark.parametrize(
    ("source", "read", "field"),
    [
        ({"type": "kafka", "connection": "broker", "topic": "pay.v1"}, ["broker/film.*"], "source.topic"),
        ({"type": "kafka", "connection": "broker", "topic": "film.v1"}, ["broker/film.*"], None),
        ({"type": "sql", "connection": "warehouse", "query": "select id from films",
          "load": "full", "id": ["id"]}, ["warehouse/public.*"], "source.connection"),
        ({"type": "sql", "connection": "warehouse", "query": "select id from films",
          "load": "full", "id": ["id"]}, ["warehouse/*"], None),
    ],
)  # fmt: skip
def test_sources_read_what_the_platform_file_lists(home, source, read, field):
    broker = {"type": "kafka", "bootstrap_servers": ["127.0.0.1:9"]}
    changed(
        home,
        connections={"warehouse": WAREHOUSE, "broker": broker},
        rest={"connections": ["*"], "read": read},
    )
    found = RestClient(new_service()).post("/v1/pipelines/validate", FILMS | {"source": source}).json()
    assert [each["field"] for each in found["problems"]] == ([] if field is None else [field]), found


def test_a_narrower_list_stops_stored_pipelines_at_each_write_and_leaves_the_others_alone(client, home):
    changed(home, rest={"connections": ["warehouse"]})
    client = RestClient(new_service())
    assert client.post("/v1/pipelines", sink_to("private.films")).status_code == 201
    (sink,) = declaration_of("films").spec.sinks
    changed(home, rest={"connections": ["warehouse"], "write": ["warehouse/public.*"]})
    installation = load_settings()
    with pytest.raises(SinkRefused, match=r"may not write warehouse/private.films") as refused:
        open_sink(sink, installation, pipeline="films")
    assert "rest.write" in str(refused.value)
    found = declared(RestClient(new_service()))
    assert (found["films"]["state"], found[PIPELINE]["state"]) == ("broken", "ok")
    assert found["films"]["problems"][0]["value"] == "private.films"


def test_a_file_goes_before_a_pipeline_of_its_name_which_can_still_be_deleted(client, home):
    client.post("/v1/pipelines", FILMS)
    (home / "pipelines" / "films.yaml").write_text(yaml.safe_dump(FILMS | {"description": "mine"}), "utf-8")
    client.service.look_again()
    assert declared(client)["films"]["origin"] == "file"
    assert client.delete("/v1/pipelines/films").status_code == 204
    assert client.delete("/v1/pipelines/films").status_code == 409


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"pipelines": [{}]}', b'{"pipelines": [7]}', b"\xff"]
)
def test_a_damaged_snapshot_stops_no_other_pipeline_and_is_written_again(client, home, content):
    client.post("/v1/pipelines", FILMS)
    snapshot_path(home).write_bytes(content)
    found = load_settings().installed()
    assert [each.name for each in found.broken] == ["rest_pipelines"]
    assert PIPELINE in found.catalog.names
    client.service.control.definitions.refresh()
    assert "films" in load_settings().catalog().names


def test_data_goes_on_from_the_snapshot_while_the_store_is_gone(client, home):
    client.post("/v1/pipelines", FILMS)
    client.service.control.close()
    for file in home.glob(f"{FILE}*"):
        file.unlink()
    (home / FILE).mkdir()
    later = RestClient(new_service())
    assert declared(later)["films"]["state"] == "ok"
    sender = RestClient(later.service, scopes=["ingest"])
    assert sender.post("/v1/pipelines/films/events", {"id": 1}).status_code == 202
    for answer in (
        later.post("/v1/pipelines", FILMS | {"name": "movies"}),
        later.get("/v1/pipelines/films/revisions"),
    ):
        assert (answer.status_code, kind_of(answer)) == (503, "control-store-unavailable")
        assert str(home) not in answer.text


def test_a_change_whose_process_died_before_the_snapshot_is_found_by_the_next_server(
    client, home, monkeypatch
):
    client.post("/v1/pipelines", FILMS)

    def dies(*_):
        raise StorageFailed("disk full", fix="make room")

    calls = []
    real = definitions.refresh_snapshot
    monkeypatch.setattr(
        definitions, "refresh_snapshot", lambda *given: dies() if calls else calls.append(1) or real(*given)
    )
    assert client.put("/v1/pipelines/films", FILMS | {"description": "a"}, "*").status_code == 503
    monkeypatch.undo()
    monkeypatch.setenv("ETL_ASSETS_HOME", str(home))
    assert revision_of("films") == 1

    async def one_round():
        task = asyncio.create_task(keep_refreshing(ControlPlane(load_settings()), round_seconds=0.01))
        for _ in range(300):
            await asyncio.sleep(0.01)
            if revision_of("films") == 2:
                break
        task.cancel()

    asyncio.run(one_round())
    assert revision_of("films") == 2
    repeated = RestClient(new_service()).put(
        "/v1/pipelines/films", FILMS | {"description": "a"}, '"1-000000000000"'
    )
    assert (repeated.status_code, repeated.json()["revision"]) == (200, 2)


def test_two_servers_at_once_never_store_declarations_that_exclude_each_other(home):
    installation, wins, losses = load_settings(), [], []
    begin = threading.Barrier(4)

    def declare(number: int) -> None:
        store = sqlite_store(home / FILE)
        of_server = Definitions(installation, Revisions(store))
        content = FILMS | {"name": f"films_{number}", "table": {"name": "shared", "keys": ["id"]}}
        begin.wait()
        try:
            of_server.create(content, "default", "robot")
            wins.append(number)
        except Exception as error:  # noqa: BLE001 - counted below
            losses.append(error)
        store.close()

    threads = [threading.Thread(target=declare, args=[number]) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert len(wins) == 1, losses
    assert all("shared" in str(each) for each in losses), losses
    assert load_settings().installed().broken == ()


def test_concurrent_changes_of_one_pipeline_count_once_each(home):
    installation, store = load_settings(), sqlite_store(home / FILE)
    of_server = Definitions(installation, Revisions(store))
    of_server.create(FILMS, "default", "robot")
    done = []

    def replace(number: int) -> None:
        content = FILMS | {"description": f"version {number}"}
        try:
            of_server.replace("films", content, "default", "robot", lambda revision: revision == 1)
            done.append(number)
        except Exception as error:  # noqa: BLE001 - counted below
            assert "revision 2" in str(error)  # noqa: PT017 - in a thread

    threads = [threading.Thread(target=replace, args=[number]) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert len(done) == 1
    assert refresh_snapshot(home, Revisions(store)).of["films"].revision == 2
    store.close()

"""Connections over REST: in the app itself, with a control store in SQLite and real servers behind them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml
from adbc_driver_postgresql import dbapi
from cryptography.fernet import Fernet

from etl_assets.control.control_plane import ControlPlane
from etl_assets.control.store import FILE
from etl_assets.errors import SettingsError, SinkRefused, SinkUnavailable
from etl_assets.pipelines.origin import DeclarationOrigin
from etl_assets.pipelines.sink_specs import PostgresSinkSpec, SearchSinkSpec
from etl_assets.settings import load_settings
from etl_assets.settings.allowed_hosts import AllowedHosts
from etl_assets.settings.rest_connections import snapshot_path
from etl_assets.sinks.open_sink import open_sink
from etl_assets.sinks.search.client import SearchClient
from etl_assets.sinks.search.open import server_of
from etl_assets.sinks.webhook.client import WebhookClient
from etl_assets.sinks.webhook.open import receiver_of
from etl_assets.sources.sql.connect import postgres_address
from etl_assets_tests.serve.rest_calls import RestClient, new_service
from etl_assets_tests.serve.server_process import write_installation
from etl_assets_tests.serve.test_definitions import FILMS, changed, kind_of

SECRET = "hunter2-and-more"
WAREHOUSE: dict[str, Any] = {
    "name": "warehouse",
    "type": "postgres",
    "host": "db.example.com",
    "database": "shop",
    "user": "etl",
    "password": {"value": SECRET},
    "write": ["public.*"],
}
TO_WAREHOUSE = {"type": "postgres", "connection": "warehouse", "table": "public.films"}
REST = {
    "hosts": ["db.example.com:5432", "*.shop.example.com:443", "localhost:*", "127.0.0.1:*"],
    "networks": ["127.0.0.0/8", "::1/128"],
    "secrets": ["WAREHOUSE_PASSWORD"],
    "secret_folders": ["/run/secrets"],
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    of_file = {"type": "postgres", "host": "127.0.0.1", "database": "shop", "password": "${OPERATORS}"}
    write_installation(tmp_path, connections={"operators": of_file}, rest=REST)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    monkeypatch.setenv("ETL_ASSETS_SECRET_KEY", Fernet.generate_key().decode())
    return tmp_path


@pytest.fixture
def client(home):
    return RestClient(new_service())


def problem_fields(answer) -> dict[str, str]:
    assert kind_of(answer) == "invalid-declaration", answer.text
    return {each["field"]: each["message"] for each in answer.json()["errors"]}


def stored(name: str) -> Any:
    return load_settings().connections[name]


def made(client, **fields) -> Any:
    answer = client.post("/v1/connections", {**WAREHOUSE, **fields})
    assert answer.status_code == 201, answer.text
    return load_settings().connections[fields.get("name", "warehouse")]


def test_a_connection_lives_from_post_over_put_to_delete(client):
    made = client.post("/v1/connections", WAREHOUSE)
    assert (made.status_code, made.headers["location"]) == (201, "/v1/connections/warehouse")
    shown = client.get("/v1/connections/warehouse")
    assert (shown.json(), shown.headers["etag"]) == (made.json(), made.headers["etag"])
    assert shown.json()["connection"]["password"] == {"encrypted": True}
    assert stored("warehouse").password.value() == SECRET

    again = client.post("/v1/connections", WAREHOUSE)
    assert (again.status_code, again.json()["revision"]) == (200, 1)
    assert kind_of(client.post("/v1/connections", WAREHOUSE | {"port": 5432})) == "exists"

    changed = {**WAREHOUSE, "user": "loader"}
    assert kind_of(client.put("/v1/connections/warehouse", changed, None)) == "if-match-missing"
    replaced = client.put("/v1/connections/warehouse", changed, made.headers["etag"])
    assert (replaced.status_code, replaced.json()["revision"]) == (200, 2)
    assert kind_of(client.put("/v1/connections/warehouse", WAREHOUSE, made.headers["etag"])) == "changed"
    assert client.delete("/v1/connections/warehouse", made.headers["etag"]).status_code == 412
    assert client.delete("/v1/connections/warehouse", replaced.headers["etag"]).status_code == 204
    assert client.get("/v1/connections/warehouse").status_code == 404
    assert "warehouse" not in load_settings().connections
    assert client.post("/v1/connections", WAREHOUSE).json()["revision"] == 4


def test_no_secret_is_anywhere_but_encrypted(client, home, caplog):
    caplog.set_level("DEBUG")
    answers = [
        client.post("/v1/connections", WAREHOUSE),
        client.get("/v1/connections"),
        client.put("/v1/connections/warehouse", {**WAREHOUSE, "port": "none"}, "*"),
        client.put("/v1/connections/warehouse", {**WAREHOUSE, "password": SECRET}, "*"),
        client.put("/v1/connections/warehouse", {**WAREHOUSE, "host": SECRET}, "*"),
        client.get("/v1/connections/warehouse"),
    ]
    assert [each.status_code for each in answers] == [201, 200, 422, 422, 422, 200]
    # A host is what it is: it is shown so that it can be corrected.
    assert [SECRET in each.text for each in answers] == [False, False, False, False, True, False]
    client.delete("/v1/connections/warehouse")
    client.service.control.close()
    stored = b"".join(file.read_bytes() for file in home.rglob("*") if file.is_file())
    assert SECRET.encode() not in stored
    assert b"encrypted:" not in snapshot_path(home).read_bytes()
    assert SECRET not in caplog.text
    assert snapshot_path(home).stat().st_mode & 0o077 == 0


def test_an_encrypted_secret_cannot_be_sent_back_or_taken_over(client, home):
    client.post("/v1/connections", WAREHOUSE)
    (entry,) = json.loads(snapshot_path(home).read_text("utf-8"))["connections"]
    stolen = {**WAREHOUSE, "name": "mine", "password": entry["connection"]["password"]}
    assert "encrypted" in problem_fields(client.post("/v1/connections", stolen))["password"]
    kept = client.get("/v1/connections/warehouse").json()["connection"] | {"host": "localhost"}
    assert "password" in problem_fields(client.put("/v1/connections/warehouse", kept, "*"))


def test_keys_rotate_and_a_lost_one_is_named(client, monkeypatch):
    old = os.environ["ETL_ASSETS_SECRET_KEY"]
    client.post("/v1/connections", WAREHOUSE)
    new = Fernet.generate_key().decode()
    password = stored("warehouse").password
    monkeypatch.setenv("ETL_ASSETS_SECRET_KEY", f"{new}, {old}")
    assert password.value() == SECRET
    client.put("/v1/connections/warehouse", {**WAREHOUSE, "user": "loader"}, "*")
    monkeypatch.setenv("ETL_ASSETS_SECRET_KEY", new)
    assert stored("warehouse").password.value() == SECRET
    with pytest.raises(SettingsError, match="cannot be decrypted"):
        password.value()
    monkeypatch.delenv("ETL_ASSETS_SECRET_KEY")
    refused = client.post("/v1/connections", {**WAREHOUSE, "name": "other"})
    assert "ETL_ASSETS_SECRET_KEY is not set" in problem_fields(refused)["password"]


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"host": "evil.example.com"}, "host", "evil.example.com:5432"),
        ({"port": 5433}, "host", "db.example.com:5433"),
        ({"host": "169.254.169.254"}, "host", "169.254.169.254:5432"),
        ({"password": "${HOME}"}, "secrets", "the environment variable HOME"),
        ({"password": "${env:HOME}"}, "secrets", "the environment variable HOME"),
        ({"password": "${file:/etc/passwd}"}, "secrets", "the file /etc/passwd"),
        ({"password": "${file:/run/secrets/../../etc/passwd}"}, "secrets", "the file /run"),
        ({"password": SECRET}, "password", "secret"),
        ({"password": None}, "password", "user and password"),
        ({"user": None}, "password", "user and password"),
        ({"sslrootcert": "/etc/passwd"}, "sslrootcert", "this file"),
        ({"type": "folder", "path": "tables"}, "type", "reaches one host"),
        ({"type": "object_store", "root": "s3://bucket"}, "type", "reaches one host"),
        ({"type": "kafka", "bootstrap_servers": ["db.example.com:5432"]}, "type", "reaches one host"),
        ({"type": ["postgres"]}, "type", "reaches one host"),
        ({"hots": "x"}, "hots", "Extra inputs"),
    ],
)
def test_what_a_connection_may_not_use_is_refused_with_its_field(client, change, field, words):
    answer = client.post("/v1/connections", {**WAREHOUSE, **change})
    assert answer.status_code == 422, answer.text
    found = problem_fields(answer)
    assert words in found[field], found
    assert client.get("/v1/connections/warehouse").status_code == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"driver": "sqlite", "database": "/etc/passwd", "host": None}, "driver"),
        ({"driver": "mysql+pymysql", "options": {"read_default_file": "/etc/passwd"}}, "options"),
        ({"driver": "mysql+pymysql", "port": None}, "host"),
    ],
)
def test_a_database_by_sqlalchemy_has_a_driver_that_reaches_its_host_alone(client, change, field):
    sql = {key: each for key, each in WAREHOUSE.items() if key != "write"} | {"type": "sql", "port": 5432}
    assert field in problem_fields(client.post("/v1/connections", {**sql, **change}))


def test_secrets_by_reference_are_those_that_the_platform_file_lists(client, monkeypatch):
    monkeypatch.setenv("WAREHOUSE_PASSWORD", SECRET)
    for reference in ("${env:WAREHOUSE_PASSWORD}", "${WAREHOUSE_PASSWORD}"):
        answer = client.post("/v1/connections", {**WAREHOUSE, "name": "by_name", "password": reference})
        assert answer.json()["connection"]["password"] == reference, answer.text
        assert stored("by_name").password.value() == SECRET
        client.delete("/v1/connections/by_name")
    mounted = made(client, name="mounted", password="${file:/run/secrets/warehouse}")
    assert mounted.password.label == "the file /run/secrets/warehouse"


def test_names_of_the_platform_file_are_taken_and_read_only(client, home):
    assert kind_of(client.post("/v1/connections", {**WAREHOUSE, "name": "operators"})) == "name-taken"
    shown = client.get("/v1/connections/operators").json()
    assert (shown["read_only"], shown["origin"], shown["connection"]["password"]) == (
        True,
        "file",
        "${OPERATORS}",
    )
    for answer in (
        client.put("/v1/connections/operators", WAREHOUSE | {"name": "operators"}, "*"),
        client.delete("/v1/connections/operators"),
    ):
        assert answer.status_code == 409, answer.text
    assert kind_of(client.post("/v1/connections/operators/test")) == "not-testable"
    client.post("/v1/connections", WAREHOUSE)
    changed(home, connections={"warehouse": {"type": "duckdb", "path": "out.duckdb"}})
    later = RestClient(new_service())
    assert later.get("/v1/connections/warehouse").json()["connection"]["user"] == "etl"
    assert later.get("/v1/connections/warehouse").json()["state"] == "broken"
    assert load_settings().connections["warehouse"].type == "duckdb"


def test_another_tenant_sees_and_uses_nothing_of_it(client, home):
    client.post("/v1/connections", WAREHOUSE)
    other = RestClient(client.service, tenant="other")
    assert other.get("/v1/connections").json()["data"] == []
    assert other.get("/v1/connections/warehouse").status_code == 404
    assert other.delete("/v1/connections/warehouse").status_code == 404
    assert kind_of(other.post("/v1/connections", WAREHOUSE)) == "name-taken"
    changed(home, rest={**REST, "connections": ["*"]})
    other = RestClient(new_service(), tenant="other")
    refused = other.post("/v1/pipelines", {**FILMS, "sinks": [TO_WAREHOUSE]})
    assert "no connection" in problem_fields(refused)["sinks[0].connection"]
    # Of those of the platform file that it may use, it does not see where they lead.
    (seen,) = other.get("/v1/connections").json()["data"]
    assert (seen["name"], seen["connection"]) == ("operators", None)
    bound = RestClient(client.service, pipelines=["films"])
    assert kind_of(bound.get("/v1/connections")) == "connections-not-allowed"


def test_pipelines_use_it_and_it_stays_while_they_do(client, home):
    declared = {**FILMS, "sinks": [TO_WAREHOUSE]}
    assert client.post("/v1/pipelines", declared).status_code == 422
    client.post("/v1/connections", WAREHOUSE)
    assert client.post("/v1/pipelines", declared).status_code == 201
    assert client.get("/v1/connections/warehouse").json()["used_by"] == ["films"]
    assert kind_of(client.delete("/v1/connections/warehouse")) == "in-use"
    narrower = {**WAREHOUSE, "write": ["private.*"]}
    assert kind_of(client.put("/v1/connections/warehouse", narrower, "*")) == "in-use"
    as_file = {**FILMS, "name": "tickets", "sinks": [{**TO_WAREHOUSE, "table": "public.tickets"}]}
    (home / "pipelines" / "tickets.yaml").write_text(yaml.safe_dump(as_file), "utf-8")
    tickets: Any = load_settings().installed().declaration("tickets")
    assert (tickets.origin, tickets.problems) == (DeclarationOrigin.FILE, ())
    client.delete("/v1/pipelines/films")
    assert kind_of(client.delete("/v1/connections/warehouse")) == "in-use"
    (home / "pipelines" / "tickets.yaml").unlink()
    client.service.look_again()
    assert client.delete("/v1/connections/warehouse").status_code == 204


def test_a_narrower_allow_list_counts_for_what_is_stored(client, home):
    client.post("/v1/connections", WAREHOUSE)
    changed(home, rest={**REST, "hosts": []})
    assert "warehouse" not in load_settings().connections
    shown = RestClient(new_service()).get("/v1/connections/warehouse").json()
    assert (shown["state"], [each["field"] for each in shown["problems"]]) == ("broken", ["host"])


def test_the_built_in_pipeline_delivers_by_connections_of_the_file_alone(home):
    changed(home, pipelines={"built_in": ["orders"]})
    client = RestClient(new_service())
    client.post("/v1/connections", {**WAREHOUSE, "name": "orders", "write": ["orders.*"]})
    orders = next(each for each in load_settings().catalog().pipelines if each.name == "orders")
    assert not any("postgres" in stage.table.name for stage in orders.stages)
    assert new_service().settings.control.connection is None


def test_a_change_with_a_lost_answer_and_a_lost_snapshot_are_made_up_for(client, home):
    client.post("/v1/connections", WAREHOUSE)
    snapshot_path(home).unlink()
    assert client.post("/v1/connections", WAREHOUSE).status_code == 200
    assert "warehouse" in load_settings().connections
    snapshot_path(home).write_bytes(b"{")
    assert "warehouse" not in load_settings().connections
    control = ControlPlane(load_settings())
    control.connections.refresh()
    control.close()
    script = (
        "import sys; from etl_assets.settings import load_settings;"
        "print('warehouse' in load_settings().connections, 'sqlalchemy' in sys.modules)"
    )
    fresh = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert fresh.stdout.split() == ["True", "False"]
    assert (home / FILE).exists()


def test_of_changes_at_once_each_is_stored_or_refused(client):
    tag = client.post("/v1/connections", WAREHOUSE).headers["etag"]
    answers = []

    def change(number: int) -> None:
        mine = RestClient(client.service, client=f"robot-{number}")
        content = {**WAREHOUSE, "user": f"user_{number}"}
        answers.append(mine.put("/v1/connections/warehouse", content, tag).status_code)

    threads = [threading.Thread(target=change, args=[number]) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert sorted(answers) == [200, 412, 412, 412]


# Where they connect to


def resolver(*addresses: str):
    asked = []

    def resolve(host: str, port: int):
        asked.append(host)
        return addresses

    return resolve, asked


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "169.254.169.254",
        "fe80::1%eth0",
        "100.100.100.200",
        "fd00:ec2::254",
        "0.0.0.0",
        "224.0.0.1",
        "::ffff:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
    ],
)
def test_addresses_of_this_machine_and_its_provider_are_refused_whatever_their_name(address):
    allowed = AllowedHosts(hosts=("db.example.com:5432",))
    assert not allowed.allows_address(address)
    with pytest.raises(SettingsError, match="an address of this machine"):
        allowed.address("db.example.com", 5432, resolver("192.0.2.7", address)[0])


def test_a_name_is_resolved_once_and_an_address_that_was_checked_is_returned():
    allowed = AllowedHosts(hosts=("DB.example.com:5432", "*.shop.example.com:*"))
    resolve, asked = resolver("192.0.2.7", "10.0.0.8")
    assert allowed.address("db.example.com", 5432, resolve) == "192.0.2.7"
    assert asked == ["db.example.com"]
    assert allowed.allows("a.shop.example.com", 80)
    for host, port in (("db.example.com", 5433), ("shop.example.com.evil", 443), ("example.com", 5432)):
        with pytest.raises(SettingsError, match="may not reach"):
            allowed.address(host, port, resolve)
    assert len(asked) == 1, "what is not listed is not even resolved"
    loopback = AllowedHosts(hosts=("localhost:1",), networks=("127.0.0.0/8",))
    assert loopback.allows_address("127.0.0.1")
    assert not loopback.allows_address("169.254.169.254")


def test_libpq_gets_the_address_beside_the_name_and_nothing_of_the_servers_user(client, monkeypatch):
    found = made(client)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("192.0.2.7", 5432))])
    address = postgres_address(found)
    for part in ("host=db.example.com", "hostaddr=192.0.2.7", "passfile=/dev/null", "gssencmode=disable"):
        assert part in address
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 1, 6, "", ("169.254.169.254", 5432))])
    sink = PostgresSinkSpec(type="postgres", connection="warehouse", table="public.films")
    with pytest.raises(SettingsError, match="an address of this machine"):
        open_sink(sink, load_settings(), pipeline="films")
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *_, **__: (_ for _ in ()).throw(socket.gaierror(-2, "none"))
    )
    with pytest.raises(SinkUnavailable, match="has no address"):
        open_sink(sink, load_settings(), pipeline="films")


@contextmanager
def http_server(status: int = 200, location: str = ""):
    calls = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self):
            length = int(self.headers.get("content-length") or 0)
            calls.append((self.headers["host"], self.path, self.rfile.read(length)))
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_PUT = do_HEAD = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1], calls
        finally:
            server.shutdown()
            thread.join()


def over_http(kind: str, port: int, host: str = "shop.test") -> dict[str, Any]:
    address = f"http://{host}:{port}"
    return {"name": kind, "type": kind} | ({"url": address} if kind == "webhook" else {"urls": [address]})


def send(kind: str) -> None:
    connection: Any = load_settings().connections[kind]
    if kind == "webhook":
        client = WebhookClient(receiver_of(connection), sink="s", sleep=lambda _: None)
        client.call("POST", "films", b"{}", dict)
    else:
        with closing(SearchClient(server_of(connection), sink="s", sleep=lambda _: None)) as client:
            client.send("GET", "/films")


def name_is(monkeypatch, address: str) -> list[str]:
    """Let the resolver return an address for the host, and that of the metadata service from then on."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolve(host, port, *rest, **more):
        if host != "shop.test":
            return real(host, port, *rest, **more)
        asked.append(host)
        return [(socket.AF_INET, 1, 6, "", (address if len(asked) == 1 else "169.254.169.254", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return asked


@pytest.mark.parametrize("kind", ["webhook", "search"])
def test_a_name_that_changes_its_address_and_a_redirect_lead_nowhere_else(home, monkeypatch, kind):
    changed(home, rest={**REST, "hosts": ["shop.test:*"]})
    client = RestClient(new_service())
    with (
        http_server() as (elsewhere, stolen),
        http_server(302, f"http://127.0.0.1:{elsewhere}/") as (port, calls),
    ):
        assert client.post("/v1/connections", over_http(kind, port)).status_code == 201
        asked = name_is(monkeypatch, "127.0.0.1")
        with suppress(SinkRefused):
            send(kind)
        assert [host for host, *_ in calls] == [f"shop.test:{port}"]
        assert (asked, stolen) == (["shop.test"], [])
        # The second time the name leads to the metadata service.
        with pytest.raises(SettingsError, match="an address of this machine"):
            send(kind)
        assert (len(calls), stolen) == (1, [])


@pytest.mark.parametrize("kind", ["webhook", "search"])
def test_a_host_outside_the_list_is_never_called(home, kind):
    with http_server() as (port, calls):
        changed(home, rest={**REST, "hosts": [f"localhost:{port}"]})
        client = RestClient(new_service())
        assert client.post("/v1/connections", over_http(kind, port, "localhost")).status_code == 201
        assert client.post(f"/v1/connections/{kind}/test").status_code == 200
        before = len(calls)
        changed(home, rest={**REST, "hosts": [f"localhost:{port}"], "networks": []})
        later = RestClient(new_service())
        answer = later.post(f"/v1/connections/{kind}/test")
        assert (answer.status_code, kind_of(answer)) == (422, "connection-unusable")
        changed(home, rest={**REST, "hosts": []})
        assert kind_of(RestClient(new_service()).post(f"/v1/connections/{kind}/test")) == "not-testable"
        assert len(calls) == before


# Tests of connections


def test_a_database_is_tested_with_user_and_password(client, postgres_server):
    server = {"host": "127.0.0.1", "port": postgres_server.port, "database": "postgres"}
    user = {"user": postgres_server.user, "password": {"value": postgres_server.password}}
    made(client, **server, **user)
    answer = client.post("/v1/connections/warehouse/test")
    assert (answer.status_code, answer.json()["connected"]) == (200, True), answer.text
    address = postgres_address(stored("warehouse"))
    with dbapi.connect(address) as session, session.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchone() == (1,), "sources read by it"
    made(client, name="wrong", **server, **user | {"user": "nobody"})
    answer = client.post("/v1/connections/wrong/test")
    assert (answer.status_code, postgres_server.password in answer.text) == (502, False), answer.text
    sink = PostgresSinkSpec(type="postgres", connection="warehouse", table="public.films")
    with closing(open_sink(sink, load_settings(), pipeline="films")):
        pass


def test_a_closed_port_is_502_a_silent_server_504_and_a_missing_secret_422(client, monkeypatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    local = {"host": "127.0.0.1", "port": port}
    made(client, name="closed", **local)
    answer = client.post("/v1/connections/closed/test")
    assert (answer.status_code, SECRET in answer.text) == (502, False), answer.text
    made(client, name="unset", **local, password="${WAREHOUSE_PASSWORD}")
    monkeypatch.delenv("WAREHOUSE_PASSWORD", raising=False)
    assert client.post("/v1/connections/unset/test").status_code == 422
    monkeypatch.setattr("etl_assets.control.connection_trial.SECONDS", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        made(client, name="silent", host="127.0.0.1", port=silent.getsockname()[1])
        answer = client.post("/v1/connections/silent/test")
    assert (answer.status_code, kind_of(answer)) == (504, "outside-slow"), answer.text


def test_a_search_sink_reaches_its_engine_by_the_checked_address_only(client):
    with http_server() as (port, calls):
        client.post("/v1/connections", {**over_http("search", port, "localhost"), "write": ["films"]})
        sink = SearchSinkSpec(type="search", connection="search", index="films", mappings={})
        with closing(open_sink(sink, load_settings(), pipeline="films")):
            pass
        assert client.post("/v1/connections/search/test").json()["connected"] is True
        assert len(calls) == 1

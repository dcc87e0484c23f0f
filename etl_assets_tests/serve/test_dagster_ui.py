"""The Dagster UI behind the login, over a small real server in the place of Dagster's webserver."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import Close
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from etl_assets.serve.service import now_utc
from etl_assets.serve.sessions import COOKIE
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets_tests.serve.server_process import serving, write_installation
from etl_assets_tests.serve.small_webserver import small_webserver, start

PROTOCOLS = [Subprotocol("graphql-ws")]
LAUNCH = {"query": "mutation Shown { launchRun { id } }"}


@pytest.fixture(scope="module")
def webserver():
    with small_webserver() as started:
        yield started


@pytest.fixture(scope="module")
def server(webserver, tmp_path_factory):
    home = tmp_path_factory.mktemp("ui")
    ui = {"address": webserver.address, "answer_timeout_seconds": 1, "max_websockets": 2}
    write_installation(home, serve={"ui": ui})
    with serving(home) as started:
        yield started


@pytest.fixture
def browser(server):
    """A client that is logged in like a browser, and sends `Origin` like one."""
    opened = []

    def log_in(*scopes: Scope, **token) -> httpx.Client:
        _, secret = Tokens(server.home).add("oncall", now=now_utc(), scopes=scopes, **token)
        client = httpx.Client(
            base_url=server.url, headers={"origin": server.url}, timeout=30, trust_env=False
        )
        opened.append(client)
        assert client.post("/login", data={"token": secret}).status_code == 303
        return client

    yield log_in
    for client in opened:
        client.close()


@contextmanager
def websocket(server, client, **headers):
    given = {"Cookie": f"{COOKIE}={client.cookies[COOKIE]}", "Origin": server.url, **headers}
    address = server.url.replace("http", "ws") + "/ui/graphql"
    with connect(address, additional_headers=given, subprotocols=PROTOCOLS, proxy=None) as opened:
        yield opened


def end_of(opened) -> Close:
    """Return how the server ends a websocket."""
    with pytest.raises(ConnectionClosed) as closed:
        opened.recv(10)
    assert closed.value.rcvd is not None
    return closed.value.rcvd


def send_without_reading(opened) -> None:
    for _ in range(200):
        opened.send(json.dumps({"type": "echo", "long": "x" * 500_000}))


def log_of(server) -> str:
    return (server.home / "server.log").read_text("utf-8")


def test_who_opens_the_ui_without_a_login_is_led_to_it_and_back(server):
    html = {"accept": "text/html"}
    with httpx.Client(base_url=server.url, trust_env=False) as client:
        answer = client.get("/ui/runs/1", headers=html)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=/ui/runs/1")
        assert 'name="next" value="/ui/runs/1"' in client.get(answer.headers["location"]).text
        assert client.get("/ui/runs/1").json()["type"].endswith("login-needed"), "a script gets no page"
        assert "evil" not in client.get("/login?next=https://evil.example").text
        _, secret = Tokens(server.home).add("oncall", now=now_utc(), scopes=[Scope.READ])
        for wanted, shown in (("/ui/runs/1", "/ui/runs/1"), ("//evil.example/ui/", "/status")):
            answer = client.post("/login", data={"token": secret, "next": wanted})
            assert answer.headers["location"] == shown
        assert 'href="/ui/"' in client.get("/status").text
        assert client.get("/ui").headers["location"] == "/ui/"


def test_a_token_of_a_tenant_is_refused_and_sees_no_link(server, browser):
    client = browser(Scope.ADMIN, tenant="acme")
    assert "Dagster UI" not in client.get("/status").text
    assert client.get("/ui/").status_code == 403
    refused = client.get("/ui/", headers={"accept": "text/html"})
    assert refused.status_code == 403
    assert "pipelines of all tenants" in refused.text
    assert "<html" in refused.text


def test_the_webserver_gets_neither_cookie_nor_token_and_the_browser_no_cookie_of_it(
    server, browser, webserver
):
    client = browser(Scope.READ)
    webserver.requests.clear()
    headers = {"x-forwarded-for": "1.2.3.4", "te": "trailers", "if-none-match": '"1"'}
    answer = client.get("/ui/assets/a%20b?view=x&y=%2F", headers=headers)
    assert "set-cookie" not in answer.headers
    secret = {"authorization": f"Bearer {server.token}"}
    assert httpx.get(f"{server.url}/ui/", headers=secret, trust_env=False).status_code == 403
    (found,) = webserver.requests
    assert (found["path"], found["query"]) == ("/ui/assets/a b", "view=x&y=%2F")
    assert found["headers"]["if-none-match"] == '"1"'
    assert not {"cookie", "authorization", "x-forwarded-for", "te", "origin"} & set(found["headers"])
    assert found["headers"]["host"] == webserver.address.removeprefix("http://")


def test_a_path_stays_under_the_prefix(server, browser, webserver):
    client = browser(Scope.READ)
    webserver.requests.clear()
    for path in ("/ui/%2e%2e/metrics", "/ui/x/%2e%2e/graphql?query={a}", "/ui/a/%2E/b"):
        assert client.get(path).status_code == 404
    client.get("/ui//evil.example/%252e%252e/x")
    assert [each["path"] for each in webserver.requests] == ["/ui//evil.example/%2e%2e/x"]


def test_a_redirect_is_passed_on_and_stays_on_this_server(browser):
    answer = browser(Scope.READ).get("/ui/moved")
    assert (answer.status_code, answer.headers["location"]) == (307, "/ui/runs")


def test_an_answer_comes_part_by_part_and_one_that_breaks_off_does_not_seem_whole(browser):
    client = browser(Scope.READ)
    began = time.monotonic()
    with client.stream("GET", "/ui/stream") as answer:
        came = [time.monotonic() - began for _ in answer.iter_lines()]
    assert len(came) == 3
    assert came[-1] - came[0] > 0.4
    with pytest.raises(httpx.RemoteProtocolError):
        client.get("/ui/broken")


def test_a_reader_can_ask_and_cannot_launch(server, browser, webserver):
    client = browser(Scope.READ)
    webserver.requests.clear()
    variables = {"a": "mutation { launchRun }"}
    asked = {"query": "query Q { version }", "variables": variables, "operationName": "Q", "extensions": {}}
    assert client.post("/ui/graphql?op=Q&query=mutation{x}", json=asked).status_code == 200
    (found,) = webserver.requests
    del asked["extensions"]
    assert (json.loads(found["body"]), found["query"]) == (asked, "")

    refused = client.post("/ui/graphql", json={**LAUNCH, "operationName": "Query"})
    assert refused.status_code == 403
    assert refused.json()["type"].endswith("scope-not-allowed")
    assert "launchRun needs the scope `operate`" in refused.json()["errors"][0]["message"]
    assert "is refused launchRun" in log_of(server)
    assert len(webserver.requests) == 1


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({"json": [LAUNCH]}, 400),
        ({"json": {"extensions": {"persistedQuery": {"sha256Hash": "a"}}}}, 400),
        ({"content": LAUNCH["query"], "headers": {"content-type": "application/graphql"}}, 415),
        ({"params": LAUNCH}, 415),
        ({"data": {"operations": json.dumps(LAUNCH)}, "files": {"0": b"x"}}, 415),
        ({"content": b'{"query": "{ a }", "query": "mutation { launchRun }"}'}, 403),
        ({"content": b'{"query": "mutation { a }", "qu\\u0065ry": "mutation { launchRun }"}'}, 403),
        ({"content": b"{" * 100_000}, 400),
        ({"content": b" " * 1_100_000}, 413),
        ({"content": "query".encode("utf-16")}, 400),
    ],
)
def test_no_form_of_a_request_brings_a_mutation_past_the_check(browser, webserver, sent, status):
    client = browser(Scope.READ)
    webserver.requests.clear()
    headers = {"content-type": "application/json"} if "content" in sent else {}
    answer = client.post("/ui/graphql", **{**sent, "headers": headers | sent.get("headers", {})})
    assert answer.status_code == status, answer.text
    assert client.get("/ui/graphql", params=LAUNCH).status_code == 405
    assert webserver.requests == []


def test_the_page_for_queries_is_shown_without_the_query_of_its_address(browser, webserver):
    webserver.requests.clear()
    assert browser(Scope.READ).get("/ui/graphql", params=LAUNCH, headers={"accept": "text/html"}).is_success
    assert [(each["method"], each["query"]) for each in webserver.requests] == [("GET", "")]


def test_an_operator_launches_and_only_an_admin_deletes_or_reports_and_the_log_says_who(
    server, browser, webserver
):
    operator, admin = browser(Scope.OPERATE), browser(Scope.ADMIN)
    delete, report = {"query": "mutation { ok: deleteRun }"}, "/ui/report_asset_materialization/a/b?x=1"
    webserver.requests.clear()
    assert operator.post("/ui/graphql", json=LAUNCH).status_code == 200
    assert operator.post("/ui/graphql", json=delete).status_code == 403
    assert operator.post(report, json={}).status_code == 403
    assert admin.post("/ui/graphql", json=delete).status_code == 200
    assert admin.post(report, json={"metadata": {}}).status_code == 200
    assert admin.post("/ui/elsewhere/x", json={}).status_code == 405
    paths = [(each["path"], each["query"]) for each in webserver.requests]
    assert paths == [("/ui/graphql", ""), ("/ui/graphql", ""), (report.partition("?")[0], "x=1")]
    for said in ("asks for launchRun", "asks for deleteRun", "asks for report_asset_materialization"):
        assert said in log_of(server)
    assert "oncall (token" in log_of(server)


def test_a_request_of_another_site_does_nothing(server, browser, webserver):
    client = browser(Scope.ADMIN)
    webserver.requests.clear()
    for origin in ("http://evil.example", server.url.replace("127.0.0.1", "localhost"), "null"):
        assert client.post("/ui/graphql", json=LAUNCH, headers={"origin": origin}).status_code == 403
        with pytest.raises(InvalidStatus) as refused, websocket(server, client, Origin=origin):
            pass
        assert refused.value.response.status_code == 403
    assert webserver.requests == []


def test_a_subscription_is_passed_on_in_both_directions_without_the_cookie(server, browser, webserver):
    webserver.websockets.clear()
    with websocket(server, browser(Scope.READ)) as opened:
        assert opened.subprotocol == "graphql-ws"
        opened.send('{"type": "connection_init"}')
        assert json.loads(opened.recv())["sent"] == {"type": "connection_init"}
        opened.send(start("subscription { logs }"))
        assert json.loads(opened.recv())["sent"]["payload"] == {"query": "subscription { logs }"}
        opened.send('{"type": "connection_terminate"}')
        assert end_of(opened).code == 1001
    (headers,) = webserver.websockets
    assert not {"cookie", "authorization"} & set(headers)


@pytest.mark.parametrize(
    "message",
    [
        start("mutation { launchRun { id } }"),
        start("subscription A { a } mutation B { launchRun }"),
        '{"type": "subscribe", "payload": {"query": "mutation { launchRun }"}}',
        '{"type": "start", "payload": "mutation { launchRun }"}',
        "mutation",
        "[]",
        b'{"type": "connection_init"}',
    ],
)
def test_only_subscriptions_go_over_the_websocket_also_for_an_admin(server, browser, message):
    with websocket(server, browser(Scope.ADMIN)) as opened:
        opened.send(message)
        assert end_of(opened).code in (1003, 1008)


def test_a_websocket_ends_with_the_login_and_there_are_only_so_many(server, browser, webserver):
    client = browser(Scope.READ)
    other = browser(Scope.READ)
    before = webserver.closed
    with websocket(server, client) as first, websocket(server, other) as second:
        with pytest.raises(InvalidStatus) as refused, websocket(server, other):
            pass
        assert refused.value.response.status_code == 503
        assert b"serve.ui.max_websockets" in refused.value.response.body
        key = client.get("/status").text.partition('name="form_key" value="')[2].partition('"')[0]
        assert client.post("/logout", data={"form_key": key}).status_code == 303
        assert end_of(first).reason == "the login has ended"
        second.send('{"type": "connection_init"}')
        assert second.recv(5)
    for _ in range(50):
        if webserver.closed == before + 2:
            break
        time.sleep(0.1)
    assert webserver.closed == before + 2, "the webserver's side ends as well"


def test_a_websocket_outlives_the_time_limit_of_a_head_unless_its_client_takes_nothing(tmp_path, webserver):
    limits = {"header_timeout_seconds": 1, "body_timeout_seconds": 1}
    write_installation(tmp_path, serve={**limits, "ui": {"address": webserver.address}})
    with serving(tmp_path) as server:
        _, secret = Tokens(tmp_path).add("oncall", now=now_utc(), scopes=[Scope.READ])
        address, bearer = server.url.replace("http", "ws"), {"Authorization": f"Bearer {secret}"}
        with pytest.raises(InvalidStatus, match="400"):
            connect(f"{address}/ui/graphql", additional_headers=bearer, proxy=None)
        with connect(
            f"{address}/ui/graphql", additional_headers=bearer, subprotocols=PROTOCOLS, proxy=None
        ) as opened:
            time.sleep(1.5)
            opened.send('{"type": "connection_init"}')
            assert opened.recv(5)
            with (
                connect(
                    f"{address}/ui/graphql",
                    additional_headers=bearer,
                    subprotocols=PROTOCOLS,
                    proxy=None,
                    max_queue=1,
                    close_timeout=1,
                    compression=None,
                ) as stalled,
                pytest.raises(ConnectionClosed),
            ):
                send_without_reading(stalled)
            server.terminate()
            assert end_of(opened).code == 1012


def test_a_slow_webserver_and_one_without_the_prefix_are_problems_that_say_what_to_do(browser, webserver):
    client = browser(Scope.READ)
    slow = client.get("/ui/slow")
    assert (slow.status_code, slow.json()["type"].rpartition(":")[2]) == (504, "ui-slow")
    assert "serve.ui.answer_timeout_seconds" in slow.text
    webserver.has_prefix = False
    try:
        page = client.get("/ui/", headers={"accept": "text/html"})
    finally:
        webserver.has_prefix = True
    assert page.status_code == 502
    assert "--path-prefix /ui" in page.text
    assert client.get("/ui/", headers={"accept": "text/html"}).status_code == 200

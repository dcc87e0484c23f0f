"""Which token may call which route: every route of the app, by scope, tenant and pipeline."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
from fastapi import APIRouter

from etl_assets.serve.access import WEBSOCKET, allow, rules_of
from etl_assets.serve.app import build_app
from etl_assets.serve.journal import Journal
from etl_assets.serve.service import Service, now_utc
from etl_assets.serve.sessions import COOKIE
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets.settings import load_settings
from etl_assets_tests.serve.server_process import PIPELINE, write_installation

RULES = {
    ("GET", "/health"): (None, "all"),
    ("GET", "/ready"): (None, "all"),
    ("GET", "/metrics"): ("read", "installation"),
    ("GET", "/v1/schema"): ("read", "installation"),
    ("GET", "/v1/pipelines"): ("read", "installation"),
    ("POST", "/v1/pipelines/validate"): ("read", "installation"),
    ("POST", "/v1/pipelines"): ("admin", "installation"),
    ("GET", "/v1/pipelines/{name}"): ("read", "pipeline"),
    ("PUT", "/v1/pipelines/{name}"): ("admin", "pipeline"),
    ("DELETE", "/v1/pipelines/{name}"): ("admin", "pipeline"),
    ("GET", "/v1/pipelines/{name}/revisions"): ("read", "pipeline"),
    ("GET", "/v1/pipelines/{name}/revisions/{revision}"): ("read", "pipeline"),
    ("POST", "/v1/pipelines/{name}/validate"): ("read", "name"),
    ("POST", "/v1/pipelines/{name}/run"): ("operate", "pipeline"),
    ("POST", "/v1/pipelines/{name}/pause"): ("operate", "pipeline"),
    ("POST", "/v1/pipelines/{name}/resume"): ("operate", "pipeline"),
    ("POST", "/v1/pipelines/{name}/cancel"): ("operate", "pipeline"),
    ("POST", "/v1/pipelines/{name}/retry"): ("operate", "pipeline"),
    ("GET", "/v1/pipelines/{name}/state"): ("read", "pipeline"),
    ("GET", "/v1/pipelines/{name}/runs"): ("read", "pipeline"),
    ("GET", "/v1/pipelines/{name}/runs/{id}"): ("read", "pipeline"),
    ("GET", "/v1/pipelines/{name}/tables"): ("read", "pipeline"),
    ("GET", "/v1/pipelines/{name}/dead-letters"): ("read", "pipeline"),
    ("POST", "/v1/pipelines/{name}/events"): ("ingest", "file"),
    ("GET", "/v1/events/{id}/trace"): ("read", "installation"),
    ("GET", "/v1/captures/{name}/tables"): ("read", "installation"),
    ("GET", "/v1/connections"): ("admin", "connections"),
    ("POST", "/v1/connections"): ("admin", "connections"),
    ("GET", "/v1/connections/{name}"): ("admin", "connections"),
    ("PUT", "/v1/connections/{name}"): ("admin", "connections"),
    ("DELETE", "/v1/connections/{name}"): ("admin", "connections"),
    ("POST", "/v1/connections/{name}/test"): ("admin", "connections"),
    ("GET", "/v1/orders/{tenant}/{id}"): ("read", "tenant"),
}
"""What each route needs, and what it is about. A route that is not here fails the first test."""
PAGES = {
    ("GET", "/"): (None, "all"),
    ("GET", "/status.css"): (None, "all"),
    ("GET", "/login"): (None, "all"),
    ("POST", "/login"): (None, "all"),
    ("POST", "/logout"): ("read", "installation"),
    ("GET", "/status"): ("read", "installation"),
    ("GET", "/status/{name}"): ("read", "pipeline"),
    ("GET", "/status/{name}/{action}"): ("operate", "pipeline"),
    ("POST", "/status/{name}/{action}"): ("operate", "pipeline"),
}
"""What each page needs; its session stands for a token."""
UI = {
    ("GET", "/ui"): ("read", "every pipeline"),
    ("GET", "/ui/{path}"): ("read", "every pipeline"),
    ("HEAD", "/ui/{path}"): ("read", "every pipeline"),
    ("GET", "/ui/graphql"): ("read", "every pipeline"),
    ("POST", "/ui/graphql"): ("read", "every pipeline"),
    ("WEBSOCKET", "/ui/graphql"): ("read", "every pipeline"),
    ("POST", "/ui/{report}/{key}"): ("admin", "every pipeline"),
}
"""What the Dagster UI needs, with a token or with a session."""
INCLUDED = {
    "ingest": {"ingest"},
    "read": {"read"},
    "operate": {"operate", "read"},
    "admin": {"admin", "operate", "read"},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    home = tmp_path_factory.mktemp("access")
    orders = {
        "type": "postgres",
        "host": "127.0.0.1",
        "port": 1,
        "database": "shop",
        "user": "etl",
        "password": "${HOME}",
        "write": ["orders.order_status_view"],
    }
    ui = {"address": "http://127.0.0.1:1"}  # nothing answers: what is allowed is 502
    write_installation(
        home, pipelines={"built_in": ["orders"]}, connections={"orders": orders}, serve={"ui": ui}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETL_ASSETS_HOME", str(home))
        settings = load_settings()
    return Service(settings=settings, journal=Journal(settings.placement(), timeout_seconds=20))


@pytest.fixture(scope="module")
def app(service):
    return build_app(service)


def ask(app, secret, calls, cookie=None, **more):
    headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
    headers |= {} if cookie is None else {"cookie": f"{COOKIE}={cookie}"}
    headers |= more

    async def all_calls():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://x", headers=headers) as client:
            found = {call: path for call, path in calls.items() if call[0] != WEBSOCKET}
            return {call: await client.request(call[0], path, json={}) for call, path in found.items()}

    refused = {call: upgrade(app, path, headers) for call, path in calls.items() if call[0] == WEBSOCKET}
    return asyncio.run(all_calls()) | refused


def upgrade(app, path, headers):
    """Return what is answered to a websocket that is not accepted."""
    sent = []
    scope = {
        "type": "websocket",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "scheme": "ws",
        "headers": [(b"host", b"x"), *((name.encode(), value.encode()) for name, value in headers.items())],
        "subprotocols": ["graphql-ws"],
        "extensions": {"websocket.http.response": {}},
    }

    async def receive():
        return {"type": "websocket.connect"}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    start, *bodies = sent
    assert start["type"] == "websocket.http.response.start"
    content = b"".join(each["body"] for each in bodies)
    return httpx.Response(start["status"], headers=start["headers"], content=content)


def path_of(path: str) -> str:
    given = {"name": PIPELINE, "id": "none", "tenant": "default", "revision": "1", "action": "pause"}
    return path.format(**given, path="runs", report="report_asset_check", key="a")


def test_every_route_has_a_rule_that_is_checked_here(app):
    described = {(method.upper(), path) for path, found in app.openapi()["paths"].items() for method in found}
    assert described == set(RULES)
    assert set(app.state.rules) == {*RULES, *PAGES, *UI}
    assert {call for call, rule in app.state.rules.items() if rule.is_app} == set(UI)
    assert {call for call, rule in app.state.rules.items() if rule.is_page} == {
        call for call, (scope, _) in PAGES.items() if scope is not None
    }


def test_a_route_without_a_rule_is_refused():
    router = APIRouter()
    router.get("/new")(lambda: None)
    with pytest.raises(TypeError, match="/new needs one rule"):
        list(rules_of(router))
    two = APIRouter()
    two.get("/new", dependencies=[allow(None), allow(Scope.READ)])(lambda: None)
    with pytest.raises(TypeError, match="/new needs one rule"):
        list(rules_of(two))


@pytest.mark.parametrize("tenant", ["default", "other"])
@pytest.mark.parametrize("bound_to", ["*", PIPELINE, "another"])
@pytest.mark.parametrize("scope", [None, *INCLUDED])
def test_the_whole_matrix(service, app, scope, tenant, bound_to):
    secret = None
    if scope is not None:
        _, secret = Tokens(service.settings.home).add(
            "client", now=now_utc(), tenant=tenant, pipelines=[bound_to], scopes=[Scope(scope)]
        )
    answers = ask(app, secret, {call: path_of(call[1]) for call in RULES})
    for call, (needed, about) in RULES.items():
        answer = answers[call]
        kind = answer.json().get("type", "") if "json" in answer.headers["content-type"] else ""
        expected = expected_refusal(needed, about, scope, tenant, bound_to)
        if expected is None:
            refused = answer.status_code in (401, 403) or kind.endswith("no-such-pipeline")
            assert not refused, (call, answer.text)
        else:
            assert answer.status_code == expected, (call, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("tenant", ["default", "other"])
@pytest.mark.parametrize("bound_to", ["*", PIPELINE, "another"])
@pytest.mark.parametrize("scope", [None, *INCLUDED])
def test_the_whole_matrix_of_the_pages(service, app, scope, tenant, bound_to):
    cookie = None
    if scope is not None:
        token, _ = Tokens(service.settings.home).add(
            "client", now=now_utc(), tenant=tenant, pipelines=[bound_to], scopes=[Scope(scope)]
        )
        cookie = service.sessions.begin(token, now_utc())
    answers = ask(app, None, {call: path_of(call[1]) for call in PAGES}, cookie)
    for call, (needed, about) in PAGES.items():
        answer = answers[call]
        expected = expected_refusal(needed, about, scope, tenant, bound_to)
        if expected == 401:
            assert (answer.status_code, answer.headers["location"]) == (303, "/login"), call
        elif expected is not None:
            assert answer.status_code == expected, (call, answer.text)
        else:
            assert answer.status_code not in (401, 403, 404), (call, answer.text)


@pytest.mark.parametrize("tenant", ["default", "other"])
@pytest.mark.parametrize("bound_to", ["*", PIPELINE])
@pytest.mark.parametrize("scope", [None, *INCLUDED])
def test_the_whole_matrix_of_the_dagster_ui(service, app, scope, tenant, bound_to):
    secret = cookie = None
    if scope is not None:
        token, secret = Tokens(service.settings.home).add(
            "client", now=now_utc(), tenant=tenant, pipelines=[bound_to], scopes=[Scope(scope)]
        )
        cookie = service.sessions.begin(token, now_utc())
    calls = {call: path_of(call[1]) for call in UI}
    for answers in (ask(app, secret, calls), ask(app, None, calls, cookie, origin="http://x")):
        for call, (needed, about) in UI.items():
            answer = answers[call]
            expected = expected_refusal(needed, about, scope, tenant, bound_to)
            if expected is None:
                assert answer.status_code not in (401, 403, 404), (call, answer.text)
            else:
                assert answer.status_code == expected, (call, answer.text)
                assert answer.headers["content-type"] == "application/problem+json"


def test_a_webserver_that_is_not_there_is_a_problem_that_says_how_to_start_it(service, app):
    _, secret = Tokens(service.settings.home).add("client", now=now_utc(), scopes=[Scope.READ])
    for call, answer in ask(app, secret, {call: path_of(call[1]) for call in UI}).items():
        if call in (("GET", "/ui/{path}"), ("WEBSOCKET", "/ui/graphql")):
            assert answer.status_code == 502
            assert "`etl-assets dev`" in answer.json()["detail"]
            assert "serve.ui.address" in answer.json()["detail"]


def test_a_session_is_not_used_by_pages_of_other_sites(service, app):
    token, secret = Tokens(service.settings.home).add("client", now=now_utc(), scopes=[Scope.ADMIN])
    cookie = service.sessions.begin(token, now_utc())
    changing = {call: path_of(call[1]) for call in UI if call[0] not in ("GET", "HEAD")}
    assert len(changing) == 3
    for origin in ({}, {"origin": "null"}, {"origin": "http://x:8081"}, {"origin": "http://evil.x"}):
        answers = ask(app, None, changing, cookie, **origin)
        assert {answer.status_code for answer in answers.values()} == {403}, origin
        assert all("other-origin" in answer.text for answer in answers.values())
        # A token is sent by no browser of its own accord.
        answers = ask(app, secret, changing, **origin)
        assert 403 not in {answer.status_code for answer in answers.values()}


def expected_refusal(needed, about, scope, tenant, bound_to) -> int | None:
    """Return the status that refuses a request; None if it is allowed."""
    if needed is None:
        return None
    if scope is None:
        return 401
    if needed not in INCLUDED[scope]:
        return 403
    pipeline = {"pipeline": PIPELINE, "name": PIPELINE, "file": PIPELINE, "tenant": "orders"}.get(about)
    if pipeline is not None and bound_to not in ("*", pipeline):
        return 403
    if about == "connections" and bound_to != "*":
        return 403
    if about == "every pipeline" and (bound_to != "*" or tenant != "default"):
        return 403
    if about == "tenant" and tenant != "default":
        return 403
    if about == "pipeline" and tenant != "default":
        return 404
    return None


def test_lists_have_the_tenants_pipelines_that_the_token_is_bound_to(service, app):
    tokens = Tokens(service.settings.home)

    def names(**given):
        _, secret = tokens.add("client", now=now_utc(), scopes=[Scope.READ], **given)
        call = ("GET", "/v1/pipelines")
        return [each["name"] for each in ask(app, secret, {call: call[1]})[call].json()["data"]]

    assert names() == ["dead_letters", "orders", PIPELINE]
    assert names(pipelines=[PIPELINE]) == [PIPELINE]
    assert names(tenant="other") == []


def test_a_scope_of_a_later_version_allows_nothing(service):
    token, _ = Tokens(service.settings.home).add("client", now=now_utc())
    object.__setattr__(token, "scopes", ("everything",))
    assert not any(token.has(scope) for scope in Scope)


def test_a_token_has_scopes_a_tenant_and_domains_and_is_read_back_with_them(tmp_path):
    tokens = Tokens(tmp_path)
    made, _ = tokens.add(
        "edge", now=now_utc(), tenant="acme", domains=["west"], scopes=[Scope.INGEST, Scope.OPERATE]
    )
    assert Tokens(tmp_path).all() == (made,)
    assert (made.has(Scope.READ), made.has(Scope.ADMIN), made.is_bound) == (True, False, True)


def test_a_token_of_before_scopes_and_domains_still_sends(tmp_path):
    stored = {"id": "1f2e3d4c", "client": "shop", "hash": "ab", "created_at": "2026-01-01T00:00:00+00:00"}
    (tmp_path / "tokens.json").write_text(json.dumps({"tokens": [stored]}), "utf-8")
    (token,) = Tokens(tmp_path).all()
    assert token.allows(Scope.INGEST, PIPELINE)
    assert not token.has(Scope.READ)
    assert not token.is_bound

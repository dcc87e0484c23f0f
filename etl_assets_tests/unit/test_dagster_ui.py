"""What passes between a browser and Dagster's webserver: decisions, without either."""

from __future__ import annotations

import pytest
from dagster_graphql.schema import create_schema
from pydantic import ValidationError

from etl_assets.control.ui.headers import for_browser, for_webserver
from etl_assets.control.ui.operations import MAX_CHARACTERS, OPERATE, operations_of
from etl_assets.serve.origin import is_of_own_page
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.tokens import Scope
from etl_assets.settings.ui import UiSettings

ADDRESS = "http://127.0.0.1:3000"


@pytest.mark.parametrize(
    ("query", "mutations"),
    [
        ("mutation { launchRun { id } }", {"launchRun"}),
        ("mutation Query { launchRun { id } }", {"launchRun"}),
        ("mutation { runs: launchRun { id } }", {"launchRun"}),
        (
            "# query\nmutation { ...Deep } fragment Deep on Mutation { ...D } fragment D on M { stopSensor }",
            {"stopSensor"},
        ),
        ("mutation { ... on Mutation { ... { wipeAssets } } }", {"wipeAssets"}),
        ("query Shown { version } mutation Hidden { deleteRun }", {"deleteRun"}),
        ("query A { version } mutation B { stopSensor launchRun }", {"stopSensor", "launchRun"}),
        ("mutation { ...A } fragment A on M { ...B a } fragment B on M { ...A b }", {"a", "b"}),
        ("mutation { ...Missing }", set()),
    ],
)
def test_a_mutation_is_found_whatever_it_is_called_and_wherever_its_fields_are(query, mutations):
    found = operations_of(query)
    assert found.has_mutation
    assert found.mutations == mutations
    assert not found.has_only_subscriptions


def test_queries_need_read_and_mutations_operate_or_admin():
    assert operations_of("{ mutation: version }").scope is Scope.READ
    assert operations_of('query mutation { launchRun(a: "mutation { x }") }').scope is Scope.READ
    assert operations_of("subscription { logs }").scope is Scope.READ
    assert operations_of("mutation { launchRun terminateRun }").scope is Scope.OPERATE
    for query in ("mutation { launchRun deleteRun }", "mutation { brandNew }", "mutation { wipeAssets }"):
        assert operations_of(query).scope is Scope.ADMIN


def test_every_mutation_of_the_installed_dagster_is_for_operate_or_is_known_to_need_admin():
    schema = create_schema().graphql_schema
    assert schema.mutation_type is not None
    assert set(schema.mutation_type.fields) - OPERATE == {
        "deleteAppManagedComponent",
        "deleteConcurrencyLimit",
        "deleteDynamicPartitions",
        "deletePipelineRun",
        "deleteRun",
        "refreshComponentState",
        "reportAssetCheckEvaluations",
        "reportRunlessAssetEvents",
        "setAppManagedComponent",
        "setConcurrencyLimit",
        "shutdownRepositoryLocation",
        "wipeAssets",
    }


@pytest.mark.parametrize(
    "query",
    [None, ["{ a }"], {"a": 1}, "", "launch", "fragment A on B { c }", "{" + "a {" * 3_000, "{ a }" * 20_000],
)
def test_what_is_no_single_document_is_refused(query):
    with pytest.raises(ProblemDetails) as refused:
        operations_of(query)
    assert refused.value.status == 400


def test_a_query_of_fragments_that_double_or_that_is_long_takes_no_time():
    doubled = "".join(f"fragment F{n} on M {{ ...F{n + 1} ...F{n + 1} }} " for n in range(500))
    assert operations_of(f"mutation {{ ...F0 }} {doubled} fragment F500 on M {{ end }}").mutations == {"end"}
    with pytest.raises(ProblemDetails, match="characters"):
        operations_of("#" * (MAX_CHARACTERS + 1))


def test_only_subscriptions_are_for_the_websocket():
    assert operations_of("subscription A { a } subscription B { b }").has_only_subscriptions
    assert not operations_of("subscription A { a } query B { b }").has_only_subscriptions


def test_neither_cookies_nor_tokens_nor_addresses_of_clients_reach_the_webserver():
    given = {
        "accept": "text/html",
        "authorization": "Bearer eta_x",
        "cookie": "etl_assets_session=x",
        "connection": "upgrade",
        "forwarded": "for=1.2.3.4",
        "x-forwarded-for": "1.2.3.4",
        "x-forwarded-host": "evil",
        "host": "evil",
        "origin": "http://evil",
        "if-none-match": '"1"',
    }
    assert for_webserver(given) == {
        "accept": "text/html",
        "if-none-match": '"1"',
        "accept-encoding": "identity",
    }


def test_what_belongs_to_the_connection_and_cookies_do_not_reach_the_browser():
    given = [
        ("Connection", "keep-alive, X-Hop"),
        ("Keep-Alive", "timeout=5"),
        ("X-Hop", "1"),
        ("Transfer-Encoding", "chunked"),
        ("Set-Cookie", "etl_assets_session=taken"),
        ("Server", "uvicorn"),
        ("Content-Type", "application/json"),
        ("ETag", '"1"'),
    ]
    assert for_browser(given, "/ui/x", ADDRESS) == {
        "content-type": "application/json",
        "etag": '"1"',
        "cache-control": "private",
        "x-frame-options": "SAMEORIGIN",
        "x-content-type-options": "nosniff",
    }


def test_a_redirect_of_the_webserver_stays_on_this_server_and_another_one_is_passed_on():
    for given, shown in (
        (f"{ADDRESS}/ui/runs", "/ui/runs"),
        ("/ui/runs", "/ui/runs"),
        ("https://dagster.io/", "https://dagster.io/"),
        ("http://127.0.0.1:30001/", "http://127.0.0.1:30001/"),
    ):
        assert for_browser([("location", given)], "/ui/x", ADDRESS)["location"] == shown


def test_a_page_without_a_policy_of_its_own_runs_no_scripts():
    html = [("content-type", "text/html; charset=utf-8")]
    assert for_browser(html, "/ui/notebook", ADDRESS)["content-security-policy"] == "sandbox"
    assert "content-security-policy" not in for_browser(html, "/ui/graphql", ADDRESS)
    own = [*html, ("Content-Security-Policy", "script-src 'nonce-1'")]
    assert for_browser(own, "/ui/", ADDRESS)["content-security-policy"] == "script-src 'nonce-1'"


@pytest.mark.parametrize(
    ("origin", "host", "is_own"),
    [
        ("http://etl.example:8080", "etl.example:8080", True),
        ("https://ETL.example", "etl.example", True),
        ("https://etl.example:443", "etl.example", True),
        ("http://etl.example", "etl.example:80", True),
        ("http://[::1]:8080", "[::1]:8080", True),
        ("http://etl.example:8081", "etl.example:8080", False),
        ("http://evil.etl.example", "etl.example", False),
        ("http://etl.example.evil", "etl.example", False),
        ("ftp://etl.example", "etl.example", False),
        ("http://", "", False),
        ("null", "null", False),
        ("", "", False),
    ],
)
def test_a_request_is_of_an_own_page_if_its_origin_has_the_host_it_was_sent_to(origin, host, is_own):
    assert is_of_own_page({"origin": origin, "host": host}) is is_own


@pytest.mark.parametrize("address", [ADDRESS, f"{ADDRESS}/", "http://[::1]:3000", "http://127.9.9.9:1"])
def test_the_webserver_is_at_a_loopback_address(address):
    assert UiSettings(address=address).address == address.rstrip("/")


@pytest.mark.parametrize(
    "address",
    [
        "http://10.0.0.1:3000",
        "http://0.0.0.0:3000",
        "http://localhost:3000",
        "http://localhost.evil:3000",
        "https://127.0.0.1:3000",
        "http://127.0.0.1",
        "http://127.0.0.1:3000/ui",
        "http://me:secret@127.0.0.1:3000",
        "http://127.0.0.1:3000?a",
        "http://127.0.0.1:port",
        "127.0.0.1:3000",
        "",
    ],
)
def test_any_other_address_is_refused(address):
    with pytest.raises(ValidationError, match=r"address"):
        UiSettings(address=address)

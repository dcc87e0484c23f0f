"""The status of an order over HTTP: from landing files, by a run and a delivery to a real PostgreSQL."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
from contextlib import closing
from decimal import Decimal

import httpx
import psycopg
import pyarrow as pa
import pytest

from etl_assets.contracts.arrow_types import arrow_schema
from etl_assets.orders.delivery import STATUS_SINK
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets.settings import load_settings
from etl_assets.sinks.postgres.open import open_postgres
from etl_assets.sinks.sink import Delivery, SinkPosition
from etl_assets.stack.postgres import PostgresServer
from etl_assets_tests.commands.home import BIN, SPARK
from etl_assets_tests.serve.server_process import JSON_EVENT, serving, write_installation

NOW = dt.datetime.now(dt.UTC)
DAY = (NOW - dt.timedelta(days=1)).date()
PAYLOADS = {
    "OrderCreated": {"customer_id": "c", "amount": "12.50", "currency": "EUR"},
    "PaymentProcessed": {"amount": "12.50", "currency": "EUR"},
    "ItemShipped": {},
}

SOME = {
    "string": "x",
    "timestamp": NOW,
    "decimal128": Decimal("0.00"),
    "int64": 1,
    "map<string, decimal128": [],
}
"""A value of each type of a column."""


@pytest.mark.full
@pytest.mark.spark
def test_an_order_is_current_after_the_run_of_its_event_and_outlives_a_restart(  # noqa: PLR0915 - a story
    tmp_path, monkeypatch
):
    with PostgresServer(durable=False) as server:
        connection = {
            "type": "postgres", "host": "127.0.0.1", "port": server.port, "database": "postgres",
            "user": server.user, "password": "${ORDERS_PASSWORD}", "write": ["orders.*"],
        }  # fmt: skip
        monkeypatch.setenv("ORDERS_PASSWORD", server.password)
        write_installation(
            tmp_path,
            pipelines={"built_in": ["orders"]},
            start_date=str(DAY),
            landing={"settle_seconds": 0},
            spark=SPARK,
            connections={"orders": connection},
        )
        tokens = Tokens(tmp_path)
        _, acme = tokens.add("shop", now=NOW, tenant="acme", scopes=[Scope.READ])
        _, other = tokens.add("other", now=NOW, tenant="other", scopes=[Scope.READ])
        _, sender = tokens.add("sender", now=NOW, tenant="acme")

        def land_and_run(event_type: str, hour: int) -> None:
            event = {
                "event_id": event_type, "tenant_id": "acme", "aggregate_id": "o/1", "event_type": event_type,
                "payload": PAYLOADS[event_type], "timestamp": f"{DAY}T{hour:02d}:00:00Z", "schema_version": 1,
            }  # fmt: skip
            file = tmp_path / "landing" / str(DAY) / f"{event_type}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(event) + "\n")
            subprocess.run(
                [BIN / "etl-assets", "run"],
                env={**os.environ, "ETL_ASSETS_HOME": str(tmp_path)},
                timeout=280,
                check=True,
            )

        with serving(tmp_path, sender) as process:

            def get(secret: str = acme, path: str = "acme/o%2F1", **headers: str) -> httpx.Response:
                headers["authorization"] = f"Bearer {secret}"
                url = f"{process.url}/v1/orders/{path}"
                return httpx.get(url, headers=headers, timeout=30, trust_env=False)

            assert get().status_code == 503  # nothing was delivered: the table is not there
            land_and_run("OrderCreated", 10)
            first = get()
            assert first.status_code == 200, first.text
            assert first.json()["order"]["order_status"] == "created"
            assert get(**{"if-none-match": first.headers["etag"]}).status_code == 304

            land_and_run("ItemShipped", 12)
            shipped = get(**{"if-none-match": first.headers["etag"]}).json()
            assert shipped["order"]["order_status"] == "shipped"
            assert shipped["delivered"]["version"] > first.json()["delivered"]["version"]

            land_and_run("PaymentProcessed", 11)  # late: it fills its columns, and the status stays
            order = get().json()["order"]
            assert (order["order_status"], order["paid_total"]) == ("shipped", "12.50")

            assert [get(each).status_code for each in ("eta_guess", other, sender)] == [401, 403, 403]
            unknown = get(path="acme/'%20OR%201=1%00")
            assert unknown.status_code == get(path="acme/o'1").status_code == 404
            assert unknown.headers["content-type"] == "application/problem+json"
            described = httpx.get(f"{process.url}/openapi.json", trust_env=False).json()
            assert "/v1/orders/{tenant}/{id}" in described["paths"]

            server.kill()
            away = get()
            assert (away.status_code, away.headers["retry-after"]) == (503, "5")
            assert "orders.order_status_view" in away.json()["detail"]
            with process.client() as client:
                assert client.post(process.events, json=JSON_EVENT).status_code == 202
            server.start()
            assert get().json()["order"] == order
            process.terminate()


def test_rights_come_first_and_a_server_that_is_away_is_named_while_events_are_stored(tmp_path):
    connection = {
        "type": "postgres", "host": "127.0.0.1", "port": 1, "database": "shop", "write": ["orders.*"],
    }  # fmt: skip
    write_installation(
        tmp_path, pipelines={"built_in": ["orders"]}, start_date=str(DAY), connections={"orders": connection}
    )
    tokens = Tokens(tmp_path)
    _, acme = tokens.add("shop", now=NOW, tenant="acme", scopes=[Scope.READ])
    _, other = tokens.add("other", now=NOW, tenant="other", scopes=[Scope.READ])
    _, sender = tokens.add("sender", now=NOW, tenant="acme")
    with serving(tmp_path, sender) as process, process.client() as client:
        url = f"{process.url}/v1/orders/acme/1"
        answers = [
            client.get(url, headers={"authorization": f"Bearer {each}"})
            for each in ("eta_guess", other, sender, acme)
        ]
        assert [each.status_code for each in answers] == [401, 403, 403, 503]
        assert "order_status_view does not answer" in answers[-1].json()["detail"]
        assert client.post(process.events, json=JSON_EVENT).status_code == 202


def test_an_order_that_was_delivered_is_answered_with_the_delivery_and_not_again_while_it_is_the_same(
    tmp_path, monkeypatch, postgres_server
):
    monkeypatch.setenv("ORDERS_PASSWORD", postgres_server.password)
    with psycopg.connect(postgres_server.database_url("postgres"), autocommit=True) as session:
        session.execute("CREATE DATABASE status_of_orders")
    connection = {
        "type": "postgres", "host": "127.0.0.1", "port": postgres_server.port, "database": "status_of_orders",
        "user": postgres_server.user, "password": "${ORDERS_PASSWORD}", "write": ["orders.*"],
    }  # fmt: skip
    write_installation(
        tmp_path, pipelines={"built_in": ["orders"]}, start_date=str(DAY), connections={"orders": connection}
    )
    settings = load_settings({"ETL_ASSETS_HOME": str(tmp_path)})
    schema = arrow_schema(ORDER_STATUS_VIEW)
    always = {
        "tenant_id": "acme",
        "order_id": "o/1",
        "order_status": "shipped",
        "paid_total": Decimal("12.50"),
    }
    order = {
        field.name: always.get(field.name, SOME[str(field.type).partition("(")[0].partition("[")[0]])
        for field in schema
        if not field.nullable
    }
    rows = pa.Table.from_pylist([dict.fromkeys(schema.names) | order], schema=schema)
    with closing(open_postgres(STATUS_SINK, settings.connections["orders"], settings, "orders")) as sink:
        sink.prepare(ORDER_STATUS_VIEW)
        sink.deliver(
            Delivery(
                before=None,
                after=SinkPosition(table_id="t", version=7),
                whole=True,
                rows=lambda: iter(rows.to_batches()),
                deleted=lambda: iter(()),
                reject=lambda rejected: pytest.fail(f"refused: {rejected}"),
            )
        )
    _, acme = Tokens(tmp_path).add("shop", now=NOW, tenant="acme", scopes=[Scope.READ])
    with serving(tmp_path, acme) as process, process.client() as client:
        url = f"{process.url}/v1/orders/acme/o%2F1"
        found = client.get(url)
        assert found.status_code == 200, found.text
        assert found.json()["order"]["paid_total"] == "12.50"
        assert found.json()["delivered"]["version"] == 7
        assert client.get(url, headers={"if-none-match": found.headers["etag"]}).status_code == 304
        assert client.get(f"{process.url}/v1/orders/acme/o").status_code == 404

"""`GET /v1/orders/{tenant}/{id}`: the status of an order, from PostgreSQL."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from psycopg import sql

from etl_assets.errors import EtlAssetsError
from etl_assets.orders.delivery import STATUS_SINK
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.pipelines.sink_specs.postgres import POSITIONS
from etl_assets.serve.access import Of, allow
from etl_assets.serve.problems import ProblemDetails, problem_responses
from etl_assets.serve.tokens import Scope
from etl_assets.sinks.postgres.reader import PostgresReader

if TYPE_CHECKING:
    from etl_assets.settings import Settings
    from etl_assets.settings.connections import PostgresConnection

logger = logging.getLogger("etl_assets.serve")
_PIPELINE = "orders"
_SHOWN = tuple(name for name in ORDER_STATUS_VIEW.names if name not in ("order_amounts", "paid_amounts"))
"""The columns of an answer: the amounts by event are what the totals are made of."""
_QUERY = sql.SQL(
    "SELECT {columns}, p.version AS delivered_version, p.delivered_at FROM {table} AS t"
    " LEFT JOIN {positions} AS p ON p.pipeline = %s AND p.sink = %s"
    " WHERE t.tenant_id = %s AND t.order_id = %s"
).format(
    columns=sql.SQL(", ").join(
        sql.SQL("t.{} AS {}").format(sql.Identifier(name), sql.Identifier(f"of_{name}")) for name in _SHOWN
    ),
    table=sql.Identifier(*STATUS_SINK.table.split(".")),
    positions=sql.Identifier(STATUS_SINK.table.partition(".")[0], POSITIONS),
)
_DESCRIPTION: dict[str, Any] = {
    "security": [{"bearer": []}],
    "parameters": [
        *(
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in ("tenant", "id")
        ),
        {"name": "If-None-Match", "in": "header", "schema": {"type": "string"}},
    ],
    "responses": {
        "200": {
            "description": "the order, and up to where it was delivered",
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["order", "delivered"],
                        "properties": {
                            "order": {
                                "type": "object",
                                "required": list(_SHOWN),
                                "properties": {
                                    column.name: {"description": column.description}
                                    for column in ORDER_STATUS_VIEW.columns
                                    if column.name in _SHOWN
                                },
                            },
                            "delivered": {
                                "type": "object",
                                "properties": {
                                    "version": {"type": ["integer", "null"]},
                                    "at": {"type": ["string", "null"], "format": "date-time"},
                                },
                            },
                        },
                    }
                }
            },
        },
        "304": {"description": "the order is as `If-None-Match` has it"},
    },
}
_PROBLEMS = problem_responses(
    {
        401: "no valid token",
        403: "the token does not allow to read orders of the tenant",
        404: "no such order was delivered",
        503: "PostgreSQL does not answer, or refuses",
    }
)


def status_router(settings: Settings) -> APIRouter:
    """Return the route, with connections of its own."""
    connection = cast("PostgresConnection", settings.file_connections[STATUS_SINK.connection])
    reader = PostgresReader(connection, STATUS_SINK.table)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        yield
        reader.close()

    router = APIRouter(lifespan=lifespan)

    @router.get(
        "/v1/orders/{tenant}/{id:path}",
        summary="Read the status of an order",
        operation_id="readOrder",
        response_class=JSONResponse,
        openapi_extra=_DESCRIPTION,
        responses=_PROBLEMS,
        dependencies=[allow(Scope.READ, Of.TENANT, pipeline=_PIPELINE)],
    )
    async def read_order(request: Request) -> Response:
        """Return the order as it was last delivered, and when that was."""
        tenant, order_id = (str(request.path_params[name]) for name in ("tenant", "id"))
        row = None if "\0" in tenant + order_id else await _row(reader, tenant, order_id)
        if row is None:
            raise ProblemDetails(
                404, "no-such-order", f"the tenant {tenant!r} has no order {order_id!r} that was delivered"
            )
        return _answer(row, request.headers.get("if-none-match", ""))

    return router


async def _row(reader: PostgresReader, tenant: str, order_id: str) -> Mapping[str, Any] | None:
    values = (_PIPELINE, STATUS_SINK.sink_name, tenant, order_id)
    try:
        return await reader.first(_QUERY, values)
    except EtlAssetsError as error:
        logger.warning("an order could not be read: %s", error)
        raise ProblemDetails(503, "orders-unavailable", str(error), headers={"Retry-After": "5"}) from error


def _answer(row: Mapping[str, Any], known: str) -> Response:
    order = {name: _json(row[f"of_{name}"]) for name in _SHOWN}
    content = json.dumps(order, sort_keys=True).encode()
    # Weak: when it was delivered is no part of it.
    tag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag.removeprefix("W/") in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(status_code=304, headers=headers)
    delivered = {"version": row["delivered_version"], "at": _json(row["delivered_at"])}
    return JSONResponse({"order": order, "delivered": delivered}, headers=headers)


def _json(value: object) -> object:
    """Return a value for JSON: times as ISO 8601, decimals as texts, which keep their digits."""
    if isinstance(value, dt.datetime):
        return value.isoformat()
    return value if value is None or isinstance(value, int | str) else str(value)

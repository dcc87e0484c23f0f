"""Connections over REST: `/v1/connections`, to define, show, replace, test and delete them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from etl_assets.control.connection_trial import tried
from etl_assets.control.connections import MAX_NAME_CHARACTERS, connections_known_to, users_of
from etl_assets.errors import NotFound
from etl_assets.pipelines.origin import DEFAULT_TENANT, DeclarationOrigin
from etl_assets.serve.access import Of, allow, token_of
from etl_assets.serve.description import (
    IF_NONE_MATCH,
    JSON,
    PROBLEM,
    described,
    object_schema,
    page_schema,
    problems,
)
from etl_assets.serve.entity_tags import expected_if_match, if_match, revision_tag, tag_of, tagged_answer
from etl_assets.serve.json_body import read_object
from etl_assets.serve.pagination import PARAMETERS, page_by_name
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope
from etl_assets.settings.connections import CONNECTION_NAME
from etl_assets.settings.rest_connections import TYPES, RestConnection, shown

_TEXT = {"type": "string"}
_NAME: dict[str, Any] = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "the connection",
    "schema": {"type": "string", "pattern": CONNECTION_NAME, "maxLength": MAX_NAME_CHARACTERS},
    "example": "warehouse",
}
_IF_MATCH: dict[str, Any] = {
    "name": "If-Match",
    "in": "header",
    "description": "the `ETag` of the connection that the change is made on, or `*`",
    "schema": {"type": "string"},
}
_VIEW = object_schema(
    {
        "name": _TEXT,
        "type": {"type": ["string", "null"]},
        "origin": {"enum": [DeclarationOrigin.REST.value, DeclarationOrigin.FILE.value]},
        "read_only": {"type": "boolean", "description": "whether it is of the platform file"},
        "state": {"enum": ["ok", "broken"]},
        "revision": {"type": ["integer", "null"]},
        "connection": {
            "type": ["object", "null"],
            "description": "its fields, with references for secrets and never their values; null for one of"
            " the platform file that another tenant sees",
        },
        "used_by": {"type": "array", "items": _TEXT, "description": "pipelines of the tenant"},
        "problems": {"type": "array", "items": PROBLEM},
    }
)
_SENT = {
    "type": "postgres",
    "host": "db.example.com",
    "database": "shop",
    "user": "etl",
    "password": {"value": "hunter2"},
    "write": ["analytics.*"],
}
_EXAMPLE = {
    "name": "warehouse",
    "type": "postgres",
    "origin": "rest",
    "read_only": False,
    "state": "ok",
    "revision": 1,
    "connection": {**_SENT, "password": {"encrypted": True}},
    "used_by": [],
    "problems": [],
}
_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "required": ["type"],
                "properties": {
                    "name": {"type": "string", "pattern": CONNECTION_NAME, "maxLength": MAX_NAME_CHARACTERS},
                    "type": {"enum": [*TYPES]},
                },
                "description": "a connection as in the platform file; secrets as `${env:NAME}`,"
                ' `${file:/path}` or `{"value": "…"}`',
            },
            "example": {"name": "warehouse", **_SENT},
        }
    },
}
_TAG = {"ETag": {"description": "its revision", "schema": {"type": "string"}}}
_CONFLICTS = "it is of the platform file, has changed, or pipelines use it; `detail` says which"
router = APIRouter(tags=["connections"])


@router.get(
    "/v1/connections",
    summary="List the connections",
    operation_id="listConnections",
    response_class=JSONResponse,
    dependencies=[allow(Scope.ADMIN, Of.CONNECTIONS)],
    openapi_extra=described(
        page_schema(_VIEW),
        {"data": [_EXAMPLE], "next": None},
        text="a page of the tenant's connections and of those of the platform file that it may use, by name",
        parameters=PARAMETERS,
    ),
    responses=problems(422),
)
async def list_connections(request: Request) -> dict[str, Any]:
    """Return the connections that the tenant's pipelines may name. No secret is returned."""
    service, token = Service.of(request), token_of(request)
    return page_by_name(request, _views(service, token.tenant))


@router.get(
    "/v1/connections/{name}",
    summary="Read a connection",
    operation_id="readConnection",
    response_class=JSONResponse,
    dependencies=[allow(Scope.ADMIN, Of.CONNECTIONS)],
    openapi_extra=described(
        _VIEW,
        _EXAMPLE,
        text='its fields; an encrypted secret is `{"encrypted": true}`',
        parameters=[_NAME, IF_NONE_MATCH],
        also={"304": {"description": "it is as `If-None-Match` has it"}},
    ),
    responses=problems(404),
)
async def read_connection(request: Request) -> Response:
    """Return a connection without the values of its secrets."""
    found = _view(Service.of(request), token_of(request).tenant, str(request.path_params["name"]))
    return tagged_answer(request, found, _tag(found))


@router.post(
    "/v1/connections",
    status_code=201,
    summary="Define a connection",
    operation_id="createConnection",
    response_class=JSONResponse,
    dependencies=[allow(Scope.ADMIN, Of.CONNECTIONS)],
    openapi_extra=described(
        _VIEW,
        _EXAMPLE,
        status=201,
        text="it is defined",
        body=_BODY,
        also={"200": {"description": "it was defined before, the same", "headers": _TAG}},
    ),
    responses=problems(400, 408, 413, 415, 422, 504, s409="the name is taken, or there are too many"),
)
async def create_connection(request: Request) -> Response:
    """Define a connection. One with problems is refused with all of them, and nothing is stored."""
    service, token = Service.of(request), token_of(request)
    content = await read_object(request)
    name = content.pop("name", None)
    _, is_new = await service.store_calls.call(
        lambda: service.control.connections.create(name, content, token.tenant, token.client)
    )
    service.look_again()
    found = _view(service, token.tenant, str(name))
    headers = {"ETag": _tag(found), "Location": f"/v1/connections/{name}"}
    return JSONResponse(found, 201 if is_new else 200, headers)


@router.put(
    "/v1/connections/{name}",
    summary="Replace a connection",
    operation_id="replaceConnection",
    response_class=JSONResponse,
    dependencies=[allow(Scope.ADMIN, Of.CONNECTIONS)],
    openapi_extra=described(
        _VIEW, _EXAMPLE, text="it is defined so", body=_BODY, parameters=[_NAME, _IF_MATCH]
    ),
    responses=problems(
        400,
        404,
        408,
        413,
        415,
        422,
        504,
        s409=_CONFLICTS,
        s412="it is at another revision than `If-Match` names",
        s428="`If-Match` is missing",
    ),
)
async def replace_connection(request: Request) -> Response:
    """Replace a connection as a whole, secrets included, that is still as `If-Match` has it."""
    service, token, name = Service.of(request), token_of(request), str(request.path_params["name"])
    _view(service, token.tenant, name)
    matches = expected_if_match(request)
    content = await read_object(request)
    if content.pop("name", name) != name:
        raise ProblemDetails(422, "other-name", f"the connection is {name!r}: leave `name` out of the body")
    await service.store_calls.call(
        lambda: service.control.connections.replace(name, content, token.tenant, token.client, matches)
    )
    service.look_again()
    found = _view(service, token.tenant, name)
    return JSONResponse(found, headers={"ETag": _tag(found)})


@router.delete(
    "/v1/connections/{name}",
    status_code=204,
    summary="Delete a connection",
    operation_id="deleteConnection",
    response_class=Response,
    dependencies=[allow(Scope.ADMIN, Of.CONNECTIONS)],
    openapi_extra={
        "parameters": [_NAME, _IF_MATCH],
        "responses": {"204": {"description": "it is deleted, with its secrets"}},
    },
    responses=problems(404, 504, s409=_CONFLICTS, s412="it is at another revision than `If-Match` names"),
)
async def delete_connection(request: Request) -> Response:
    """Delete a connection that no pipeline uses."""
    service, token, name = Service.of(request), token_of(request), str(request.path_params["name"])
    _view(service, token.tenant, name)
    matches = if_match(request)
    await service.store_calls.call(
        lambda: service.control.connections.delete(name, token.tenant, token.client, matches)
    )
    service.look_again()
    return Response(status_code=204)


@router.post(
    "/v1/connections/{name}/test",
    summary="Test a connection",
    operation_id="testConnection",
    response_class=JSONResponse,
    dependencies=[allow(Scope.ADMIN, Of.CONNECTIONS)],
    openapi_extra=described(
        object_schema({"name": _TEXT, "connected": {"const": True}, "seconds": {"type": "number"}}),
        {"name": "warehouse", "connected": True, "seconds": 0.012},
        text="the system was reached and let the user in; of a webhook, its server was reached",
        parameters=[_NAME],
    ),
    responses=problems(
        404,
        422,
        s409="it is of the platform file, or has problems",
        s502="the system refuses, or is not reached",
        s504="the system does not answer within 5 s",
    ),
)
async def try_connection(request: Request) -> dict[str, Any]:
    """Connect to the system of a connection over REST, and change nothing there."""
    service, name = Service.of(request), str(request.path_params["name"])
    found = _of_rest(service, token_of(request).tenant).get(name)
    if found is None or found.connection is None:
        view = _view(service, token_of(request).tenant, name)
        why = "is of the platform file" if view["read_only"] else "has problems, which `GET` shows"
        raise ProblemDetails(409, "not-testable", f"the connection {name} {why}")
    connection = found.connection
    seconds = await service.trials.call(lambda: tried(connection))
    return {"name": name, "connected": True, "seconds": round(seconds, 3)}


def _of_rest(service: Service, tenant: str) -> dict[str, RestConnection]:
    return {each.name: each for each in service.settings.rest_connections() if each.tenant == tenant}


def _views(service: Service, tenant: str) -> list[dict[str, Any]]:
    """Return the connections that a tenant sees, by name. Its own hide those of the platform file."""
    settings = service.settings
    found = {name: _view_of_rest(service, each) for name, each in _of_rest(service, tenant).items()}
    for name in connections_known_to(settings, tenant):
        connection = settings.file_connections[name]
        # To other tenants the operator's hosts and users are not shown.
        content = connection.model_dump(mode="json") if tenant == DEFAULT_TENANT else None
        found.setdefault(
            name,
            {
                "name": name,
                "type": connection.type,
                "origin": DeclarationOrigin.FILE.value,
                "read_only": True,
                "state": "ok",
                "revision": None,
                "connection": shown(content),
                "used_by": users_of(settings, name, tenant),
                "problems": [],
            },
        )
    return [found[name] for name in sorted(found)]


def _view_of_rest(service: Service, found: RestConnection) -> dict[str, Any]:
    return {
        "name": found.name,
        "type": found.content.get("type"),
        "origin": DeclarationOrigin.REST.value,
        "read_only": False,
        "state": "ok" if found.connection is not None else "broken",
        "revision": found.revision,
        "connection": shown(dict(found.content)),
        "used_by": users_of(service.settings, found.name, found.tenant),
        "problems": [each.as_json() for each in found.problems],
    }


def _view(service: Service, tenant: str, name: str) -> dict[str, Any]:
    """Return a connection that a tenant sees.

    Raises:
        NotFound: it sees none of that name.
    """
    found = next((each for each in _views(service, tenant) if each["name"] == name), None)
    if found is None:
        raise NotFound(f"there is no connection {name!r}", fix="`GET /v1/connections` lists them")
    return found


def _tag(found: dict[str, Any]) -> str:
    tag = tag_of(found)
    return tag if found["revision"] is None else revision_tag(found["revision"], tag)

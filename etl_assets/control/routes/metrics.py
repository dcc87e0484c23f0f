"""`GET /metrics`: figures of the server process, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from etl_assets.serve.access import allow
from etl_assets.serve.problems import problem_responses
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    operation_id="metrics",
    response_class=PlainTextResponse,
    dependencies=[allow(Scope.READ)],
    openapi_extra={
        "responses": {
            "200": {
                "description": "the text format of Prometheus",
                "content": {"text/plain": {"schema": {"type": "string"}}},
            }
        }
    },
    responses=problem_responses(
        {401: "no valid token", 403: "the token may not read", 503: "too many requests"}
    ),
)
async def metrics(request: Request) -> PlainTextResponse:
    """Return figures of the process and the number of pipelines."""
    return PlainTextResponse("\n".join(_lines(Service.of(request))) + "\n", media_type=_TYPE)


def _lines(service: Service) -> Iterator[str]:
    yield from _figure(
        "etl_assets_http_responses_total",
        "counter",
        "Answers since the process began, by status.",
        {f'status="{status}"': count for status, count in sorted(service.answers.items())},
    )
    gauges = {
        "etl_assets_http_body_bytes": ("Bodies of requests in memory.", service.bodies.held),
        "etl_assets_table_reads_running": ("Reads of tables that run or wait.", service.reads.running),
    }
    for name, (text, value) in gauges.items():
        yield from _figure(name, "gauge", text, {"": value})
    states = Counter("broken" if each.spec is None else "ok" for each in service.installed().files)
    yield from _figure(
        "etl_assets_declared_pipelines",
        "gauge",
        "Declared pipelines, by whether they can be used.",
        {f'state="{state}"': states[state] for state in ("ok", "broken")},
    )


def _figure(name: str, kind: str, text: str, values: dict[str, int]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"

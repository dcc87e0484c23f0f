"""`GET /metrics`: figures of the server process, in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fastapi import APIRouter, Request
from fastapi.responses import PlainTextResponse

from etl_assets.errors import EtlAssetsError
from etl_assets.observability.capture_metrics import Labels, capture_gauges, read_figures
from etl_assets.pipelines.origin import DEFAULT_TENANT
from etl_assets.serve.access import allow, token_of
from etl_assets.serve.problems import ProblemDetails, problem_responses
from etl_assets.serve.service import Service
from etl_assets.serve.tokens import Scope, Token

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
    """Return figures of the process, its pipelines, and captures. Other tenants have no captures."""
    service, token = Service.of(request), token_of(request)
    lines = [*_lines(service)]
    if token.tenant == DEFAULT_TENANT:
        lines += await _of_captures(service, token)
    return PlainTextResponse("\n".join(lines) + "\n", media_type=_TYPE)


async def _of_captures(service: Service, token: Token) -> list[str]:
    """Return the figures of captures; without an answer in time, that they could not be read."""
    try:
        captures = await service.reads.read("figures of captures", lambda: read_figures(service.settings))
    except (EtlAssetsError, ProblemDetails):
        captures, is_read = [], 0
    else:
        is_read = 1
    seen = [
        replace(
            each,
            tables=[one for one in each.tables if token.allows(Scope.READ, one.state.pipeline)],
        )
        for each in captures
    ]
    lines = [
        *_figure(
            "etl_assets_captures_read", "gauge", "Whether figures of captures could be read.", {"": is_read}
        )
    ]
    for gauge in capture_gauges(seen):
        values = {_labels(labels): value for labels, value in gauge.values.items()}
        lines += _figure(gauge.name, "gauge", gauge.text, values)
    return lines


def _labels(labels: Labels) -> str:
    """Return labels as the text format has them: backslash, quote and line break are escaped."""
    return ",".join(
        f'{name}="' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
        for name, value in labels
    )


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


def _figure(name: str, kind: str, text: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, number in values.items():
        value = int(number) if number == int(number) else number
        yield f"{name}{{{labels}}} {value}" if labels else f"{name} {value}"

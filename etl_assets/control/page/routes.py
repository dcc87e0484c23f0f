"""Routes of the status page."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from etl_assets.contracts.reasons import DeadLetterState
from etl_assets.control.page.figures import ShownFigures
from etl_assets.control.page.pages import HEADERS, Page, show
from etl_assets.control.routes.pipeline_of import pipeline_of
from etl_assets.control.routes.pipeline_views import summaries
from etl_assets.control.routes.runs import expect_usable
from etl_assets.control.states import Action, ControlState, Party
from etl_assets.control.transitions import TRANSITIONS, allowed_actions
from etl_assets.errors import ControlStoreUnavailable
from etl_assets.observability.dead_letters import DeadLetterFilter, list_letters
from etl_assets.observability.table_states import table_states
from etl_assets.serve.access import Of, allow, session_of, token_of
from etl_assets.serve.forms import expect_own_form, read_form
from etl_assets.serve.pagination import page_by_name
from etl_assets.serve.problems import ProblemDetails
from etl_assets.serve.service import Service
from etl_assets.serve.sessions import COOKIE, DURATION
from etl_assets.serve.tokens import Scope
from etl_assets.settings.ui import PATH_PREFIX

RELOAD_SECONDS = 5
SHOWN = 10
"""How many runs, dead letters and entries of the history a page has."""
BROKEN = "BROKEN"
"""Shown as the state of a pipeline whose declaration cannot be used."""
MAX_NEXT = 2_000
router = APIRouter(route_class=Page, include_in_schema=False)


@router.get("/", dependencies=[allow(None)])
async def home() -> Response:
    """Lead to the page."""
    return RedirectResponse("/status", 303)


@router.get("/status.css", dependencies=[allow(None)])
async def style() -> Response:
    """Return the style sheet."""
    sheet = files("etl_assets.control.page").joinpath("templates/status.css").read_text("utf-8")
    return Response(sheet, media_type="text/css", headers={"Cache-Control": "max-age=300"})


@router.get("/login", dependencies=[allow(None)])
async def ask_for_token(request: Request) -> Response:
    """Show the form for a token."""
    return show(request, "login.html", error="", next=_next_of(request.query_params))


@router.post("/login", dependencies=[allow(None)])
async def log_in(request: Request) -> Response:
    """Begin a session, if the token is valid and may read."""
    service, form = Service.of(request), await read_form(request)
    token = service.tokens.of(form.get("token", "").strip(), service.clock())
    if token is None or not token.has(Scope.READ):
        error = (
            "This token is not valid." if token is None else "This token may not read: it lacks the scope."
        )
        return show(request, "login.html", status=403, error=error, next=_next_of(form))
    answer = RedirectResponse(_next_of(form) or "/status", 303, headers=HEADERS)
    answer.set_cookie(
        COOKIE,
        service.sessions.begin(token, service.clock()),
        max_age=int(DURATION.total_seconds()),
        httponly=True,
        secure=request.url.scheme == "https",
        samesite="strict",
    )
    return answer


@router.post("/logout", dependencies=[allow(Scope.READ, is_page=True)])
async def log_out(request: Request) -> Response:
    """End the session."""
    expect_own_form(await read_form(request), session_of(request))
    Service.of(request).sessions.end(request.cookies[COOKIE])
    answer = RedirectResponse("/login", 303, headers=HEADERS)
    answer.delete_cookie(COOKIE)
    return answer


@router.get("/status", dependencies=[allow(Scope.READ, is_page=True)])
async def list_pipelines(request: Request) -> Response:
    """Show the pipelines of the token's tenant that the token is bound to."""
    service, token = Service.of(request), token_of(request)
    found = summaries(service.installed(), token.tenant)
    page = page_by_name(request, [each for each in found if token.covers(each["name"])])
    names = [each["name"] for each in page["data"]]
    figures, (controls, problem) = await asyncio.gather(
        request.app.state.figures.of(service, names),
        _ask_store(service, lambda: _controls_of(service, names)),
    )
    rows = [
        _row(each, figures.get(each["name"]), (controls or {}).get(each["name"])) for each in page["data"]
    ]
    return show(
        request,
        "pipelines.html",
        pipelines=rows,
        next=page["next"],
        store_problem=problem,
        reload_seconds=RELOAD_SECONDS,
    )


@router.get("/status/{name}", dependencies=[allow(Scope.READ, Of.PIPELINE, is_page=True)])
async def show_pipeline(request: Request) -> Response:
    """Show a pipeline: its state, runs, tables, dead letters and history."""
    service, name = Service.of(request), str(request.path_params["name"])
    file = service.installed().declaration(name)
    tables, (controlled, problem) = await asyncio.gather(
        service.reads.read(("page", name), lambda: _tables(service, name)),
        _ask_store(service, lambda: _controlled(service, name)),
    )
    shown = controlled or {"control": None, "runs": (), "history": ()}
    control = shown["control"]
    may_act = token_of(request).allows(Scope.OPERATE, name) and control is not None
    is_broken = file is not None and file.spec is None
    return show(
        request,
        "pipeline.html",
        name=name,
        state=BROKEN if is_broken else ControlState.IDLE if control is None else control.state,
        problems=() if file is None else file.problems,
        actions=_actions(control.state) if may_act else (),
        store_problem=problem,
        reload_seconds=RELOAD_SECONDS,
        **shown,
        **tables,
    )


@router.get("/status/{name}/{action}", dependencies=[allow(Scope.OPERATE, Of.PIPELINE, is_page=True)])
async def ask_for_reason(request: Request) -> Response:
    """Show the form that performs an action."""
    name, action = str(request.path_params["name"]), _action_of(request)
    return show(request, "action.html", name=name, action=action, request_id=str(uuid.uuid4()))


@router.post("/status/{name}/{action}", dependencies=[allow(Scope.OPERATE, Of.PIPELINE, is_page=True)])
async def act(request: Request) -> Response:
    """Perform an action, and lead back to the pipeline. The same form sent twice asks for one run."""
    service, name, action = Service.of(request), str(request.path_params["name"]), _action_of(request)
    form = await read_form(request)
    expect_own_form(form, session_of(request))
    token = token_of(request)
    actor, reason = token.client, form.get("reason", "").strip()[:500]
    if action is Action.RUN:
        expect_usable(service, name)

    def perform() -> None:
        controls = service.control.runs
        if action is Action.RUN:
            key = f"page/{token.id}/{form.get('request_id', '')[:100]}"
            controls.request_run(name, actor, reason, key=key)
        else:
            getattr(controls, action.value)(name, actor, reason)

    await service.store_calls.call(perform)
    return RedirectResponse(request.url_for("show_pipeline", name=name).path, 303, headers=HEADERS)


def _next_of(given: Mapping[str, str]) -> str:
    """Return the page of the Dagster UI that a person wanted before the login, if there is one."""
    wanted = given.get("next", "")
    return wanted if wanted.startswith(f"{PATH_PREFIX}/") and len(wanted) <= MAX_NEXT else ""


async def _ask_store(
    service: Service, look: Callable[[], dict[str, Any]]
) -> tuple[dict[str, Any] | None, str]:
    """Return what a look into the control store returns, or None and why it cannot be had."""
    try:
        return await service.store_calls.call(look), ""
    except ControlStoreUnavailable as error:
        return None, f"States and runs are not known now: {error.message}. {error.fix}".strip()


def _controls_of(service: Service, names: list[str]) -> dict[str, Any]:
    controls = service.control.runs
    known = {each.pipeline: each for each in controls.all()}
    last = controls.last_runs(names)
    return {name: (known.get(name), last.get(name)) for name in names}


def _controlled(service: Service, name: str) -> dict[str, Any]:
    controls = service.control.runs
    return {
        "control": controls.state_of(name),
        "runs": controls.runs(name, limit=SHOWN),
        "history": controls.history(name, limit=SHOWN),
    }


def _tables(service: Service, name: str) -> dict[str, Any]:
    domain = service.settings.placement().reader()
    pipeline = pipeline_of(domain.catalog, name)
    stages = () if pipeline is None else pipeline.stages
    rejecting = tuple(each.name_in_rejects for each in stages if each.rejects is not None)
    wanted = DeadLetterFilter(state=DeadLetterState.OPEN, stages=rejecting)
    letters, count = list_letters(domain, wanted, limit=SHOWN) if rejecting else ([], 0)
    names = {each.name for stage in stages for each in stage.tables}
    return {
        "tables": table_states(domain, service.clock(), names) if names else [],
        "dead_letters": letters,
        "dead_letter_count": count,
    }


def _row(
    pipeline: Mapping[str, Any], figures: ShownFigures | None, controlled: tuple[Any, Any] | None
) -> dict[str, Any]:
    control, last_run = controlled or (None, None)
    return {
        "name": pipeline["name"],
        "origin": pipeline["origin"].replace("_", " "),
        "state": BROKEN if pipeline["state"] == "broken" else control.state if control else ControlState.IDLE,
        "since": control.since if control else None,
        "last_run": last_run,
        "lag": "" if figures is None else _lag(figures),
        "dead_letters": "" if figures is None else f"{figures.open_dead_letters:,}",
    }


def _lag(figures: ShownFigures) -> str:
    if not figures.lag_rows and not figures.lag_seconds:
        return "0" if figures.lag_rows == 0 else ""
    rows = "" if figures.lag_rows is None else f"{figures.lag_rows:,} rows"
    age = "" if figures.lag_seconds is None else f"{figures.lag_seconds:,.0f} s"
    return ", ".join(filter(None, (rows, age)))


def _actions(state: ControlState) -> tuple[Action, ...]:
    """Return the actions that change something in a state."""
    changing = {row.action for row in TRANSITIONS if row.start is state and row.end is not state}
    return tuple(each for each in allowed_actions(state) if each in changing or each is Action.RUN)


def _action_of(request: Request) -> Action:
    given = str(request.path_params["action"])
    known = [each for each in Action if each.party is Party.CLIENT]
    found = next((each for each in known if each.value == given), None)
    if found is None:
        raise ProblemDetails(
            404, "no-such-action", f"there is no action {given!r}; there are {', '.join(known)}"
        )
    return found

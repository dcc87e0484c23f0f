"""Runs and states of run control as answers show them."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

from etl_assets.control.records import PipelineControl, PipelineRun
from etl_assets.control.states import Action, ControlState, Party, RetryPolicy, RunStatus
from etl_assets.control.transitions import allowed_actions
from etl_assets.serve.description import object_schema

_TEXT = {"type": "string"}
_MAYBE_TEXT = {"type": ["string", "null"]}
_COUNT = {"type": "integer", "minimum": 0}
STATE = object_schema(
    {
        "pipeline": _TEXT,
        "state": {"enum": [each.value for each in ControlState]},
        "since": _MAYBE_TEXT,
        "actor": _TEXT,
        "reason": _TEXT,
        "run_id": {**_MAYBE_TEXT, "description": "the run that is requested, under way, paused or failed"},
        "requested_run_id": {**_MAYBE_TEXT, "description": "the run that follows it"},
        "allowed": {
            "type": "array",
            "items": {"enum": [each.value for each in Action if each.party is Party.CLIENT]},
        },
    }
)
EXAMPLE_STATE: dict[str, Any] = {
    "pipeline": "film_ratings",
    "state": "PAUSED",
    "since": "2026-02-01T12:00:03+00:00",
    "actor": "oncall",
    "reason": "database upgrade",
    "run_id": None,
    "requested_run_id": None,
    "allowed": ["run", "pause", "resume", "cancel"],
}
RUN = object_schema(
    {
        "id": _TEXT,
        "pipeline": _TEXT,
        "status": {"enum": [each.value for each in RunStatus]},
        "requested_at": _TEXT,
        "requested_by": _TEXT,
        "reason": _TEXT,
        "attempts": _COUNT,
        "runner": {**_TEXT, "description": "of the last attempt; empty before the first"},
        "batches": _COUNT,
        "rows": _COUNT,
        "busy_seconds": {"type": "number", "minimum": 0},
        "rows_per_second": {"type": "number", "minimum": 0},
        "started_at": _MAYBE_TEXT,
        "ended_at": _MAYBE_TEXT,
        "error": {**_MAYBE_TEXT, "description": "of the last attempt that failed"},
        "solution": {**_MAYBE_TEXT, "description": "what to do about it"},
        "retry_policy": {"enum": [*(each.value for each in RetryPolicy), None]},
        "next_attempt_at": _MAYBE_TEXT,
    }
)
EXAMPLE_RUN: dict[str, Any] = {
    "id": "0f9f3c9e-5f0e-4f6a-9a41-6f1f0f6f8d52",
    "pipeline": "film_ratings",
    "status": "succeeded",
    "requested_at": "2026-02-01T12:00:00+00:00",
    "requested_by": "oncall",
    "reason": "late data",
    "attempts": 1,
    "runner": "etl-1:4711",
    "batches": 2,
    "rows": 1_200,
    "busy_seconds": 1.5,
    "rows_per_second": 800.0,
    "started_at": "2026-02-01T12:00:01+00:00",
    "ended_at": "2026-02-01T12:00:03+00:00",
    "error": None,
    "solution": None,
    "retry_policy": None,
    "next_attempt_at": None,
}


def state_as_json(control: PipelineControl) -> dict[str, Any]:
    """Return the state of a pipeline's run control, with what it allows."""
    return {
        "pipeline": control.pipeline,
        "state": control.state.value,
        "since": _time(control.since),
        "actor": control.actor,
        "reason": control.reason,
        "run_id": control.run_id,
        "requested_run_id": control.requested_run_id,
        "allowed": [each.value for each in allowed_actions(control.state)],
    }


def run_as_json(run: PipelineRun) -> dict[str, Any]:
    """Return a run with its speed. Its fencing token is none of a client's business."""
    fields = {field.name: _value(getattr(run, field.name)) for field in dataclasses.fields(run)}
    del fields["token"]
    return {**fields, "rows_per_second": round(run.rows_per_second, 3)}


def _value(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return _time(value)
    return getattr(value, "value", value)


def _time(value: dt.datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="milliseconds")

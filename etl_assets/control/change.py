"""What an action does to a pipeline's row and its runs: pure decisions, with clock and ids passed in.

Belongs here: the open run, the remembered request, attempts, and what a run's row says. Does not belong here:
whether the action is allowed, and the state it leads to (`transitions.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace

from etl_assets.control.failures import MAX_ATTEMPTS, RunFailure
from etl_assets.control.records import PipelineControl, PipelineRun
from etl_assets.control.states import Action, ControlState, RunStatus
from etl_assets.control.transitions import ControlFacts, transition


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlOrder:
    """An action with all that its effect depends on.

    Attributes:
        action: What is done.
        actor: Who does it.
        reason: Why.
        now: Time (UTC).
        new_run_id: Id for a run, if the action asks for one.
        failure: What ended the attempt, if it failed.
    """

    action: Action
    actor: str
    reason: str
    now: dt.datetime
    new_run_id: str = ""
    failure: RunFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlChange:
    """The effect of an action.

    Attributes:
        before: The pipeline's row before.
        after: The row after.
        runs: Rows of runs after the change: changed ones, and a new one.
        run_id: The run it is about.
    """

    before: PipelineControl
    after: PipelineControl
    runs: tuple[PipelineRun, ...]
    run_id: str | None

    @property
    def is_nothing(self) -> bool:
        """Whether nothing changes."""
        return self.before == self.after and not self.runs


@dataclass(slots=True)
class _Runs:
    """The two runs that a pipeline's row names, while an action changes them."""

    open: PipelineRun | None
    requested: PipelineRun | None


_About = PipelineRun | None
"""The run that an action is about."""


def change(before: PipelineControl, runs: Mapping[str, PipelineRun], order: ControlOrder) -> ControlChange:
    """Return the effect of an action.

    Args:
        before: The pipeline's row.
        runs: The runs that it names, by id.
        order: The action.

    Raises:
        TransitionRefused: the state does not allow it.
    """
    now = _Runs(runs.get(before.run_id or ""), runs.get(before.requested_run_id or ""))
    facts = ControlFacts(
        state=before.state,
        has_open_run=now.open is not None,
        is_requested=now.requested is not None,
        is_last_attempt=now.open is not None and now.open.attempts >= MAX_ATTEMPTS,
    )
    end = transition(before.pipeline, facts, order.action).end
    token = before.token + (order.action is Action.CLAIM)
    about = _EFFECTS[order.action](now, before, end, order)
    touched = {run.id: run for run in (about, now.open, now.requested) if run is not None}
    canceled = runs.get(before.requested_run_id or "") if order.action is Action.CANCEL else None
    if canceled is not None:
        touched[canceled.id] = replace(canceled, status=RunStatus.CANCELED, ended_at=order.now)
    after = replace(
        before,
        state=end,
        run_id=now.open.id if now.open else None,
        requested_run_id=now.requested.id if now.requested else None,
        token=token,
    )
    if end is not before.state:
        after = replace(after, since=order.now, actor=order.actor, reason=order.reason)
    changed = tuple(run for run in touched.values() if runs.get(run.id) != run)
    if after != before or changed:
        after = replace(after, revision=before.revision + 1)
    return ControlChange(before=before, after=after, runs=changed, run_id=about.id if about else None)


def _run(runs: _Runs, before: PipelineControl, end: ControlState, order: ControlOrder) -> _About:
    begins_now = end is ControlState.RUN_REQUESTED and not (
        runs.open is not None and before.state is ControlState.RUN_REQUESTED
    )
    if begins_now:
        runs.open, runs.requested = runs.requested or _new_run(before.pipeline, order), None
        return runs.open
    if runs.open is not None and runs.open.token == 0 and before.state is not ControlState.CANCEL_REQUESTED:
        return runs.open  # it has not begun, so it reads all that the caller wants to be read
    runs.requested = runs.requested or _new_run(before.pipeline, order)
    return runs.requested


def _pause(
    runs: _Runs, before: PipelineControl, end: ControlState, order: ControlOrder
) -> PipelineRun | None:
    if end is ControlState.PAUSED and runs.open is not None and not runs.open.status.is_over:
        runs.open = replace(runs.open, status=RunStatus.PAUSED)
    return runs.open


def _resume(
    runs: _Runs, before: PipelineControl, end: ControlState, order: ControlOrder
) -> PipelineRun | None:
    if before.state is ControlState.PAUSED and end is ControlState.RUN_REQUESTED:
        if runs.open is None:
            runs.open, runs.requested = runs.requested, None
        runs.open = _again(runs.open)
    return runs.open


def _cancel(
    runs: _Runs, before: PipelineControl, end: ControlState, order: ControlOrder
) -> PipelineRun | None:
    runs.requested = None
    about = runs.open
    if end is ControlState.CANCELED and about is not None:
        if not about.status.is_over:
            about = replace(about, status=RunStatus.CANCELED, ended_at=order.now)
        runs.open = None
    return about


def _retry(
    runs: _Runs, before: PipelineControl, end: ControlState, order: ControlOrder
) -> PipelineRun | None:
    runs.open = _again(runs.open)
    return runs.open


def _claim(
    runs: _Runs, before: PipelineControl, end: ControlState, order: ControlOrder
) -> PipelineRun | None:
    assert runs.open is not None
    runs.open = replace(
        runs.open,
        status=RunStatus.RUNNING,
        runner=order.actor,
        token=before.token + 1,
        attempts=runs.open.attempts + 1,
        started_at=runs.open.started_at or order.now,
        next_attempt_at=None,
    )
    return runs.open


def _finish(
    runs: _Runs, before: PipelineControl, end: ControlState, order: ControlOrder
) -> PipelineRun | None:
    assert runs.open is not None
    about = replace(runs.open, status=RunStatus.SUCCEEDED, ended_at=order.now, error=None, solution=None)
    runs.open = None
    if end is ControlState.RUN_REQUESTED:
        runs.open, runs.requested = runs.requested, None
    return about


def _leave(
    runs: _Runs, before: PipelineControl, end: ControlState, order: ControlOrder
) -> PipelineRun | None:
    """End an attempt without success: the run waits, or is over."""
    assert runs.open is not None
    about = _with_failure(runs.open, order)
    if order.action in (Action.STOP, Action.RELEASE):  # the attempt did not fail
        about = replace(about, attempts=max(0, about.attempts - 1))
    if before.state is ControlState.CANCEL_REQUESTED:
        about = replace(about, status=RunStatus.CANCELED, ended_at=order.now, next_attempt_at=None)
        runs.open, runs.requested = runs.requested, None
        return about
    is_failed = end is ControlState.FAILED or order.action is Action.FAIL
    if is_failed:
        about = replace(about, status=RunStatus.FAILED, ended_at=order.now)
    elif end is ControlState.PAUSED:
        about = replace(about, status=RunStatus.PAUSED, next_attempt_at=None)
    else:
        about = replace(about, status=RunStatus.REQUESTED)
    runs.open = about
    return about


def _with_failure(run: PipelineRun, order: ControlOrder) -> PipelineRun:
    found = order.failure
    if found is None:
        return run
    wait = None if found.wait_seconds is None else order.now + dt.timedelta(seconds=found.wait_seconds)
    is_final = order.action is Action.FAIL or (order.action is Action.LOSE and run.attempts >= MAX_ATTEMPTS)
    return replace(
        run,
        error=found.error,
        solution=found.solution,
        retry_policy=found.policy if is_final else None,
        next_attempt_at=wait,
    )


def _again(run: PipelineRun | None) -> PipelineRun:
    """Return a run that waits for a runner at once, with new attempts if it had failed."""
    assert run is not None
    attempts = 0 if run.status is RunStatus.FAILED else run.attempts
    return replace(
        run,
        status=RunStatus.REQUESTED,
        attempts=attempts,
        ended_at=None,
        retry_policy=None,
        next_attempt_at=None,
    )


def _new_run(pipeline: str, order: ControlOrder) -> PipelineRun:
    return PipelineRun(
        id=order.new_run_id,
        pipeline=pipeline,
        status=RunStatus.REQUESTED,
        requested_at=order.now,
        requested_by=order.actor,
        reason=order.reason,
    )


_EFFECTS = {
    Action.RUN: _run,
    Action.PAUSE: _pause,
    Action.RESUME: _resume,
    Action.CANCEL: _cancel,
    Action.RETRY: _retry,
    Action.WAKE: _retry,
    Action.CLAIM: _claim,
    Action.FINISH: _finish,
    Action.STOP: _leave,
    Action.REPEAT: _leave,
    Action.FAIL: _leave,
    Action.RELEASE: _leave,
    Action.LOSE: _leave,
}

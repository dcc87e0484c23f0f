"""Values that the store keeps: a pipeline's control, its runs, its history, and the lease of a runner."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from etl_assets.control.states import Action, ControlState, RetryPolicy, RunStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineControl:
    """Run control of one pipeline, as one row.

    Attributes:
        pipeline: Name.
        state: State.
        run_id: The open run: requested, running, paused, or failed last. None without one.
        requested_run_id: The run of a request that is remembered until the open one has ended.
        token: The last fencing token. It rises with each claim and is never reused.
        revision: Number of changes of the row.
        since: When the state was entered (UTC); None if the pipeline was never controlled.
        actor: Who entered it.
        reason: Why.
    """

    pipeline: str
    state: ControlState = ControlState.IDLE
    run_id: str | None = None
    requested_run_id: str | None = None
    token: int = 0
    revision: int = 0
    since: dt.datetime | None = None
    actor: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """One run.

    Attributes:
        id: Id.
        pipeline: Its pipeline.
        status: What has become of it.
        requested_at: When it was asked for (UTC).
        requested_by: By whom.
        reason: Why.
        attempts: Attempts begun since it was asked for or retried.
        runner: The runner of the last attempt; empty before the first.
        token: Its fencing token; 0 before the first.
        batches: Batches committed.
        rows: Rows committed.
        busy_seconds: Time that the batches took.
        started_at: Begin of the first attempt.
        ended_at: End, if it has ended.
        error: Error of the last attempt that failed.
        solution: What to do about it.
        retry_policy: What helps, if the run has failed.
        next_attempt_at: When the next attempt may begin: after a backoff, or by a timed retry.
    """

    id: str
    pipeline: str
    status: RunStatus
    requested_at: dt.datetime
    requested_by: str
    reason: str = ""
    attempts: int = 0
    runner: str = ""
    token: int = 0
    batches: int = 0
    rows: int = 0
    busy_seconds: float = 0.0
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    error: str | None = None
    solution: str | None = None
    retry_policy: RetryPolicy | None = None
    next_attempt_at: dt.datetime | None = None

    @property
    def rows_per_second(self) -> float:
        """Rows per second of the batches; 0.0 before the first."""
        return self.rows / self.busy_seconds if self.busy_seconds else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """One change of a pipeline's control.

    Attributes:
        id: Number that rises with each entry of a store.
        pipeline: Pipeline.
        at: When (UTC, clock of the store).
        actor: Who.
        action: What was done.
        reason: Why.
        start: State before.
        end: State after.
        run_id: The run it is about; None if it is about none.
        token: The fencing token of that time.
    """

    id: int
    pipeline: str
    at: dt.datetime
    actor: str
    action: Action
    reason: str
    start: ControlState
    end: ControlState
    run_id: str | None
    token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLease:
    """The right of a runner to carry a run, until another one has a higher token.

    Attributes:
        pipeline: Pipeline.
        run_id: Run.
        runner: Name of the runner.
        token: Fencing token, higher than any before of this pipeline.
        attempt: Number of the attempt, from 1.
        lease_seconds: Without a heartbeat for so long, other runners take the run over.
        lost_token: The highest token of a runner of the pipeline that was lost, and may wake up; 0 if none
            was.
    """

    pipeline: str
    run_id: str
    runner: str
    token: int
    attempt: int
    lease_seconds: float
    lost_token: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldLease:
    """A lease as other runners see it: it lives as long as `beats` changes."""

    pipeline: str
    runner: str
    token: int
    beats: int
    lease_seconds: float
    at: dt.datetime

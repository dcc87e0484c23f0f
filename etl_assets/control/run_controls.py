"""Run control for callers: clients that ask, pause, resume, cancel and retry, and runners that carry runs.

Belongs here: one method for each thing to do, each one transaction. Does not belong here: what it does to the
rows (`change.py`), and SQL of rows (`rows.py`).
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from etl_assets.control import rows
from etl_assets.control.change import ControlChange, ControlOrder, change
from etl_assets.control.failures import LONGEST_WAIT_SECONDS, RunFailure, failure_of, lost_runner
from etl_assets.control.lease_watch import LeaseWatch
from etl_assets.control.records import AuditEntry, HeldLease, PipelineControl, PipelineRun, RunLease
from etl_assets.control.schema import AUDIT, PIPELINES, RUNS
from etl_assets.control.states import Action, ControlState, RetryPolicy
from etl_assets.control.waiting import is_due
from etl_assets.errors import ControlStoreUnavailable, LeaseLost, NotFound, TransitionRefused
from etl_assets.failpoints import Failpoint, failpoint

if TYPE_CHECKING:
    from etl_assets.control.store import ControlStore

LEASE_SECONDS = 15.0
_MAX_TRIES = 50
"""Times that a row may change between reading and writing it, before a caller is told to come again."""


class RunControls:
    """Run control of all pipelines in one store. Thread-safe but for `claim`, which one thread calls.

    Every method raises `ControlStoreUnavailable` while the store does not answer, and can be repeated then:
    what was done already changes nothing. A `request_run` that is repeated names itself by its `key`.

    Args:
        store: The store.
        lease_seconds: After how long without a heartbeat a run is taken over from its runner.
        new_id: Returns an id for a run.
        monotonic: Monotonic clock of this process, in seconds.
        jitter: Returns a random number from 0 to 1, for backoffs.
        home: The home folder. Errors of runs name what is in it by relative paths.
    """

    def __init__(
        self,
        store: ControlStore,
        *,
        lease_seconds: float = LEASE_SECONDS,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        monotonic: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
        home: Path | None = None,
    ) -> None:
        self._home = home
        self._store, self._lease_seconds = store, lease_seconds
        self._new_id, self._monotonic, self._jitter = new_id, monotonic, jitter
        self._watch = LeaseWatch()

    # For clients.

    def request_run(self, pipeline: str, actor: str, reason: str = "", *, key: str = "") -> PipelineRun:
        """Ask for a run, and return it: a new one, or one that waits already and has not begun.

        Args:
            pipeline: Name; whether it is declared is the caller's to check.
            actor: Who asks.
            reason: Why.
            key: Key of the request. The same key again returns the run that the first request got, also one
                that waited already.
        """
        if known := self._run_of_key(key):
            return known
        try:
            made = self._act(pipeline, Action.RUN, actor, reason, new_run_id=self._new_id(), key=key)
        except rows.KeyTaken:  # by the same request, sent twice at once
            known = self._run_of_key(key)
            if known is None:  # the key is one of a tick that got no run here (`ticks.py`)
                raise
            return known
        assert made.run_id is not None
        return self.run(made.run_id)

    def pause(self, pipeline: str, actor: str, reason: str = "") -> PipelineControl:
        """Stop all work on a pipeline, after the batch that is under way."""
        return self._act(pipeline, Action.PAUSE, actor, reason).after

    def resume(self, pipeline: str, actor: str, reason: str = "") -> PipelineControl:
        """End a pause or a cancellation.

        Raises:
            TransitionRefused: the pipeline is being canceled, or has failed.
        """
        return self._act(pipeline, Action.RESUME, actor, reason).after

    def cancel(self, pipeline: str, actor: str, reason: str = "") -> PipelineControl:
        """Give the open run and a remembered request up.

        Raises:
            TransitionRefused: there is no run.
        """
        return self._act(pipeline, Action.CANCEL, actor, reason).after

    def retry(self, pipeline: str, actor: str, reason: str = "") -> PipelineControl:
        """Let a failed run go on from its last commit, or end the wait for its next attempt.

        Raises:
            TransitionRefused: the pipeline has no run that failed or waits.
        """
        return self._act(pipeline, Action.RETRY, actor, reason).after

    def state_of(self, pipeline: str) -> PipelineControl:
        """Return the control of a pipeline; IDLE if it was never controlled."""
        with self._store.reading() as connection:
            return rows.read_control(connection, pipeline)

    def all(self, states: Collection[ControlState] | None = None) -> tuple[PipelineControl, ...]:
        """Return pipelines that were ever controlled, all or those in some states, by name."""
        with self._store.reading() as connection:
            return rows.read_controls(connection, states)

    def version(self) -> int:
        """Return a number that rises with every change of any pipeline's control."""
        with self._store.reading() as connection:
            return int(connection.execute(sa.select(sa.func.sum(PIPELINES.c.revision))).scalar() or 0)

    def run(self, run_id: str) -> PipelineRun:
        """Return a run.

        Raises:
            NotFound: there is none of this id.
        """
        with self._store.reading() as connection:
            found = rows.read_runs(connection, [run_id])
        if run_id not in found:
            raise NotFound(f"no run has the id {run_id!r}", fix="look at the runs of its pipeline", id=run_id)
        return found[run_id]

    def runs(
        self, pipeline: str | None = None, before: str | None = None, limit: int = 50
    ) -> tuple[PipelineRun, ...]:
        """Return runs, the newest first.

        Args:
            pipeline: Of one pipeline; of all by default.
            before: Id of a run; only older ones are returned.
            limit: Number of runs.

        Raises:
            NotFound: there is no run `before`.
        """
        query = sa.select(RUNS).order_by(RUNS.c.requested_at.desc(), RUNS.c.id.desc()).limit(limit)
        if pipeline is not None:
            query = query.where(RUNS.c.pipeline == pipeline)
        if before is not None:
            last = self.run(before)
            earlier = RUNS.c.requested_at < last.requested_at
            same_time = sa.and_(RUNS.c.requested_at == last.requested_at, RUNS.c.id < last.id)
            query = query.where(sa.or_(earlier, same_time))
        with self._store.reading() as connection:
            return tuple(rows.as_run(row) for row in connection.execute(query).mappings())

    def last_runs(self, pipelines: Collection[str]) -> dict[str, PipelineRun]:
        """Return the run of each of some pipelines that was requested last, by pipeline."""
        place = sa.func.row_number().over(
            partition_by=RUNS.c.pipeline, order_by=(RUNS.c.requested_at.desc(), RUNS.c.id.desc())
        )
        ranked = sa.select(RUNS, place.label("place")).where(RUNS.c.pipeline.in_(pipelines)).subquery()
        query = sa.select(*(ranked.c[column.name] for column in RUNS.c)).where(ranked.c.place == 1)
        with self._store.reading() as connection:
            found = [rows.as_run(row) for row in connection.execute(query).mappings()]
        return {run.pipeline: run for run in found}

    def history(
        self, pipeline: str | None = None, before: int | None = None, limit: int = 50
    ) -> tuple[AuditEntry, ...]:
        """Return changes, the newest first: of one pipeline or of all, older than the entry `before`."""
        query = sa.select(AUDIT).order_by(AUDIT.c.id.desc()).limit(limit)
        if pipeline is not None:
            query = query.where(AUDIT.c.pipeline == pipeline)
        if before is not None:
            query = query.where(AUDIT.c.id < before)
        with self._store.reading() as connection:
            return tuple(rows.as_entry(row) for row in connection.execute(query).mappings())

    def _run_of_key(self, key: str) -> PipelineRun | None:
        with self._store.reading() as connection:
            return rows.read_run_of_key(connection, key) if key else None

    # For runners.

    def claim(self, runner: str, pipelines: Collection[str] | None = None) -> RunLease | None:
        """Take over the run that has waited longest, and return its lease; None if none waits.

        First, runs of runners that are gone and failed runs whose time has come are made to wait for a
        runner. A runner counts as gone once this object has seen no heartbeat of it for the length of its
        lease, so call it regularly.

        Args:
            runner: Name of the caller, such as `host:pid`.
            pipelines: Those whose runs the caller can carry; all by default.
        """
        self.recover(runner)
        with self._store.reading() as connection:
            waiting = self._waiting(connection, ControlState.RUN_REQUESTED)
        for run in waiting:
            if pipelines is not None and run.pipeline not in pipelines:
                continue
            try:
                made = self._act(run.pipeline, Action.CLAIM, runner, "")
            except TransitionRefused:  # another runner was first, or a client paused or canceled it
                continue
            assert made.after.run_id is not None
            with self._store.reading() as connection:
                lost_token = rows.read_lost_token(connection, run.pipeline)
            attempt = next(each.attempts for each in made.runs if each.id == made.after.run_id)
            return RunLease(
                pipeline=run.pipeline,
                run_id=made.after.run_id,
                runner=runner,
                token=made.after.token,
                attempt=attempt,
                lease_seconds=self._lease_seconds,
                lost_token=lost_token,
            )
        return None

    def recover(self, actor: str) -> None:
        """Let runs of runners that are gone, and failed runs whose time has come, wait for a runner."""
        with self._store.reading() as connection:
            leases = rows.read_leases(connection)
            failed = self._waiting(connection, ControlState.FAILED)
        for lease in self._watch.expired(leases, self._monotonic()):
            failure = lost_runner(lease.runner, lease.lease_seconds)
            try:
                self._act(lease.pipeline, Action.LOSE, actor, failure.error, failure=failure, expired=lease)
            except (TransitionRefused, LeaseLost):  # it has just ended, or another runner was first
                continue
        for run in failed:
            if run.retry_policy is RetryPolicy.TIMED:
                try:
                    self._act(run.pipeline, Action.WAKE, actor, "the time of the retry has come")
                except TransitionRefused:  # another runner or a client was first
                    continue

    def heartbeat(self, lease: RunLease) -> ControlState:
        """Keep a lease alive, and return the pipeline's state: pause and cancel are requested by it.

        Raises:
            LeaseLost: another runner has the run, or it was ended: nothing more may be written for it.
        """
        return self.report_progress(lease)

    def report_progress(
        self, lease: RunLease, *, batches: int = 0, rows_committed: int = 0, seconds: float = 0.0
    ) -> ControlState:
        """Add committed batches to a run, keep its lease alive, and return the pipeline's state.

        Raises:
            LeaseLost: as for `heartbeat`; nothing was added.
        """
        with self._store.writing() as connection:
            if not rows.beat(connection, lease.pipeline, lease.token, self._store.now(connection)):
                raise _lost(lease)
            if batches or rows_committed or seconds:
                rows.add_progress(connection, lease.run_id, batches, rows_committed, seconds)
            return rows.read_control(connection, lease.pipeline).state

    def finish(self, lease: RunLease) -> PipelineControl:
        """End a run that has carried everything.

        Raises:
            LeaseLost: another runner has it.
        """
        return self._act(lease.pipeline, Action.FINISH, lease.runner, "", lease=lease).after

    def stop(self, lease: RunLease) -> PipelineControl:
        """Stop between two batches, because the state asks for it.

        Raises:
            LeaseLost: another runner has the run.
            TransitionRefused: the state no longer asks for it, because a pause was withdrawn: go on.
        """
        return self._act(lease.pipeline, Action.STOP, lease.runner, "", lease=lease).after

    def fail(self, lease: RunLease, error: Exception) -> PipelineControl:
        """End an attempt by an error: another attempt follows, or the run has failed.

        Raises:
            LeaseLost: another runner has the run.
        """
        failure = failure_of(error, attempt=lease.attempt, jitter=self._jitter(), home=self._home)
        action = Action.REPEAT if failure.repeats else Action.FAIL
        return self._act(
            lease.pipeline, action, lease.runner, failure.error, lease=lease, failure=failure
        ).after

    def release(self, lease: RunLease, reason: str = "the runner leaves") -> PipelineControl:
        """Give a run back, so that another runner goes on at once. The attempt does not count.

        Raises:
            LeaseLost: another runner has it already.
        """
        return self._act(lease.pipeline, Action.RELEASE, lease.runner, reason, lease=lease).after

    def _waiting(self, connection: sa.Connection, state: ControlState) -> list[PipelineRun]:
        """Return the open runs of pipelines in a state whose time has come, the longest waiting first."""
        joined = sa.select(RUNS).join(PIPELINES, PIPELINES.c.run_id == RUNS.c.id)
        query = joined.where(PIPELINES.c.state == state.value).order_by(RUNS.c.requested_at, RUNS.c.id)
        found = [rows.as_run(row) for row in connection.execute(query).mappings()]
        if not found:
            return []
        now = self._store.now(connection)
        return [run for run in found if is_due(run.next_attempt_at, now, LONGEST_WAIT_SECONDS)]

    def _act(
        self,
        pipeline: str,
        action: Action,
        actor: str,
        reason: str,
        *,
        new_run_id: str = "",
        lease: RunLease | None = None,
        failure: RunFailure | None = None,
        expired: HeldLease | None = None,
        key: str = "",
    ) -> ControlChange:
        """Perform an action in one transaction, again while other processes change the same row.

        Raises:
            KeyTaken: another request with the key has got a run.
            TransitionRefused: the state does not allow it.
            LeaseLost: the lease, or the one that has expired, is no longer that of the pipeline.
            ControlStoreUnavailable: other processes changed the row each time.
        """
        for _ in range(_MAX_TRIES):
            with self._store.writing() as connection:
                before = rows.read_control(connection, pipeline)
                if lease is not None and not (before.state.has_runner and before.token == lease.token):
                    raise _lost(lease)
                named = [each for each in (before.run_id, before.requested_run_id) if each]
                order = ControlOrder(
                    action=action,
                    actor=actor,
                    reason=reason,
                    now=self._store.now(connection),
                    new_run_id=new_run_id,
                    failure=failure,
                )
                made = change(before, rows.read_runs(connection, named), order)
                if not made.is_nothing:
                    if not rows.write_change(connection, made, order):
                        continue
                    self._keep_leases(connection, made, order, expired)
                if key:
                    rows.write_run_key(connection, key, str(made.run_id), order.now)
                    failpoint(Failpoint.RUN_DURING_REQUEST, table=pipeline)
                return made
        raise ControlStoreUnavailable(
            f"the control of {pipeline} was changed by other processes {_MAX_TRIES} times in a row",
            fix="try again",
        )

    def _keep_leases(
        self, connection: sa.Connection, made: ControlChange, order: ControlOrder, expired: HeldLease | None
    ) -> None:
        pipeline, token = made.before.pipeline, made.after.token
        if order.action is Action.CLAIM:
            rows.write_lease(connection, pipeline, order.actor, token, self._lease_seconds, order.now)
        elif expired is not None:
            if not rows.remove_lease(connection, pipeline, expired.token, expired.beats):
                raise LeaseLost(  # rolls the change back
                    f"the lease of {pipeline} was renewed in the meantime",
                    fix="nothing",
                    pipeline=pipeline,
                    token=token,
                )
        elif made.before.state.has_runner and not made.after.state.has_runner:
            rows.remove_lease(connection, pipeline, token)


def _lost(lease: RunLease) -> LeaseLost:
    return LeaseLost(
        f"the runner {lease.runner} no longer has the run {lease.run_id} of {lease.pipeline} (token"
        f" {lease.token})",
        fix="nothing: another runner goes on from the last commit, or the run was ended",
        pipeline=lease.pipeline,
        run_id=lease.run_id,
        token=lease.token,
    )

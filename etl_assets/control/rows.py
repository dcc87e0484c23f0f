"""Rows of the control store, read and written in a transaction of the caller.

Belongs here: SQL. Does not belong here: what a row becomes (`change.py`), and transactions (`store.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert as postgres_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from etl_assets.control.change import ControlChange, ControlOrder
from etl_assets.control.records import AuditEntry, HeldLease, PipelineControl, PipelineRun
from etl_assets.control.schema import AUDIT, LEASES, PIPELINES, RUN_KEYS, RUNS
from etl_assets.control.states import Action, ControlState, RetryPolicy, RunStatus


def read_control(connection: sa.Connection, pipeline: str) -> PipelineControl:
    """Return a pipeline's row; that of one never controlled is IDLE, with revision 0."""
    row = connection.execute(sa.select(PIPELINES).where(PIPELINES.c.pipeline == pipeline)).mappings().first()
    return PipelineControl(pipeline=pipeline) if row is None else _control(row)


def read_controls(
    connection: sa.Connection, states: Collection[ControlState] | None = None
) -> tuple[PipelineControl, ...]:
    """Return the rows of all pipelines that were ever controlled, or those in some states, by name."""
    query = sa.select(PIPELINES).order_by(PIPELINES.c.pipeline)
    if states is not None:
        query = query.where(PIPELINES.c.state.in_([state.value for state in states]))
    return tuple(_control(row) for row in connection.execute(query).mappings())


def read_runs(connection: sa.Connection, ids: Collection[str]) -> Mapping[str, PipelineRun]:
    """Return runs by id."""
    if not ids:
        return {}
    rows = connection.execute(sa.select(RUNS).where(RUNS.c.id.in_(list(ids)))).mappings()
    return {row["id"]: as_run(row) for row in rows}


class KeyTaken(Exception):
    """Another request with the same key has got a run; raised to roll the transaction back."""


def read_run_of_key(connection: sa.Connection, key: str) -> PipelineRun | None:
    """Return the run that a request with a key got; None if there was none."""
    query = sa.select(RUNS).join(RUN_KEYS, RUN_KEYS.c.run_id == RUNS.c.id).where(RUN_KEYS.c.key == key)
    row = connection.execute(query).mappings().first()
    return None if row is None else as_run(row)


def write_run_key(connection: sa.Connection, key: str, run_id: str, now: dt.datetime) -> None:
    """Keep the run of a key.

    Raises:
        KeyTaken: the key has one.
    """
    insert = _insert(connection, RUN_KEYS).values(key=key, run_id=run_id, at=now)
    kept = insert.on_conflict_do_nothing().returning(RUN_KEYS.c.key)
    if connection.execute(kept).first() is None:
        raise KeyTaken


def read_leases(connection: sa.Connection) -> tuple[HeldLease, ...]:
    """Return all leases."""
    return tuple(HeldLease(**row) for row in connection.execute(sa.select(LEASES)).mappings())


def read_lost_token(connection: sa.Connection, pipeline: str) -> int:
    """Return the highest token of a runner of a pipeline that was lost; 0 if none was."""
    lost = sa.and_(AUDIT.c.pipeline == pipeline, AUDIT.c.action == Action.LOSE.value)
    return int(connection.execute(sa.select(sa.func.max(AUDIT.c.token)).where(lost)).scalar() or 0)


def write_change(connection: sa.Connection, change: ControlChange, order: ControlOrder) -> bool:
    """Write a change with its audit row, if the pipeline's row is still what the change was decided on.

    Returns:
        False if another process has changed the row since; nothing is written then.
    """
    # 1. The row, by compare-and-set on its revision.
    values = _values(change.after)
    if change.before.revision == 0:
        statement = _insert(connection, PIPELINES).values(values).on_conflict_do_nothing()
    else:
        unchanged = sa.and_(
            PIPELINES.c.pipeline == change.before.pipeline, PIPELINES.c.revision == change.before.revision
        )
        statement = sa.update(PIPELINES).where(unchanged).values(values)
    # RETURNING, as drivers do not report the number of rows of every INSERT.
    if connection.execute(statement.returning(PIPELINES.c.pipeline)).first() is None:
        return False
    # 2. Its runs.
    for run in change.runs:
        upsert = _insert(connection, RUNS).values(_values(run))
        of_run = {name: value for name, value in _values(run).items() if name != "id"}
        connection.execute(upsert.on_conflict_do_update(index_elements=["id"], set_=of_run))
    # 3. Who did it.
    audit = {
        "pipeline": change.before.pipeline,
        "at": order.now,
        "actor": order.actor,
        "action": order.action.value,
        "reason": order.reason,
        "start": change.before.state.value,
        "end": change.after.state.value,
        "run_id": change.run_id,
        "token": change.after.token,
    }
    connection.execute(sa.insert(AUDIT).values(audit))
    return True


def write_lease(
    connection: sa.Connection, pipeline: str, runner: str, token: int, seconds: float, now: dt.datetime
) -> None:
    """Write the lease of a claim in place of the pipeline's last one."""
    values = {"runner": runner, "token": token, "beats": 0, "lease_seconds": seconds, "at": now}
    upsert = _insert(connection, LEASES).values(pipeline=pipeline, **values)
    connection.execute(upsert.on_conflict_do_update(index_elements=["pipeline"], set_=values))


def beat(connection: sa.Connection, pipeline: str, token: int, now: dt.datetime) -> bool:
    """Count a heartbeat, and return whether the lease is still there."""
    mine = sa.and_(LEASES.c.pipeline == pipeline, LEASES.c.token == token)
    update = sa.update(LEASES).where(mine).values(beats=LEASES.c.beats + 1, at=now)
    return connection.execute(update).rowcount == 1


def remove_lease(connection: sa.Connection, pipeline: str, token: int, beats: int | None = None) -> bool:
    """Remove a lease, if it still has this token and, where given, these beats; return whether it had."""
    delete = sa.delete(LEASES).where(LEASES.c.pipeline == pipeline, LEASES.c.token == token)
    if beats is not None:
        delete = delete.where(LEASES.c.beats == beats)
    return connection.execute(delete).rowcount == 1


def add_progress(connection: sa.Connection, run_id: str, batches: int, rows: int, seconds: float) -> None:
    """Add to a run's progress."""
    connection.execute(
        sa.update(RUNS)
        .where(RUNS.c.id == run_id)
        .values(
            batches=RUNS.c.batches + batches,
            rows=RUNS.c.rows + rows,
            busy_seconds=RUNS.c.busy_seconds + seconds,
        )
    )


def as_run(row: Mapping[Any, Any]) -> PipelineRun:
    """Return a row of `control_runs` as a value."""
    policy = row["retry_policy"]
    typed: dict[str, Any] = {
        "status": RunStatus(row["status"]),
        "retry_policy": RetryPolicy(policy) if policy else None,
    }
    return PipelineRun(**{**row, **typed})


def as_entry(row: Mapping[Any, Any]) -> AuditEntry:
    """Return a row of `control_audit` as a value."""
    typed: dict[str, Any] = {
        "action": Action(row["action"]),
        "start": ControlState(row["start"]),
        "end": ControlState(row["end"]),
    }
    return AuditEntry(**{**row, **typed})


def _control(row: Mapping[Any, Any]) -> PipelineControl:
    typed: dict[str, Any] = {**row, "state": ControlState(row["state"])}
    return PipelineControl(**typed)


def _values(record: PipelineControl | PipelineRun) -> dict[str, Any]:
    return {name: getattr(value, "value", value) for name, value in asdict(record).items()}


def _insert(connection: sa.Connection, table: sa.Table) -> Any:
    return (sqlite_insert if connection.dialect.name == "sqlite" else postgres_insert)(table)

"""`etl-assets pipelines run|pause|resume|cancel|retry|runs`: run control of one pipeline.

Belongs here: the commands. Does not belong here: what they do to the state (`control/`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import getpass
import json
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from etl_assets.control.records import PipelineControl, PipelineRun
    from etl_assets.control.run_controls import RunControls
    from etl_assets.settings import Settings

_REASON = click.option("--reason", default="", metavar="TEXT", help="Why; it is kept in the history.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print an object, for machines.")


@click.command()
@click.argument("name")
@_REASON
@_JSON
def run(name: str, reason: str, as_json: bool) -> None:
    """Ask for a run of a pipeline: all that its source has now goes through its tables to its sinks.

    The worker (`etl-assets worker`) carries it. A request during a run, or while the pipeline is paused, is
    remembered and begins afterwards.
    """
    from etl_assets.worker.lease import running_worker

    with _opened(name) as (settings, controls):
        made = controls.request_run(name, _actor(), reason)
        found = controls.state_of(name)
    if as_json:
        click.echo(json.dumps({"run": made.id, "pipeline": name, "state": found.state.value}))
        return
    click.echo(f"run {made.id}: {made.status.value}; {name} is {found.state}")
    if running_worker(settings.home) is None and settings.control.connection is None:
        click.echo("no worker runs on this home folder: `etl-assets worker` carries the run", err=True)


def _action(name: str, text: str) -> click.Command:
    """Return the command of an action that changes the state of a pipeline."""

    def act(pipeline: str, reason: str, as_json: bool) -> None:
        with _opened(pipeline) as (_, controls):
            found = getattr(controls, name)(pipeline, _actor(), reason)
        click.echo(json.dumps(_state(found)) if as_json else f"{pipeline} is {found.state}")

    decorate: list[Callable[[Any], Any]] = [_JSON, _REASON, click.argument("pipeline", metavar="NAME")]
    for each in decorate:
        act = each(act)
    return click.command(name, help=text)(act)


@click.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 1_000), default=10, show_default=True, help="Newest runs.")
@_JSON
def runs(name: str, limit: int, as_json: bool) -> None:
    """Show the state of a pipeline, its newest runs, and what changed its state."""
    with _opened(name) as (_, controls):
        state = controls.state_of(name)
        found = controls.runs(name, limit=limit)
        history = controls.history(name, limit=limit)
    if as_json:
        shown = {
            **_state(state),
            "runs": [_as_json(each) for each in found],
            "history": [_as_json(each) for each in history],
        }
        click.echo(json.dumps(shown))
        return
    since = "" if state.since is None else f" since {_time(state.since)}, by {state.actor}"
    click.echo(f"{name} is {state.state}{since}{f': {state.reason}' if state.reason else ''}")
    for each in found:
        click.echo(_line(each))
    click.echo("history:" if history else "no change of its state yet")
    for entry in history:
        why = f": {entry.reason}" if entry.reason else ""
        click.echo(f"  {_time(entry.at)} {entry.action} by {entry.actor}: {entry.start} -> {entry.end}{why}")


COMMANDS = (
    run,
    _action(
        "pause",
        "Stop all work on a pipeline until `resume`: at once, or after the batch that is under way. What it"
        " has committed stays.",
    ),
    _action("resume", "End a pause or a cancellation: the pipeline is followed again, its open run goes on."),
    _action(
        "cancel",
        "Give up the open run of a pipeline, after the batch that is under way, and a request that waits."
        " Nothing works on the pipeline until `run` or `resume`.",
    ),
    _action("retry", "Let a failed run go on from its last commit, or end the wait for its next attempt."),
    runs,
)
"""Commands of the group `pipelines`."""


@contextmanager
def _opened(name: str) -> Generator[tuple[Settings, RunControls]]:
    """Open run control for a pipeline.

    Raises:
        UsageError: there is no such pipeline.
    """
    from etl_assets.control.run_controls import RunControls
    from etl_assets.control.store import open_store
    from etl_assets.pipelines.problem import near
    from etl_assets.settings import load_installation

    settings = load_installation()
    names = [pipeline.name for pipeline in settings.catalog().pipelines]
    store = open_store(settings)
    try:
        controls = RunControls(store, lease_seconds=settings.control.lease_seconds)
        # One that is no longer declared, or whose file is broken, may still be open.
        if name not in names and controls.state_of(name).revision == 0:
            raise click.UsageError(
                f"there is no pipeline {name}: {near(name, names)}pipelines: {', '.join(names) or 'none'}"
            )
        yield settings, controls
    finally:
        store.close()


def _actor() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


def _state(control: PipelineControl) -> dict[str, object]:
    return {
        "pipeline": control.pipeline,
        "state": control.state.value,
        "run": control.run_id,
        "requested_run": control.requested_run_id,
        "since": None if control.since is None else control.since.isoformat(),
        "actor": control.actor,
        "reason": control.reason,
    }


def _as_json(record: Any) -> dict[str, object]:
    return {
        name: value.isoformat() if isinstance(value, dt.datetime) else getattr(value, "value", value)
        for name, value in dataclasses.asdict(record).items()
    }


def _line(run: PipelineRun) -> str:
    figures = f"{run.batches:,} batches, {run.rows:,} rows, {run.rows_per_second:,.0f} rows/s"
    line = f"  {_time(run.requested_at)} {run.id} {run.status.value}: {figures}, attempt {run.attempts}"
    if run.error is not None:
        line += f"\n    {run.error}\n    fix: {run.solution}"
        if run.retry_policy is not None:
            line += f"\n    retry: {run.retry_policy.value}"
        if run.next_attempt_at is not None:
            line += f", next attempt at {_time(run.next_attempt_at)}"
    return line


def _time(at: dt.datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"

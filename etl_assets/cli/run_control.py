"""`etl-assets pipelines run|pause|resume|cancel|retry|runs|apply`: run control of one pipeline.

With a server (`--url`) they are clients of its REST API, else they act on the store of this home folder.

Belongs here: the commands. Does not belong here: what they do to the state (`control/`), and requests
(`remote.py`).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import getpass
import json
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from yaml import YAMLError

from etl_assets.cli.remote import URL_OPTION, RemoteControl, server_url
from etl_assets.errors import InputError

if TYPE_CHECKING:
    from etl_assets.control.records import AuditEntry, PipelineControl, PipelineRun
    from etl_assets.control.run_controls import RunControls
    from etl_assets.settings import Settings

_REASON = click.option("--reason", default="", metavar="TEXT", help="Why; it is kept in the history.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print an object, for machines.")


@click.command()
@click.argument("name")
@_REASON
@_JSON
@URL_OPTION
def run(name: str, reason: str, as_json: bool, url: str | None) -> None:
    """Ask for a run of a pipeline: all that its source has now goes through its tables to its sinks.

    The worker (`etl-assets worker`) carries it. A request during a run, or while the pipeline is paused, is
    remembered and begins afterwards.
    """
    settings = None
    if (server := server_url(url)) is not None:
        with RemoteControl(server) as remote:
            made = remote.request_run(name, reason)
            found = remote.state_of(name)
    else:
        with _opened(name) as (settings, controls):
            made = controls.request_run(name, _actor(), reason)
            found = controls.state_of(name)
    if as_json:
        click.echo(json.dumps({"run": made.id, "pipeline": name, "state": found.state.value}))
        return
    click.echo(f"run {made.id}: {made.status.value}; {name} is {found.state}")
    if settings is not None and _nobody_carries(settings):
        click.echo("no worker runs on this home folder: `etl-assets worker` carries the run", err=True)


def _action(name: str, text: str) -> click.Command:
    """Return the command of an action that changes the state of a pipeline."""

    def act(pipeline: str, reason: str, as_json: bool, url: str | None) -> None:
        if (server := server_url(url)) is not None:
            with RemoteControl(server) as remote:
                found = remote.change(name, pipeline, reason)
        else:
            with _opened(pipeline) as (_, controls):
                found = getattr(controls, name)(pipeline, _actor(), reason)
        click.echo(json.dumps(_state(found)) if as_json else f"{pipeline} is {found.state}")

    decorate: list[Callable[[Any], Any]] = [
        URL_OPTION,
        _JSON,
        _REASON,
        click.argument("pipeline", metavar="NAME"),
    ]
    for each in decorate:
        act = each(act)
    return click.command(name, help=text)(act)


@click.command()
@click.argument("name")
@click.option("--limit", type=click.IntRange(1, 1_000), default=10, show_default=True, help="Newest runs.")
@_JSON
@URL_OPTION
def runs(name: str, limit: int, as_json: bool, url: str | None) -> None:
    """Show the state of a pipeline, its newest runs, and what changed its state (not of a server)."""
    history: tuple[AuditEntry, ...] = ()
    server = server_url(url)
    if server is not None:
        with RemoteControl(server) as remote:
            state, found = remote.state_of(name), remote.runs(name, limit=limit)
    else:
        with _opened(name) as (_, controls):
            state = controls.state_of(name)
            found = controls.runs(name, limit=limit)
            history = tuple(controls.history(name, limit=limit))
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
    if server is None:
        click.echo("history:" if history else "no change of its state yet")
    for entry in history:
        why = f": {entry.reason}" if entry.reason else ""
        click.echo(f"  {_time(entry.at)} {entry.action} by {entry.actor}: {entry.start} -> {entry.end}{why}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@URL_OPTION
def apply(file: Path, url: str | None) -> None:
    """Declare the pipeline of a file at a server, or replace its declaration there.

    Nothing is changed if it says the same already.
    """
    from etl_assets.yaml_content import read_yaml

    server = server_url(url)
    if server is None:
        raise click.UsageError("give the server: --url, or ETL_ASSETS_URL")
    try:
        content = json.loads(json.dumps(read_yaml(file.read_text("utf-8"), file), default=str))
    except (ValueError, TypeError, YAMLError) as error:
        raise InputError(f"{file} is no YAML in UTF-8: {error}", fix="correct the file") from error
    if not isinstance(content, dict):
        raise InputError(f"{file} holds no mapping of fields", fix="write `name: …` and the other fields")
    with RemoteControl(server) as remote:
        revision, is_new = remote.apply(content)
    click.echo(f"{content['name']}: revision {revision}{'' if is_new else ', unchanged'}")


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
    apply,
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


def _nobody_carries(settings: Settings) -> bool:
    """Return whether no worker is known that would carry a run."""
    from etl_assets.worker.lease import running_worker

    return running_worker(settings.home) is None and settings.control.connection is None


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

"""The demo of a capture from the server to the last figure, and Dagster's UI after it if that is asked for.

This process has the server and the password; `etl-assets cdc`, `worker` and `dev` are its children, and are
what a user types. Belongs here: the order of things, and that all of it ends with this process.
"""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from etl_assets import environment
from etl_assets.errors import ServerNotStarted
from etl_assets.stack.cdc_demo import comparison
from etl_assets.stack.cdc_demo.changes import ShopChanges
from etl_assets.stack.cdc_demo.comparison import TableFigures
from etl_assets.stack.cdc_demo.installation import CAPTURE, write_example
from etl_assets.stack.cdc_demo.shop import Shop
from etl_assets.stack.children import call, ended_by_signals, environ_of, running
from etl_assets.stack.full import PostgresStack
from etl_assets.stack.running import CDC_HOME, SERVERS, demo_home

TRANSACTIONS = 2_000
_LOOK_SECONDS = 3.0
_PATIENCE_SECONDS = 600.0
_PACE_SECONDS = 0.01
"""Between two transactions, so that they go on while tables are copied and after that."""
_PAUSE_SECONDS = 1.0
"""Between two transactions while Dagster's UI is open."""


def run_cdc_demo(*, transactions: int, as_json: bool, ui: Sequence[str] | None = None) -> int:
    """Start the server, follow its tables while they change, compare; with `ui`, open Dagster's UI and go on.

    Args:
        transactions: Transactions that change the tables.
        as_json: Whether to print the figures as JSON.
        ui: Options of `etl-assets dev`; None for the demo alone.

    Returns:
        The exit code: 1 if a table is not equal to its source.
    """
    from etl_assets.settings import home_folder

    home = demo_home(home_folder(), CDC_HOME)
    began = time.monotonic()
    with ended_by_signals():
        _say(f"1/4 PostgreSQL, in {home / SERVERS}")
        with PostgresStack(home / SERVERS, partial(click.echo, err=True)) as stack:
            demo = _Demo(home, stack)
            code = demo.run(transactions, began, as_json=as_json)
            if ui is not None:
                code = demo.show_ui(ui)
    return code


class _Demo:
    """One call of the demo on a running server."""

    def __init__(self, home: Path, stack: PostgresStack) -> None:
        self._home, self._stack = home, stack
        self._shop = Shop(stack.postgres)
        self._environ = environ_of(home, self._shop.environ)
        self._worker_log = home / SERVERS / "worker.log"

    def run(self, transactions: int, began: float, *, as_json: bool) -> int:
        """Follow the tables while they change, and compare. Returns the exit code."""
        self._shop.prepare()
        write_example(self._home, self._stack.ports, dt.datetime.now(dt.UTC).date())
        _say(f"2/4 the tables of the capture {CAPTURE}: `etl-assets cdc discover {CAPTURE}`")
        if code := call(self._environ, "cdc", "discover", CAPTURE, out=sys.stderr):
            return code
        _say(f"3/4 `etl-assets worker` copies and follows, during {transactions:,} transactions of the shop")
        changes = ShopChanges(self._shop.url, seed=time.time_ns())
        with (
            self._worker_log.open("ab") as log,
            running(self._environ, "worker", "--verbose", log=log) as worker,
        ):
            changes.start(most=transactions, pause_seconds=_PACE_SECONDS)
            figures = self._settled(worker, changes)
        _say("4/4 each table beside its source, row by row")
        seconds = time.monotonic() - began
        if as_json:
            click.echo(comparison.as_json(figures, changes.made, seconds))
        else:
            comparison.show(figures, changes.made, seconds)
            click.echo(f"More of it: export {environment.HOME.name}={self._home}; etl-assets tables")
        return 0 if figures and all(each.is_equal for each in figures) else 1

    def show_ui(self, options: Sequence[str]) -> int:
        """Open Dagster's UI, with a worker and a change a second beside it. Returns the exit code."""
        _say("the server, a worker and a change a second stay until Ctrl-C")
        changes, code = ShopChanges(self._shop.url, seed=time.time_ns()), 0
        with self._worker_log.open("ab") as log, running(self._environ, "worker", "--verbose", log=log):
            changes.start(pause_seconds=_PAUSE_SECONDS)
            try:
                with suppress(KeyboardInterrupt):
                    # Dagster's UI ends its own processes, but not if it is killed itself.
                    code = call(self._environ, "dev", *options, ended_by=signal.SIGTERM)
            finally:
                changes.stop()
        return code

    def _settled(self, worker: subprocess.Popen[bytes], changes: ShopChanges) -> list[TableFigures]:
        """Wait until all changes are made, and every table is ready and equal to its source.

        Returns:
            The figures; after some minutes those that are not equal, too.

        Raises:
            ServerNotStarted: the worker has ended.
        """
        import psycopg

        from etl_assets.settings import load_settings

        began = time.monotonic()
        shown = ""
        with psycopg.connect(self._shop.url, autocommit=True) as session:
            session.execute("SET TIME ZONE 'UTC'")
            while True:
                tables = self._tables()
                phases = {each["table"]: each["phase"] for each in tables}
                text = _by_phase(phases)
                if text != shown:
                    seconds, made = time.monotonic() - began, sum(changes.made.values())
                    click.echo(f"    after {seconds:.0f} s and {made:,} transactions: {text}", err=True)
                    shown = text
                is_late = time.monotonic() - began > _PATIENCE_SECONDS
                is_ready = bool(phases) and set(phases.values()) <= {"ready", "errored"}
                if (is_ready and changes.are_made) or is_late:
                    changes.stop()
                    # The records of the log are committed before the rows that they make.
                    settings = load_settings({environment.HOME.name: str(self._home)})
                    figures = comparison.compare(settings, session, phases)
                    if is_late or all(each.is_equal for each in figures):
                        return figures
                if worker.poll() is not None:
                    raise ServerNotStarted(
                        f"`etl-assets worker` ended with exit code {worker.returncode}",
                        fix=f"its log is {self._worker_log}",
                        server="worker",
                        log=self._worker_log,
                    )
                time.sleep(_LOOK_SECONDS)

    def _tables(self) -> list[Mapping[str, Any]]:
        """Return what `etl-assets cdc tables` says; exit code 1 means that some are in error."""
        done = subprocess.run(
            [sys.executable, "-m", "etl_assets.cli.main", "cdc", "tables", CAPTURE, "--json"],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=False,
        )
        return json.loads(done.stdout or b"[]")


def _by_phase(phases: Mapping[str, str]) -> str:
    counts = {phase: sum(each == phase for each in phases.values()) for phase in sorted(set(phases.values()))}
    return ", ".join(f"{number} {phase}" for phase, number in counts.items()) or "no table yet"


def _say(text: str) -> None:
    click.echo(f"==> {text}", err=True)

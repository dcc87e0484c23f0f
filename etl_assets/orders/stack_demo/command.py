"""The demo from the first server to the last figure, and Dagster's UI after it if that is asked for.

This process has the servers and the secrets; `etl-assets run`, `serve` and `dev` are its children, and are
what a user types. Belongs here: the order of things, and that all of it ends with this process.
"""

from __future__ import annotations

import datetime as dt
import json
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import click
import yaml

from etl_assets import environment
from etl_assets.delta.log.durability import write_durably
from etl_assets.orders.stack_demo import feed, report
from etl_assets.orders.stack_demo.comparison import PipelineFigures, PipelineTables, compare
from etl_assets.orders.stack_demo.contents import Contents
from etl_assets.orders.stack_demo.feed import Lot
from etl_assets.orders.stack_demo.ingest_server import IngestServer
from etl_assets.orders.stack_demo.installation import pipeline_names, write_example
from etl_assets.orders.stack_demo.targets import Targets
from etl_assets.stack.children import call, ended_by_signals, environ_of
from etl_assets.stack.full import FullStack
from etl_assets.stack.running import DEMO_HOME, SERVERS, demo_home

EVENTS = 30_000
_LOTS = "lots.json"


def run_full_stack(*, events: int, as_json: bool, ui: Sequence[str] | None = None) -> int:
    """Start the servers, feed them, run the pipelines, compare; with `ui`, open Dagster's UI and wait for it.

    Args:
        events: Order events to send, over all three channels.
        as_json: Whether to print the figures as JSON.
        ui: Options of `etl-assets dev`; None for the demo alone.

    Returns:
        The exit code: 1 if what arrived is not equal.
    """
    from etl_assets.settings import home_folder

    home = demo_home(home_folder(), DEMO_HOME)
    began = time.monotonic()
    with ended_by_signals():
        _say(f"1/4 servers, in {home / SERVERS}")
        with FullStack(home / SERVERS, partial(click.echo, err=True)) as stack:
            demo = _Demo(home, stack)
            code = demo.run(events, began, as_json=as_json)
            if ui is not None:
                _say("the servers stay until Ctrl-C")
                with suppress(KeyboardInterrupt):
                    # Dagster's UI ends its own processes, but not if it is killed itself.
                    code = demo.call("dev", *ui, ended_by=signal.SIGTERM)
    return code


class _Demo:
    """One call of the demo on running servers."""

    def __init__(self, home: Path, stack: FullStack) -> None:
        self._home, self._stack = home, stack
        self._contents = Contents(stack)
        self._environ = environ_of(home, self._contents.environ)

    def run(self, events: int, began: float, *, as_json: bool) -> int:
        """Feed, run, compare. Returns the exit code."""
        ports = self._stack.ports
        self._contents.prepare()
        write_example(self._home, ports, dt.datetime.now(dt.UTC).date())
        folder = self._stack.folder / "http"
        self._stack.start(IngestServer(folder, ports["http"], environ=self._environ))
        self._feed(events)
        _say("3/4 pipelines: `etl-assets run`, which starts Spark")
        if code := self.call("run", tell=True):
            _say(f"`etl-assets run` ended with exit code {code}: its messages above say why")
            return code
        _say("4/4 what arrived, read from each sink by its own client")
        figures = self._figures()
        seconds = time.monotonic() - began
        if as_json:
            click.echo(report.as_json(figures, seconds))
        else:
            report.show(figures, seconds)
            click.echo(f"More of it: export {environment.HOME.name}={self._home}; etl-assets tables")
        return 1 if any(each.wrong for each in figures) else 0

    def call(self, *arguments: str, tell: bool = False, ended_by: signal.Signals = signal.SIGKILL) -> int:
        """Run a command of the installation as a child. Returns its exit code."""
        return call(self._environ, *arguments, tell=tell, ended_by=ended_by)

    def _feed(self, events: int) -> None:
        from etl_assets.serve.tokens import Tokens

        lot = self._next_lot(events)
        _say(f"2/4 events, lot {lot.number}: {lot.events:,} over Kafka, HTTP and files, and changed rentals")
        feed.send_files(lot, self._home / "landing" / "orders")
        feed.send_kafka(lot, self._stack.kafka.url)
        tokens, now = Tokens(self._home), dt.datetime.now(dt.UTC)
        token, secret = tokens.add(
            "demo", now=now, pipelines=(feed.HTTP,), expires_at=now + dt.timedelta(days=1)
        )
        try:
            feed.send_http(lot, self._stack.ports["http"], secret)
        finally:
            tokens.revoke(token.id)
        if lot.number > 1:
            changed = self._contents.change_rentals(lot.number)
            click.echo(f"    {changed} rentals were changed or added", err=True)
        self._write_lot(lot, complete=True)

    def _next_lot(self, events: int) -> Lot:
        """Return the next lot, or again the one whose sending was stopped."""
        try:
            last = json.loads((self._home / _LOTS).read_text("utf-8"))
        except FileNotFoundError:
            last = {"number": 0, "complete": True}
        if not last["complete"]:
            return Lot(number=last["number"], events=last["events"])
        lot = Lot(number=last["number"] + 1, events=events)
        self._write_lot(lot, complete=False)
        return lot

    def _write_lot(self, lot: Lot, *, complete: bool) -> None:
        content = {"number": lot.number, "events": lot.events, "complete": complete}
        write_durably(self._home / _LOTS, json.dumps(content).encode())

    def _figures(self) -> list[PipelineFigures]:
        from etl_assets.settings import load_settings

        domain = load_settings({environment.HOME.name: str(self._home)}).placement().reader()
        readers = Targets(stack=self._stack, contents=self._contents, home=self._home).readers
        sent = {
            feed.FILES: lambda: feed.sent_files(self._home / "landing" / "orders"),
            feed.KAFKA: lambda: feed.sent_kafka(self._stack.kafka.url),
            feed.HTTP: lambda: feed.sent_http(domain.root / "journal" / feed.HTTP),
        }
        found = []
        for name in pipeline_names():
            tables = PipelineTables(name=name, domain=domain)
            at_source = None if name in sent else self._contents.keys_of_query(self._query(name), tables.key)
            count = sent[name]() if at_source is None else at_source.total()
            found.append(compare(tables, sent=count, at_source=at_source, readers=readers))
        return found

    def _query(self, name: str) -> str:
        """Return the query of a declaration, as the user may have changed it."""
        declared = yaml.safe_load((self._home / "pipelines" / f"{name}.yaml").read_text("utf-8"))
        return declared["source"]["query"]


def _say(text: str) -> None:
    click.echo(f"==> {text}", err=True)

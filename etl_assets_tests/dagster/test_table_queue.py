"""A run has the turn at the table that its step writes, and so ends beside a process that commits there all
the time.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import dagster as dg
import pytest

from etl_assets.assets.stage_asset import stage_asset
from etl_assets.build import platform_resources
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.table import Table
from etl_assets.delta.write.lock import writer_lock
from etl_assets.delta.write.write_version import Place, commit_metadata, moved_on, write_version
from etl_assets.orders.steps.load_customers import LoadCustomers
from etl_assets.settings import load_settings
from etl_assets.steps.step import StepContext, StepReport
from etl_assets.steps.table_queue import TableQueue
from etl_assets_tests.reference.written_tables import write_table

# Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


def free(folder: Path) -> bool:
    with TableQueue(folder=folder).take_if_free("customers") as is_free:
        return is_free


def test_from_the_start_of_its_step_to_the_end(monkeypatch):
    settings, seen = load_settings(), []

    def run(_step: LoadCustomers, _days: Any) -> StepReport:
        with ThreadPoolExecutor(1) as another:
            seen.append(another.submit(free, settings.turns_path).result())
        return StepReport(table="customers", version=-1)

    monkeypatch.setattr(LoadCustomers, "run", run)
    assert dg.materialize(
        [stage_asset(settings.catalog().stage("customers"), settings)], resources=platform_resources(settings)
    ).success
    assert seen == [False]
    assert free(settings.turns_path)


def commit_nothing(table: Table, base_version: int) -> None:
    """A commit on a base, checked as every one is, of no rows."""
    with writer_lock(table.lock_path, table=table.name, wait_seconds=60, driver_pid=None):
        if (current := table.version()) != base_version:
            raise moved_on(table, current=current, base=base_version)
        write_version(None, table, base_version + 1, partial(_put, base_version))


def _put(base_version: int, place: Place, writer: str) -> None:
    entry = NewEntry(
        operation="WRITE",
        base_version=base_version,
        metrics={"numFiles": 0, "numOutputRows": 0},
        user_metadata=commit_metadata(place, writer, {}),
    )
    entry.put(place.path, stamped=False)


@contextmanager
def committing(table: Table, turns: TableQueue) -> Generator[None]:
    """A process that commits to a table again and again, in turns with whoever asks for one."""
    end = threading.Event()

    def commit_again_and_again() -> None:
        while not end.wait(0.1):
            with turns.take(table.name):
                commit_nothing(table, table.version())

    with ThreadPoolExecutor(1) as other:
        done = other.submit(commit_again_and_again)
        try:
            yield
        finally:
            end.set()
        done.result()


@dataclass
class LongStep:
    """A step that works for longer than it takes others to commit."""

    context: StepContext
    table: Table
    attempts: list[int] = field(default_factory=list)

    def run(self, days: Sequence[dt.date]) -> StepReport:
        base = self.table.version()
        self.attempts.append(base)
        time.sleep(1)
        commit_nothing(self.table, base)
        return StepReport(table=self.table.name, version=base + 1)


@pytest.mark.parametrize("takes_turns", [True, False])
def test_a_long_step_needs_no_second_attempt_beside_somebody_who_commits_all_the_time(takes_turns):
    settings = load_settings()
    (domain,) = settings.placement().domains
    write_table(domain, "customers", [{}])
    turns = TableQueue(folder=settings.turns_path)
    context = StepContext(session=no_session, domain=domain, turns=turns if takes_turns else None)
    step = LongStep(context=context, table=context.table("customers"))

    @dg.asset(io_manager_key="delta", retry_policy=dg.RetryPolicy(max_retries=1, delay=0.01))
    def customers() -> Any:
        return step

    with committing(step.table, turns):
        result = dg.materialize([customers], resources=platform_resources(settings), raise_on_error=False)
    assert (result.success, len(step.attempts)) == ((True, 1) if takes_turns else (False, 2))


def no_session() -> NoReturn:
    raise AssertionError("nothing here asks for Spark")

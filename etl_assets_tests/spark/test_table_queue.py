"""A run by hand beside a process that commits to the same table all the time, as the worker does."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import dagster as dg
import pytest

from etl_assets.build import platform_resources
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.table import Table
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.lock import writer_lock
from etl_assets.delta.write.write_version import Place, commit_metadata, write_version
from etl_assets.orders.steps.normalize import Normalize
from etl_assets.settings import load_settings
from etl_assets.steps.step import ReadMode
from etl_assets.steps.table_queue import TableQueue
from etl_assets_tests.pipeline import DAY, event

pytestmark = [
    pytest.mark.spark,
    # Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]

EVERY_SECONDS = 0.2
ORDERS = "normalized_orders"


def commit_nothing(base_version: int, place: Place, writer: str) -> None:
    entry = NewEntry(
        operation="WRITE",
        base_version=base_version,
        metrics={"numFiles": 0, "numOutputRows": 0},
        user_metadata=commit_metadata(place, writer, {}),
    )
    entry.put(place.path, stamped=False)


@contextmanager
def committing(table: Table, turns: TableQueue) -> Generator[None]:
    """A process that commits to a table every now and then, in turns with whoever asks for one."""
    began, end, errors = threading.Event(), threading.Event(), []

    def commit_again_and_again() -> None:
        try:
            while not end.is_set():
                with (
                    turns.take(table.name),
                    writer_lock(table.lock_path, table=table.name, wait_seconds=60, driver_pid=None),
                ):
                    version = table.version() + 1
                    write_version(None, table, version, partial(commit_nothing, version - 1))
                began.set()
                end.wait(EVERY_SECONDS)
        except BaseException as error:  # noqa: BLE001 - raised in the test
            errors.append(error)

    thread = threading.Thread(target=commit_again_and_again)
    thread.start()
    try:
        assert began.wait(20), errors
        yield
    finally:
        end.set()
        thread.join(60)
    assert errors == []


def test_a_run_over_whole_days_needs_no_second_attempt(spark, pipeline):
    settings = load_settings()
    (domain,) = settings.placement().domains
    pipeline = replace(pipeline, root=domain.root)
    pipeline.land([event(number) for number in range(1, 51)])
    pipeline.run(only=["raw_events"])
    turns = TableQueue(folder=settings.turns_path)
    context = replace(pipeline.context, turns=turns)
    attempts: list[Any] = []

    @dg.asset(
        name=ORDERS,
        partitions_def=dg.DailyPartitionsDefinition(start_date=DAY.isoformat()),
        io_manager_key="delta",
        retry_policy=dg.RetryPolicy(max_retries=2, delay=0.1),
    )
    def normalized_orders() -> Any:
        attempts.append("attempt")
        return Normalize(context=context, mode=ReadMode.WHOLE)

    table = context.table(ORDERS)
    base = ensure_table(table)
    with committing(table, turns):
        result = dg.materialize(
            [normalized_orders],
            partition_key=DAY.isoformat(),
            resources=platform_resources(settings),
            raise_on_error=False,
        )
    assert result.success
    assert attempts == ["attempt"]
    assert len(pipeline.rows(ORDERS)) == 50
    assert table.version() > base + 2, "the other one came to its turns as well"

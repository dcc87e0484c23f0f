"""Steps run for the follower: placed each time, repeated where that may help, split where the data of a day is bad.

Belongs here: one step for some days, from its placement to what became of it. Does not belong here: which step and when
(`follower.py`).
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from etl_assets.delta.compaction import commit_compaction, plan_crowded
from etl_assets.delta.session import lost_driver_pid
from etl_assets.error_policy import Decision, decide, spark_went_away
from etl_assets.errors import EngineLost
from etl_assets.io_managers.partition_split import run_partitions
from etl_assets.steps.placing import place, take_up
from etl_assets.steps.step import (
    ReadMode,
    StepArguments,
    StepContext,
    StepReport,
    domain_watched,
    logger,
    platform_table,
    step_of,
)
from etl_assets.steps.table_queue import TableQueue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from etl_assets.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """What became of a step.

    Attributes:
        began: When the attempt that counts began to read (monotonic seconds): it has all that was there by then.
        report: What it did, None if nothing of it was done.
        failed: Errors by day; by None where no day is to blame.
    """

    began: float
    report: StepReport | None
    failed: Mapping[dt.date | None, Exception] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRunner:
    """Runs steps in one thread.

    Attributes:
        settings: The platform file.
        session: Gives this thread's own Spark session.
        renew: Forgets that session, so that the next call makes a new one.
        wait: Waits so many seconds, or until there is something better to do.
        leaving: Whether this process is about to end: then jobs fail because they are cancelled, and nothing is begun.
        alive: Gives a sign of life, while a step waits for others that write its table.
    """

    settings: Settings
    session: Callable[[], SparkSession]
    renew: Callable[[], None]
    wait: Callable[[float], object]
    leaving: Callable[[], bool]
    alive: Callable[[], object] = lambda: None

    def run(self, table: str, days: Sequence[dt.date]) -> StepOutcome:
        """Have a table's step run for some days, repeated as the platform's runs are.

        Raises:
            EngineLost: the Spark engine of this process is gone, and everything else with it.
        """
        attempts = self.settings.runs.max_retries + 1
        for attempt in range(attempts):
            began = time.monotonic()
            try:
                return self._attempt(table, days, began)
            except Exception as error:  # noqa: BLE001 - handed over to whoever asked, by the retry table
                if self.leaving():
                    return StepOutcome(began=began, report=None, failed={None: error})
                self._look_at_engine(error)
                if decide(error) is not Decision.RETRY or attempt + 1 == attempts:
                    return StepOutcome(began=began, report=None, failed={None: error})
                logger.warning("%s is tried again: %s: %s", table, type(error).__name__, error)
                self.wait(random.uniform(0, self.settings.runs.retry_delay_seconds * 2**attempt))
        raise AssertionError("unreachable: the last attempt returns")

    def tidy(self, table: str) -> None:
        """Make one file of a table's small ones, if a day has too many of them: each makes the next step slower.

        What keeps it from being done is told, and it is done the next time; so it is where somebody else is at the table.

        Raises:
            EngineLost: as for `run`.
        """
        try:
            domain = place(self.settings.placement(), table)
            written = platform_table(table, domain)
            snapshot = written.snapshot()
            crowded = (
                None if snapshot is None else plan_crowded(snapshot, self.settings.follow.most_small_files)
            )
            if snapshot is None or crowded is None:
                return
            with self._turns().take_if_free(table) as is_free:
                if is_free:
                    commit_compaction(
                        self.session,
                        written,
                        crowded,
                        wait_seconds=self.settings.runs.lock_wait_seconds,
                    )
        except Exception as error:  # noqa: BLE001 - whatever it is, rows go on without it
            if self.leaving():
                return
            self._look_at_engine(error)
            logger.warning("%s was not compacted: %s: %s", table, type(error).__name__, error)

    def _attempt(self, table: str, days: Sequence[dt.date], began: float) -> StepOutcome:
        placement = self.settings.placement()
        domain = place(placement, table)
        context = StepContext(
            session=self.session,
            domain=domain,
            lock_wait_seconds=self.settings.runs.lock_wait_seconds,
            domain_problem=lambda: placement.problem(domain),
            take_up=partial(take_up, placement),
            turns=self._turns(),
        )
        step = step_of(
            table,
            StepArguments(
                settings=self.settings,
                context=context,
                mode=ReadMode.INCREMENTAL,
                max_batch_bytes=self.settings.follow.max_batch_bytes,
                max_batches=1,
            ),
        )

        def run(keys: Sequence[str]) -> StepReport:
            if self.leaving():
                raise InterruptedError(f"{table} is left to whoever comes next")
            with context.turn(table), domain_watched(context):
                report = step.run([dt.date.fromisoformat(key) for key in keys])
                return replace(report, domain=domain.name)

        keys = tuple(day.isoformat() for day in days) if self._is_partitioned(table) else ()
        result = run_partitions(run, keys)
        failed: dict[dt.date | None, Exception] = {
            dt.date.fromisoformat(key): error for key, error in result.failed.items()
        }
        return StepOutcome(began=began, report=result.report, failed=failed)

    def _is_partitioned(self, table: str) -> bool:
        return self.settings.catalog().table(table).is_partitioned

    def _turns(self) -> TableQueue:
        def waiting() -> None:
            self.alive()
            if self.leaving():
                raise InterruptedError("whoever leaves waits for nothing")

        return TableQueue(folder=self.settings.turns_path, waiting=waiting)

    def _look_at_engine(self, error: Exception) -> None:
        """A local engine is gone for good with its process; to a server, another session is made."""
        if (driver := lost_driver_pid()) is not None:
            raise EngineLost(
                f"the Spark engine of this process (process {driver}) is gone",
                fix="start the follower again, as a supervisor does by itself: nothing acknowledged was lost; if it goes"
                " on, look for the kernel's out-of-memory killer and raise `spark.driver_memory`",
                driver=driver,
            ) from error
        if spark_went_away(error):
            self.renew()

"""Run steps for the worker: place each run, retry where that can help, split where a day's data is bad.

Belongs here: one step for some days, from its placement to its outcome. Does not belong here: which step
runs, and when (`worker.py`).
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from etl_assets.delta.maintenance.compaction import commit_compaction, plan_crowded
from etl_assets.delta.session import lost_driver_pid
from etl_assets.delta.write.raise_fence import raise_fence
from etl_assets.error_policy import Decision, decide, spark_went_away
from etl_assets.errors import ConnectionBusy, EngineLost, LeaseLost
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

    from etl_assets.delta.run_token import RunToken
    from etl_assets.settings import Settings

CONNECTION_WAIT_SECONDS = 0.5
"""How long a step waits for a slot of a connection before the worker goes on with something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """Outcome of a step.

    Attributes:
        began: Start of the last attempt (monotonic seconds). The attempt read everything that existed by
            then.
        report: Report of the work done; None if none was done.
        failed: Errors by day; under None if the error belongs to no day.
    """

    began: float
    report: StepReport | None
    failed: Mapping[dt.date | None, Exception] = field(default_factory=dict)

    @property
    def was_taken_over(self) -> bool:
        """Whether another runner has the run of the step by now, which is no failure of the run."""
        return any(isinstance(each, LeaseLost) for each in self.failed.values())

    @property
    def waits(self) -> bool:
        """Whether other steps use the connection, which is no failure either: the next look tries again."""
        return any(isinstance(each, ConnectionBusy) for each in self.failed.values())

    @property
    def has_failed(self) -> bool:
        """Whether the step has failed, and was not just too late or too early."""
        return bool(self.failed) and not self.was_taken_over and not self.waits


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRunner:
    """Run steps in one thread.

    Attributes:
        settings: The platform file.
        session: Returns this thread's own Spark session.
        renew: Discards that session, so that the next call creates a new one.
        wait: Waits for a number of seconds, or until the process is leaving.
        leaving: Whether this process is about to end. Its jobs then fail because they are cancelled, and no
            step begins.
        alive: Sends a heartbeat while a step waits for other writers of its table.
        token: Token of the run that the steps belong to; None for work of no run.
        fenced: The runs, of those that others were taken over from, that have rejected the runners before
            them at every table. Shared by all threads.
        max_batch_bytes: Input of one batch of a source; None: the platform file's value.
    """

    settings: Settings
    session: Callable[[], SparkSession]
    renew: Callable[[], None]
    wait: Callable[[float], object]
    leaving: Callable[[], bool]
    alive: Callable[[], object] = lambda: None
    token: RunToken | None = None
    fenced: set[RunToken] = field(default_factory=set)
    max_batch_bytes: int | None = None

    def run(self, table: str, days: Sequence[dt.date], *, repeat: bool = True) -> StepOutcome:
        """Run a table's step for some days, with the retries of the platform's runs unless `repeat` is false.

        Raises:
            EngineLost: the Spark engine of this process is lost for good.
        """
        attempts = self.settings.runs.max_retries + 1 if repeat else 1
        for attempt in range(attempts):
            began = time.monotonic()
            try:
                return self._attempt(table, days, began)
            except Exception as error:  # noqa: BLE001 - retried by the error policy or returned to the caller
                if self.leaving() or isinstance(error, ConnectionBusy):
                    return StepOutcome(began=began, report=None, failed={None: error})
                if isinstance(error, LeaseLost):
                    logger.warning("%s: %s", table, error)
                self._look_at_engine(error)
                if decide(error) is not Decision.RETRY or attempt + 1 == attempts:
                    return StepOutcome(began=began, report=None, failed={None: error})
                logger.warning("%s is tried again: %s: %s", table, type(error).__name__, error)
                self.wait(random.uniform(0, self.settings.runs.retry_delay_seconds * 2**attempt))
        raise AssertionError("unreachable: the last attempt returns")

    def tidy(self, table: str) -> None:
        """Compact a table's small files if a day has too many of them: each slows the next step down.

        A failure is logged, and the next call tries again. A table that another process is writing is left
        for the next call too.

        Raises:
            EngineLost: as for `run`.
        """
        try:
            domain = place(self.settings.placement(), table)
            written = platform_table(table, domain, run=self.token)
            snapshot = written.snapshot()
            crowded = (
                None if snapshot is None else plan_crowded(snapshot, self.settings.worker.most_small_files)
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
        except Exception as error:  # noqa: BLE001 - rows flow without compaction
            if self.leaving():
                return
            self._look_at_engine(error)
            logger.warning("%s was not compacted: %s: %s", table, type(error).__name__, error)

    def _attempt(self, table: str, days: Sequence[dt.date], began: float) -> StepOutcome:
        self._reject_lost_runners(table)
        placement = self.settings.placement()
        domain = place(placement, table)
        context = StepContext(
            session=self.session,
            domain=domain,
            lock_wait_seconds=self.settings.runs.lock_wait_seconds,
            domain_problem=lambda: placement.problem(domain),
            take_up=partial(take_up, placement),
            turns=self._turns(),
            connection_wait_seconds=CONNECTION_WAIT_SECONDS,
            run=self.token,
        )
        step = step_of(
            table,
            StepArguments(
                settings=self.settings,
                context=context,
                mode=ReadMode.INCREMENTAL,
                max_batch_bytes=self.max_batch_bytes or self.settings.worker.batch_bytes_of_each,
                max_batches=1,
            ),
        )

        def run(keys: Sequence[str]) -> StepReport:
            if self.leaving():
                raise InterruptedError(f"{table} is left to the next run")
            with context.turn(table), domain_watched(context):
                report = step.run([dt.date.fromisoformat(key) for key in keys])
                return replace(report, domain=domain.name)

        keys = tuple(day.isoformat() for day in days) if self._is_daily(table) else ()
        result = run_partitions(run, keys)
        failed: dict[dt.date | None, Exception] = {
            dt.date.fromisoformat(key): error for key, error in result.failed.items()
        }
        return StepOutcome(began=began, report=result.report, failed=failed)

    def _reject_lost_runners(self, table: str) -> None:
        """Before anything is done for a run that was taken over: raise its fence at every table.

        Raises:
            LeaseLost: another runner has taken the run over from this one.
        """
        if self.token is None or not self.token.takes_over or self.token in self.fenced:
            return
        placement, pipeline = self.settings.placement(), self.settings.catalog().pipeline_of(table)
        for stage in () if pipeline is None else pipeline.stages:
            for contract in stage.tables:
                written = platform_table(contract.name, place(placement, contract.name), run=self.token)
                raise_fence(written, wait_seconds=self.settings.runs.lock_wait_seconds)
        self.fenced.add(self.token)

    def _is_daily(self, table: str) -> bool:
        return self.settings.catalog().table(table).is_daily

    def _turns(self) -> TableQueue:
        def waiting() -> None:
            self.alive()
            if self.leaving():
                raise InterruptedError("a process that leaves waits for nothing")

        return TableQueue(folder=self.settings.turns_path, waiting=waiting)

    def _look_at_engine(self, error: Exception) -> None:
        """Raise if the local Spark engine is lost; renew the session if a Spark server was lost.

        A local engine is lost for good with its process; a server accepts another session.
        """
        if (driver := lost_driver_pid()) is not None:
            raise EngineLost(
                f"the Spark engine of this process (process {driver}) is gone",
                fix="start the worker again, as a supervisor does by itself: nothing acknowledged was lost;"
                " if it goes on, look for the kernel's out-of-memory killer and raise `spark.driver_memory`",
                driver=driver,
            ) from error
        if spark_went_away(error):
            self.renew()

"""The loop: find new files, carry them along their pipelines, update the derived tables, report to Dagster.

Each thread has one task, so that none waits for another:

- "path", as many as `worker.parallel` says: each takes the records of a source along the path of its
  pipeline for one micro-batch, then those of the pipeline whose turn is next (`turns.py`);
- "copy", as many as `worker.parallel_copies` says: the same for captured tables that are being copied;
- "resting" gives turns to pipelines that rest and may have something to do again (`rest_watch.py`);
- "derived" brings the derived tables of all pipelines up to date, in a Spark session of its own;
- "sinks" starts a thread for each sink that lacks something (`deliveries.py`);
- "schedules" asks for runs whose time has come (`scheduled_runs.py`), "control" claims runs, and looks at
  which pipelines are paused, canceled or failed (`carried_runs.py`);
- "captures" looks for new and changed tables of captures (`capture_watch.py`);
- "reports" reports to Dagster; the main thread takes up changed declarations, and waits for signals.

New and unfinished work is read from the tables, so that nothing depends on the memory of this process.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from etl_assets.errors import EngineLost, EtlAssetsError
from etl_assets.observability.days_behind import UpToDate, days_behind
from etl_assets.resources.cancellation import interrupted
from etl_assets.resources.spark import LONG_LIVED, spark_config
from etl_assets.steps.placing import once_led
from etl_assets.steps.step import READ, StepReport, logger
from etl_assets.worker.capture_watch import CaptureWatch
from etl_assets.worker.carried_runs import CarriedRuns
from etl_assets.worker.deliveries import Deliveries
from etl_assets.worker.failed_work import FailedWork
from etl_assets.worker.feed import Feed, entry_of, feed_with, feeds_of
from etl_assets.worker.invariant_watch import InvariantWatch
from etl_assets.worker.lease import Lease, lease
from etl_assets.worker.limit_watch import LimitWatch
from etl_assets.worker.pauses import WorkItem
from etl_assets.worker.repeated_tasks import repeat
from etl_assets.worker.reports import Reports
from etl_assets.worker.rest_watch import RestWatch
from etl_assets.worker.run_ends import RunEnds
from etl_assets.worker.scheduled_runs import LOOK_SECONDS, ScheduledRuns
from etl_assets.worker.session import Session
from etl_assets.worker.signals import interrupted_by
from etl_assets.worker.source_look import look_at_source
from etl_assets.worker.step_runner import StepOutcome, StepRunner
from etl_assets.worker.turns import Turns, thread_names

if TYPE_CHECKING:
    from etl_assets.delta.run_token import RunToken
    from etl_assets.pipelines.pipeline import Pipeline
    from etl_assets.settings import Settings
    from etl_assets.worker.reports import Event

JOIN_SECONDS = 10.0
"""How long to wait for the threads on leaving. The next process does interrupted steps again."""
_INTERRUPT_SECONDS = 0.25
"""Between two cancellations of Spark's jobs on leaving."""


class Worker:
    """Follow the sources of all pipelines until the process gets a signal to leave.

    Args:
        settings: The platform file.
        tell: Reports an event to Dagster.
        heard: Called with the report of each step that did something, after its commit, in the step's thread.
    """

    def __init__(
        self,
        settings: Settings,
        tell: Callable[[Event], None],
        *,
        heard: Callable[[str, StepReport], None] = lambda table, report: None,
    ) -> None:
        self._settings, self._pace = settings, settings.worker
        self._catalog = settings.catalog()
        self._feeds = feeds_of(self._catalog)
        self._heard = heard
        self._reports = Reports(settings, tell, worker=f"{socket.gethostname()}:{os.getpid()}")
        config = spark_config(settings.spark)
        self._config = config if "spark.remote" in config else LONG_LIVED | config  # a server has its own
        self._sessions = {each: Session(self._config) for each in ("path", "derived")}
        self._runs = CarriedRuns(
            settings,
            f"{socket.gethostname()}:{os.getpid()}",
            pipelines=lambda: [pipeline.name for pipeline in self._catalog.pipelines],
            begun=self._try_all_at_once,
            follows=lambda name: name not in self._catalog.scheduled,
        )
        self._schedules = ScheduledRuns(settings, lambda: self._catalog.pipelines, requested=self._runs.wake)
        self._ends = RunEnds(settings, self._runs)
        self._deliveries = Deliveries(
            settings,
            self._deliver_to,
            is_leaving=self._is_leaving,
            lost=self._end_with,
            working_on=lambda table: self._runs.working_on(self._pipeline_of(table)),
        )
        self._fenced: set[RunToken] = set()
        self._leaving = threading.Event()
        self._lost: BaseException | None = None
        self._is_lost = threading.Event()
        self._failures = FailedWork(settings.home)
        self._turns = Turns(interval_seconds=self._pace.batch_interval_seconds)
        self._limits = LimitWatch(settings)
        self._up_to_date = UpToDate()
        self._invariants = InvariantWatch(
            self._reports, self._failures.alert, interval_seconds=self._pace.report_interval_seconds
        )

    def run(self) -> None:
        """Follow the sources until SIGTERM or SIGINT.

        Raises:
            WorkerRunning: a worker runs on this home folder already.
            EngineLost: the Spark engine is lost. A supervisor starts the process again.
        """
        with lease(self._settings.home) as held, interrupted_by(signal.SIGTERM, signal.SIGINT):
            threads: list[threading.Thread] = []
            captures = CaptureWatch(self._settings, self._failures.alert)
            try:
                self._runs.look()  # before anything is worked on
                self._sessions["path"]()
                self._limits.look()
                threads = [
                    self._started("control", self._runs.look_and_wait, 0.0),
                    self._started("schedules", self._schedules.look, LOOK_SECONDS),
                    self._started("derived", self._bring_up_to_date, self._pace.derived_interval_seconds),
                    self._started("sinks", self._deliveries.look, self._pace.batch_interval_seconds),
                    self._started("captures", captures.look, 1.0),
                    self._started("resting", RestWatch(self._settings, self._turns).look, 1.0),
                    self._started("reports", self._reports.tell, self._pace.report_interval_seconds),
                ]
                captures.wait()
                self._give_turns()
                for name, copies in thread_names(self._pace.parallel, self._pace.parallel_copies).items():
                    take_turn = partial(self._take_turn, self._crew(name, held.alive), held, copies)
                    threads.append(self._started(name, take_turn, 0.0))
                self._carry_on(held)
            except KeyboardInterrupt:
                logger.warning("leaving: what has begun is cancelled, and done by the next run or worker")
            finally:
                self._leave(threads)

    def _carry_on(self, held: Lease) -> None:
        """Look after the threads until one of them ends the process."""
        while self._lost is None:
            began = time.monotonic()
            if self._turns.under_way < self._pace.threads:  # otherwise each step gives a sign of life
                held.alive()
            self._take_up_declarations()
            self._limits.look()
            self._ends.end_without_source(self._catalog.pipelines)
            self._turns.report_long_ones()
            self._is_lost.wait(max(0.0, began + self._pace.batch_interval_seconds - time.monotonic()))
        raise self._lost

    def _give_turns(self) -> None:
        logger.warning("working on the sources of %s", ", ".join(feed.pipeline.name for feed in self._feeds))
        self._behind()
        self._turns.follow(self._feeds, self._catalog.looked_up_by)

    def _take_turn(self, crew: StepRunner, held: Lease, copies: bool) -> None:
        """Take a turn of the next pipeline. An error that nothing expects lets that pipeline back off."""
        if (feed := self._turns.take(copies=copies)) is None:
            return
        try:
            self._follow(crew, feed, held)
        except EngineLost:
            raise
        except Exception as error:  # noqa: BLE001 - one pipeline never stops the others
            if not self._is_leaving():
                logger.exception("%s: a micro-batch has failed", feed.pipeline.name)
                self._failed(feed.path[0], (), {None: error})
        finally:
            self._turns.done(feed.pipeline.name)

    def _follow(self, crew: StepRunner, feed: Feed, held: Lease) -> None:
        """Carry a batch of a pipeline along its path, unless its state forbids it."""
        name, began = feed.pipeline.name, time.monotonic()
        with self._runs.working_on(name) as permit:
            if not permit:
                return
            crew = replace(crew, token=permit.token)
            run = self._runs.run_of(name)
            commits = 0.0 if run is None else run.progress.get("commits", 0.0)
            is_paused = name in self._limits.paused
            feed.waits = False
            if days := self._left_behind(feed) if is_paused else self._days_to_carry(feed):
                self._carry(crew, feed, days, held, reads=not is_paused)
            if run is not None:
                is_batch = run.progress.get("commits", 0.0) > commits
                if is_batch:
                    self._runs.add_batch(name, time.monotonic() - began)
                if not is_paused and not feed.waits:
                    self._ends.end_after_batch(feed, run, read_nothing=not is_batch)
            feed.rests = run is None and not days and not is_paused and feed.says_when
        self._runs.wait_for_look(name)

    def _try_all_at_once(self, pipeline: str) -> None:
        """End the backoffs of a pipeline: its run has attempts of its own."""
        for found in (each for each in self._catalog.pipelines if each.name == pipeline):
            self._failures.forget(found.names)
            self._deliveries.try_at_once(found.names)
            self._turns.wake([found.name])

    def _pipeline_of(self, table: str) -> str:
        pipeline = self._catalog.pipeline_of(table)
        return "" if pipeline is None else pipeline.name

    def _take_up_declarations(self) -> None:
        """Follow the pipelines as they are declared now; each goes on from where it is."""
        catalog = self._settings.catalog()
        if catalog is self._catalog:
            return
        self._catalog, self._feeds = catalog, feeds_of(catalog, self._feeds)
        self._give_turns()

    def _days_to_carry(self, feed: Feed) -> tuple[dt.date, ...]:
        """Return the days with unread files of a pipeline, and the days left unfinished on its path."""
        source = feed.pipeline.path[0]
        feed.found = None
        if not self._failures.ready([(looking := (source.name, None))]):
            return ()
        try:
            found = look_at_source(feed, self._settings, self._catalog)
        except (EtlAssetsError, OSError) as error:
            self._failed(source.name, (), {None: error})
            return ()
        self._failures.succeeded([looking])
        # The threads of copies go on with a pipeline whose copy begins.
        return () if feed.is_handed_over else self._left_behind(feed, found.ready)

    def _left_behind(self, feed: Feed, more: Iterable[dt.date] = ()) -> tuple[dt.date, ...]:
        """Return the days left unfinished on a pipeline's path, and some more, but those that back off."""
        source = feed.path[0]
        days = sorted({*more, *feed.take_left_behind()})
        return tuple(day for day in days if self._failures.ready([(source, day)]))

    def _carry(
        self, crew: StepRunner, feed: Feed, days: Sequence[dt.date], held: Lease, *, reads: bool = True
    ) -> None:
        """Carry days of a source along its pipeline's path, each as far as it gets.

        Without `reads`, the source is paused: only what it has read already is carried.
        """
        # If a reference table cannot be updated, no stage may look rows up in it: only read the source.
        tables = [stage.name for stage in feed.pipeline.reference]
        whole = all(
            self._failures.ready([(each, None)]) and not self._run(crew, each, days).failed for each in tables
        )
        left = list(days)
        for table in feed.path[0 if reads else 1 : None if whole else 1]:
            held.alive()  # for each step: a large backlog makes all of them together slow
            done = self._run(crew, table, left)
            feed.waits |= done.waits and table == feed.path[0]
            left = [] if None in done.failed else [day for day in left if day not in done.failed]
            if not left:
                return
        if whole:
            # Of this pipeline alone: others may be in the middle of a micro-batch.
            self._invariants.check(time.monotonic(), [feed], lambda: self._days_behind(feed.pipeline.names))
        for table in feed.path:
            held.alive()
            crew.tidy(table)

    def _bring_up_to_date(self) -> None:
        """Bring the derived tables up to date, and find unfinished work on the path."""
        behind = self._behind()
        crew = self._crew("derived")
        for pipeline in self._catalog.pipelines:
            with self._runs.working_on(pipeline.name) as permit:
                if permit:
                    self._bring_derived_up_to_date(replace(crew, token=permit.token), pipeline, behind)

    def _bring_derived_up_to_date(
        self, crew: StepRunner, pipeline: Pipeline, behind: Mapping[str, tuple[dt.date, ...]]
    ) -> None:
        for stage in pipeline.derived:
            table = stage.name
            things: list[WorkItem] = (
                [(table, day) for day in behind.get(table, ())] if stage.table.is_daily else [(table, None)]
            )
            if (
                table in behind
                and self._failures.ready([(table, None)])
                and (ready := self._failures.ready(things))
            ):
                self._run(crew, table, [day for _, day in ready if day is not None])
                crew.tidy(table)

    def _deliver_to(self, table: str, repeat: bool, token: RunToken | None) -> StepOutcome:
        done = replace(self._crew(table), token=token).run(table, [], repeat=repeat)
        self._take(table, [], done)
        if done.has_failed and not self._is_leaving():
            self._runs.fail(self._pipeline_of(table), next(iter(done.failed.values())))
        return done

    def _behind(self) -> Mapping[str, tuple[dt.date, ...]]:
        """Return the days that each table is behind; store those on paths for the threads of paths."""
        behind = self._days_behind()
        for feed in self._feeds:
            feed.leave_behind(day for table in feed.path for day in behind.get(table, ()))
        return behind

    def _days_behind(self, tables: Collection[str] | None = None) -> Mapping[str, tuple[dt.date, ...]]:
        try:
            placement = self._settings.placement()
            find = partial(days_behind, first_day=self._settings.start_date, known=self._up_to_date)
            return once_led(placement, lambda: find(placement.reader(), tables=tables))
        except (EtlAssetsError, OSError) as error:
            logger.warning("what is left undone cannot be told now: %s", error)
            return {}

    def _run(self, crew: StepRunner, table: str, days: Sequence[dt.date]) -> StepOutcome:
        done = crew.run(table, days)
        self._take(table, days, done)
        if done.has_failed and not self._is_leaving():
            self._failed(table, days, done.failed)
        return done

    def _take(self, table: str, days: Sequence[dt.date], done: StepOutcome) -> None:
        """Pass on the report of what a step did."""
        if not done.failed:
            self._ends.note_step(table, done.began)
        if done.report is None:
            return
        self._heard(table, done.report)
        if (feed := feed_with(self._feeds, table)) is not None and table == feed.path[0]:
            self._runs.add_rows(feed.pipeline.name, done.report.total()[READ], done.report.commits)
        kept = [day for day in days if day not in done.failed]
        self._reports.add(table, kept, done.report, done.began)
        # A day has succeeded once it reaches the end of the path.
        if all(table not in feed.path[:-1] for feed in self._feeds):
            self._failures.succeeded([(entry_of(self._feeds, table), day) for day in (None, *kept)])

    def _failed(
        self, table: str, days: Sequence[dt.date], failed: Mapping[dt.date | None, Exception]
    ) -> None:
        """Fail the run of a table's pipeline, back off from the failed days, and write an alert for each."""
        self._runs.fail(self._pipeline_of(table), next(iter(failed.values())))
        is_on_path = feed_with(self._feeds, table) is not None
        self._failures.failed(table, days, failed, entry=entry_of(self._feeds, table), is_of_days=is_on_path)

    def _crew(self, name: str, alive: Callable[[], object] = lambda: None) -> StepRunner:
        session = self._sessions.setdefault(name, Session(self._config))
        return StepRunner(
            settings=self._settings,
            session=session,
            renew=session.renew,
            wait=self._leaving.wait,
            leaving=self._is_leaving,
            alive=alive,
            fenced=self._fenced,
            max_batch_bytes=self._pace.batch_bytes_of_each,
        )

    def _end_with(self, error: BaseException) -> None:
        """Let the main thread raise an error of another one, the first if several come: the process ends."""
        self._lost = self._lost or error
        self._is_lost.set()

    def _is_leaving(self) -> bool:
        return interrupted() or self._leaving.is_set()

    def _started(self, name: str, task: Callable[[], object], interval_seconds: float) -> threading.Thread:
        return repeat(
            task,
            name=name,
            interval_seconds=interval_seconds,
            leaving=self._leaving,
            lost=lambda error: None if self._is_leaving() else self._end_with(error),
        )

    def _leave(self, threads: Sequence[threading.Thread]) -> None:
        self._leaving.set()
        self._turns.end()
        self._runs.wake()
        deadline = time.monotonic() + JOIN_SECONDS
        working = [*threads, *self._deliveries.threads]
        while working and time.monotonic() < deadline:
            for session in tuple(self._sessions.values()):
                session.interrupt()  # also jobs that a thread has begun since the last time
            working[0].join(_INTERRUPT_SECONDS)
            working = [each for each in working if each.is_alive()]
        self._runs.release()
        if threads:
            self._reports.tell()

"""The loop: find new files, carry them along their pipelines, update the derived tables, report to Dagster.

Each thread has one task, so that none waits for another:

- the main thread takes the records of each source along the path of its pipeline, one micro-batch after
  another;
- "derived" brings the derived tables of all pipelines up to date, in a Spark session of its own;
- "sinks" starts a thread for each sink that lacks something (`deliveries.py`);
- "schedules" asks for runs whose time has come (`scheduled_runs.py`), "control" claims runs, and looks at
  which pipelines are paused, canceled or failed (`carried_runs.py`);
- "captures" looks for new and changed tables of captures (`capture_watch.py`);
- "reports" reports to Dagster.

New and unfinished work is read from the tables each time, so that no correctness depends on this process's
memory.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from etl_assets.error_policy import told
from etl_assets.errors import EtlAssetsError
from etl_assets.observability.pending import days_behind, watch_source
from etl_assets.resources.cancellation import interrupted
from etl_assets.resources.spark import LONG_LIVED, spark_config
from etl_assets.sensors.alerts import AlertKind, write_alert
from etl_assets.steps.placing import once_led
from etl_assets.steps.step import READ, StepReport, logger
from etl_assets.worker.capture_watch import CaptureWatch
from etl_assets.worker.carried_runs import CarriedRuns
from etl_assets.worker.deliveries import Deliveries
from etl_assets.worker.feed import Feed, feeds_of
from etl_assets.worker.invariant_watch import InvariantWatch
from etl_assets.worker.lease import Lease, lease
from etl_assets.worker.limit_watch import LimitWatch
from etl_assets.worker.pauses import Backoffs, WorkItem
from etl_assets.worker.repeated_tasks import repeat
from etl_assets.worker.reports import Reports
from etl_assets.worker.run_ends import RunEnds
from etl_assets.worker.scheduled_runs import LOOK_SECONDS, ScheduledRuns
from etl_assets.worker.session import Session
from etl_assets.worker.signals import interrupted_by
from etl_assets.worker.step_runner import StepOutcome, StepRunner

if TYPE_CHECKING:
    from etl_assets.delta.run_token import RunToken
    from etl_assets.pipelines.pipeline import Pipeline
    from etl_assets.settings import Settings
    from etl_assets.worker.reports import Event

MAX_DAYS_PER_LOOK = 1_000
JOIN_SECONDS = 10.0
"""How long to wait for the threads on leaving. The next process does interrupted steps again."""


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
        self._waiting: set[str] = set()  # sources whose last step found no slot of a connection
        self._leaving = threading.Event()
        self._lost: Exception | None = None
        self._pauses: Backoffs = Backoffs()
        self._pauses_lock = threading.Lock()
        self._limits = LimitWatch(settings)
        self._invariants = InvariantWatch(
            self._reports, self._alert, interval_seconds=self._pace.report_interval_seconds
        )

    def run(self) -> None:
        """Follow the sources until SIGTERM or SIGINT.

        Raises:
            WorkerRunning: a worker runs on this home folder already.
            EngineLost: the Spark engine is lost. A supervisor starts the process again.
        """
        with lease(self._settings.home) as held, interrupted_by(signal.SIGTERM, signal.SIGINT):
            threads: list[threading.Thread] = []
            try:
                self._runs.look()  # before anything is worked on
                self._sessions["path"]()
                logger.warning("working on the sources of %s", self._followed())
                threads = [
                    self._started("control", self._runs.look_and_wait, 0.0),
                    self._started("schedules", self._schedules.look, LOOK_SECONDS),
                    self._started("derived", self._bring_up_to_date, self._pace.derived_interval_seconds),
                    self._started("sinks", self._deliveries.look, self._pace.batch_interval_seconds),
                    self._started("captures", CaptureWatch(self._settings, self._alert).look, 1.0),
                    self._started("reports", self._reports.tell, self._pace.report_interval_seconds),
                ]
                self._carry_on(held)
            except KeyboardInterrupt:
                logger.warning("leaving: what has begun is cancelled, and done by the next run or worker")
            finally:
                self._leave(threads)

    def _carry_on(self, held: Lease) -> None:
        crew = self._crew("path", held.alive)
        self._behind()
        while self._lost is None:
            began = time.monotonic()
            held.alive()
            self._take_up_declarations()
            self._limits.look()
            for feed in self._feeds:
                self._follow(crew, feed, held)
            self._ends.end_without_source(self._catalog.pipelines)
            self._leaving.wait(max(0.0, began + self._pace.batch_interval_seconds - time.monotonic()))
        raise self._lost

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
            self._waiting.discard(feed.path[0])
            if days := self._left_behind(feed) if is_paused else self._days_to_carry(feed):
                self._carry(crew, feed, days, held, reads=not is_paused)
            if run is not None:
                is_batch = run.progress.get("commits", 0.0) > commits
                if is_batch:
                    self._runs.add_batch(name, time.monotonic() - began)
                if not is_paused and feed.path[0] not in self._waiting:
                    self._ends.end_after_batch(feed, run, read_nothing=not is_batch)
        self._runs.wait_for_look(name)

    def _try_all_at_once(self, pipeline: str) -> None:
        """End the backoffs of a pipeline: its run has attempts of its own."""
        for found in (each for each in self._catalog.pipelines if each.name == pipeline):
            with self._pauses_lock:
                self._pauses = self._pauses.without(found.names)
            self._deliveries.try_at_once(found.names)

    def _pipeline_of(self, table: str) -> str:
        pipeline = self._catalog.pipeline_of(table)
        return "" if pipeline is None else pipeline.name

    def _take_up_declarations(self) -> None:
        """Follow the pipelines as they are declared now; each goes on from where it is."""
        catalog = self._settings.catalog()
        if catalog is self._catalog:
            return
        self._catalog, self._feeds = catalog, feeds_of(catalog, self._feeds)
        logger.warning("working on the sources of %s", self._followed())
        self._behind()

    def _followed(self) -> str:
        return ", ".join(feed.pipeline.name for feed in self._feeds)

    def _days_to_carry(self, feed: Feed) -> tuple[dt.date, ...]:
        """Return the days with unread files of a pipeline, and the days left unfinished on its path."""
        source = feed.pipeline.path[0]
        feed.found = None
        if not self._ready([(looking := (source.name, None))]):
            return ()
        try:
            found = once_led(
                self._settings.placement(),
                lambda: watch_source(
                    source,
                    self._settings,
                    feed.cursor,
                    now=dt.datetime.now(dt.UTC),
                    most_days=MAX_DAYS_PER_LOOK,
                ),
            )
        except (EtlAssetsError, OSError) as error:
            self._failed(source.name, (), {None: error})
            return ()
        self._succeeded([looking])
        feed.cursor, feed.found = found.cursor, found
        for day, why in found.unreadable.items():
            if feed.unreadable.get(day) != why:
                logger.warning("%s: %s: %s", source.name, day, why)
        for name in found.changed:
            logger.warning("%s changed after being read and is read again", name)
        feed.unreadable = found.unreadable
        return self._left_behind(feed, found.ready)

    def _left_behind(self, feed: Feed, more: Iterable[dt.date] = ()) -> tuple[dt.date, ...]:
        """Return the days left unfinished on a pipeline's path, and some more, but those that back off."""
        source = feed.path[0]
        days = sorted({*more, *feed.take_left_behind()})
        return tuple(day for day in days if self._ready([(source, day)]))

    def _carry(
        self, crew: StepRunner, feed: Feed, days: Sequence[dt.date], held: Lease, *, reads: bool = True
    ) -> None:
        """Carry days of a source along its pipeline's path, each as far as it gets.

        Without `reads`, the source is paused: only what it has read already is carried.
        """
        # If a reference table cannot be updated, no stage may look rows up in it: only read the source.
        tables = [stage.name for stage in feed.pipeline.reference]
        whole = all(self._ready([(each, None)]) and not self._run(crew, each, days).failed for each in tables)
        left = list(days)
        for table in feed.path[0 if reads else 1 : None if whole else 1]:
            held.alive()  # for each step: a large backlog makes all of them together slow
            done = self._run(crew, table, left)
            left = [] if None in done.failed else [day for day in left if day not in done.failed]
            if not left:
                return
        if whole:
            self._invariants.check(time.monotonic(), self._feeds, self._behind)
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
            if stage.delivers:
                continue
            table = stage.name
            things: list[WorkItem] = (
                [(table, day) for day in behind.get(table, ())] if stage.table.is_daily else [(table, None)]
            )
            if table in behind and self._ready([(table, None)]) and (ready := self._ready(things)):
                self._run(crew, table, [day for _, day in ready if day is not None])
                crew.tidy(table)

    def _deliver_to(self, table: str, repeat: bool, token: RunToken | None) -> StepOutcome:
        done = replace(self._crew(table), token=token).run(table, [], repeat=repeat)
        self._take(table, [], done)
        if done.has_failed and not self._is_leaving():
            self._runs.fail(self._pipeline_of(table), next(iter(done.failed.values())))
        return done

    def _behind(self) -> Mapping[str, tuple[dt.date, ...]]:
        """Return the days that each table is behind; store those on paths for the main thread."""
        try:
            placement = self._settings.placement()
            behind = once_led(placement, lambda: days_behind(placement.reader(), self._settings.start_date))
        except (EtlAssetsError, OSError) as error:
            logger.warning("what is left undone cannot be told now: %s", error)
            return {}
        for feed in self._feeds:
            feed.left_behind = frozenset(day for table in feed.path for day in behind.get(table, ()))
        return behind

    def _run(self, crew: StepRunner, table: str, days: Sequence[dt.date]) -> StepOutcome:
        done = crew.run(table, days)
        if done.waits:
            self._waiting.add(table)
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
        if (feed := self._feed_of(table)) is not None and table == feed.path[0]:
            self._runs.add_rows(feed.pipeline.name, done.report.total()[READ], done.report.commits)
        kept = [day for day in days if day not in done.failed]
        self._reports.add(table, kept, done.report, done.began)
        # A day has succeeded once it reaches the end of the path.
        if all(table not in feed.path[:-1] for feed in self._feeds):
            self._succeeded([(self._entry(table), day) for day in (None, *kept)])

    def _failed(
        self, table: str, days: Sequence[dt.date], failed: Mapping[dt.date | None, Exception]
    ) -> None:
        """Back off from the failed days and write an alert for each, as for a failed run."""
        self._runs.fail(self._pipeline_of(table), next(iter(failed.values())))
        for day, error in failed.items():
            blamed = sorted(days) if day is None else [day]
            logger.error("%s: %s", table, text := told(error))
            partition = f"{blamed[0]}..{blamed[-1]}" if blamed else ""
            self._alert({"partition": partition, "step": table, "error": text[:2_000]})
            whole = day is None and (self._feed_of(table) is None or not blamed)
            things: list[WorkItem] = [(self._entry(table), each) for each in ([None] if whole else blamed)]
            with self._pauses_lock:
                self._pauses = self._pauses.failed(things, error, time.monotonic())

    def _alert(self, alert: Mapping[str, str]) -> None:
        with suppress(OSError):  # the disk may be what failed
            write_alert(self._settings.home, AlertKind.RUN_FAILED, {"run_id": "", "job": "worker", **alert})

    def _succeeded(self, things: Collection[WorkItem]) -> None:
        with self._pauses_lock:
            self._pauses = self._pauses.succeeded(things)

    def _ready(self, things: Collection[WorkItem]) -> tuple[WorkItem, ...]:
        with self._pauses_lock:
            return self._pauses.ready(things, time.monotonic())

    def _entry(self, table: str) -> str:
        """Return the table under which days back off: that at which they enter the path, or the table."""
        return table if (feed := self._feed_of(table)) is None else feed.path[0]

    def _feed_of(self, table: str) -> Feed | None:
        """Return the feed whose path has a table."""
        return next((feed for feed in self._feeds if table in feed.path), None)

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
        )

    def _end_with(self, error: Exception) -> None:
        """Let the main thread raise an error of another one, which ends the process."""
        self._lost = error

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
        self._runs.wake()
        for session in tuple(self._sessions.values()):
            session.interrupt()
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in (*threads, *self._deliveries.threads):
            thread.join(max(0.0, deadline - time.monotonic()))
        self._runs.release()
        if threads:
            self._reports.tell()

"""When a run has carried everything: what its source had when it began, through the tables to the sinks.

A source may never be empty, so a run does not wait for that. Belongs here: that decision. Does not belong
here: telling the store (`carried_runs.py`).
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from etl_assets.errors import EtlAssetsError, SourceUnreadable
from etl_assets.observability.days_behind import days_behind
from etl_assets.observability.pending import source_of
from etl_assets.steps.placing import once_led, place
from etl_assets.steps.step import logger

if TYPE_CHECKING:
    from etl_assets.pipelines.pipeline import Pipeline
    from etl_assets.settings import Settings
    from etl_assets.sources.unread_days import Watched
    from etl_assets.worker.carried_runs import CarriedRun, CarriedRuns
    from etl_assets.worker.feed import Feed


class RunEnds:
    """End the runs that a worker carries, once they have carried everything.

    Args:
        settings: The platform file.
        runs: The runs.
    """

    def __init__(self, settings: Settings, runs: CarriedRuns) -> None:
        self._settings, self._runs = settings, runs
        self._current_at: dict[str, float] = {}  # each table has one thread at a time

    def note_step(self, table: str, began: float) -> None:
        """Note that a step of a table has succeeded that began at a monotonic time."""
        self._current_at[table] = began

    def end_after_batch(self, feed: Feed, run: CarriedRun, *, read_nothing: bool) -> None:
        """End a run after a batch, if it was the last one.

        Args:
            feed: The pipeline, with what the look at its source before the batch has found.
            run: Its run, which was there before that look.
            read_nothing: Whether the batch has committed nothing.
        """
        try:
            is_read = self._source_is_read(feed, run, read_nothing=read_nothing)
        except (EtlAssetsError, OSError) as error:
            logger.warning("what %s has read cannot be told now: %s", feed.pipeline.name, error)
            return
        if is_read:
            self._end_if_current(feed.pipeline, run)

    def end_without_source(self, pipelines: Iterable[Pipeline]) -> None:
        """End the runs of those of some pipelines that read no source."""
        for pipeline in pipelines:
            if not pipeline.path and (run := self._runs.run_of(pipeline.name)) is not None:
                self._end_if_current(pipeline, run)

    def _end_if_current(self, pipeline: Pipeline, run: CarriedRun) -> None:
        """End a run whose source is read, once the tables are current and the sinks have everything.

        A table that is behind again is current enough if a step of it has begun since the source was read.
        """
        since = run.progress.setdefault("source_read", time.monotonic())
        placement, first_day, names = self._settings.placement(), self._settings.start_date, pipeline.names
        try:
            behind = once_led(placement, lambda: days_behind(placement.reader(), first_day, tables=names))
        except (EtlAssetsError, OSError) as error:
            logger.warning("whether the run of %s is complete cannot be told now: %s", pipeline.name, error)
            return
        if all(self._current_at.get(table, 0.0) > since for table in behind):
            self._runs.complete(pipeline.name)

    def _source_is_read(self, feed: Feed, run: CarriedRun, *, read_nothing: bool) -> bool:
        if "source_read" in run.progress:
            return True
        found = feed.found
        if found is None:
            return False
        if found.unreadable:
            day, why = next(iter(found.unreadable.items()))
            error = SourceUnreadable(f"{day}: {why}", fix="see what it names, then `retry`", file=f"{day}")
            self._runs.fail(feed.pipeline.name, error)
            return False
        self._note_first_look(run, found)
        stage = feed.pipeline.path[0]
        domain = place(self._settings.placement(), stage.name)
        # Days that have something unread, of which nothing was read: another process has just read it.
        is_read = bool(found.ready and read_nothing) or has_read_all(
            found,
            begun=run.begun,
            elapsed_seconds=time.monotonic() - run.progress["first_look"],
            settle_seconds=source_of(stage, self._settings, domain).settle_seconds,
            read=run.progress.get("read", 0.0),
            first_records=run.progress.get("first_records"),
            newest_ns=run.progress.get("newest_ns"),
        )
        if is_read:
            run.progress["source_read"] = time.monotonic()
        return is_read

    @staticmethod
    def _note_first_look(run: CarriedRun, found: Watched) -> None:
        """Keep what a run has to read, as of its first look at the source."""
        progress = run.progress
        if found.lag is not None and found.lag.records is not None:
            progress.setdefault("first_records", found.lag.records)
        # Files that were left alone at first, or in days that were left to a later look, are the run's too.
        if not progress.get("has_seen_all_files"):
            progress.setdefault("first_look", time.monotonic())
            if found.newest_ns is not None:
                progress["newest_ns"] = max(progress.get("newest_ns", 0), found.newest_ns)
            progress["has_seen_all_files"] = not (found.left or found.unsettled)


def has_read_all(
    found: Watched,
    *,
    begun: dt.datetime,
    elapsed_seconds: float,
    settle_seconds: float,
    read: float,
    first_records: float | None,
    newest_ns: float | None,
) -> bool:
    """Return whether all that is unread came after the run began.

    The clock of this process may differ from that of a source, so times of a source are compared with
    each other, where it gives any.

    Args:
        found: What is unread, by a look after the run began.
        begun: When the run began, by this process's clock.
        elapsed_seconds: How long ago the first look was.
        settle_seconds: How long a file is left alone after a change. One that is still left alone later
            than that has changed since.
        read: Records that the run has read.
        first_records: Records that were unread at its first look, if the source counts them.
        newest_ns: When the newest file that was unread at the first look was changed; None if there was none.
    """
    if found.left:
        return False
    if found.unsettled and elapsed_seconds < settle_seconds:
        return False
    if found.files and (found.oldest_ns is None or (newest_ns is not None and found.oldest_ns <= newest_ns)):
        return False
    lag = found.lag
    if lag is None or lag.records == 0:
        return True
    if first_records is not None and read >= first_records:
        return True
    return lag.records is None and lag.oldest is not None and lag.oldest > begun

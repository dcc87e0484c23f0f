"""Reports of the worker to Dagster: materializations without a run, with the metadata of a run, and checks.

Many micro-batches become one report: numbers are summed by asset and day until they are reported. While
Dagster's database is unavailable, reports are kept for the next attempt. A killed worker loses numbers,
never rows. At most one event is reported twice: the one whose acknowledgement was lost.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import dagster as dg

from etl_assets.instance import open_instance
from etl_assets.metadata import partitions_metadata, run_metadata
from etl_assets.steps.step import StepReport, logger, platform_table
from etl_assets.worker.captured_phases import CapturedPhases

if TYPE_CHECKING:
    from etl_assets.pipelines.invariant import Invariant, InvariantResult
    from etl_assets.settings import Settings

_MAX_NOTES = 50
Event = dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation


class Dagster:
    """The Dagster instance of an installation, opened at the first report.

    It is not opened earlier because its database may be unavailable then.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._instance: dg.DagsterInstance | None = None

    def take(self, event: Event) -> None:
        """Store an event in Dagster.

        Raises:
            Exception: any error of the database; the event was not stored, or that is unknown.
        """
        if self._instance is None:
            self._instance = open_instance(self._settings)
        self._instance.report_runless_asset_event(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreported:
    """Work on a table that has not been reported yet.

    Attributes:
        days: The days it was brought up to date for.
        report: Sum of the steps' reports, including their totals without days.
        as_of: Start of the last step's read. Everything that existed by then is in the table.
    """

    days: frozenset[dt.date]
    report: StepReport
    as_of: float

    def __add__(self, later: Unreported) -> Unreported:
        return Unreported(
            days=self.days | later.days,
            report=_summed(self.report, later.report),
            as_of=max(self.as_of, later.as_of),
        )

    def without(self, day: dt.date | None) -> Unreported:
        """Return the rest after a day, or a table without days, was reported."""
        counts = {of: figures for of, figures in self.report.counts.items() if of != day}
        return replace(self, days=self.days - {day}, report=replace(self.report, counts=counts))


class Reports:
    """Collect the reports of steps from several threads, and send them to Dagster from one.

    Args:
        settings: The platform file.
        tell: Reports an event to Dagster; an error keeps the event for the next time.
        worker: Name of the worker in the metadata.
    """

    def __init__(self, settings: Settings, tell: Callable[[Event], None], *, worker: str) -> None:
        self._settings, self._tell, self._worker = settings, tell, worker
        self._unreported: dict[str, Unreported] = {}
        self._checks: dict[tuple[str, str], dg.AssetCheckEvaluation] = {}
        self._phases = CapturedPhases(settings)
        self._observations: dict[dg.AssetKey, dg.AssetObservation] = {}
        self._lock = threading.Lock()

    def add(self, table: str, days: Sequence[dt.date], report: StepReport, as_of: float) -> None:
        """Add the report of a step that ran for some days."""
        new = Unreported(days=frozenset(days), report=report, as_of=as_of)
        with self._lock:
            self._unreported[table] = self._unreported[table] + new if table in self._unreported else new

    def check(self, invariants: Iterable[Invariant]) -> dict[tuple[str, str], str]:
        """Evaluate invariants. Call it only when no table of their path is behind an earlier one.

        Returns:
            The invariants that do not hold, in words, by asset and check.
        """
        domain = self._settings.placement().reader()
        broken = {}
        for invariant in invariants:
            result = invariant.evaluate(domain)
            key = invariant.table, invariant.name
            if not result.passed:
                broken[key] = f"{invariant.name} does not hold: {_told(result)}"
            with self._lock:
                self._checks[key] = dg.AssetCheckEvaluation(
                    asset_key=dg.AssetKey(invariant.table),
                    check_name=invariant.name,
                    passed=result.passed,
                    metadata=dict(result.metadata),
                    blocking=True,
                )
        return broken

    def tell(self) -> bool:
        """Send all pending events to Dagster, and what is new of captured tables. Return whether all went.

        Events go out in the order in which the tables were brought up to date. Dagster therefore sees a table
        as newer than its inputs only if the table has consumed them.
        """
        with self._lock:
            unreported, self._unreported = self._unreported, {}
            checks, self._checks = self._checks, {}
        try:
            for table, news in sorted(unreported.items(), key=lambda item: item[1].as_of):
                for day, event in self._materializations(table, news):
                    self._tell(event)
                    unreported[table] = unreported[table].without(day)
                del unreported[table]
            for key, evaluation in list(checks.items()):
                self._tell(evaluation)
                del checks[key]
            self._observations |= {each.asset_key: each for each in self._phases.news()}
            for asset, observation in list(self._observations.items()):
                self._tell(observation)
                del self._observations[asset]
        except Exception as error:  # noqa: BLE001 - data flows whatever fails in Dagster
            logger.warning(
                "Dagster cannot be told what was done (%s: %s); it is told later, and data goes on",
                type(error).__name__,
                error,
            )
            self._keep(unreported, checks)
            return False
        return True

    def _keep(
        self, unreported: dict[str, Unreported], checks: dict[tuple[str, str], dg.AssetCheckEvaluation]
    ) -> None:
        with self._lock:
            later = {
                table: unreported[table] + news if table in unreported else news
                for table, news in self._unreported.items()
            }
            self._unreported = unreported | later
            self._checks = checks | self._checks

    def _materializations(
        self, table: str, news: Unreported
    ) -> Iterator[tuple[dt.date | None, dg.AssetMaterialization]]:
        """Yield the materializations by day; under None for a table without days."""
        written = platform_table(table, self._settings.placement().reader())
        is_daily = self._settings.catalog().table(table).is_daily
        keys = [day.isoformat() for day in sorted(news.days)] if is_daily else []
        whole = run_metadata(written, news.report, of=max(1, len(keys)), settings=self._settings)
        whole["worker"] = self._worker
        if not keys:
            yield None, dg.AssetMaterialization(table, metadata=whole)
        for key, figures in partitions_metadata(written, news.report, keys).items():
            yield (
                dt.date.fromisoformat(key),
                dg.AssetMaterialization(table, partition=key, metadata={**whole, **figures}),
            )


def _summed(one: StepReport, other: StepReport) -> StepReport:
    """Add two reports of a table. Numbers known only for all days together stay totals."""
    both = one + other
    return replace(both, notes=both.notes[-_MAX_NOTES:], domain=other.domain or one.domain)


def _told(result: InvariantResult) -> str:
    return ", ".join(f"{name} {value}" for name, value in result.metadata.items())

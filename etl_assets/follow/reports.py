"""What the follower tells Dagster: materializations without a run, with the figures that runs give, and evaluated checks.

Many micro-batches become one report: figures are summed for each asset and day until they are told. What cannot be told,
because Dagster's database is away, is kept and told with the next report; only a killed follower takes figures with it,
never rows. Told twice is at most the one event whose answer was lost.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg

from etl_assets.instance import open_instance
from etl_assets.metadata import partitions_metadata, run_metadata
from etl_assets.orders.checks import INVARIANTS
from etl_assets.steps.step import StepReport, logger, platform_table

if TYPE_CHECKING:
    from etl_assets.settings import Settings

_MAX_NOTES = 50
Event = dg.AssetMaterialization | dg.AssetCheckEvaluation


class Dagster:
    """The instance of an installation, opened when there is something to tell: its database may be away by then."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._instance: dg.DagsterInstance | None = None

    def take(self, event: Event) -> None:
        """Have an event written down.

        Raises:
            Exception: whatever keeps the database from answering; the event was not taken, or that is unknown.
        """
        if self._instance is None:
            self._instance = open_instance(self._settings)
        self._instance.report_runless_asset_event(event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreported:
    """What happened to a table since it was last told.

    Attributes:
        days: The days it was brought up to date for.
        report: What the steps did, summed; their totals without days are in it.
        as_of: When the last of them began to read: what was there by then is in the table.
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
        """What is left when a day, or the table without days, has been told."""
        counts = {of: figures for of, figures in self.report.counts.items() if of != day}
        return replace(self, days=self.days - {day}, report=replace(self.report, counts=counts))


class Reports:
    """Gathers what steps did, from several threads, and tells Dagster of it from one.

    Args:
        settings: The platform file.
        tell: Has Dagster write an event down; an error keeps it for the next time.
        follower: What to name the follower in the metadata.
    """

    def __init__(self, settings: Settings, tell: Callable[[Event], None], *, follower: str) -> None:
        self._settings, self._tell, self._follower = settings, tell, follower
        self._untold: dict[str, Unreported] = {}
        self._checks: dict[tuple[str, str], dg.AssetCheckEvaluation] = {}
        self._lock = threading.Lock()

    def add(self, table: str, days: Sequence[dt.date], report: StepReport, as_of: float) -> None:
        """A step was run for some days."""
        new = Unreported(days=frozenset(days), report=report, as_of=as_of)
        with self._lock:
            self._untold[table] = self._untold[table] + new if table in self._untold else new

    def check(self) -> dict[tuple[str, str], str]:
        """Evaluate the invariants; to be called where no table of the path is ahead of another by what is in the making.

        Returns:
            What does not hold, in words, by asset and check.
        """
        domain = self._settings.placement().reader()
        broken = {}
        for invariant in INVARIANTS:
            result = invariant.evaluate(domain)
            if not result.passed:
                broken[invariant.asset, invariant.name] = f"{invariant.name} does not hold: {_told(result)}"
            with self._lock:
                self._checks[invariant.asset, invariant.name] = dg.AssetCheckEvaluation(
                    asset_key=dg.AssetKey(invariant.asset),
                    check_name=invariant.name,
                    passed=bool(result.passed),
                    metadata=result.metadata,
                    blocking=True,
                )
        return broken

    def tell(self) -> bool:
        """Tell all there is to tell; whether that went well.

        In the order in which the tables were brought up to date, so that Dagster sees one as newer than its inputs only if it
        has them.
        """
        with self._lock:
            untold, self._untold = self._untold, {}
            checks, self._checks = self._checks, {}
        try:
            for table, news in sorted(untold.items(), key=lambda item: item[1].as_of):
                for day, event in self._materializations(table, news):
                    self._tell(event)
                    untold[table] = untold[table].without(day)
                del untold[table]
            for key, evaluation in list(checks.items()):
                self._tell(evaluation)
                del checks[key]
        except Exception as error:  # noqa: BLE001 - whatever keeps Dagster from taking it: data goes on
            logger.warning(
                "Dagster cannot be told what was done (%s: %s); it is told later, and data goes on",
                type(error).__name__,
                error,
            )
            self._keep(untold, checks)
            return False
        return True

    def _keep(
        self, untold: dict[str, Unreported], checks: dict[tuple[str, str], dg.AssetCheckEvaluation]
    ) -> None:
        with self._lock:
            later = {
                table: untold[table] + news if table in untold else news
                for table, news in self._untold.items()
            }
            self._untold = untold | later
            self._checks = checks | self._checks

    def _materializations(
        self, table: str, news: Unreported
    ) -> Iterator[tuple[dt.date | None, dg.AssetMaterialization]]:
        """By day; by None of a table without days."""
        written = platform_table(table, self._settings.placement().reader())
        is_partitioned = self._settings.catalog().table(table).is_partitioned
        keys = [day.isoformat() for day in sorted(news.days)] if is_partitioned else []
        whole = run_metadata(written, news.report, of=max(1, len(keys))) | {"follower": self._follower}
        if not keys:
            yield None, dg.AssetMaterialization(table, metadata=whole)
        for key, figures in partitions_metadata(written, news.report, keys).items():
            yield (
                dt.date.fromisoformat(key),
                dg.AssetMaterialization(table, partition=key, metadata={**whole, **figures}),
            )


def _summed(one: StepReport, other: StepReport) -> StepReport:
    """Two reports of a table as one; figures that were known for all days together only stay so."""
    both = one + other
    return replace(both, notes=both.notes[-_MAX_NOTES:], domain=other.domain or one.domain)


def _told(result: Any) -> str:
    metadata = result.metadata or {}
    return ", ".join(f"{name} {getattr(value, 'value', value)}" for name, value in metadata.items())

"""The generator of events: any number, the same for the same specification, with every fault counted.

Orders are created evenly over the days, their events arrive as they happen, late ones days after. Faulty
lines come after the event they belong to. Belongs here: the specification, when lines arrive, which file they
are in. Does not belong here: the orders themselves (`life_cycle.py`) and the text of faulty lines
(`faults.py`).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from random import Random

from etl_assets.errors import SettingsError
from etl_assets.orders.generator.faults import Fault, FaultRates, FaultyLines, plan_faults
from etl_assets.orders.generator.life_cycle import Order, Tenant
from etl_assets.orders.generator.reference import add_customers
from etl_assets.orders.generator.summary import EventsSummary, Tally
from etl_assets.orders.generator.wire import DAY_MS, WireEvent, epoch_ms_of, time_ordered_id
from etl_assets.orders.generator.writer import LandingWriter

_MAX_DAYS_LATE = 5
_USUAL_DAYS = 20
_EVENTS_PER_REPORT = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSpec:
    """Specification of the events.

    Equal specifications give the same files, byte for byte; any other gives other events.

    Args:
        events: Distinct good events; faulty lines come on top.
        start: The first arrival day.
        days: Number of days.
        tenants: Number of producers.
        seed: Chooses one of many equally good results.
        rates: Faulty lines and late events for each good event.
        files_per_day: Files over which each day's lines are spread; a file without lines is not written.

    Raises:
        SettingsError: A number is out of its range.
    """

    events: int
    start: date
    days: int = 7
    tenants: int = 4
    seed: int = 1
    rates: FaultRates = field(default_factory=FaultRates)
    files_per_day: int = 1

    def __post_init__(self) -> None:
        limits = {"events": 10**9, "days": 36_500, "tenants": 100_000, "files_per_day": 10_000}
        for name, most in limits.items():
            if not 1 <= getattr(self, name) <= most:
                raise _out_of_range(name, getattr(self, name), f"1 to {most}")
        if not date(2000, 1, 1) <= self.start <= date(2999, 1, 1):
            raise _out_of_range("start", self.start, "2000-01-01 to 2999-01-01")

    @property
    def name(self) -> str:
        """Prefix of the files' names: the seed and a digest of the whole specification."""
        digest = hashlib.sha256(repr(self).encode()).hexdigest()
        return f"generated-{self.seed}-{digest[:8]}"


def generate(
    spec: EventsSpec, landing: Path, *, on_progress: Callable[[int], None] | None = None
) -> EventsSummary:
    """Land the events of a specification and add their customers to the reference data.

    Files are written in the order of arrival; generating the same specification again writes nothing. Memory
    holds the lines that have not been landed, a few days' worth; or all lines, some 450 bytes each, if one
    file has them all.

    Args:
        spec: The specification.
        landing: The landing folder.
        on_progress: Called at intervals with the number of good events generated so far.

    Returns:
        The exact counts.

    Raises:
        LandingFileDiffers: A file of the same name has other content.
        LandingNotWritten: The file system refused.
    """
    tenants = [
        Tenant.numbered(n, min(max(spec.events // (20 * spec.tenants), 10), 10_000))
        for n in range(spec.tenants)
    ]
    tally = Tally()
    regions = {customer: region for tenant in tenants for customer, region in tenant.regions().items()}
    add_customers(landing, regions)
    tally.customers = len(regions)
    arrivals = _Arrivals(spec, LandingWriter(landing), tally)
    _Production(spec, tenants, arrivals, tally).run(on_progress)
    arrivals.land_before(None)
    return tally.summary()


class _Arrivals:
    """Lines on their way to the files of a specification: each file covers an equal part of its day."""

    def __init__(self, spec: EventsSpec, writer: LandingWriter, tally: Tally) -> None:
        midnight = datetime(spec.start.year, spec.start.month, spec.start.day, tzinfo=UTC)
        self.start_ms = epoch_ms_of(midnight)
        self.end_ms = self.start_ms + spec.days * DAY_MS - 1
        self._spec, self._writer, self._tally = spec, writer, tally
        self._lines: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        self._landed = 0

    def send(self, arrival_ms: int, line: bytes) -> None:
        """Add a line at its arrival time; lines with the same time keep the order in which they were sent."""
        days, ms_of_day = divmod(arrival_ms - self.start_ms, DAY_MS)
        files = self._spec.files_per_day
        self._lines[days * files + ms_of_day * files // DAY_MS].append((ms_of_day, line))

    def land_before(self, now_ms: int | None) -> None:
        """Land the files that are complete because no line arrives before `now_ms`; for None, all files."""
        until_ms = self.end_ms + 1 if now_ms is None else now_ms
        complete = (until_ms - self.start_ms) * self._spec.files_per_day // DAY_MS
        for number in range(self._landed, complete):
            if lines := self._lines.pop(number, None):
                self._land(number, lines)
        self._landed = complete

    def _land(self, number: int, lines: list[tuple[int, bytes]]) -> None:
        days, part = divmod(number, self._spec.files_per_day)
        day = self._spec.start + timedelta(days=days)
        lines.sort(key=itemgetter(0))
        file = self._writer.land(day, f"{self._spec.name}-{part + 1:05d}", (line for _, line in lines))
        self._tally.landed(day, file, len(lines))


class _Production:
    """Draws order after order and sends their events and faults."""

    def __init__(self, spec: EventsSpec, tenants: list[Tenant], arrivals: _Arrivals, tally: Tally) -> None:
        self._spec, self._tenants, self._arrivals, self._tally = spec, tenants, arrivals, tally
        self._rng = Random(spec.name)
        self._plan = plan_faults(self._rng, spec.events, spec.rates)
        self._faulty = FaultyLines(self._rng)
        self._made = 0

    def run(self, on_progress: Callable[[int], None] | None) -> None:
        start_ms, end_ms = self._arrivals.start_ms, self._arrivals.end_ms
        pace = min(1.0, self._spec.days / _USUAL_DAYS)
        report_at = _EVENTS_PER_REPORT
        while self._made < self._spec.events:
            created_ms = start_ms + (end_ms - start_ms) * self._made // self._spec.events
            self._arrivals.land_before(created_ms)
            self._send(Order.drawn(self._rng, self._tenants, created_ms, end_ms, pace))
            if on_progress and (self._made >= report_at or self._made == self._spec.events):
                on_progress(self._made)
                report_at = self._made + _EVENTS_PER_REPORT

    def _send(self, order: Order) -> None:
        """Send the events of an order, up to the number still missing."""
        steps = min(len(order.event_types), self._spec.events - self._made)
        for step in range(steps):
            faults = self._plan.get(self._made)
            if faults is None:
                occurred_ms = order.times_ms[step]
                self._arrivals.send(occurred_ms, order.line(self._rng, step, occurred_ms).encode())
            else:
                self._send_with_faults(order, step, faults)
            self._made += 1
        self._tally.order(order.event_types[:steps])

    def _send_with_faults(self, order: Order, step: int, faults: list[Fault]) -> None:
        occurred_ms = arrival_ms = order.times_ms[step]
        if Fault.LATE in faults:
            occurred_ms, arrival_ms = self._late(occurred_ms)
        line = order.line(self._rng, step, occurred_ms)
        event = WireEvent.from_line(line)
        self._arrivals.send(arrival_ms, line.encode())
        self._tally.faults.update(faults)
        for fault in faults:
            if fault in (Fault.DUPLICATE, Fault.CONFLICT):
                self._arrivals.send(self._again_at(arrival_ms), self._faulty.spell(fault, event))
            elif fault is not Fault.LATE:
                self._arrivals.send(
                    arrival_ms, self._faulty.spell(fault, self._under_other_id(event, occurred_ms))
                )

    def _late(self, occurred_ms: int) -> tuple[int, int]:
        """Return when an event happened and when it arrived, days apart.

        The event arrives later, or, if that is after the last day, happened earlier.
        """
        delay_ms = (1 + int(self._rng.random() * _MAX_DAYS_LATE)) * DAY_MS
        if occurred_ms + delay_ms <= self._arrivals.end_ms:
            return occurred_ms, occurred_ms + delay_ms
        return occurred_ms - delay_ms, occurred_ms

    def _again_at(self, arrival_ms: int) -> int:
        """Return when a line arrives again: half within the hour, half up to three days later."""
        within_ms = DAY_MS / 24 if self._rng.random() < 0.5 else 3 * DAY_MS
        return min(arrival_ms + int(self._rng.random() * within_ms), self._arrivals.end_ms)

    def _under_other_id(self, event: WireEvent, occurred_ms: int) -> WireEvent:
        return replace(event, event_id=time_ordered_id(occurred_ms, self._rng.getrandbits(72)))


def _out_of_range(name: str, value: object, allowed: str) -> SettingsError:
    return SettingsError(
        f"{name} is {value}",
        fix=f"give {name} from {allowed}",
        field=name,
        value=value,
        allowed=allowed,
    )

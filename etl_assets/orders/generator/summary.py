"""Counts of the generated lines: the exact numbers that a pipeline must arrive at.

Belongs here: the counts and how they add up. Does not belong here: how they are shown (`cli/events.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date

from etl_assets.orders.event_contracts import EVENT_CONTRACTS, EventType
from etl_assets.orders.generator.faults import Fault
from etl_assets.orders.generator.writer import LandedFile
from etl_assets.orders.order_status import OrderStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsSummary:
    """Counts of the generated lines, exact if the lines are read in source order: by day, file name and line.

    `lines = accepted + duplicates + conflicts + malformed`, `accepted = events + invalid_payloads`, and every
    event passes all stages.

    Args:
        lines: Lines in the files.
        events: Distinct events that are good in every way.
        duplicates: Lines that send one of these events again, some in another JSON form.
        conflicts: Lines with the id of one of these events and other content.
        malformed: Lines that ingest rejects.
        invalid_payloads: Distinct events that ingest accepts and normalize rejects.
        late: Events (of `events`) that arrive on a later day than they happened.
        by_type: Events (of `events`) by type.
        orders: Orders with at least one event.
        orders_by_status: Orders by the highest status they reach.
        customers: Customers in the reference data that came with the events.
        first_day: The first arrival day, None without lines.
        last_day: The last arrival day, None without lines.
        days: Arrival days with lines.
        files: Landing files with these lines.
        files_there_before: Those of the files that existed before, with the same bytes.
        bytes: The size of the files.
    """

    lines: int
    events: int
    duplicates: int
    conflicts: int
    malformed: int
    invalid_payloads: int
    late: int
    by_type: Mapping[str, int]
    orders: int
    orders_by_status: Mapping[str, int]
    customers: int
    first_day: date | None
    last_day: date | None
    days: int
    files: int
    files_there_before: int
    bytes: int

    @property
    def accepted(self) -> int:
        """Distinct events that ingest accepts."""
        return self.events + self.invalid_payloads

    def as_json(self) -> dict[str, object]:
        """Return the counts by name, including `accepted`; days are ISO dates."""
        counts = asdict(self) | {"accepted": self.accepted}
        return {
            name: value.isoformat() if isinstance(value, date) else value for name, value in counts.items()
        }


@dataclass(slots=True)
class Tally:
    """Running counts; `faults` by `Fault`."""

    faults: Counter[str] = field(default_factory=Counter)
    by_type: Counter[str] = field(default_factory=Counter)
    orders_by_status: Counter[str] = field(default_factory=Counter)
    customers: int = 0
    lines: int = 0
    files: list[tuple[date, LandedFile]] = field(default_factory=list)

    def order(self, event_types: Iterable[EventType]) -> None:
        """Count an order and its events, given lowest type first."""
        last: EventType | None = None
        for last in event_types:
            self.by_type[last] += 1
        if last is not None:
            self.orders_by_status[EVENT_CONTRACTS[last].status] += 1

    def landed(self, day: date, file: LandedFile, lines: int) -> None:
        """Count a file and its lines."""
        self.files.append((day, file))
        self.lines += lines

    def summary(self) -> EventsSummary:
        """Return the counts so far."""
        days = sorted({day for day, _ in self.files})
        return EventsSummary(
            lines=self.lines,
            events=self.by_type.total(),
            duplicates=self.faults[Fault.DUPLICATE],
            conflicts=self.faults[Fault.CONFLICT],
            malformed=self.faults[Fault.MALFORMED],
            invalid_payloads=self.faults[Fault.INVALID_PAYLOAD],
            late=self.faults[Fault.LATE],
            by_type={kind.value: self.by_type[kind] for kind in EventType},
            orders=self.orders_by_status.total(),
            orders_by_status={status.value: self.orders_by_status[status] for status in OrderStatus},
            customers=self.customers,
            first_day=days[0] if days else None,
            last_day=days[-1] if days else None,
            days=len(days),
            files=len(self.files),
            files_there_before=sum(not file.written for _, file in self.files),
            bytes=sum(file.bytes for _, file in self.files),
        )

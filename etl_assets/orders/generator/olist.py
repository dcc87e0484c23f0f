"""The converter of real orders: a folder in the layout of the Olist dataset becomes life-cycle events.

An order has one event for each step it is known to have taken: OrderCreated at order_purchase_timestamp,
PaymentProcessed at order_approved_at, ItemShipped at order_delivered_carrier_date, OrderDelivered at
order_delivered_customer_date. For the status canceled or unavailable it has OrderCanceled one second after
the order's last known time. Times are local times of Brazil; the landing day is the UTC day of the event.
Amounts are added up exactly as they are written and rounded half-even to cents here, because the pipeline
never rounds.

Belongs here: the meaning of the rows. Does not belong here: reading them (`olist_files.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from functools import reduce
from itertools import groupby
from pathlib import Path
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo

from etl_assets.errors import SettingsError
from etl_assets.orders.event_contracts import EventType
from etl_assets.orders.generator.faults import Fault, FaultRates, FaultyLines, plan_faults
from etl_assets.orders.generator.olist_files import CsvRow, rows
from etl_assets.orders.generator.reference import add_customers
from etl_assets.orders.generator.summary import EventsSummary, Tally
from etl_assets.orders.generator.wire import DAY_MS, WireEvent, epoch_ms_of, moment_of, rfc3339
from etl_assets.orders.generator.writer import LandingWriter

TIME_ZONE = "America/Sao_Paulo"
CURRENCY = "BRL"
UNKNOWN_TENANT = "unknown"
FILE_NAME = "olist-00001"

_CENT = Decimal("0.01")
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_CANCELED_STATUSES = frozenset({"canceled", "unavailable"})
_TIME_COLUMNS: Mapping[EventType, str] = {
    EventType.ORDER_CREATED: "order_purchase_timestamp",
    EventType.PAYMENT_PROCESSED: "order_approved_at",
    EventType.ITEM_SHIPPED: "order_delivered_carrier_date",
    EventType.ORDER_DELIVERED: "order_delivered_customer_date",
}
_RANKS = {event_type: rank for rank, event_type in enumerate(EventType)}
_ORDERS_PER_REPORT = 1_000


class Arrival(NamedTuple):
    """A line and its place: lines are sorted by time, order and rank of the event type."""

    arrival_ms: int
    order_id: str
    rank: int
    line: bytes

    @property
    def day(self) -> date:
        """The UTC day it arrives on."""
        return moment_of(self.arrival_ms).date()


def convert(
    folder: Path,
    landing: Path,
    *,
    rates: FaultRates | None = None,
    seed: int = 1,
    on_progress: Callable[[int], None] | None = None,
) -> EventsSummary:
    """Land the events of a folder of orders, one file per day, and add its customers to the reference data.

    Nothing is written if a row is invalid or if a file of another conversion exists under the same name.
    Converting the same data again writes nothing. Memory holds all lines (some 330 MB for 100,000 orders).

    Args:
        folder: Has orders, order_items, order_payments and customers as .csv or .csv.gz; an order may have no
            customer, items or payments.
        landing: The landing folder.
        rates: Duplicates, conflicts and broken lines to add; none by default. A conflict stays on the day of
            its event, so that the first of the two does not depend on the order in which days are processed.
        seed: Seed of the added lines.
        on_progress: Called at intervals with the number of orders read so far.

    Returns:
        The exact counts.

    Raises:
        InputError: A file or column is missing, a number or time is invalid, or a key occurs twice; names
            file, line, column and fix.
        LandingFileDiffers: A file of another conversion exists; nothing was landed.
        LandingNotWritten: The file system refused.
    """
    tally = Tally()
    states = customer_states(folder)
    arrivals = sorted(_arrivals(folder, states, tally, on_progress))
    if rates is not None:
        arrivals = sorted([*arrivals, *_faulty(arrivals, rates, Random(f"olist {seed}"), tally)])
    files = [
        (day, [each.line for each in group]) for day, group in groupby(arrivals, key=lambda each: each.day)
    ]
    writer = LandingWriter(landing)
    for day, lines in files:
        writer.check(day, FILE_NAME, lines)
    regions = {customer: state.upper() for customer, state in states.items() if state}
    add_customers(landing, regions)
    tally.customers = len(regions)
    for day, lines in files:
        tally.landed(day, writer.land(day, FILE_NAME, lines), len(lines))
    return tally.summary()


def customer_states(folder: Path) -> dict[str, str]:
    """Return state by customer_id as written, possibly empty.

    Raises:
        InputError: For the same reasons as in `convert`.
    """
    states: dict[str, str] = {}
    seen: dict[str, int] = {}
    for row in rows(folder, "customers", ("customer_id", "customer_state")):
        customer = row.key("customer_id")
        row.refuse_second(seen, customer, f"customer_id {customer}")
        states[customer] = row.text("customer_state")
    return states


def _arrivals(
    folder: Path, states: Mapping[str, str], tally: Tally, on_progress: Callable[[int], None] | None
) -> Iterator[Arrival]:
    """Yield the line of every event, order by order as in the file."""
    parts = _Parts.read(folder)
    zone = ZoneInfo(TIME_ZONE)
    seen: dict[str, int] = {}
    columns = ("order_id", "customer_id", "order_status", *_TIME_COLUMNS.values())
    for count, row in enumerate(rows(folder, "orders", columns), start=1):
        row.refuse_second(seen, row.key("order_id"), f"order_id {row.key('order_id')}")
        times = _times(row, zone)
        tally.order(times)
        yield from _order_arrivals(row, times, states, parts)
        if on_progress and count % _ORDERS_PER_REPORT == 0:
            on_progress(count)


def _times(row: CsvRow, zone: ZoneInfo) -> dict[EventType, datetime]:
    """Return when each event of an order happened, in UTC, in the order of the life cycle."""
    known = {event_type: row.time(column, zone) for event_type, column in _TIME_COLUMNS.items()}
    times = {event_type: moment for event_type, moment in known.items() if moment is not None}
    if times and row.text("order_status") in _CANCELED_STATUSES:
        times[EventType.ORDER_CANCELED] = max(times.values()) + timedelta(seconds=1)
    return times


def _order_arrivals(
    row: CsvRow, times: Mapping[EventType, datetime], states: Mapping[str, str], parts: _Parts
) -> Iterator[Arrival]:
    order_id, state = row.text("order_id"), states.get(row.text("customer_id"), "")
    for event_type, moment in times.items():
        event = WireEvent(
            event_id=f"{order_id}:{event_type}",
            tenant_id=state.lower() or UNKNOWN_TENANT,
            aggregate_id=order_id,
            event_type=event_type,
            payload=parts.payload(event_type, row),
            timestamp=rfc3339(moment),
        )
        yield Arrival(epoch_ms_of(moment), order_id, _RANKS[event_type], event.to_line().encode())


class _Item(NamedTuple):
    position: Decimal
    product_id: str
    seller_id: str
    price: Decimal
    freight: Decimal


@dataclass(frozen=True, slots=True)
class _Parts:
    """Content of the other files by order_id: the orders' items and the parts of their payment."""

    items: Mapping[str, list[_Item]]
    payments: Mapping[str, list[Decimal]]

    @classmethod
    def read(cls, folder: Path) -> _Parts:
        return cls(_items(folder), _payments(folder))

    def payload(self, event_type: EventType, row: CsvRow) -> dict[str, object]:
        order_id = row.text("order_id")
        if event_type is EventType.ORDER_CREATED:
            items = sorted(self.items.get(order_id, []))
            return {
                "customer_id": row.text("customer_id"),
                "amount": _cents(amount for item in items for amount in (item.price, item.freight)),
                "currency": CURRENCY,
                "items": [_item_payload(item) for item in items],
            }
        if event_type is EventType.PAYMENT_PROCESSED:
            return {"amount": _cents(self.payments.get(order_id, [])), "currency": CURRENCY}
        return {"reason": row.text("order_status")} if event_type is EventType.ORDER_CANCELED else {}


def _items(folder: Path) -> dict[str, list[_Item]]:
    items: defaultdict[str, list[_Item]] = defaultdict(list)
    seen: dict[str, int] = {}
    columns = ("order_id", "order_item_id", "product_id", "seller_id", "price", "freight_value")
    for row in rows(folder, "order_items", columns):
        order_id, position = row.key("order_id"), row.number("order_item_id")
        row.refuse_second(seen, f"{order_id} {position}", f"item {position} of order {order_id}")
        price, freight = row.number("price"), row.number("freight_value")
        items[order_id].append(_Item(position, row.text("product_id"), row.text("seller_id"), price, freight))
    return items


def _payments(folder: Path) -> dict[str, list[Decimal]]:
    payments: defaultdict[str, list[Decimal]] = defaultdict(list)
    seen: dict[str, int] = {}
    for row in rows(folder, "order_payments", ("order_id", "payment_sequential", "payment_value")):
        order_id, position = row.key("order_id"), row.number("payment_sequential")
        row.refuse_second(seen, f"{order_id} {position}", f"payment {position} of order {order_id}")
        payments[order_id].append(row.number("payment_value"))
    return payments


def _item_payload(item: _Item) -> dict[str, object]:
    return {
        "product_id": item.product_id,
        "seller_id": item.seller_id,
        "price": _cents([item.price]),
        "freight_value": _cents([item.freight]),
    }


def _cents(amounts: Iterable[Decimal]) -> str:
    """Return the sum, exact, then rounded once, half-even, to cents."""
    total = reduce(_EXACT.add, amounts, Decimal(0))
    return str(_EXACT.plus(_EXACT.quantize(total, _CENT)))


def _faulty(arrivals: Sequence[Arrival], rates: FaultRates, rng: Random, tally: Tally) -> Iterator[Arrival]:
    """Yield the faulty lines for these arrivals, each later than the event it belongs to."""
    if rates.late:
        raise SettingsError(
            "real orders land on the day of their event and are never late",
            fix="leave the rate of late events at 0",
            field="late",
            value=rates.late,
            allowed="0",
        )
    days = {arrival.day for arrival in arrivals}
    spelling = FaultyLines(rng)
    for index, faults in plan_faults(rng, len(arrivals), rates).items():
        tally.faults.update(faults)
        for fault in faults:
            event = WireEvent.from_line(arrivals[index].line)
            if fault in (Fault.MALFORMED, Fault.INVALID_PAYLOAD):
                event = replace(event, event_id=f"{event.event_id}:{fault}")
            arrival_ms = _again_at(arrivals[index], fault, days, rng)
            yield arrivals[index]._replace(arrival_ms=arrival_ms, line=spelling.spell(fault, event))


def _again_at(arrival: Arrival, fault: Fault, days: Container[date], rng: Random) -> int:
    """Return when a line arrives again: within the hour or, for half of the duplicates, within three days.

    The new day must have another event, and a line within the hour stays on its day; else it arrives at the
    end of its own day.
    """
    farther = fault is Fault.DUPLICATE and rng.random() < 0.5
    again_ms = arrival.arrival_ms + 1 + int(rng.random() * (3 * DAY_MS if farther else DAY_MS / 24))
    if moment_of(again_ms).date() in (days if farther else {arrival.day}):
        return again_ms
    return arrival.arrival_ms // DAY_MS * DAY_MS + DAY_MS - 1

"""Synthetic orders: who orders what, how far each order gets, and the text of its events.

Tenants are the producers, and each has habits of its own: amounts as text or as numbers, times as epoch
milliseconds or RFC 3339 with one offset or another, with or without a trace on the order's creation. Belongs
here: one order and its events. Does not belong here: when and in which file they arrive (`generate.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache
from random import Random
from typing import NamedTuple

from etl_assets.orders.event_contracts import EventType
from etl_assets.orders.generator.wire import DAY_MS, time_ordered_id

_CURRENCIES = ("EUR", "USD", "BRL", "GBP")
_REGIONS = ("NORTH", "EAST", "SOUTH", "WEST")
_CARRIERS = ("blue-post", "parcel-one", "courier")
#: Minutes ahead of UTC and how the offset is spelled; None sends epoch milliseconds.
_CLOCKS = (None, (0, "Z"), None, (330, "+05:30"))
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_PRODUCTS = tuple(f"SKU-{n:04d}" if n % 25 else f"SKU-{n:04d}-café" for n in range(500))
#: One customer in this many is not in the reference data. As every tenant has ten or more, some are missing.
_UNLISTED_EVERY = 10

_CREATED, _PAID, _SHIPPED = EventType.ORDER_CREATED, EventType.PAYMENT_PROCESSED, EventType.ITEM_SHIPPED
_DELIVERED, _CANCELED = EventType.ORDER_DELIVERED, EventType.ORDER_CANCELED
#: How far orders get, with the share of each in percent.
_COURSES: tuple[tuple[int, tuple[EventType, ...]], ...] = (
    (55, (_CREATED, _PAID, _SHIPPED, _DELIVERED)),
    (15, (_CREATED, _PAID, _SHIPPED)),
    (12, (_CREATED, _PAID)),
    (8, (_CREATED,)),
    (5, (_CREATED, _CANCELED)),
    (4, (_CREATED, _PAID, _CANCELED)),
    (1, (_CREATED, _PAID, _SHIPPED, _CANCELED)),
)
_COURSE_BY_PERCENT = tuple(course for share, course in _COURSES for _ in range(share))
#: Days from one event to the next: at least, at most.
_STEP_DAYS = {_PAID: (0.0, 0.2), _SHIPPED: (0.2, 1.5), _DELIVERED: (0.5, 4.0), _CANCELED: (0.1, 1.0)}
_STEP_MS = {kind: (low * DAY_MS, (high - low) * DAY_MS) for kind, (low, high) in _STEP_DAYS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A producer and its habits."""

    number: int
    tenant_id: str
    currency: str
    clock: tuple[int, str] | None
    amounts_are_numbers: bool
    traced: bool
    customers: int

    @classmethod
    def numbered(cls, number: int, customers: int) -> Tenant:
        """Return the tenant of a number. The habits rotate, so that four tenants show them all."""
        return cls(
            number=number,
            tenant_id=f"tenant-{number}",
            currency=_CURRENCIES[number % len(_CURRENCIES)],
            clock=_CLOCKS[number % len(_CLOCKS)],
            amounts_are_numbers=number % 4 == 2,
            traced=number % 4 == 3,
            customers=customers,
        )

    def customer_id(self, number: int) -> str:
        """Return the id of one of the tenant's customers."""
        return f"c{self.number:03d}-{number:05d}"

    def regions(self) -> dict[str, str]:
        """Return region by customer_id, for the customers in the reference data."""
        numbers = (n for n in range(self.customers) if n % _UNLISTED_EVERY)
        return {self.customer_id(n): _REGIONS[n % len(_REGIONS)] for n in numbers}

    def amount(self, cents: int) -> str:
        """Return an amount as JSON, in this tenant's form; exact in both forms."""
        return repr(cents / 100) if self.amounts_are_numbers else f'"{cents // 100}.{cents % 100:02d}"'

    def time(self, epoch_ms: int) -> str:
        """Return a time as JSON, in this tenant's form."""
        if self.clock is None:
            return str(epoch_ms)
        offset_minutes, offset = self.clock
        day, ms = divmod(epoch_ms + offset_minutes * 60_000, DAY_MS)
        seconds, ms = divmod(ms, 1000)
        minutes, seconds = divmod(seconds, 60)
        return f'"{_day(day)}T{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{ms:03d}{offset}"'


class Order(NamedTuple):
    """One synthetic order.

    Items are (product, quantity, price in cents); events have a type and a time in epoch milliseconds.
    """

    tenant: Tenant
    order_id: str
    customer_id: str
    items: tuple[tuple[str, int, int], ...]
    event_types: Sequence[EventType]
    times_ms: Sequence[int]

    @classmethod
    def drawn(
        cls, rng: Random, tenants: Sequence[Tenant], created_ms: int, end_ms: int, pace: float
    ) -> Order:
        """Draw the next order.

        Args:
            rng: The source of all randomness.
            tenants: The tenants that may order.
            created_ms: When the order is created, epoch milliseconds.
            end_ms: No event is later; epoch milliseconds.
            pace: The time between events, as a share of the usual time.
        """
        draw = rng.random
        tenant = tenants[int(draw() * len(tenants))]
        course = _COURSE_BY_PERCENT[int(draw() * 100)]
        return cls(
            tenant,
            f"ord-{rng.getrandbits(64):016x}",
            tenant.customer_id(int(draw() * tenant.customers)),
            (_item(rng),) if draw() < 0.75 else (_item(rng), _item(rng)),
            course,
            _times(rng, course, created_ms, end_ms, pace),
        )

    def line(self, rng: Random, step: int, occurred_ms: int) -> str:
        """Return the event of one step of the order's course, under an id of its own, as a line of the wire.

        The text is built by hand: nothing in it needs escaping, and a JSON encoder would take half of a
        generator's time.
        """
        tenant, event_type = self.tenant, self.event_types[step]
        trace = f',"trace_id":"{rng.getrandbits(128):032x}"' if tenant.traced and step == 0 else ""
        return (
            f'{{"event_id":"{time_ordered_id(occurred_ms, rng.getrandbits(72))}",'
            f'"tenant_id":"{tenant.tenant_id}",'
            f'"aggregate_id":"{self.order_id}","event_type":"{event_type}","payload":{{{self._payload(event_type)}}},'
            f'"timestamp":{tenant.time(occurred_ms)},"schema_version":1{trace}}}'
        )

    def _payload(self, event_type: EventType) -> str:
        """Return the inside of the payload's object."""
        if event_type is _CREATED:
            amount = self.tenant.amount
            items = ",".join(
                f'{{"sku":"{sku}","quantity":{quantity},"price":{amount(price)}}}'
                for sku, quantity, price in self.items
            )
            return f'"customer_id":"{self.customer_id}",{self._amount()},"items":[{items}]'
        if event_type is _PAID:
            return self._amount()
        if event_type is _SHIPPED:
            return f'"carrier":"{_CARRIERS[self.items[0][2] % len(_CARRIERS)]}"'
        if event_type is _CANCELED:
            return '"reason":"changed mind"'
        return ""

    def _amount(self) -> str:
        cents = sum([quantity * price for _, quantity, price in self.items])
        return f'"amount":{self.tenant.amount(cents)},"currency":"{self.tenant.currency}"'


@lru_cache(maxsize=10_000)
def _day(days_since_epoch: int) -> str:
    return date.fromordinal(_EPOCH_ORDINAL + days_since_epoch).isoformat()


def _item(rng: Random) -> tuple[str, int, int]:
    draw = rng.random
    return _PRODUCTS[int(draw() * len(_PRODUCTS))], 1 + int(draw() * 3), 100 + int(draw() * draw() * 50_000)


def _times(rng: Random, course: Sequence[EventType], created_ms: int, end_ms: int, pace: float) -> list[int]:
    """Draw a time for each event of the course, compressed into the time left if they do not fit."""
    after = 0.0
    delays = [after]
    for event_type in course[1:]:
        least, spread = _STEP_MS[event_type]
        after += pace * (least + rng.random() * spread)
        delays.append(after)
    left = end_ms - created_ms
    squeeze = left / after * rng.random() if after > left else 1.0
    return [created_ms + int(delay * squeeze) for delay in delays]

"""The landing folder of the bulk case: generated once for each size, kept, never changed."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from etl_assets.orders.generator.faults import FaultRates
from etl_assets.orders.generator.generate import EventsSpec, generate
from etl_assets.orders.generator.reference import CUSTOMERS_FILE
from etl_assets.orders.generator.writer import LandingWriter

FIRST_DAY = dt.date(2026, 1, 1)
DAYS = 30
SEED = 20_260_101
DUPLICATES, INVALID, BROKEN = 0.01, 0.001, 0.001
"""Lines for each good event: sent twice, refused by the payload's contract, not JSON at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkInput:
    """A landing folder and what a pipeline that reads it must arrive at."""

    landing: Path
    raw_events: int
    normalized_orders: int

    @property
    def days(self) -> list[dt.date]:
        return [FIRST_DAY + dt.timedelta(days=number) for number in range(DAYS)]

    @property
    def customers(self) -> Path:
        return self.landing / CUSTOMERS_FILE


def bulk_input(folder: Path, events: int) -> BulkInput:
    """Events of some 260 bytes over 30 days, with duplicates, refused payloads and broken lines."""
    landing = folder / "input" / f"bulk-{events}"
    done = landing / "_complete"
    rates = FaultRates(duplicates=DUPLICATES, invalid_payloads=INVALID)
    if not done.exists():
        print(f"  generating {events:,} events, once ...", file=sys.stderr)
        generate(
            EventsSpec(events=events, start=FIRST_DAY, days=DAYS, seed=SEED, rates=rates, files_per_day=2),
            landing,
        )
        _land_broken_lines(landing, round(events * BROKEN))
        done.touch()
    accepted = events + round(events * INVALID)
    return BulkInput(landing=landing, raw_events=accepted, normalized_orders=events)


def _land_broken_lines(landing: Path, lines: int) -> None:
    """Lines cut short, which any reader of JSON refuses; of the generator's other faults a plain script sees
    few.
    """
    writer = LandingWriter(landing)
    for number, count in Counter(number % DAYS for number in range(lines)).items():
        cut = (b'{"event_id":"broken-%d-%d","tenant_id":"tenant-0","payl' % (number, i) for i in range(count))
        writer.land(FIRST_DAY + dt.timedelta(days=number), "broken", cut)

"""The generator makes what was asked for, and counts it exactly."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl_assets.errors import SettingsError
from etl_assets.orders.generator.faults import FaultRates
from etl_assets.orders.generator.generate import EventsSpec, _Arrivals, generate
from etl_assets.orders.generator.summary import EventsSummary, Tally
from etl_assets.orders.generator.writer import LandingWriter
from etl_assets_tests.reference.landing_counts import count_landing, is_normalizable, lines_in_source_order

START = date(2024, 2, 26)
MANY_FAULTS = FaultRates(duplicates=0.2, conflicts=0.1, malformed=0.1, invalid_payloads=0.1, late=0.2)
SPEC = EventsSpec(events=2_000, start=START, days=5, rates=MANY_FAULTS, files_per_day=3)

_rates = st.floats(0, 0.5)
specs = st.builds(
    EventsSpec,
    events=st.integers(1, 400),
    start=st.dates(date(2000, 1, 1), date(2050, 1, 1)),
    days=st.integers(1, 12),
    tenants=st.integers(1, 9),
    seed=st.integers(),
    rates=st.builds(
        FaultRates,
        duplicates=_rates,
        conflicts=_rates,
        malformed=_rates,
        invalid_payloads=_rates,
        late=_rates,
    ),
    files_per_day=st.integers(1, 5),
)


@pytest.fixture(scope="module")
def landed(tmp_path_factory) -> tuple[Path, EventsSummary]:
    landing = tmp_path_factory.mktemp("landing")
    return landing, generate(SPEC, landing)


def files(landing: Path) -> dict[str, str]:
    return {
        str(path.relative_to(landing)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in landing.rglob("*")
        if path.is_file()
    }


def assert_counts_are_those_of_the_lines(summary: EventsSummary, landing: Path) -> None:
    counts = count_landing(landing)
    assert {
        "lines": summary.lines,
        "accepted": summary.accepted,
        "events": summary.events,
        "duplicates": summary.duplicates,
        "conflicts": summary.conflicts,
        "malformed": summary.malformed,
        "invalid_payloads": summary.invalid_payloads,
        "late": summary.late,
        "by_type": +Counter(summary.by_type),
        "orders": summary.orders,
        "orders_by_status": +Counter(summary.orders_by_status),
    } == {
        "lines": counts.lines,
        "accepted": counts.accepted,
        "events": counts.normalized,
        "duplicates": counts.duplicates,
        "conflicts": counts.conflicts,
        "malformed": counts.rejected,
        "invalid_payloads": counts.invalid_payloads,
        "late": counts.late,
        "by_type": counts.by_type,
        "orders": counts.orders_by_status().total(),
        "orders_by_status": counts.orders_by_status(),
    }


@settings(max_examples=60)
@given(specs)
@example(EventsSpec(events=400, start=START, days=1, rates=MANY_FAULTS))
@example(EventsSpec(events=1, start=START, days=1, rates=FaultRates(duplicates=1, late=1)))
def test_the_summary_is_what_reading_the_files_in_source_order_gives(spec):
    with TemporaryDirectory() as folder:
        summary = generate(spec, Path(folder))
        assert summary.events == spec.events
        assert summary.late == round(spec.events * spec.rates.late)
        assert summary.duplicates == round(spec.events * spec.rates.duplicates)
        assert_counts_are_those_of_the_lines(summary, Path(folder))


def test_days_files_and_bytes_are_those_on_disk(landed):
    landing, summary = landed
    paths = list(landing.glob("2024-*/*.jsonl"))
    assert summary.files == len(paths) == 15
    assert summary.days == len({path.parent for path in paths}) == 5
    assert summary.bytes == sum(path.stat().st_size for path in paths)
    assert (summary.first_day, summary.last_day) == (START, START + timedelta(days=4))


def test_no_event_is_from_after_the_end_of_its_arrival_day(landed):
    landing, _ = landed
    assert all(moment.date() <= day for day, moment, _ in count_landing(landing).events.values())


def test_late_events_come_whole_days_late_and_all_others_on_their_day(landed):
    landing, summary = landed
    delays = Counter((day - moment.date()).days for day, moment, _ in count_landing(landing).events.values())
    assert set(delays) == {0, 1, 2, 3, 4, 5}
    assert delays.total() - delays[0] >= summary.late


def test_lines_of_a_file_are_in_the_order_of_arrival(landed):
    landing, _ = landed
    arrivals = [
        (day, moment) for day, moment, _ in count_landing(landing).events.values() if moment.date() == day
    ]
    assert arrivals == sorted(arrivals)


def test_of_two_lines_at_the_same_time_the_one_sent_first_comes_first(tmp_path):
    tally = Tally()
    arrivals = _Arrivals(SPEC, LandingWriter(tmp_path), tally)
    for line in (b"z", b"a", b"m"):
        arrivals.send(arrivals.end_ms, line)
    arrivals.land_before(None)
    assert [line for _, line in lines_in_source_order(tmp_path)] == [b"z", b"a", b"m"]


def test_what_comes_first_is_the_original_even_with_many_files_a_day(tmp_path):
    spec = EventsSpec(events=3_000, start=START, days=2, rates=FaultRates(conflicts=1), files_per_day=150)
    generate(spec, tmp_path)
    payloads = [event["payload"] for _, _, event in count_landing(tmp_path).events.values()]
    assert len(payloads) == 3_000
    assert not any("note" in payload or payload.get("amount") == "0.07" for payload in payloads)


def test_an_order_costs_the_sum_of_its_items_and_exactly_that_is_paid(landed):
    landing, _ = landed
    orders: dict[str, Decimal] = {}
    for _, _, event in count_landing(landing).events.values():
        payload, order = event["payload"], event["aggregate_id"]
        if event["event_type"] == "OrderCreated":
            items = sum(item["quantity"] * Decimal(item["price"]) for item in payload["items"])
            assert Decimal(payload["amount"]) == items
            orders[order] = items
        elif event["event_type"] == "PaymentProcessed" and is_normalizable(event):
            assert Decimal(payload["amount"]) == orders.get(order, Decimal(payload["amount"]))
    assert len(orders) > 500


def test_duplicates_and_conflicts_also_come_on_other_days(tmp_path):
    generate(SPEC, tmp_path)
    days: dict[bytes, set[date]] = {}
    for day, line in lines_in_source_order(tmp_path):
        days.setdefault(line, set()).add(day)
    assert any(len(seen) > 1 for seen in days.values())


def test_events_of_an_order_come_in_the_order_of_its_life(landed):
    landing, _ = landed
    order = ["OrderCreated", "PaymentProcessed", "ItemShipped", "OrderDelivered", "OrderCanceled"]
    seen: dict[str, list[tuple[datetime, int]]] = {}
    for day, moment, event in count_landing(landing).events.values():
        if moment.date() == day and event["event_type"] in order:
            step = moment, order.index(event["event_type"])
            seen.setdefault(event["aggregate_id"], []).append(step)
    steps = [[step for _, step in sorted(times)] for times in seen.values()]
    assert sum(sorted(each) == each for each in steps) > 0.9 * len(steps)


def test_every_spelling_of_times_amounts_and_traces_is_used(landed):
    landing, _ = landed
    text = b"\n".join(line for _, line in lines_in_source_order(landing))
    for part in (
        b'"timestamp":17',
        b'Z"',
        b'+05:30"',
        b'"amount":"',
        b'"amount":1',
        b'"trace_id":"',
        "café".encode(),
    ):
        assert part in text


def test_lines_are_about_250_bytes(tmp_path):
    summary = generate(EventsSpec(events=5_000, start=START), tmp_path)
    assert 235 < summary.bytes / summary.lines < 270


def test_the_same_specification_gives_the_same_bytes_in_any_process(landed, tmp_path):
    landing, _ = landed
    code = (
        "import sys, pathlib\n"
        "from etl_assets_tests.unit.test_events_generate import SPEC\n"
        "from etl_assets.orders.generator.generate import generate\n"
        "generate(SPEC, pathlib.Path(sys.argv[1]))\n"
    )
    root = Path(__file__).parents[2]
    environment = os.environ | {"PYTHONHASHSEED": "12345", "TZ": "Asia/Tokyo", "PYTHONPATH": str(root)}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=environment, cwd=root)
    assert files(tmp_path) == files(landing)


def test_generating_the_same_again_writes_nothing(landed):
    landing, first = landed
    before = {path: path.stat().st_mtime_ns for path in landing.rglob("*")}
    again = generate(SPEC, landing)
    assert {path: path.stat().st_mtime_ns for path in landing.rglob("*")} == before
    assert (first.files_there_before, again.files_there_before) == (0, again.files)
    assert again.lines == first.lines


@pytest.mark.parametrize(
    "other",
    [
        EventsSpec(events=50, start=START, seed=2),
        EventsSpec(events=51, start=START),
        EventsSpec(events=50, start=START + timedelta(days=1)),
        EventsSpec(events=50, start=START, rates=FaultRates(duplicates=0.1)),
    ],
)
def test_any_other_specification_gives_other_events_beside_them(other, tmp_path):
    first = generate(EventsSpec(events=50, start=START), tmp_path)
    second = generate(other, tmp_path)
    counts = count_landing(tmp_path)
    assert second.files_there_before == 0
    assert counts.accepted == first.accepted + second.accepted
    assert counts.orders_by_status().total() == first.orders + second.orders


def test_equal_specifications_have_equal_names_however_a_rate_is_written():
    whole, point = FaultRates(late=1), FaultRates(late=1.0)
    assert (
        EventsSpec(events=1, start=START, rates=whole).name
        == EventsSpec(events=1, start=START, rates=point).name
    )


def test_customers_come_with_a_region_but_for_a_few(landed):
    landing, summary = landed
    listed = (landing / "_reference/customers.csv").read_text().splitlines()[1:]
    known = dict(row.split(",") for row in listed)
    events = [event for _, _, event in count_landing(landing).events.values()]
    customers = {event["payload"]["customer_id"] for event in events if "customer_id" in event["payload"]}
    assert len(listed) == summary.customers
    assert set(known.values()) == {"NORTH", "EAST", "SOUTH", "WEST"}
    assert 0 < len(customers - known.keys()) < 0.2 * len(customers)


def test_progress_rises_to_all_events(tmp_path):
    reports: list[int] = []
    generate(EventsSpec(events=12_000, start=START), tmp_path, on_progress=reports.append)
    assert reports == sorted(reports)
    assert len(reports) >= 3
    assert reports[-1] == 12_000


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"events": 0}, "events"),
        ({"days": 0}, "days"),
        ({"tenants": 0}, "tenants"),
        ({"files_per_day": 0}, "files_per_day"),
        ({"start": date(1999, 12, 31)}, "start"),
    ],
)
def test_a_number_out_of_range_is_refused_with_its_name_and_what_is_allowed(wrong, name):
    with pytest.raises(SettingsError, match=name) as caught:
        EventsSpec(**{"events": 1, "start": START} | wrong)
    assert caught.value.field == name
    assert caught.value.allowed


def test_a_day_that_starts_with_many_files_keeps_source_order(tmp_path):
    spec = EventsSpec(events=3_000, start=START, days=1, rates=MANY_FAULTS, files_per_day=150)
    summary = generate(spec, tmp_path)
    assert summary.files > 100
    assert_counts_are_those_of_the_lines(summary, tmp_path)

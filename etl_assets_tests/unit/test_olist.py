"""Real orders become the events that pandas sees in their files."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter, defaultdict
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import InputError, LandingFileDiffers, SettingsError
from etl_assets.orders.generator.faults import FaultRates
from etl_assets.orders.generator.olist import convert
from etl_assets_tests.reference import olist_pandas
from etl_assets_tests.reference.landing_counts import STATUSES, TYPES, count_landing, lines_in_source_order

MIXED = FaultRates(duplicates=0.02, conflicts=0.001, malformed=0.001)

ORDERS = """\
order_id,customer_id,order_status,order_purchase_timestamp,order_approved_at,order_delivered_carrier_date,order_delivered_customer_date,order_estimated_delivery_date
plain,c-sp,delivered,2018-01-10 22:30:00,2018-01-10 23:59:59,2018-01-11 08:00:00,2018-01-15 12:00:00,2018-02-01 00:00:00
gap,c-sp,shipped,2017-10-15 00:30:00,2017-10-15 01:00:00,2017-10-15 00:59:59,,2018-02-01 00:00:00
overlap,c-rj,canceled,2018-02-17 23:30:00,2018-02-18 00:00:00,,,2018-02-01 00:00:00
no items,c-rj,created,2018-01-10 10:00:00,,,,2018-02-01 00:00:00
no payments,c-nobody,approved,2018-01-10 10:00:00,2018-01-10 10:05:00,,,2018-02-01 00:00:00
unavailable,c-blank,unavailable,2018-01-10 23:59:59,2018-01-10 20:59:59,,,2018-02-01 00:00:00
nothing known,c-sp,canceled,,,,,2018-02-01 00:00:00
only delivered,c-sp,delivered,,,,2018-01-10 10:00:00,2018-02-01 00:00:00
"half, even",c-sp,created,2018-01-10 10:00:00,2018-01-10 10:00:00,,,2018-02-01 00:00:00
"""
ITEMS = """\
order_id,order_item_id,product_id,seller_id,shipping_limit_date,price,freight_value
plain,2,p-2,s-1,2018-01-01 00:00:00,0.2,10
plain,10,p-10,s-1,2018-01-01 00:00:00,1.00,1.5
plain,1,p-1,s-2,2018-01-01 00:00:00,99.9,27.65
gap,1,p-1,s-1,2018-01-01 00:00:00,10.00,0.00
overlap,1,p-1,s-1,2018-01-01 00:00:00,10.01,0.01
no payments,1,p-1,s-1,2018-01-01 00:00:00,10.00,5.00
unavailable,1,p-1,s-1,2018-01-01 00:00:00,1.015,0.01
only delivered,1,p-1,s-1,2018-01-01 00:00:00,1.00,0.00
"half, even",1,p-1,s-1,2018-01-01 00:00:00,0.125,0
no such order,1,p-1,s-1,2018-01-01 00:00:00,5.00,5.00
"""
PAYMENTS = """\
order_id,payment_sequential,payment_type,payment_installments,payment_value
plain,1,credit_card,1,100.25
plain,2,voucher,1,40
gap,1,boleto,1,10.00
overlap,1,boleto,1,10.02
unavailable,1,boleto,1,1.03
"half, even",1,boleto,1,0.1349
"half, even",2,boleto,1,0.0001
"""
CUSTOMERS = """\
customer_id,customer_unique_id,customer_zip_code_prefix,customer_city,customer_state
c-sp,u,01000,"são paulo, sp",SP
c-rj,u,02000,rio,rj
c-blank,u,03000,nowhere,
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    return written(tmp_path / "orders")


def written(folder: Path, **other: str) -> Path:
    texts = {
        "orders": ORDERS,
        "order_items": ITEMS,
        "order_payments": PAYMENTS,
        "customers": CUSTOMERS,
    } | other
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def sample() -> Path:
    beside = Path(__file__).parents[3] / "shared" / "data" / "olist"
    folder = Path(os.environ.get("ETL_ASSETS_OLIST", beside))
    if not folder.is_dir():
        pytest.skip(f"no real orders at {folder}: set ETL_ASSETS_OLIST to a folder of them")
    return folder


def landed_events(landing: Path) -> dict[str, tuple[date, datetime, dict[str, Any]]]:
    events = [(day, json.loads(line)) for day, line in lines_in_source_order(landing)]
    return {
        event["event_id"]: (day, datetime.fromisoformat(event["timestamp"]), event) for day, event in events
    }


def assert_events_are_what_pandas_sees(
    events: dict[str, tuple[date, datetime, dict[str, Any]]], folder: Path
) -> None:
    """Every figure, and every single time, amount and tenant."""
    times = olist_pandas.times(folder).to_dict()
    amounts = olist_pandas.order_amounts(folder).to_dict()
    tenants = olist_pandas.tenants(folder)
    sums: dict[str, defaultdict[date, Decimal]] = {name: defaultdict(Decimal) for name in TYPES[:2]}
    last: dict[str, int] = {}
    for event_id, (day, moment, event) in events.items():
        order, event_type = event["aggregate_id"], event["event_type"]
        rank = TYPES.index(event_type)
        last[order] = max(last.get(order, 0), rank)
        assert event_id == f"{order}:{event_type}"
        assert event["tenant_id"] == tenants[order]
        assert moment == times[olist_pandas.STEPS[rank][3]][order]
        assert moment.tzinfo == UTC
        assert day == moment.date()
        if event_type in sums:
            amount = Decimal(event["payload"]["amount"])
            assert event["payload"]["currency"] == "BRL"
            assert str(amount) == str(amounts[("order_total", "paid_total")[rank]][order])
            sums[event_type][day] += amount
    assert {name: dict(days) for name, days in sums.items()} == olist_pandas.sums_by_day(folder)
    assert {order: STATUSES[rank] for order, rank in last.items()} == olist_pandas.last_status(folder)
    assert len(last) == olist_pandas.count_orders(folder)
    by_type = Counter(event["event_type"] for _, _, event in events.values())
    assert {name: by_type[name] for name in TYPES} == olist_pandas.count_events(folder)
    assert Counter(day for day, _, _ in events.values()) == olist_pandas.events_by_day(folder)


def test_the_real_orders_become_the_events_that_pandas_sees(sample, tmp_path):
    summary = convert(sample, tmp_path)
    events = landed_events(tmp_path)
    assert_events_are_what_pandas_sees(events, sample)
    assert summary.lines == summary.events == summary.accepted == len(events)
    assert summary.by_type == olist_pandas.count_events(sample)
    assert summary.orders == olist_pandas.count_orders(sample)
    assert +Counter(summary.orders_by_status) == Counter(olist_pandas.last_status(sample).values())
    assert summary.days == summary.files == len(olist_pandas.events_by_day(sample))


def test_real_orders_with_faults_mixed_in_are_the_same_events_with_exact_counts(sample, tmp_path):
    summary = convert(sample, tmp_path, rates=MIXED)
    counts = count_landing(tmp_path)
    assert_events_are_what_pandas_sees(counts.events, sample)
    events = counts.accepted
    assert (summary.lines, summary.events) == (counts.lines, events)
    assert summary.duplicates == counts.duplicates == round(events * 0.02)
    assert summary.conflicts == counts.conflicts == round(events * 0.001)
    assert summary.malformed == counts.rejected == round(events * 0.001)
    assert summary.days == len(olist_pandas.events_by_day(sample))


def test_small_orders_with_every_peculiarity_become_the_events_that_pandas_sees(folder, tmp_path):
    summary = convert(folder, tmp_path / "landing")
    assert_events_are_what_pandas_sees(landed_events(tmp_path / "landing"), folder)
    assert (summary.orders, summary.events) == (8, 19)


@pytest.mark.parametrize("seed", range(5))
def test_faults_mixed_into_a_few_orders_stay_countable(folder, tmp_path, seed):
    rates = FaultRates(duplicates=0.5, conflicts=0.5, malformed=1, invalid_payloads=1)
    summary = convert(folder, tmp_path / "landing", rates=rates, seed=seed)
    counts = count_landing(tmp_path / "landing")
    assert (summary.duplicates, summary.conflicts) == (counts.duplicates, counts.conflicts) == (10, 9)
    assert (
        (summary.malformed, summary.invalid_payloads)
        == (counts.rejected, counts.invalid_payloads)
        == (19, 19)
    )
    good = {event_id: event for event_id, event in counts.events.items() if "invalid" not in event_id}
    assert_events_are_what_pandas_sees(good, folder)


def test_a_conflict_stays_on_the_day_of_its_event(tmp_path):
    orders = f"{ORDERS}before midnight in UTC,c-sp,created,2018-01-10 21:59:59,,,,\n"
    folder = written(tmp_path / "orders", orders=orders)
    convert(folder, tmp_path / "landing", rates=FaultRates(conflicts=1))
    days: dict[str, set[date]] = {}
    for day, line in lines_in_source_order(tmp_path / "landing"):
        days.setdefault(json.loads(line)["event_id"], set()).add(day)
    assert days["before midnight in UTC:OrderCreated"] == {date(2018, 1, 10)}
    assert {len(seen) for seen in days.values()} == {1}


def payloads(folder: Path, landing: Path) -> dict[str, dict[str, Any]]:
    convert(folder, landing)
    return {event_id: event["payload"] for event_id, (_, _, event) in landed_events(landing).items()}


def stamps(folder: Path, landing: Path) -> dict[str, str]:
    convert(folder, landing)
    return {event_id: event["timestamp"] for event_id, (_, _, event) in landed_events(landing).items()}


def test_a_payload_holds_customer_amount_currency_and_items_in_their_order(folder, tmp_path):
    assert payloads(folder, tmp_path / "landing")["plain:OrderCreated"] == {
        "customer_id": "c-sp",
        "amount": "140.25",
        "currency": "BRL",
        "items": [
            {"product_id": "p-1", "seller_id": "s-2", "price": "99.90", "freight_value": "27.65"},
            {"product_id": "p-2", "seller_id": "s-1", "price": "0.20", "freight_value": "10.00"},
            {"product_id": "p-10", "seller_id": "s-1", "price": "1.00", "freight_value": "1.50"},
        ],
    }


def test_amounts_are_added_exactly_and_rounded_half_even_once(folder, tmp_path):
    found = payloads(folder, tmp_path / "landing")
    assert found["half, even:OrderCreated"]["amount"] == "0.12"
    assert found["half, even:PaymentProcessed"]["amount"] == "0.14"
    assert found["unavailable:OrderCreated"]["amount"] == "1.02"


def test_an_order_without_items_or_payments_has_amount_zero(folder, tmp_path):
    found = payloads(folder, tmp_path / "landing")
    assert found["no items:OrderCreated"] == {
        "customer_id": "c-rj",
        "amount": "0.00",
        "currency": "BRL",
        "items": [],
    }
    assert found["no payments:PaymentProcessed"] == {"amount": "0.00", "currency": "BRL"}


def test_a_time_that_the_clocks_skipped_is_read_with_the_offset_before(folder, tmp_path):
    found = stamps(folder, tmp_path / "landing")
    assert found["gap:OrderCreated"] == "2017-10-15T03:30:00Z"
    assert found["gap:PaymentProcessed"] == "2017-10-15T03:00:00Z"
    assert found["gap:ItemShipped"] == "2017-10-15T03:59:59Z"


def test_a_time_that_the_clocks_showed_twice_is_the_first_of_the_two(folder, tmp_path):
    found = stamps(folder, tmp_path / "landing")
    assert found["overlap:OrderCreated"] == "2018-02-18T01:30:00Z"
    assert found["overlap:PaymentProcessed"] == "2018-02-18T03:00:00Z"


def test_a_canceled_order_is_canceled_a_second_after_its_last_known_time(folder, tmp_path):
    found = stamps(folder, tmp_path / "landing")
    assert found["overlap:OrderCanceled"] == "2018-02-18T03:00:01Z"
    assert found["unavailable:OrderCanceled"] == "2018-01-11T02:00:00Z"


def test_an_empty_time_makes_no_event_and_an_order_without_times_none_at_all(folder, tmp_path):
    found = stamps(folder, tmp_path / "landing")
    assert [event_id for event_id in found if event_id.startswith("only")] == [
        "only delivered:OrderDelivered"
    ]
    assert not any(event_id.startswith("nothing") for event_id in found)


def test_the_tenant_is_the_state_in_lower_case_or_unknown(folder, tmp_path):
    convert(folder, tmp_path / "landing")
    found = {
        event["aggregate_id"]: event["tenant_id"]
        for _, _, event in landed_events(tmp_path / "landing").values()
    }
    assert found["plain"] == "sp"
    assert found["no items"] == "rj"
    assert found["no payments"] == found["unavailable"] == "unknown"


def test_the_reference_data_has_states_in_upper_case_and_no_customer_without_one(folder, tmp_path):
    assert convert(folder, tmp_path / "landing").customers == 2
    text = (tmp_path / "landing/_reference/customers.csv").read_text()
    assert text == "customer_id,customer_region\nc-rj,RJ\nc-sp,SP\n"


def test_events_of_a_file_are_in_the_order_of_time_order_and_life_cycle(folder, tmp_path):
    convert(folder, tmp_path / "landing")
    keys = [
        (event["timestamp"], event["aggregate_id"], TYPES.index(event["event_type"]))
        for _, _, event in landed_events(tmp_path / "landing").values()
    ]
    assert keys == sorted(keys)
    assert ("2018-01-10T12:00:00Z", "half, even", 1) in keys


def test_compressed_files_give_the_same_bytes(folder, tmp_path):
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in folder.iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    convert(folder, tmp_path / "a")
    convert(packed, tmp_path / "b")
    assert list(lines_in_source_order(tmp_path / "a")) == list(lines_in_source_order(tmp_path / "b"))


def test_a_byte_order_mark_windows_line_ends_and_empty_lines_change_nothing(folder, tmp_path):
    orders = "\ufeff" + ORDERS.replace("\n", "\r\n") + "\r\n\r\n"
    windows = written(tmp_path / "windows", orders=orders)
    convert(folder, tmp_path / "a")
    convert(windows, tmp_path / "b")
    assert list(lines_in_source_order(tmp_path / "a")) == list(lines_in_source_order(tmp_path / "b"))


def test_converting_the_same_again_writes_nothing(folder, tmp_path):
    first = convert(folder, tmp_path / "landing", rates=MIXED)
    again = convert(folder, tmp_path / "landing", rates=MIXED)
    assert (first.files_there_before, again.files_there_before) == (0, again.files)
    assert again.lines == first.lines


def test_another_conversion_in_the_way_lands_nothing(folder, tmp_path):
    landing = tmp_path / "landing"
    (landing / "2018-02-18").mkdir(parents=True)
    (landing / "2018-02-18" / "olist-00001.jsonl").write_text("another\n")
    with pytest.raises(LandingFileDiffers):
        convert(folder, landing)
    assert [path.name for path in landing.iterdir()] == ["2018-02-18"]


ORDER_HEADER, ITEM_HEADER = ORDERS.splitlines()[0], ITEMS.splitlines()[0]


@pytest.mark.parametrize(
    ("name", "text", "line", "column", "says"),
    [
        ("orders", "order_id,customer_id\n", 1, "order_status", "missing"),
        ("orders", "", 1, "order_id", "there are none"),
        (
            "orders",
            ORDERS.replace("2018-01-11 08:00:00", "11/01/2018"),
            2,
            "order_delivered_carrier_date",
            "not a time",
        ),
        ("orders", ORDERS.replace("2018-01-11 08:00:00", "2018-02-30 08:00:00"), 2, None, "not a time"),
        ("orders", ORDERS.replace("2018-01-11 08:00:00", "9999-12-31 23:59:59"), 2, None, "not a time"),
        ("orders", ORDERS.replace("2018-01-11 08:00:00", "2018-01-11T08:00:00"), 2, None, "not a time"),
        (
            "orders",
            f"{ORDERS}plain,c-sp,created,,,,,\n",
            11,
            None,
            "plain is there a second time, first on line 2",
        ),
        ("orders", ORDERS.replace("plain,", ","), 2, "order_id", "is empty"),
        ("orders", f"{ORDER_HEADER}\n\na,b,c\n", 3, None, "3 values, the header 8"),
        (
            "orders",
            f'{ORDER_HEADER}\n"a\nb",c-sp,created,x,,,,\n',
            2,
            "order_purchase_timestamp",
            "not a time",
        ),
        ("orders", f'{ORDER_HEADER}\n"a,c-sp,created,,,,,\n', 2, None, "cannot be read"),
        ("order_items", ITEMS.replace("99.9,", '"99,9",'), 4, "price", "'99,9' is not a number"),
        ("order_items", ITEMS.replace("99.9,", "NaN,"), 4, "price", "'NaN' is not a number"),
        ("order_items", ITEMS.replace("99.9,", ","), 4, "price", "'' is not a number"),
        ("order_items", ITEMS.replace("27.65", "1e2"), 4, "freight_value", "'1e2' is not a number"),
        (
            "order_items",
            ITEMS.replace("plain,10", "plain,1"),
            4,
            None,
            "item 1 of order plain is there a second time",
        ),
        ("order_payments", PAYMENTS.replace("plain,2", "plain,1"), 3, None, "first on line 2"),
        ("order_payments", PAYMENTS.replace("100.25", "-"), 2, "payment_value", "not a number"),
        ("customers", f"{CUSTOMERS}c-sp,u,1,x,RJ\n", 5, None, "c-sp is there a second time"),
        ("customers", CUSTOMERS.replace("customer_state", "state"), 1, "customer_state", "missing"),
    ],
)
def test_a_wrong_row_is_named_with_file_line_and_column_and_nothing_is_landed(
    tmp_path, name, text, line, column, says
):
    folder = written(tmp_path / "orders", **{name: text})
    with pytest.raises(InputError, match=says) as caught:
        convert(folder, tmp_path / "landing")
    assert caught.value.fix
    assert caught.value.file == str(folder / f"{name}.csv")
    assert caught.value.line == line
    assert f"{name}.csv, line {line}" in str(caught.value)
    if column:
        assert caught.value.column == column
    assert not (tmp_path / "landing").exists()


@pytest.mark.parametrize("name", ["orders", "order_items", "order_payments", "customers"])
def test_a_missing_file_is_named_with_both_its_names(folder, tmp_path, name):
    (folder / f"{name}.csv").unlink()
    with pytest.raises(InputError, match=rf"neither {name}\.csv nor {name}\.csv\.gz") as caught:
        convert(folder, tmp_path / "landing")
    assert caught.value.fix


def test_a_file_that_is_there_twice_is_not_chosen_from(folder, tmp_path):
    (folder / "orders.csv.gz").write_bytes(gzip.compress(ORDERS.encode()))
    with pytest.raises(InputError, match=r"both orders\.csv and orders\.csv\.gz"):
        convert(folder, tmp_path / "landing")


@pytest.mark.parametrize("broken", [b"not gzip", gzip.compress(ORDERS.encode())[:-20]])
def test_broken_compression_is_named_with_the_file(folder, tmp_path, broken):
    (folder / "orders.csv").unlink()
    (folder / "orders.csv.gz").write_bytes(broken)
    with pytest.raises(InputError, match=r"orders\.csv\.gz, line \d+: the file cannot be read"):
        convert(folder, tmp_path / "landing")


def test_text_that_is_not_utf_8_is_named_with_its_line(folder, tmp_path):
    (folder / "customers.csv").write_bytes(CUSTOMERS.encode("latin-1"))
    with pytest.raises(InputError, match=r"customers\.csv, line 2: the file cannot be read"):
        convert(folder, tmp_path / "landing")


def test_real_orders_are_never_late(folder, tmp_path):
    with pytest.raises(SettingsError, match="never late"):
        convert(folder, tmp_path / "landing", rates=FaultRates(late=0.1))

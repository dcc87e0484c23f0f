"""The commands that make events."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from etl_assets.orders.cli.events import events
from etl_assets_tests.reference.landing_counts import count_landing

FILES = {
    "orders": "order_id,customer_id,order_status,order_purchase_timestamp,order_approved_at,"
    "order_delivered_carrier_date,order_delivered_customer_date\no-1,c-1,created,2018-01-10 10:00:00,,,\n",
    "order_items": "order_id,order_item_id,product_id,seller_id,price,freight_value\no-1,1,p,s,1.00,0.50\n",
    "order_payments": "order_id,payment_sequential,payment_value\n",
    "customers": "customer_id,customer_state\nc-1,SP\n",
}


def run(*arguments: object, code: int = 0):
    result = CliRunner().invoke(events, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "orders"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def test_generate_prints_the_counts_of_what_it_landed_as_json(tmp_path):
    result = run("generate", "--out", tmp_path, "--events", 500, "--start", "2024-02-26", "--json")
    printed = json.loads(result.stdout)
    counts = count_landing(tmp_path)
    assert result.stderr == ""
    assert (printed["lines"], printed["accepted"]) == (counts.lines, counts.accepted)
    assert (printed["duplicates"], printed["late"], printed["events"]) == (10, 5, 500)
    assert (printed["first_day"], printed["last_day"], printed["days"]) == ("2024-02-26", "2024-03-03", 7)


def test_generate_ends_today_if_no_start_is_given(tmp_path):
    before = datetime.now(UTC).date()
    printed = json.loads(run("generate", "--out", tmp_path, "--events", 500, "--days", 3, "--json").stdout)
    assert printed["last_day"] in {day.isoformat() for day in (before, before + timedelta(days=1))}
    assert printed["days"] == 3


def test_generate_prints_a_table_for_people(tmp_path):
    output = run("generate", "--out", tmp_path, "--events", 5_000, "--start", "2024-02-26").stdout
    assert "events              5,000\n" in output
    assert "OrderCreated 1," in output


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--events", 0),
        ("--duplicates", 1.5),
        ("--start", "26.2.2024"),
        ("--start", "2024-02-30"),
        ("--days", "x"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_landed(tmp_path, option, value):
    result = run("generate", "--out", tmp_path / "landing", option, value, code=2)
    assert option in result.stderr
    assert not (tmp_path / "landing").exists()


def test_from_olist_prints_the_counts_as_json(folder, tmp_path):
    printed = json.loads(run("from-olist", folder, "--out", tmp_path / "landing", "--json").stdout)
    assert (printed["lines"], printed["by_type"]["OrderCreated"], printed["customers"]) == (1, 1, 1)


def test_from_olist_mixes_faults_in(folder, tmp_path):
    options = ("--duplicates", 1, "--malformed", 1, "--seed", 3, "--json")
    printed = json.loads(run("from-olist", folder, "--out", tmp_path / "landing", *options).stdout)
    assert (printed["lines"], printed["duplicates"], printed["malformed"]) == (3, 1, 1)


def test_a_folder_that_is_not_there_is_named(tmp_path):
    assert "nowhere" in run("from-olist", tmp_path / "nowhere", "--out", tmp_path, code=2).stderr

"""`etl-assets demo --stack cdc`: its files, its changes, its verdict, and the whole command."""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import time
from decimal import Decimal

import psycopg
import pytest
from click.testing import CliRunner

from etl_assets.orders.cli.demo import demo as demo_command
from etl_assets.pipelines.capture_files import usable_captures
from etl_assets.settings import load_settings
from etl_assets.settings.connections import PostgresConnection
from etl_assets.stack.cdc_demo.changes import _CHANGES, ROLLED_BACK, ShopChanges
from etl_assets.stack.cdc_demo.comparison import TableFigures, as_json, comparable, verdict
from etl_assets.stack.cdc_demo.installation import CAPTURE, write_example
from etl_assets.stack.cdc_demo.shop import STORES, Shop
from etl_assets.stack.film_rental.database import _ROWS, SCHEMA
from etl_assets.stack.full import PORTS
from etl_assets.stack.running import CDC_HOME, demo_home
from etl_assets_tests.commands.home import BIN
from etl_assets_tests.stack.test_demo_command import Demo, demo  # noqa: F401 -- a fixture

TODAY = dt.date(2026, 2, 3)
EQUAL = TableFigures(table="public.film", phase="ready", source=3, delta=3, differences=0)


def test_the_example_is_an_installation_with_one_capture_and_only_its_port_is_corrected(tmp_path):
    home = demo_home(tmp_path, CDC_HOME)
    write_example(home, PORTS, TODAY)
    file = home / "platform.yaml"
    file.write_text(file.read_text("utf-8") + "\nowners: [team:mine]\n", "utf-8")
    write_example(home, {**PORTS, "postgres": 5_999}, TODAY + dt.timedelta(days=1))
    settings = load_settings({"ETL_ASSETS_HOME": str(home)})
    assert (settings.start_date, settings.owners) == (TODAY, ("team:mine",))
    shop = settings.connections["shop"]
    assert isinstance(shop, PostgresConnection)
    assert shop.port == 5_999
    capture = usable_captures(home)[CAPTURE]
    assert all(capture.matches(each) for each in (*STORES, *(f"{SCHEMA}.{table}" for table in _ROWS)))


def test_one_row_that_differs_and_a_table_that_is_not_ready_are_not_equal():
    assert verdict([EQUAL], {"rent": 5, ROLLED_BACK: 2}, 9.4) == (
        "All equal: 1 tables with 3 rows, after 7 transactions of which 2 were rolled back (9 s)."
    )
    other = TableFigures(table="public.actor", phase="ready", source=3, delta=3, differences=2)
    errored = TableFigures(table="public.shop", phase="errored", source=3, delta=3, differences=0)
    assert verdict([EQUAL, other, errored], {}, 1).startswith("NOT EQUAL: public.actor, public.shop ")
    assert verdict([], {}, 1).startswith("NOT EQUAL: there is no table")
    assert [json.loads(as_json(each, {}, 1))["equal"] for each in ([EQUAL], [other], [])] == [
        True,
        False,
        False,
    ]


def test_values_are_equal_whichever_client_has_read_them():
    there = dt.datetime(2026, 1, 1, 2, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    here = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    assert comparable([there, Decimal("1.50"), "a", None]) == comparable([here, Decimal("1.5"), "a", None])
    assert comparable([1]) != comparable([2])


def test_options_of_other_demos_are_refused():
    refused = CliRunner().invoke(demo_command, ["--stack", "cdc", "--days", "3"])
    assert refused.exit_code == 2
    assert "--days is not for --stack cdc" in refused.output


def test_the_shop_makes_changes_of_every_kind_and_can_be_prepared_again(postgres_server):
    shop = Shop(postgres_server)
    shop.prepare()
    changes = ShopChanges(shop.url, seed=7)
    changes.start(most=250)
    while not changes.are_made:
        time.sleep(0.05)
    changes.stop()
    assert changes.made.keys() == {*_CHANGES, "refill", ROLLED_BACK}
    assert changes.made.total() == 250
    Shop(postgres_server).prepare()  # a new password
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(shop.url)


@pytest.mark.e2e
@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1_800)
def test_a_killed_demo_leaves_no_process_and_the_next_one_finds_every_table_equal(demo: Demo):  # noqa: F811
    command = ("demo", "--stack", "cdc", "--events", "300", "--json")
    process = demo.start(*command)
    demo.wait_for("catchup", process, seconds=600)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    demo.wait_for_end()
    done = subprocess.run(
        [BIN / "etl-assets", *command], env=demo.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["equal"]
    assert len(found["tables"]) == len(STORES) + len(_ROWS)
    assert sum(found["changes"].values()) == 300
    assert not demo.processes()
    assert demo.doctor() == ["none of the demo's (`etl-assets demo --stack full`) runs"]

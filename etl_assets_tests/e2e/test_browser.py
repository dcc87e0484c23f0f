"""What a user does in the real UI: materialize a day, launch a backfill over days, see both succeed."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from etl_assets_tests.e2e.dagster_ui import (
    CHROMIUM_FLAGS,
    HEIGHT,
    WIDTH,
    DagsterApi,
    chromium,
    dagster_ui,
    wait,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="needs Chromium (Debian: apt-get install chromium)"),
]
TODAY = dt.datetime.now(dt.UTC).date()
FIRST, SECOND = TODAY - dt.timedelta(days=2), TODAY - dt.timedelta(days=1)
_PATIENCE_MS = 120_000


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An installation with an empty landing folder."""
    home = tmp_path / "home"
    home.mkdir()
    settings = {
        "start_date": FIRST,
        "landing": {"settle_seconds": 0},
        "spark": {"config": {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}},
    }
    (home / "platform.yaml").write_text(yaml.safe_dump(settings))
    return home


def land(home: Path, day: dt.date, lines: int) -> None:
    folder = home / "landing" / day.isoformat()
    folder.mkdir(parents=True)
    text = "".join(json.dumps(_event(day, number)) + "\n" for number in range(lines))
    (folder / "a.jsonl").write_text(text)


@pytest.mark.timeout(1_200)
def test_a_user_materializes_a_day_and_launches_a_backfill(home):
    from playwright.sync_api import sync_playwright

    with dagster_ui(home) as api, sync_playwright() as playwright:
        # Nothing but what the test does starts runs.
        _stop_sensors(api)
        land(home, FIRST, 3)
        land(home, SECOND, 2)
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        try:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.set_default_timeout(_PATIENCE_MS)
            materialize(page, api, FIRST, FIRST)
            run = wait(lambda: _ended(api), seconds=400, what="the run of one day")
            assert run["status"] == "SUCCESS"
            assert run["tags"]["dagster/partition"] == FIRST.isoformat()
            assert rows_by_day(home) == {FIRST.isoformat(): 3}

            materialize(page, api, FIRST, SECOND)
            backfill = wait(lambda: _ended_backfill(api), seconds=500, what="the backfill")
            assert backfill["status"] == "COMPLETED_SUCCESS"
            assert backfill["numPartitions"] == 2
            (run,) = api.runs(tags=[{"key": "dagster/backfill", "value": backfill["id"]}])
            assert run["status"] == "SUCCESS"
            assert rows_by_day(home) == {FIRST.isoformat(): 3, SECOND.isoformat(): 2}
        finally:
            browser.close()


def materialize(page: Page, api: DagsterApi, first: dt.date, last: dt.date) -> None:
    """Fill in and send the dialog of the button "Materialize" of raw_events."""
    page.goto(f"{api.url}/assets/raw_events?view=partitions", wait_until="domcontentloaded")
    page.get_by_role("button", name="Materialize").first.click()
    dialog = page.get_by_role("dialog")
    dates = dialog.locator("input[type=text]").first
    dates.fill(f"[{first}...{last}]")
    dates.press("Enter")
    dialog.get_by_role("button", name="Launch").last.click()
    dialog.wait_for(state="hidden")


def rows_by_day(home: Path) -> dict[str, int]:
    """Rows of raw_events by day, read by delta-rs."""
    from deltalake import DeltaTable

    (table,) = (home / "data" / "tables" / "raw_events").glob("g*")
    days = DeltaTable(str(table)).to_pyarrow_dataset().to_table(columns=["partition_date"])["partition_date"]
    counts = {str(each["values"]): each["counts"] for each in days.value_counts().to_pylist()}
    return dict(sorted(counts.items()))


def _event(day: dt.date, number: int) -> dict[str, object]:
    return {
        "event_id": f"{day}-{number}",
        "tenant_id": "acme",
        "aggregate_id": f"order-{number}",
        "event_type": "OrderCreated",
        "payload": {"customer_id": "c", "amount": "12.50", "currency": "EUR"},
        "timestamp": f"{day}T10:00:00Z",
        "schema_version": 1,
    }


def _stop_sensors(api: DagsterApi) -> None:
    sensors = api.query(
        "{ repositoriesOrError { ... on RepositoryConnection { nodes { sensors { name id"
        " sensorState { id selectorId } } } } } }"
    )["repositoriesOrError"]["nodes"][0]["sensors"]
    for sensor in sensors:
        api.query(
            "mutation($id: String) { stopSensor(id: $id) { __typename ... on PythonError { message } } }",
            id=sensor["sensorState"]["id"],
        )


def _ended(api: DagsterApi) -> dict | None:
    runs = api.runs()
    return runs[0] if runs and runs[0]["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None


def _ended_backfill(api: DagsterApi) -> dict | None:
    found = api.backfills()
    ended = ("COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED")
    return found[0] if found and found[0]["status"] in ended else None

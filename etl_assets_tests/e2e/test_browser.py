"""What a user does in the real UI: materialize a day, launch a backfill over days, see both succeed."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from etl_assets_tests.e2e.dagster_ui import (
    CHROMIUM_FLAGS,
    HEIGHT,
    WIDTH,
    DagsterApi,
    chromium,
    dagster_ui,
    wait,
)
from etl_assets_tests.e2e.installation import FIRST, SECOND, land, rows_by_day

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(chromium() is None, reason="needs Chromium (Debian: apt-get install chromium)"),
]
_PATIENCE_MS = 120_000


@pytest.mark.timeout(1_200)
def test_a_user_materializes_a_day_and_launches_a_backfill(home):
    from playwright.sync_api import sync_playwright

    with dagster_ui(home) as api, sync_playwright() as playwright:
        # Nothing but what the test does starts runs.
        api.stop_sensors()
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


def _ended(api: DagsterApi) -> dict | None:
    runs = api.runs()
    return runs[0] if runs and runs[0]["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None


def _ended_backfill(api: DagsterApi) -> dict | None:
    found = api.backfills()
    ended = ("COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED")
    return found[0] if found and found[0]["status"] in ended else None

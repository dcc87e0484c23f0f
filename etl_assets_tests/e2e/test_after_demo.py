"""The first look at the UI after a demo: every partition is there, every check was evaluated, and texts are
for people.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
from etl_assets_tests.e2e.installation import SECOND, TODAY

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1_200)]
COMMAND = str(Path(sys.executable).with_name("etl-assets"))
ASSETS = {
    "customers",
    "raw_events",
    "normalized_orders",
    "warehouse_rows",
    "order_status_view",
    "dead_letters",
    "audit_log",
}
CHECKS = {
    *((name, "contract") for name in ASSETS),
    ("raw_events", "dense_offsets"),
    ("normalized_orders", "dense_offsets"),
    ("normalized_orders", "nothing_lost"),
    ("warehouse_rows", "all_committed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """A demo with the UI open on it."""

    home: Path
    api: DagsterApi

    def etl_assets(self, *arguments: str) -> None:
        subprocess.run(
            [COMMAND, *arguments],
            env={**os.environ, "ETL_ASSETS_HOME": str(self.home)},
            check=True,
            timeout=400,
        )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    home = tmp_path_factory.mktemp("demo") / "home"
    home.mkdir()
    java = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    (home / "platform.yaml").write_text(yaml.safe_dump({"spark": {"config": java}}))
    Installation(home=home, api=DagsterApi(url="")).etl_assets("demo", "--events", "2000", "--days", "3")
    with dagster_ui(home) as api:
        yield Installation(home=home, api=api)


def evaluated(api: DagsterApi) -> dict[tuple[str, str], str | None]:
    """By asset and check what it said of the latest materialization, None where it was not evaluated."""
    nodes = api.query(
        "{ assetNodes { assetKey { path } assetChecksOrError { ... on AssetChecks { checks { name"
        " executionForLatestMaterialization { status } } } } } }"
    )["assetNodes"]
    return {
        (node["assetKey"]["path"][0], check["name"]): (check["executionForLatestMaterialization"] or {}).get(
            "status"
        )
        for node in nodes
        for check in node["assetChecksOrError"].get("checks", ())
    }


def test_every_partition_is_there_and_every_check_was_evaluated(demo):
    nodes = demo.api.query(
        "{ assetNodes { assetKey { path } partitionStats { numPartitions numMaterialized }"
        " assetMaterializations(limit: 1) { timestamp } } }"
    )["assetNodes"]
    assert {node["assetKey"]["path"][0] for node in nodes} == ASSETS
    for node in nodes:
        assert node["assetMaterializations"], node
        if (days := node["partitionStats"]) is not None:
            assert days == {"numPartitions": 3, "numMaterialized": 3}, node
    assert evaluated(demo.api) == dict.fromkeys(CHECKS, "SUCCEEDED")


@pytest.mark.skipif(chromium() is None, reason="needs Chromium (Debian: apt-get install chromium)")
def test_pages_show_names_paths_and_few_words(demo):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        try:
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.set_default_timeout(90_000)
            for sensor, target in (
                ("landing_files", '"warehouse_rows"'),
                ("downstream_automation", "etl_assets"),
            ):
                page.goto(
                    f"{demo.api.url}/locations/etl_assets/sensors/{sensor}", wait_until="domcontentloaded"
                )
                row = page.get_by_role("row").filter(has_text="Target")
                row.get_by_text(target).first.wait_for()
                assert "operands=" not in page.inner_text("body")
            page.goto(f"{demo.api.url}/assets/raw_events?view=overview", wait_until="domcontentloaded")
            page.get_by_text(str(demo.home / "data" / "tables" / "raw_events" / "g000001")).first.wait_for()
            page.get_by_text("at most 512 chars").first.wait_for()
            page.goto(f"{demo.api.url}/assets/raw_events?view=checks", wait_until="domcontentloaded")
            page.get_by_text("contract").first.wait_for()
            page.get_by_text("Succeeded").first.wait_for()
            assert "not evaluated" not in page.inner_text("body").lower()
        finally:
            browser.close()


def test_a_run_of_the_landing_sensor_evaluates_every_check_again(demo):
    before = {run["runId"] for run in demo.api.runs()}
    arguments = ["--events", "50", "--days", "1", "--start", str(SECOND), "--seed", "7"]
    demo.etl_assets("events", "generate", "--out", str(demo.home / "landing"), *arguments)

    def ended() -> dict | None:
        new = [run for run in demo.api.runs() if run["runId"] not in before]
        return new[-1] if new and new[-1]["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None

    run = wait(ended, seconds=400, what="the run of the landing sensor")
    assert (run["status"], run["tags"]["dagster/sensor_name"]) == ("SUCCESS", "landing_files")
    assert SECOND < TODAY, "an older day than the newest one, whose checks are the table's as well"

    # A run that follows it may be at its checks again.
    def all_passed() -> bool:
        return evaluated(demo.api) == dict.fromkeys(CHECKS, "SUCCEEDED")

    wait(all_passed, seconds=240, what="every check has passed")


def test_the_terminal_shows_what_needs_attention_and_no_tick_of_a_sensor(demo):
    said = (demo.home / "dev.log").read_text("utf-8", "replace")
    assert "Dagster UI on http://127.0.0.1:" in said
    assert "superseded" not in said
    assert "Checking for new runs" not in said

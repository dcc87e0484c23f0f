"""The pictures of docs/images, taken from a running UI: `python -m etl_assets_tests.e2e.screenshots URL OUT
[NAME ...]`.

Run the demo and `etl-assets dev` before, so that there is something to see. Those of failure domains are
taken only when they are named: of a demo with DOMAINS=3, after one of its roots was taken away, and after it
was brought back. So is that of a declared pipeline: of the installation that docs/your-first-pipeline.md
leads to; and that of the full stack: of `etl-assets dev --stack full`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets_tests.e2e.dagster_ui import CHROMIUM_FLAGS, HEIGHT, WIDTH, DagsterApi, chromium

if TYPE_CHECKING:
    from playwright.sync_api import Page

_PATIENCE_MS = 90_000
_FADES_MS = 3_000
"""Dagster's menus and graph move into place; nothing says when they have."""


def asset_graph(page: Page, url: str, day: str) -> None:
    """Every asset, its group around it."""
    page.goto(f"{url}/asset-groups", wait_until="domcontentloaded")
    page.get_by_text("transform").first.wait_for()
    page.get_by_text("Hide navigation").click()
    page.get_by_label("panel_show_right").last.click()
    page.wait_for_timeout(_FADES_MS)
    page.keyboard.press("Alt+e")
    page.get_by_text("normalized_orders").first.wait_for()
    page.wait_for_timeout(_FADES_MS)
    # The groups stay open, and the graph is fitted into the page again; a step back brings its edges into
    # view.
    page.reload(wait_until="domcontentloaded")
    page.get_by_text("normalized_orders").first.wait_for()
    page.wait_for_timeout(_FADES_MS)
    for _ in range(2):
        page.get_by_label("zoom_out").click()
        page.wait_for_timeout(_FADES_MS)


def outcomes_chart(page: Page, url: str, day: str) -> None:
    """The chart in the materialization of a day."""
    page.goto(f"{url}/assets/raw_events?view=partitions&partition={day}", wait_until="domcontentloaded")
    page.get_by_text("outcomes_by_day").wait_for()
    page.wait_for_timeout(_FADES_MS)
    row = page.get_by_role("row").filter(has_text="outcomes_by_day")
    row.get_by_text("Show Markdown").click()
    page.locator("img[src^='data:image/svg']").wait_for()
    page.wait_for_timeout(_FADES_MS)


def failure_domains(page: Page, url: str, day: str) -> None:
    """What was last seen of the failure domains."""
    page.goto(f"{url}/assets/failure_domains?view=events", wait_until="domcontentloaded")
    page.get_by_text("safe_from_one_loss").first.wait_for()
    page.wait_for_timeout(_FADES_MS)


def declared_pipeline(page: Page, url: str, day: str) -> None:
    """The assets of the pipeline of docs/your-first-pipeline.md, in their group."""
    page.goto(f"{url}/locations/etl_assets/asset-groups/suppliers", wait_until="domcontentloaded")
    page.get_by_text("suppliers_source").first.wait_for()
    page.wait_for_timeout(_FADES_MS)
    page.get_by_text("Hide navigation").click()
    page.wait_for_timeout(_FADES_MS)


def full_stack(page: Page, url: str, day: str) -> None:
    """The pipelines of `etl-assets dev --stack full`; the group of one of them is open, with its sinks."""
    page.set_viewport_size({"width": WIDTH, "height": WIDTH})
    page.goto(f"{url}/asset-groups", wait_until="domcontentloaded")
    page.get_by_text("kafka_orders").first.wait_for()
    page.get_by_text("Hide navigation").click()
    page.get_by_label("panel_show_right").last.click()
    page.wait_for_timeout(_FADES_MS)
    page.get_by_text("kafka_orders", exact=True).last.click()
    page.get_by_text("kafka_orders_to_kafka").first.wait_for()
    # The group stays open, and the graph is fitted into the page again.
    page.reload(wait_until="domcontentloaded")
    page.get_by_text("kafka_orders_to_kafka").first.wait_for()
    page.wait_for_timeout(_FADES_MS)


def captured_tables(page: Page, url: str, day: str) -> None:
    """The captured tables of `etl-assets dev --stack cdc`; each one's group is closed."""
    page.goto(f"{url}/asset-groups", wait_until="domcontentloaded")
    page.get_by_text("shop_film_rental_film").first.wait_for()
    page.get_by_text("Hide navigation").click()
    page.get_by_label("panel_show_right").last.click()
    page.wait_for_timeout(_FADES_MS)
    for _ in range(4):
        page.get_by_label("zoom_out").click()
        page.wait_for_timeout(_FADES_MS)


PICTURES: dict[str, Callable[[Page, str, str], None]] = {
    "asset-graph.png": asset_graph,
    "outcomes-chart.png": outcomes_chart,
}

ON_REQUEST: dict[str, Callable[[Page, str, str], None]] = {
    "failure-domains-outage.png": failure_domains,
    "failure-domains-after.png": failure_domains,
    "declared-pipeline.png": declared_pipeline,
    "full-stack.png": full_stack,
    "captured-tables.png": captured_tables,
}


def take(url: str, out: Path, names: Sequence[str]) -> None:
    """Take the pictures named, or all that need nothing special."""
    wanted = {name: (PICTURES | ON_REQUEST)[name] for name in names or PICTURES}
    from playwright.sync_api import sync_playwright

    day = _newest_day(DagsterApi(url=url)) if PICTURES.keys() & wanted.keys() else ""
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(_PATIENCE_MS)
        for name, show in wanted.items():
            show(page, url, day)
            dialog = page.get_by_role("dialog")
            (dialog if dialog.count() else page).screenshot(path=out / name)
        browser.close()


def _newest_day(api: DagsterApi) -> str:
    """The newest day that raw_events has a materialization of."""
    found = api.query(
        '{ assetNodeOrError(assetKey: {path: ["raw_events"]}) { ... on AssetNode {'
        " assetMaterializations(limit: 200) { partition } } } }"
    )["assetNodeOrError"]["assetMaterializations"]
    return max(each["partition"] for each in found)


if __name__ == "__main__":
    take(sys.argv[1].rstrip("/"), Path(sys.argv[2]), sys.argv[3:])

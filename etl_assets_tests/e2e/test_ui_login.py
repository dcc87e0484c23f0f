"""The Dagster UI through the login of `etl-assets serve`, in a real browser over Dagster's own webserver."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etl_assets.serve.service import now_utc
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets_tests.e2e.dagster_ui import (
    CHROMIUM_FLAGS,
    HEIGHT,
    WIDTH,
    DagsterApi,
    chromium,
    stop,
    wait,
)
from etl_assets_tests.serve.server_process import ServerProcess, serving, write_installation

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, WebSocket

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    # Its short form is serve/test_dagster_ui.py.
    pytest.mark.full,
    pytest.mark.skipif(chromium() is None, reason="needs Chromium (Debian: apt-get install chromium)"),
]
_PATIENCE_MS = 60_000
_PROJECT = """
import time

import dagster as dg


@dg.asset
def first(context: dg.AssetExecutionContext) -> None:
    for number in range(5):
        context.log.info(f"step {number} of first")
        time.sleep(1)


@dg.asset(deps=[first])
def second() -> None: ...


defs = dg.Definitions(assets=[first, second])
"""
_INSTANCE = """
telemetry: {enabled: false}
nux: {enabled: false}
run_coordinator: {module: dagster._core.run_coordinator, class: DefaultRunCoordinator}
"""


@contextmanager
def dagster_webserver(folder: Path) -> Generator[DagsterApi]:
    """A small project in the webserver, started as `dagster dev` starts it for `etl-assets dev`."""
    (folder / "project.py").write_text(_PROJECT, "utf-8")
    (folder / "dagster.yaml").write_text(_INSTANCE, "utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environ = {**os.environ, "DAGSTER_HOME": str(folder), "DAGSTER_WEBSERVER_PATH_PREFIX": "/ui"}
    command = [sys.executable, "-m", "dagster_webserver", "-f", "project.py", "-p", str(port)]
    with (folder / "webserver.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=environ, cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
    api = DagsterApi(url=f"http://127.0.0.1:{port}/ui")
    try:
        wait(api.ready, seconds=120, what="Dagster's webserver")
        yield api
    finally:
        stop(process)


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with dagster_webserver(tmp_path_factory.mktemp("dagster")) as started:
        yield started


@pytest.fixture(scope="module")
def server(api, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    write_installation(home, serve={"ui": {"address": api.url.removesuffix("/ui")}})
    with serving(home) as started:
        yield started


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        yield opened
        opened.close()


def log_in(browser: Browser, server: ServerProcess, scope: Scope, path: str, tenant: str = "default") -> Page:
    """Open a page of the UI without a login, and log in where that leads to."""
    _, secret = Tokens(server.home).add("oncall", now=now_utc(), scopes=[scope], tenant=tenant)
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, base_url=server.url)
    page.set_default_timeout(_PATIENCE_MS)
    page.goto(path)
    assert page.url.startswith(f"{server.url}/login"), "without a login there is only the login"
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"**{path}*")
    return page


@pytest.mark.timeout(600)
def test_an_operator_materializes_assets_and_sees_their_logs_arrive(browser, server, api):
    page = log_in(browser, server, Scope.OPERATE, "/ui/asset-groups")
    page.get_by_text("second", exact=True).first.wait_for()
    page.get_by_role("button", name=re.compile("Materialize")).first.click()
    (run,) = wait(api.runs, seconds=60, what="the run")

    received: list[str] = []

    def follow(opened: WebSocket) -> None:
        assert opened.url.startswith(server.url.replace("http", "ws") + "/ui/graphql")
        opened.on("framereceived", lambda payload: received.append(str(payload)))

    page.on("websocket", follow)
    page.goto(f"/ui/runs/{run['runId']}")
    page.get_by_text("step 4 of first").first.wait_for()
    assert any("step 4 of first" in each for each in received), "the log came over the websocket"
    assert api.wait_for_run(run["runId"], seconds=60) == "SUCCESS"
    page.get_by_text("Success", exact=True).first.wait_for()
    log = (server.home / "server.log").read_text("utf-8")
    assert re.search(r"oncall \(token \w+\) asks for launch\w+ in the Dagster UI", log)


@pytest.mark.timeout(600)
def test_a_reader_sees_the_assets_and_is_told_why_nothing_is_launched(browser, server, api):
    before = len(api.runs())
    page = log_in(browser, server, Scope.READ, "/ui/asset-groups")
    page.get_by_text("second", exact=True).first.wait_for()
    with page.expect_response(lambda answer: answer.status == 403) as refused:
        page.get_by_role("button", name=re.compile("Materialize")).first.click()
    assert "needs the scope `operate`" in refused.value.text()
    page.get_by_text("View error").first.click()
    page.get_by_text("needs the scope `operate`").first.wait_for()
    assert len(api.runs()) == before


@pytest.mark.timeout(600)
def test_a_person_of_a_tenant_gets_the_status_page_and_not_the_ui(browser, server):
    page = log_in(browser, server, Scope.ADMIN, "/ui/runs", tenant="acme")
    assert "pipelines of all tenants" in page.get_by_role("alert").inner_text()
    page.get_by_role("link", name="All pipelines").click()
    page.wait_for_url("**/status")
    assert page.get_by_role("link", name="Dagster UI").count() == 0

"""The status page in a real browser, and what it refuses without one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx
import pytest

from etl_assets.serve.service import now_utc
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets_tests.e2e.dagster_ui import CHROMIUM_FLAGS, chromium
from etl_assets_tests.serve.server_process import PIPELINE, command, serving, write_installation

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTH, HEIGHT = 1200, 900
SNEAKY = "<script>document.title = 'taken'</script>"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("page")
    write_installation(home)
    with serving(home) as started:
        with started.client() as client:
            client.post(
                started.events, json=[{"id": 1, "film": "M"}, {"id": 2, "film": None}, {"film": SNEAKY}]
            )
        command(home, "run")
        (home / "pipelines" / "broken.yaml").write_text("name: broken\nsource: {type: htp}\n", "utf-8")
        yield started


@pytest.fixture
def token(server):
    def make(*scopes: Scope, client: str = "oncall", tenant: str = "default") -> str:
        return Tokens(server.home).add(client, now=now_utc(), scopes=scopes, tenant=tenant)[1]

    return make


@pytest.fixture
def page(server):
    if chromium() is None:
        pytest.skip("needs Chromium (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(CHROMIUM_FLAGS))
        opened = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, base_url=server.url)
        opened.set_default_timeout(20_000)
        refused = []
        opened.on("console", lambda message: refused.append(message.text))
        try:
            yield opened
            assert refused == [], "the browser found a fault, or refused something by the page's policy"
        finally:
            browser.close()


@pytest.fixture
def browser_of(server):
    """A client that is logged in like a browser."""
    opened = []

    def log_in(secret: str) -> httpx.Client:
        client = httpx.Client(base_url=server.url, follow_redirects=False, timeout=30, trust_env=False)
        opened.append(client)
        answer = client.post("/login", data={"token": secret})
        assert answer.status_code == 303, answer.text
        return client

    yield log_in
    for client in opened:
        client.close()


def log_in(page: Page, secret: str) -> None:
    page.goto("/")
    page.get_by_label("Token").fill(secret)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/status")


def act(page: Page, action: str, reason: str) -> None:
    page.get_by_role("link", name=action, exact=True).click()
    page.get_by_label("Reason").fill(reason)
    page.get_by_role("button", name=action).click()
    page.wait_for_url(f"**/status/{PIPELINE}")


def test_an_operator_sees_the_pipelines_and_pauses_and_resumes_one(server, page, token):
    log_in(page, token(Scope.OPERATE))
    row = page.get_by_role("row", name=re.compile(PIPELINE))
    assert "idle" in row.inner_text()
    assert "broken" in page.get_by_role("row", name=re.compile("^broken")).inner_text()

    row.get_by_role("link").click()
    letters = page.get_by_role("table").nth(2)
    assert "id" in letters.inner_text()
    assert page.title() != "taken"

    act(page, "Run", "late delivery")
    assert page.get_by_role("heading", name="run requested").is_visible()
    act(page, "Pause", "database upgrade")
    assert page.get_by_role("heading", name="paused").is_visible()
    assert "by oncall: database upgrade" in page.get_by_role("main").inner_text()
    act(page, "Resume", "")
    assert "run requested" in page.get_by_role("heading").first.inner_text()
    act(page, "Cancel", "not needed")
    history = page.get_by_role("table").last.inner_text()
    assert [line.split("\t")[2] for line in history.splitlines()[1:5]] == ["cancel", "resume", "pause", "run"]

    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    page.goto("/status")
    assert page.url.endswith("/login")


def test_a_broken_declaration_says_what_is_wrong(server, page, token):
    log_in(page, token(Scope.READ))
    page.goto("/status/broken")
    assert any("source.type" in each for each in page.get_by_role("alert").all_inner_texts())
    page.goto(f"/status/{PIPELINE}")
    assert page.get_by_role("link", name="Pause").count() == 0, "this token may not operate"


def test_who_may_not_read_cannot_log_in(server, token):
    for secret, reason in (("eta_made_up", "not valid"), (token(Scope.INGEST), "may not read")):
        answer = httpx.post(f"{server.url}/login", data={"token": secret}, trust_env=False)
        assert answer.status_code == 403
        assert reason in answer.text
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/status", f"/status/{PIPELINE}", f"/status/{PIPELINE}/pause"])
def test_without_a_session_every_page_leads_to_the_login(server, token, path):
    for headers in (
        {},
        {"authorization": f"Bearer {token(Scope.ADMIN)}"},
        {"cookie": "etl_assets_session=x"},
    ):
        answer = httpx.get(f"{server.url}{path}", headers=headers, trust_env=False)
        assert (answer.status_code, answer.headers.get("location")) == (303, "/login")


def test_a_session_allows_what_its_token_does_and_ends_with_it(server, token, browser_of):
    reader = browser_of(token(Scope.READ, client="reader"))
    assert reader.get(f"/status/{PIPELINE}/pause").status_code == 403
    assert reader.get("/v1/pipelines").status_code == 401, "the cookie is for the pages only"
    other = browser_of(token(Scope.OPERATE, tenant="other"))
    assert other.get(f"/status/{PIPELINE}").status_code == 404
    assert PIPELINE not in other.get("/status").text

    (known,) = [each for each in Tokens(server.home).all() if each.client == "reader"]
    command(server.home, "tokens", "revoke", known.id)
    assert reader.get("/status").headers["location"] == "/login"


def test_a_form_of_another_site_or_session_does_nothing(server, token, browser_of):
    operator, another = browser_of(token(Scope.OPERATE)), browser_of(token(Scope.OPERATE))
    path = f"/status/{PIPELINE}/pause"
    foreign = form_key(another.get(path).text)
    for form in ({"reason": ""}, {"form_key": ""}, {"form_key": foreign}):
        answer = operator.post(path, data=form)
        assert answer.status_code == 403
        assert "reload" in answer.text
    assert operator.post(path, json={"form_key": form_key(operator.get(path).text)}).status_code == 415
    assert operator.post(path, data={"form_key": "x" * 10_000}).status_code == 413
    assert "paused" not in operator.get("/status").text


def test_a_form_that_is_sent_twice_asks_for_one_run(server, token, browser_of):
    secret = token(Scope.OPERATE)
    operator, headers = browser_of(secret), {"authorization": f"Bearer {secret}"}
    path, runs = f"/status/{PIPELINE}/run", f"/v1/pipelines/{PIPELINE}/runs"
    form = dict(re.findall(r'name="(\w+)" value="([^"]+)"', operator.get(path).text))
    for _ in range(2):
        assert operator.post(path, data={**form, "reason": "twice"}).status_code == 303
        operator.post(f"/v1/pipelines/{PIPELINE}/cancel", headers=headers)
        operator.post(f"/v1/pipelines/{PIPELINE}/resume", headers=headers)
    found = operator.get(runs, headers=headers).json()["data"]
    assert [each["reason"] for each in found].count("twice") == 1
    other = dict(re.findall(r'name="(\w+)" value="([^"]+)"', operator.get(path).text))
    assert operator.post(path, data={**other, "reason": "twice"}).status_code == 303
    found = operator.get(runs, headers=headers).json()["data"]
    assert [each["reason"] for each in found].count("twice") == 2
    operator.post(f"/v1/pipelines/{PIPELINE}/cancel", headers=headers)
    assert operator.post(f"/status/{PIPELINE}/drop", data=form).status_code == 404


def test_a_broken_pipeline_is_not_run(server, token, browser_of):
    operator = browser_of(token(Scope.OPERATE))
    form = {"form_key": form_key(operator.get("/status/broken/run").text), "request_id": "1"}
    answer = operator.post("/status/broken/run", data=form)
    assert answer.status_code == 409
    assert "has problems" in answer.text


def test_no_page_can_be_framed_cached_or_read_by_scripts(server, token, browser_of):
    operator = browser_of(token(Scope.OPERATE))
    answer = operator.get("/status")
    assert answer.headers["cache-control"] == "no-store"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    cookie = httpx.post(f"{server.url}/login", data={"token": token(Scope.READ)}, trust_env=False).headers[
        "set-cookie"
    ]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


def form_key(page: str) -> str:
    return re.findall(r'name="form_key" value="([^"]+)"', page)[-1]

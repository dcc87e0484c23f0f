"""Run control over REST, in the app itself, with a control store in SQLite; a runner of the test's own."""

from __future__ import annotations

import pytest

from etl_assets.control.control_plane import ControlPlane
from etl_assets.control.store import FILE
from etl_assets.errors import SourceRefused
from etl_assets.settings import load_settings
from etl_assets_tests.serve.rest_calls import RestClient, new_service
from etl_assets_tests.serve.server_process import PIPELINE, write_installation

PATH = f"/v1/pipelines/{PIPELINE}"


@pytest.fixture
def home(tmp_path, monkeypatch):
    write_installation(tmp_path)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def client(home):
    return RestClient(new_service(), scopes=["operate"])


@pytest.fixture
def runner(home):
    """Run control of another process."""
    control = ControlPlane(load_settings())
    yield control.runs
    control.close()


def kind_of(answer) -> str:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    return answer.json()["type"].rpartition(":")[2]


def test_a_run_is_asked_for_and_seen_to_its_end(client, runner):
    asked = client.post(f"{PATH}/run", {"reason": " late data "})
    assert asked.status_code == 202
    assert (asked.json()["status"], asked.json()["requested_by"], asked.json()["reason"]) == (
        "requested",
        "robot",
        "late data",
    )
    lease = runner.claim("runner")
    runner.report_progress(lease, batches=2, rows_committed=100, seconds=0.5)
    where = asked.headers["location"]
    under_way = client.get(where).json()
    assert (under_way["status"], under_way["rows"], under_way["rows_per_second"]) == ("running", 100, 200.0)
    assert "token" not in under_way
    assert client.get(f"{PATH}/state").json()["state"] == "RUNNING"
    runner.finish(lease)
    assert client.get(where).json()["status"] == "succeeded"
    assert client.get(f"{PATH}/state").json()["state"] == "IDLE"


def test_a_repeated_request_gets_its_run_by_its_key_whatever_has_become_of_it(client, runner):
    def ask(key: str, by: RestClient = client) -> str:
        answer = by.post(f"{PATH}/run", headers={"idempotency-key": key})
        assert answer.status_code == 202
        return answer.json()["id"]

    first = ask("a")
    assert ask("a") == first
    assert ask("b") == first  # it has not begun, and reads all that both want
    runner.finish(runner.claim("runner"))
    assert (ask("a"), ask("b")) == (first, first)
    # Keys of other clients are others.
    other = RestClient(client.service, client="another", scopes=["operate"])
    assert ask("a", other) != first
    assert client.post(f"{PATH}/run", headers={"idempotency-key": "two words"}).status_code == 400


def test_pause_resume_and_cancel_lead_from_state_to_state(client, runner):
    client.post(f"{PATH}/run")
    runner.claim("runner")
    paused = client.post(f"{PATH}/pause", {"reason": "database upgrade"})
    assert (paused.status_code, paused.json()["state"]) == (200, "PAUSE_REQUESTED")
    assert (paused.json()["actor"], paused.json()["reason"]) == ("robot", "database upgrade")
    assert client.post(f"{PATH}/resume").json()["state"] == "RUNNING"
    assert client.post(f"{PATH}/cancel").json()["state"] == "CANCEL_REQUESTED"
    assert client.post(f"{PATH}/cancel").json()["state"] == "CANCEL_REQUESTED"


def test_what_the_state_does_not_allow_is_refused_with_what_it_does(client):
    for action in ("cancel", "retry"):
        refused = client.post(f"{PATH}/{action}")
        assert (refused.status_code, kind_of(refused)) == (409, "transition-refused")
        assert (refused.json()["state"], refused.json()["allowed"]) == ("IDLE", ["run", "pause", "resume"])
        assert action in refused.json()["detail"]
    assert client.get(f"{PATH}/state").json()["allowed"] == ["run", "pause", "resume"]


def test_a_failed_run_says_why_and_what_to_do_and_goes_on_by_retry(client, runner):
    where = client.post(f"{PATH}/run").headers["location"]
    runner.fail(runner.claim("runner"), SourceRefused("no such topic", fix="create it"))
    failed = client.get(where).json()
    assert (failed["status"], failed["retry_policy"]) == ("failed", "none")
    assert ("no such topic" in failed["error"], "create it" in failed["solution"]) == (True, True)
    assert client.post(f"{PATH}/resume").status_code == 409
    assert client.post(f"{PATH}/retry").json()["state"] == "RUN_REQUESTED"
    assert client.get(where).json()["status"] == "requested"


def test_runs_come_in_pages_the_newest_first_and_only_those_of_the_pipeline(client, runner):
    asked = []
    for _ in range(5):
        asked.append(client.post(f"{PATH}/run").json()["id"])
        runner.finish(runner.claim("runner"))
    foreign = runner.request_run("another", "robot").id
    found, cursor = [], None
    while True:
        page = client.get(
            f"{PATH}/runs", params={"limit": 2} | ({} if cursor is None else {"cursor": cursor})
        )
        found += [each["id"] for each in page.json()["data"]]
        if (cursor := page.json()["next"]) is None:
            break
    assert found == asked[::-1]
    for unknown in (foreign, "none", "%00"):
        assert client.get(f"{PATH}/runs/{unknown}").status_code == 404
    assert client.get(f"{PATH}/runs", params={"cursor": "Im5vbmUi"}).status_code == 422


def test_an_installation_without_run_control_is_idle_and_looking_makes_no_store(client, home):
    assert client.get(f"{PATH}/state").json()["state"] == "IDLE"
    assert client.get(f"{PATH}/runs").json() == {"data": [], "next": None}
    assert not (home / FILE).exists()


def test_other_tenants_neither_see_nor_stop_a_pipeline(client):
    run = client.post(f"{PATH}/run").json()["id"]
    other = RestClient(client.service, tenant="acme")
    for answer in (
        other.post(f"{PATH}/pause"),
        other.get(f"{PATH}/state"),
        other.get(f"{PATH}/runs/{run}"),
        other.get(f"{PATH}/runs"),
    ):
        assert (answer.status_code, kind_of(answer)) == (404, "no-such-pipeline")


@pytest.mark.parametrize(
    "body", [{"reason": 7}, {"reason": "x" * 501}, {"reason": "\0"}, {"why": "x"}, {"reason": None}]
)
def test_a_reason_is_a_short_text(client, body):
    answer = client.post(f"{PATH}/pause", body)
    assert (answer.status_code, kind_of(answer)) == (422, "bad-reason")
    assert client.get(f"{PATH}/state").json()["state"] == "IDLE"


def test_a_pipeline_whose_declaration_is_broken_gets_no_run(client, home):
    (home / "pipelines" / "broken.yaml").write_text("name: broken\n", "utf-8")
    client.service.look_again()
    answer = client.post("/v1/pipelines/broken/run")
    assert (answer.status_code, kind_of(answer)) == (409, "broken-pipeline")


def test_a_pipeline_with_a_run_is_not_deleted(client, runner):
    films = {
        "name": "films",
        "source": {"type": "http", "id": ["id"]},
        "columns": {"id": "bigint"},
        "table": {"keys": ["id"]},
    }
    admin = RestClient(client.service)
    assert admin.post("/v1/pipelines", films).status_code == 201
    admin.post("/v1/pipelines/films/run")
    refused = admin.delete("/v1/pipelines/films")
    assert (refused.status_code, kind_of(refused)) == (409, "run-under-way")
    runner.finish(runner.claim("runner"))
    assert admin.delete("/v1/pipelines/films").status_code == 204
    assert admin.get("/v1/pipelines/films/runs").status_code == 404


def test_a_store_that_is_gone_is_named_without_its_path(client, home):
    (home / FILE).mkdir()
    for answer in (client.post(f"{PATH}/run"), client.get(f"{PATH}/state"), client.get(f"{PATH}/runs")):
        assert (answer.status_code, kind_of(answer)) == (503, "control-store-unavailable")
        assert answer.headers["retry-after"] == "5"
        assert str(home) not in answer.text

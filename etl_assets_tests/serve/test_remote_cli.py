"""`etl-assets pipelines … --url`: commands as clients of a real server, from a home folder of their own."""

from __future__ import annotations

import json
import socket

import pytest
import yaml
from click.testing import CliRunner

from etl_assets.cli.pipelines import pipelines
from etl_assets.errors import (
    EtlAssetsError,
    NotFound,
    RequestRefused,
    SettingsError,
    TransitionRefused,
)
from etl_assets.serve.service import now_utc
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets_tests.serve.server_process import PIPELINE, serving, write_installation
from etl_assets_tests.serve.test_definitions import FILMS


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    home = tmp_path_factory.mktemp("remote")
    write_installation(home)
    _, token = Tokens(home).add("oncall", now=now_utc(), scopes=[Scope.ADMIN])
    with serving(home, token) as started:
        yield started


@pytest.fixture(autouse=True)
def elsewhere(server, tmp_path, monkeypatch):
    monkeypatch.setenv("ETL_ASSETS_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("ETL_ASSETS_URL", server.url)
    monkeypatch.setenv("ETL_ASSETS_TOKEN", server.token)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(pipelines, arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def refused(kind: type[EtlAssetsError], *arguments: str) -> EtlAssetsError:
    result = CliRunner().invoke(pipelines, arguments)
    assert type(result.exception) is kind, (result.output, result.exception)
    return result.exception


def test_a_pipeline_is_run_paused_resumed_and_canceled_over_rest(server, tmp_path):
    assert f"{PIPELINE} is RUN_REQUESTED" in run("run", PIPELINE, "--reason", "late data")
    assert run("pause", PIPELINE, "--reason", "upgrade") == f"{PIPELINE} is PAUSED\n"
    error = refused(TransitionRefused, "retry", PIPELINE)
    assert (error.state, "resume" in error.allowed) == ("PAUSED", True)  # ty: ignore[unsupported-operator] - Any
    assert json.loads(run("resume", PIPELINE, "--json"))["state"] == "RUN_REQUESTED"
    run("cancel", PIPELINE)
    shown = json.loads(run("runs", PIPELINE, "--json"))
    assert (shown["state"], shown["actor"]) == ("CANCELED", "oncall")
    assert [(each["status"], each["reason"]) for each in shown["runs"]] == [("canceled", "late data")]
    assert "late data" not in run("runs", PIPELINE, "--limit", "1")
    assert "is CANCELED since" in run("runs", PIPELINE)
    assert not (tmp_path / "nothing").exists(), "nothing is done in the home folder here"


def test_a_file_is_declared_and_replaced_and_problems_have_their_fields(tmp_path):
    file = tmp_path / "films.yaml"

    def write(**changes):
        file.write_text(yaml.safe_dump({**FILMS, **changes}), "utf-8")

    write()
    assert run("apply", str(file)) == "films: revision 1\n"
    assert run("apply", str(file)) == "films: revision 1, unchanged\n"
    write(description="of the festival")
    assert run("apply", str(file)) == "films: revision 2\n"
    write(columns={"id": "bigintt"})
    error = refused(RequestRefused, "apply", str(file))
    assert "columns.id" in str(error)
    write(name=PIPELINE)
    assert refused(RequestRefused, "apply", str(file)).kind == "read-only"
    file.write_text("- a\n", "utf-8")
    assert CliRunner().invoke(pipelines, ["apply", str(file)]).exception is not None


def test_what_is_wrong_with_the_server_or_the_token_is_said(server, monkeypatch, tmp_path):
    refused(NotFound, "run", "nothing")
    monkeypatch.setenv(
        "ETL_ASSETS_TOKEN", Tokens(server.home).add("r", now=now_utc(), scopes=[Scope.READ])[1]
    )
    assert refused(RequestRefused, "run", PIPELINE).status == 403
    monkeypatch.setenv("ETL_ASSETS_TOKEN", "eta_none")
    error = refused(RequestRefused, "run", PIPELINE)
    assert (error.status, "eta_none" in str(error)) == (401, False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    error = refused(RequestRefused, "run", PIPELINE, "--url", f"http://127.0.0.1:{port}")
    assert (error.status, error.kind) == (None, "no-answer")
    monkeypatch.delenv("ETL_ASSETS_TOKEN")
    assert "ETL_ASSETS_TOKEN" in str(refused(SettingsError, "run", PIPELINE))

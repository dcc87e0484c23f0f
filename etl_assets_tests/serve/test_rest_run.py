"""A pipeline from its declaration to its rows over REST, with the commands that a user starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from etl_assets.serve.service import now_utc
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets_tests.serve.server_process import serving, write_installation

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(600)]

FILMS = {
    "name": "films",
    "source": {"type": "files", "path": "landing/films/*.csv", "id": ["id"], "settle_seconds": 0},
    "columns": {"id": "bigint", "title": "string"},
    "table": {"keys": ["id"]},
}
LONGER = FILMS | {
    "transforms": [{"type": "map", "columns": {"upper": {"expression": "upper(title)", "type": "string"}}}]
}


@contextmanager
def working(home: Path) -> Generator[None]:
    command = [sys.executable, "-m", "etl_assets.cli.main", "worker"]
    with (home / "worker.log").open("ab") as log:
        worker = subprocess.Popen(
            command, env={**os.environ, "ETL_ASSETS_HOME": str(home)}, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        worker.terminate()
        worker.wait(120)


def wait_until(holds: Callable[[], bool], seconds: float = 240.0) -> None:
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.5)


def test_a_pipeline_is_declared_run_paused_changed_and_deleted_while_the_worker_runs(tmp_path):
    write_installation(tmp_path, spark={"master": "local[2]"})
    _, token = Tokens(tmp_path).add("robot", now=now_utc(), scopes=[Scope.ADMIN])
    landing = tmp_path / "landing" / "films"
    landing.mkdir(parents=True)
    (landing / "a.csv").write_text("id,title\n1,M\n2,Metropolis\n", "utf-8")
    with serving(tmp_path, token) as server, working(tmp_path), server.client() as client:
        path = f"{server.url}/v1/pipelines/films"

        def rows() -> int:
            tables = client.get(f"{path}/tables").json()["data"]
            return next(each["rows"] for each in tables if each["name"] == "films")

        # 1. Declared and run.
        made = client.post(f"{server.url}/v1/pipelines", json=FILMS)
        assert made.status_code == 201, made.text
        asked = client.post(f"{path}/run", headers={"idempotency-key": "a"}).json()
        wait_until(lambda: client.get(f"{path}/runs/{asked['id']}").json()["status"] == "succeeded")
        assert rows() == 2
        assert client.post(f"{path}/run", headers={"idempotency-key": "a"}).json()["id"] == asked["id"]
        # 2. While it is paused nothing is read, and the declaration changes.
        assert client.post(f"{path}/pause").json()["state"] in ("PAUSED", "PAUSE_REQUESTED")
        wait_until(lambda: client.get(f"{path}/state").json()["state"] == "PAUSED")
        (landing / "b.csv").write_text("id,title\n3,Faust\n", "utf-8")
        changed = client.put(path, json=LONGER, headers={"if-match": made.headers["etag"]})
        assert changed.status_code == 200, changed.text
        time.sleep(3)
        assert rows() == 2
        client.post(f"{path}/resume")
        wait_until(lambda: rows() == 3)
        # 3. Deleted; its rows stay.
        wait_until(lambda: client.delete(path).status_code == 204)
        assert client.get(path).status_code == 404
    (table,) = (tmp_path / "data" / "tables" / "films").glob("g*")
    found = DeltaTable(str(table)).to_pyarrow_table(columns=["id", "title", "upper"]).to_pylist()
    assert sorted((each["id"], each["title"]) for each in found) == [
        (1, "M"),
        (2, "Metropolis"),
        (3, "Faust"),
    ]
    assert [each["upper"] for each in found if each["id"] == 3] == ["FAUST"]

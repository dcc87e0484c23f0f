"""control_plane: what the REST API and the status page take with 1,000 pipelines, and an idle server."""

from __future__ import annotations

import datetime as dt
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.cases.http import free_port
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.control_plane_load import IDLE

CASE = "control_plane"
P95_MILLISECONDS_TARGET, IDLE_CORES_TARGET = 100.0, 0.02
PIPELINES, _REQUESTS, _IDLE_SECONDS = 1_000, 100, 20
_ONE = "p0500"
PATHS = {
    "list": "/v1/pipelines",
    "list_all": f"/v1/pipelines?limit={PIPELINES}",
    "read": f"/v1/pipelines/{_ONE}",
    "tables": f"/v1/pipelines/{_ONE}/tables",
    "page": "/status",
    "page_of_one": f"/status/{_ONE}",
}


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    work = options.folder / CASE
    measured = interleaved(options.runs, {CASE: lambda: _run_once(empty_folder(work))})[CASE]
    shutil.rmtree(work, ignore_errors=True)
    load = median(measured, lambda run: run.load)

    def p95(name: str) -> float:
        return median(measured, lambda run: _quantile(run.marks[name].figures["milliseconds"], 0.95))

    idle = median(measured, lambda run: float(run.marks[IDLE].figures["share"]))
    return [
        *(
            figure(CASE, f"{name}_p95_milliseconds", p95(name), load=load, target=P95_MILLISECONDS_TARGET)
            for name in PATHS
        ),
        figure(CASE, "idle_cores", idle, load=load, target=IDLE_CORES_TARGET),
    ]


def _run_once(home: Path) -> Measured:
    import yaml

    from etl_assets.environment import HOME
    from etl_assets.serve.tokens import Scope, Tokens

    (home / "pipelines").mkdir()
    (home / "platform.yaml").write_text(yaml.safe_dump({"pipelines": {"built_in": []}}), "utf-8")
    for number in range(PIPELINES):
        declared: dict[str, Any] = {
            "name": f"p{number:04}",
            "source": {"type": "http", "id": ["id"]},
            "columns": {"id": "bigint", "film": "string"},
            "table": {"keys": ["id"]},
        }
        (home / "pipelines" / f"{declared['name']}.yaml").write_text(yaml.safe_dump(declared), "utf-8")
    _, token = Tokens(home).add("bench", now=dt.datetime.now(dt.UTC), scopes=[Scope.OPERATE])
    port = free_port()
    asked = {
        "command": [sys.executable, "-m", "etl_assets.cli.main", "serve", "--port", str(port)],
        "environment": {HOME.name: str(home)},
        "url": f"http://127.0.0.1:{port}",
        "token": token,
        "paths": PATHS,
        "requests": _REQUESTS,
        "idle_seconds": _IDLE_SECONDS,
    }
    return run_script("control_plane_load", asked, script_environment())


def _quantile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]

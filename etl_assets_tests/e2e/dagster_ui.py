"""The Dagster UI as a user starts it, for tests: `etl-assets dev` in a process group of its own, and its
GraphQL API.

Belongs here: starting, asking, stopping. Does not belong here: what a test looks for.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "etl_assets"}
CHROMIUM_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WIDTH, HEIGHT = 1600, 1000
T = TypeVar("T")
ETL_ASSETS = Path(sys.executable).with_name("etl-assets")
FINAL = ("SUCCESS", "FAILURE", "CANCELED")


def chromium() -> str | None:
    """Where Chromium is, if it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@dataclass(frozen=True, slots=True, kw_only=True)
class DagsterApi:
    """The GraphQL API of a running webserver."""

    url: str

    def query(self, text: str, **variables: Any) -> dict[str, Any]:
        """The answer's data.

        Raises:
            AssertionError: the answer has errors.
        """
        body = json.dumps({"query": text, "variables": variables}).encode()
        request = urllib.request.Request(
            f"{self.url}/graphql", data=body, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            content = json.load(answer)
        assert "errors" not in content, content["errors"]
        return content["data"]

    def runs(self, **filters: Any) -> list[dict[str, Any]]:
        """Runs, newest first: id, status, tags as a mapping, selected assets."""
        found = self.query(
            """query($filter: RunsFilter) { runsOrError(filter: $filter, limit: 100) { ... on Runs { results {
                runId status startTime endTime tags { key value } assetSelection { path } } } } }""",
            filter=filters,
        )["runsOrError"]["results"]
        return [{**run, "tags": {tag["key"]: tag["value"] for tag in run["tags"]}} for run in found]

    def backfills(self) -> list[dict[str, Any]]:
        """Backfills, newest first: id, status, number of partitions."""
        return self.query(
            "{ partitionBackfillsOrError(limit: 20) { ... on PartitionBackfills {"
            " results { id status numPartitions partitionNames } } } }"
        )["partitionBackfillsOrError"]["results"]

    def launch(self, assets: list[str], **tags: str) -> str:
        """Launch a run of assets and return its id; the partition is a tag."""
        launched = self.query(
            """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) { __typename
                ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
                ... on RunConfigValidationInvalid { errors { message } } } }""",
            params={
                "selector": {
                    **REPOSITORY,
                    "jobName": "__ASSET_JOB",
                    "assetSelection": [{"path": [name]} for name in assets],
                    "assetCheckSelection": [],
                },
                "executionMetadata": {"tags": [{"key": key, "value": value} for key, value in tags.items()]},
            },
        )["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return launched["run"]["runId"]

    def backfill(self, assets: list[str], partitions: list[str]) -> str:
        """Launch a backfill and return its id."""
        launched = self.query(
            """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
                __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }""",
            params={"assetSelection": [{"path": [name]} for name in assets], "partitionNames": partitions},
        )["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        return launched["backfillId"]

    def cancel(self, run_id: str) -> dict[str, Any]:
        """Ask for the end of a run as the UI's button does."""
        return self.query(
            "mutation($id: String!)"
            " { terminateRun(runId: $id) { __typename ... on PythonError { message } } }",
            id=run_id,
        )["terminateRun"]

    def wait_for_run(self, run_id: str, *, seconds: float) -> str:
        """The final status of a run."""
        return wait(lambda: self._final(run_id), seconds=seconds, what=f"the end of run {run_id}")

    def _final(self, run_id: str) -> str | None:
        (run,) = self.runs(runIds=[run_id])
        return run["status"] if run["status"] in FINAL else None

    def stop_sensors(self) -> None:
        """Stop all sensors and schedules, so that nothing but the test starts runs.

        `missed_retries` is left on: it starts none, and without it Dagster may miss a retry.

        A tick that is under way writes the state it began with: what is stopped meanwhile runs on, and is
        stopped again.
        """

        def stopped() -> bool:
            running = self._running()
            for mutation, of in running:
                self._stop(mutation, of)
            return not running

        wait(stopped, seconds=120, what="all sensors to be stopped", every=3.0)

    def _running(self) -> list[tuple[str, str]]:
        """What is not stopped: the mutation that stops it, and its id."""
        found = self.query(
            "{ repositoriesOrError { ... on RepositoryConnection { nodes {"
            " sensors { id name sensorState { status } }"
            " schedules { scheduleState { id status } } } } } }"
        )["repositoriesOrError"]["nodes"][0]
        schedules = [schedule["scheduleState"] for schedule in found["schedules"]]
        return [
            *(("stopRunningSchedule", state["id"]) for state in schedules if state["status"] != "STOPPED"),
            *(
                ("stopSensor", sensor["id"])
                for sensor in found["sensors"]
                if sensor["sensorState"]["status"] != "STOPPED" and sensor["name"] != "missed_retries"
            ),
        ]

    def _stop(self, mutation: str, of: str) -> None:
        """The daemon may store its first state at the same moment: then Dagster's storage refuses one of the
        two.
        """
        answer = "{ __typename ... on PythonError { message } }"
        text = f"mutation($id: String) {{ {mutation}(id: $id) {answer} }}"
        for attempt in range(3):
            try:
                self.query(text, id=of)
            except urllib.error.HTTPError:
                if attempt == 2:
                    raise
                time.sleep(1)
            else:
                return

    def ready(self) -> bool:
        """Whether the code location is loaded."""
        try:
            found = self.query("{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } } }")
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False
        return bool(found["repositoriesOrError"].get("nodes"))


def wait(look: Callable[[], T | None], *, seconds: float, what: str, every: float = 1.0) -> T:
    """Look until there is something.

    Raises:
        AssertionError: the time is over.
    """
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(every)
    raise AssertionError(f"waited {seconds:.0f} s in vain for {what}")


@contextmanager
def dagster_ui(
    home: Path,
    *,
    seconds: float = 240,
    engine: bool = False,
    executable: Path = ETL_ASSETS,
    environ: Mapping[str, str] = os.environ,
) -> Generator[DagsterApi]:
    """`etl-assets dev` on a free port with that home folder; all of its processes are gone afterwards.

    Without the engine each run starts a Spark of its own, whatever the engine has got to by then.
    """
    port = _free_port()
    log = home / "dev.log"
    home.mkdir(parents=True, exist_ok=True)
    command = [str(executable), "dev", "--port", str(port)]
    command.append("--engine" if engine else "--no-engine")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**environ, "ETL_ASSETS_HOME": str(home)},
            cwd=home,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        api = DagsterApi(url=f"http://127.0.0.1:{port}")
        wait(lambda: _alive(process, log) and api.ready(), seconds=seconds, what="the code location")
        yield api
    finally:
        stop(process)


def stop(process: subprocess.Popen[bytes], *, seconds: float = 30) -> None:
    """End a process and its group: asked first, then killed."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, signal_number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline and _has_processes(process.pid):
            time.sleep(0.05)


def _has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _alive(process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, (
        f"`etl-assets dev` has ended:\n{log.read_text('utf-8', 'replace')[-4_000:]}"
    )
    return True


def _free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return opened.getsockname()[1]

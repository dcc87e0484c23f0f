"""`etl-assets demo --stack full` as a user starts and ends it: nothing it started outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from etl_assets.processes import is_there
from etl_assets.stack.server import free_port
from etl_assets_tests.commands.home import BIN
from etl_assets_tests.e2e.dagster_ui import DagsterApi

SERVERS = {"PostgreSQL", "S3", "Kafka", "OpenSearch", "HTTP ingest"}
EVENT_PIPELINES = {"file_orders", "http_orders", "kafka_orders"}
PIPELINES = EVENT_PIPELINES | {"rentals", "film_rating_agg"}
SINKS = {"PostgreSQL", "search", "Kafka", "Parquet", "DuckDB"}
EVENTS = 600


class Demo:
    """The command on a home folder, and the processes that work for it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log, self.out = home / "demo.err", home / "demo.out"
        self.environ = {**os.environ, "ETL_ASSETS_HOME": str(home), "COLUMNS": "200"}

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self.log.open("wb") as log, self.out.open("wb") as out:
            return subprocess.Popen(
                [BIN / "etl-assets", *arguments],
                env=self.environ,
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                start_new_session=True,
                # A shell that runs the tests in its background has them ignore Ctrl-C, and so all they start.
                preexec_fn=_with_ctrl_c,
            )

    @property
    def said(self) -> str:
        return self.log.read_text("utf-8", errors="replace")

    def wait_for(self, text: str, process: subprocess.Popen[bytes], seconds: float = 120) -> None:
        self.wait(lambda: text in self.said or process.poll() is not None, text, seconds)
        assert text in self.said, self.said

    def wait(self, look: Callable[[], bool], what: str, seconds: float = 60) -> None:
        deadline = time.monotonic() + seconds
        while not look():
            assert time.monotonic() < deadline, f"waited for {what}; {self.said}"
            time.sleep(0.1)

    def wait_for_end(self, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while found := self.processes():
            assert time.monotonic() < deadline, f"still there: {found}"
            time.sleep(0.1)

    def processes(self) -> list[tuple[int, str]]:
        """What works for this home: by its environment, or by a path on its command line."""
        ours = str(self.home).encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                is_ours = ours in command or ours in (folder / "environ").read_bytes()
                if is_ours and is_there(int(folder.name)):
                    found.append((int(folder.name), command.replace(b"\0", b" ").decode(errors="replace")))
        return found

    def doctor(self) -> list[str]:
        done = subprocess.run(
            [BIN / "etl-assets", "doctor", "--json"],
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        return [each["detail"] for each in json.loads(done.stdout) if each["check"] == "servers"]


def _with_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.fixture
def demo() -> Iterator[Demo]:
    # Not below pytest's folder: PostgreSQL's account, where the tests are root's, cannot enter that.
    with tempfile.TemporaryDirectory(prefix="etl-assets-demo-") as folder:
        home = Path(folder)
        home.chmod(0o711)
        demo = Demo(home)
        yield demo
        for pid, _ in demo.processes():  # after a test that failed
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.e2e
@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_demo_ends_with_its_servers_however_it_ends_and_the_next_one_goes_on_and_finds_all_equal(demo):
    command = ("demo", "--stack", "full", "--events", str(EVENTS), "--json")
    # 1. Ctrl-C while servers start.
    process = demo.start(*command)
    demo.wait_for("Kafka: starting", process)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) != 0
    demo.wait(lambda: not demo.processes(), "the end of everything after SIGINT")

    # 2. Killed with all servers, behind the sending of events.
    process = demo.start(*command)
    demo.wait_for("==> 3/4", process)
    shown = demo.doctor()
    assert {line.partition(" on 127.0.0.1:")[0] for line in shown} == SERVERS
    assert all(f"ends with process {process.pid}" in line for line in shown)
    second = subprocess.run(
        [BIN / "etl-assets", *command], env=demo.environ, capture_output=True, text=True, check=False
    )
    assert second.returncode == 1
    assert f"DevRunning: process {process.pid} runs the servers" in second.stderr
    environments = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid, _ in demo.processes()]
    assert not any(b"STACK_" in each for each in environments), "no secret stands on a command line"
    process.kill()
    process.wait(60)
    demo.wait(lambda: not demo.processes(), "the end of everything after SIGKILL")
    assert demo.doctor() == ["none of the demo's (`etl-assets demo --stack full`) runs"]

    # 3. What the killed one has left does no harm.
    process = demo.start(*command)
    code = process.wait(600)
    out = demo.out.read_text("utf-8")
    assert code == 0, demo.said + out
    figures = json.loads(out)
    assert figures["equal"] is True
    found = {each["pipeline"]: each for each in figures["pipelines"]}
    assert found.keys() >= PIPELINES
    assert found["rentals"]["rows"] == 16_000 + 40
    assert found["film_rating_agg"]["rows"] > 0
    for name, each in found.items():
        assert each["delivered"] == dict.fromkeys(SINKS, each["rows"]), name
    for name in EVENT_PIPELINES:
        each = found[name]
        # Both lots that were begun have been sent: ids differ, and good events are in the table once.
        assert each["rows"] == 2 * EVENTS // 3, name
        assert each["input"] == each["accepted"] + each["duplicates"] + each["rejected"]
        assert each["duplicates"] > 0, name
    assert not demo.processes()
    secrets = ("STACK_POSTGRES_PASSWORD=", "STACK_S3_SECRET=")
    assert not any(each in demo.said for each in secrets)


@pytest.mark.e2e
@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.full
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_ui_and_its_servers_end_with_the_command(demo, number):
    port = free_port()
    process = demo.start("dev", "--stack", "full", "--port", str(port))
    demo.wait_for("Dagster UI on", process, seconds=900)
    assert "All equal" in demo.out.read_text("utf-8")
    api = DagsterApi(url=f"http://127.0.0.1:{port}")
    demo.wait(api.ready, "the UI", seconds=240)
    assert len(demo.doctor()) == len(SERVERS)
    process.send_signal(number)
    process.wait(120)
    demo.wait_for_end()

"""Real Spark engines for tests: a standalone cluster and a Spark Connect server, as processes of this
machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pyspark

from etl_assets.resources.spark import LOCAL, PER_SESSION, STATIC
from etl_assets.runtime.jars import delta_jars
from etl_assets.runtime.java import find_java

_START_SECONDS = 60
_START_FAST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A standalone cluster: the address of its master, and its workers."""

    master: str
    workers: tuple[subprocess.Popen[bytes], ...]

    def kill_worker(self, number: int) -> None:
        """End a worker and its executors as a lost machine does."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)


@contextlib.contextmanager
def standalone_cluster(folder: Path, *, workers: int) -> Generator[Cluster]:
    """A master and workers of one core each."""
    port = free_port()
    master = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as processes:
        arguments = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        processes.enter_context(
            _java(folder / "master.log", "org.apache.spark.deploy.master.Master", arguments)
        )
        _wait_for_port(port, folder / "master.log")
        started = []
        for number in range(workers):
            log = folder / f"worker-{number}.log"
            arguments = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            arguments += ["--work-dir", str(folder / f"work-{number}"), master]
            started.append(
                processes.enter_context(_java(log, "org.apache.spark.deploy.worker.Worker", arguments))
            )
            _wait_for_text(log, "Successfully registered with master")
        yield Cluster(master=master, workers=tuple(started))


@contextlib.contextmanager
def connect_server(folder: Path) -> Generator[str]:
    """A Spark Connect server with Delta; gives its address."""
    port = free_port()
    settings = {
        **STATIC,
        **PER_SESSION,
        **LOCAL,
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder),
        "spark.driver.extraJavaOptions": _START_FAST,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, delta_jars())),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    configuration = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    arguments = ["--class", server, *configuration, "spark-internal"]
    log = folder / "connect.log"
    with _java(log, "org.apache.spark.deploy.SparkSubmit", arguments, memory="1g"):
        _wait_for_port(port, log)
        yield f"sc://127.0.0.1:{port}"


def parents_of_who_maps(file: Path) -> set[int]:
    """Parents of all processes that have mapped a file: of a driver, the process of its session."""
    parents = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if str(file) in (process / "maps").read_text(errors="replace"):
                parents.add(int((process / "stat").read_text().rpartition(")")[2].split()[1]))
    return parents


def free_port() -> int:
    """A port that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def _java(
    log: Path, main_class: str, arguments: list[str], memory: str = "256m"
) -> Generator[subprocess.Popen[bytes]]:
    """A class of Spark's in a process group of its own, so that what it starts goes with it."""
    home = Path(pyspark.__file__).parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": memory,
        "SPARK_DAEMON_JAVA_OPTS": _START_FAST,
    }
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), main_class, *arguments],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for_port(port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nothing listens on {port}:\n{log.read_text(errors='replace')[-4_000:]}")


def _wait_for_text(log: Path, text: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if text in log.read_text(errors="replace"):
            return
        time.sleep(0.2)
    raise TimeoutError(f"{text!r} is not in the log:\n{log.read_text(errors='replace')[-4_000:]}")

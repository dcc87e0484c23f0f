"""The engine's Spark: a Connect server on this machine, in a JVM of its own that ends with the engine.

Belongs here: how it is started, found and ended. Does not belong here: when (`engine.py`).

The server listens on 127.0.0.1 at a free port and accepts only calls with its token. Each JVM has a new
token. The JVM and the runs get it through environment and memory, which other users cannot read; a command
line they could.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from etl_assets.engine.parent import die_with
from etl_assets.resources.jvm import jvm_settings
from etl_assets.runtime.java import find_java

_TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
_MAIN = "org.apache.spark.sql.connect.service.SparkConnectServer"


class SparkServer:
    """One JVM.

    Args:
        config: Settings of its Spark.
        scratch: Parent of its folder for spilled data, which exists as long as the JVM.

    Attributes:
        started: Time of its start (monotonic seconds).
        pid: Its process id.
        ready: Whether it has been warmed up; set by the engine.
    """

    def __init__(self, config: Mapping[str, str], scratch: Path) -> None:
        self._token = secrets.token_urlsafe(32)
        self._port = _free_port()
        scratch.mkdir(exist_ok=True)
        self._scratch = Path(tempfile.mkdtemp(prefix="spark-", dir=scratch))
        self.started = time.monotonic()
        self.ready = False
        try:
            self._process = subprocess.Popen(
                self._command(config),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                preexec_fn=partial(die_with, os.getpid()),
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        self.pid = self._process.pid

    @property
    def address(self) -> str:
        """The server's address, token included: not for logs."""
        # `localhost` is the name for which the client sends the token without TLS, over loopback only.
        return f"sc://localhost:{self._port}/;token={self._token}"

    def listens(self) -> bool:
        """Return whether the server's port is open."""
        with socket.socket() as probe:
            probe.settimeout(0.2)
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def alive(self) -> bool:
        return self._process.poll() is None

    def resident_bytes(self) -> int:
        """Return the resident memory of the JVM in bytes; 0 once it has ended."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text("utf-8").split()[1])
        except (OSError, IndexError):
            return 0
        return pages * os.sysconf("SC_PAGE_SIZE")

    def end(self) -> None:
        """Kill the JVM, and with it all work it was doing."""
        if self.alive():
            os.kill(self.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _command(self, config: Mapping[str, str]) -> list[str]:
        of_the_jvm = jvm_settings(find_java(), config, self._environment(), quick=False)
        # A JVM that is out of memory should exit and be replaced; a half-dead one would have to be detected.
        options = f"-XX:+ExitOnOutOfMemoryError {of_the_jvm['spark.driver.defaultJavaOptions']}"
        settings = {
            "spark.local.dir": str(self._scratch),
            "spark.sql.warehouse.dir": str(self._scratch / "warehouse"),
            **config,
            **of_the_jvm,
            "spark.driver.defaultJavaOptions": options,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._port),
        }
        configuration = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        program = str(_spark_home() / "bin" / "spark-class")
        return [
            program,
            "org.apache.spark.deploy.SparkSubmit",
            "--class",
            _MAIN,
            *configuration,
            "spark-internal",
        ]

    def _environment(self) -> dict[str, str]:
        environment = {
            **os.environ,
            _TOKEN: self._token,
            "SPARK_HOME": str(_spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "JAVA_HOME": str(find_java().home),
        }
        environment.setdefault("PYSPARK_PYTHON", sys.executable)
        if not any(environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")):
            environment["LC_ALL"] = "C.UTF-8"
        return environment


def _spark_home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]

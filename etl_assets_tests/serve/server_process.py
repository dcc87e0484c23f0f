"""A real server process on a free port, with a token, for tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

PIPELINE = "ratings"
JSON_EVENT = {"id": 1, "film": "Metropolis"}
LINES = {"content-type": "application/x-ndjson"}


@dataclass(kw_only=True)
class ServerProcess:
    """A server of an installation."""

    home: Path
    port: int
    token: str
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def events(self) -> str:
        return f"{self.url}/v1/pipelines/{PIPELINE}/events"

    def client(self) -> httpx.Client:
        return httpx.Client(headers={"authorization": f"Bearer {self.token}"}, timeout=30, trust_env=False)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(20)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


def write_installation(home: Path, *, with_id: bool = True, **platform: Any) -> None:
    """Write an installation with one pipeline that takes records over HTTP."""
    (home / "pipelines").mkdir(parents=True, exist_ok=True)
    source = {"type": "http", "max_record_bytes": 1_024, **({"id": ["id"]} if with_id else {})}
    spec = {
        "name": PIPELINE,
        "source": source,
        "columns": {"id": "bigint", "film": "string"},
        "table": {"write_mode": "append"},
    }
    (home / "pipelines" / f"{PIPELINE}.yaml").write_text(yaml.safe_dump(spec), "utf-8")
    content = {"pipelines": {"built_in": []}, "start_date": "2020-01-01", **platform}
    (home / "platform.yaml").write_text(yaml.safe_dump(content), "utf-8")


def command(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `etl-assets` in an installation."""
    return subprocess.run(
        [sys.executable, "-m", "etl_assets.cli.main", *arguments],
        env=_environment(home),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@contextmanager
def serving(home: Path, token: str | None = None) -> Generator[ServerProcess]:
    """Start a server, and end it with the block."""
    if token is None:
        from etl_assets.serve.service import now_utc
        from etl_assets.serve.tokens import Tokens

        _, token = Tokens(home).add("test", now=now_utc())
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (home / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "etl_assets.cli.main", "serve", "--port", str(port)],
            env=_environment(home),
            stderr=log,
        )
    server = ServerProcess(home=home, port=port, token=token, process=process)
    try:
        _wait(server)
        yield server
    finally:
        if process.poll() is None:
            server.kill()


def _wait(server: ServerProcess) -> None:
    for _ in range(150):
        try:
            if httpx.get(f"{server.url}/health", timeout=5, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        if server.process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError((server.home / "server.log").read_text("utf-8"))


def _environment(home: Path) -> Mapping[str, str]:
    return {**os.environ, "ETL_ASSETS_HOME": str(home)}

"""Requests of one client, one after the other, to a server with many pipelines that this script starts; then
nothing for a while, to see what an idle server takes.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager

import httpx

from benchmarks.marks import mark
from benchmarks.processes import tree_cpu_seconds
from benchmarks.scripts.arguments import arguments

IDLE = "idle"
_START_SECONDS, _PAUSE_SECONDS = 60.0, 0.05


def main() -> None:
    """Mark the times of each path's answers in milliseconds, sorted, and the CPU of the idle server."""
    given = arguments()
    with (
        _server(given["command"], given["environment"], given["url"]) as server,
        httpx.Client(base_url=given["url"], timeout=60, trust_env=False) as client,
    ):
        headers = {"authorization": f"Bearer {given['token']}"}
        client.post("/login", data={"token": given["token"]})
        for name, path in given["paths"].items():
            client.get(path, headers=headers)
            times = sorted(_milliseconds(client, path, headers) for _ in range(given["requests"]))
            mark(name, milliseconds=times)
        before, began = tree_cpu_seconds(server), time.monotonic()
        time.sleep(given["idle_seconds"])
        mark(IDLE, share=(tree_cpu_seconds(server) - before) / (time.monotonic() - began))


def _milliseconds(client: httpx.Client, path: str, headers: dict[str, str]) -> float:
    time.sleep(_PAUSE_SECONDS)
    began = time.monotonic()
    client.get(path, headers=headers).raise_for_status()
    return (time.monotonic() - began) * 1_000


@contextmanager
def _server(command: list[str], environment: dict[str, str], url: str) -> Generator[int]:
    process = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end and process.poll() is None:
            try:
                httpx.get(f"{url}/health", timeout=5, trust_env=False).raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main()

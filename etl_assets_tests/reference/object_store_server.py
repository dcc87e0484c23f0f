"""A real S3-compatible server as a process of its own on this machine; it forgets everything when it is
killed.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest

BUCKET = "copies"
_STARTING_SECONDS = 60


class ObjectStoreServer:
    """The server, on one port for all its lives."""

    def __init__(self) -> None:
        with closing(socket.socket()) as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = int(taken.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it with one empty bucket."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _STARTING_SECONDS
        request = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        while True:
            try:
                with urllib.request.urlopen(request, timeout=5):
                    return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                time.sleep(0.1)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Let it take connections and answer nothing, as a machine that is stuck does."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on: what it was sent meanwhile is done now."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def addressed(self, monkeypatch: pytest.MonkeyPatch, *, port: int | None = None) -> None:
        """Let this process reach it, as an operator would: by the environment; through another port if one is
        given.
        """
        for name, value in {
            "AWS_ENDPOINT_URL": self.endpoint if port is None else f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "not-to-be-shown",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)


def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStoreServer]:
    """The body of a fixture: a server that this process can reach."""
    server = ObjectStoreServer()
    server.addressed(monkeypatch)
    server.start()
    try:
        yield server
    finally:
        server.kill()

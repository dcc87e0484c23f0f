"""Azurite, the emulator of Azure's blob storage, as a process of its own; it forgets everything when it
ends.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing

import pytest

PROGRAM = "azurite-blob"
"""`npm install --global azurite` puts it on the PATH."""
CONTAINER = "copies"
_ACCOUNT = "devstoreaccount1"
# Every Azurite has this one; it opens nothing else.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_STARTING_SECONDS = 60
is_here = pytest.mark.skipif(
    shutil.which(PROGRAM) is None,
    reason=f"{PROGRAM} is not installed: it takes a minute to install and 374 packages",
)


def running(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The body of a fixture: the root of an empty container that this process can reach."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    endpoint = f"http://127.0.0.1:{port}/{_ACCOUNT}"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", _ACCOUNT)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", _KEY)
    monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", endpoint)
    process = subprocess.Popen(
        [
            PROGRAM,
            "--blobPort",
            str(port),
            "--inMemoryPersistence",
            "--skipApiVersionCheck",
            "--disableTelemetry",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _make_container(endpoint, process)
        yield f"az://{CONTAINER}/platform"
    finally:
        process.kill()
        process.wait()


def _make_container(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _STARTING_SECONDS
    while True:
        try:
            with urllib.request.urlopen(_request(endpoint), timeout=5):
                return
        except OSError:
            if time.monotonic() > deadline or process.poll() is not None:
                raise
            time.sleep(0.1)


def _request(endpoint: str) -> urllib.request.Request:
    """To make the container, signed as Azure's shared keys want it."""
    now = dt.datetime.now(dt.UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": now, "x-ms-version": "2021-12-02"}
    of_headers = "".join(f"{name}:{value}\n" for name, value in headers.items())
    text = "PUT" + "\n" * 12 + of_headers + f"/{_ACCOUNT}/{_ACCOUNT}/{CONTAINER}\nrestype:container"
    signed = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {_ACCOUNT}:{base64.b64encode(signed).decode()}"
    return urllib.request.Request(
        f"{endpoint}/{CONTAINER}?restype=container", method="PUT", headers={**headers, "Content-Length": "0"}
    )

"""A receiver of webhooks in a process of its own: it honours `Idempotency-Key`, counts, and fails as told.

Imports nothing from the package. `GET /_state` returns what it has, `GET /_count` the number of
calls; `POST /_mode` says how it fails.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

STATE, MODE, COUNT = "/_state", "/_mode", "/_count"


class Book:
    """What the receiver knows: the answer to each key, and the rows that came of the first ones."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.mode: dict[str, Any] = {}
        self.calls: Counter[str] = Counter()
        self.kept: dict[str, tuple[int, str]] = {}
        self.rows: dict[str, Any] = {}
        self.processed: Counter[str] = Counter()
        self.violations: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.number = 0

    def answer(
        self, method: str, path: str, key: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bool]:
        """Return the status, and whether the answer is lost."""
        with self.lock:
            self.number += 1
            self.calls[key] += 1
            if len(self.headers) < 20:
                self.headers.append({"method": method, "path": path, **headers})
            mode = self.mode
            if status := mode.get("always"):
                return status, False
            if mode.get("down_after", self.number) < self.number:
                return 503, False
            if (every := mode.get("busy_every")) and self.number % every == 0:
                return mode.get("busy_status", 503), False
            row = json.loads(body)
            content = f"{method} {path} {body.decode()}"
            if key in self.kept:
                status, before = self.kept[key]
                if before != content:
                    self.violations.append(f"{key} came with other content")
                return status, False
            name = str(row[mode.get("key", "film_id")])
            status = mode.get("refused", {}).get(name, 200)
            if status == 200:
                self.processed[headers.get("etl-assets-change", "")] += 1
                if headers.get("etl-assets-change") == "deleted":
                    self.rows.pop(name, None)
                else:
                    self.rows[name] = row
                self.kept[key] = (status, content)
            lost = bool((lose := mode.get("lose_every")) and self.number % lose == 0)
            return status, lost

    def state(self) -> dict[str, Any]:
        with self.lock:
            return {
                "rows": self.rows,
                "calls": sum(self.calls.values()),
                "keys": len(self.calls),
                "repeated": sum(number - 1 for number in self.calls.values()),
                "processed": self.processed,
                "violations": self.violations,
                "headers": self.headers,
            }


def serve(port: int) -> None:
    """Serve until the process is ended."""
    book = Book()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            """Write no log."""

        def do_GET(self) -> None:
            found = {"calls": book.number} if self.path == COUNT else book.state()
            self._send(200, json.dumps(found).encode())

        def _take(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path == MODE:
                book.mode = json.loads(body)
                self._send(200, b"{}")
                return
            if pause := book.mode.get("pause"):
                time.sleep(pause)
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, lost = book.answer(
                self.command, self.path, headers.get("idempotency-key", ""), body, headers
            )
            if lost:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            self._send(status, json.dumps({"repeats": headers.get("authorization", "")}).encode())

        do_POST = do_PUT = do_PATCH = do_DELETE = _take

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", book.mode.get("location", "http://127.0.0.1:9/"))
            if status in (429, 503) and "retry_after" in book.mode:
                self.send_header("Retry-After", str(book.mode["retry_after"]))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

    Server(("127.0.0.1", port), Handler).serve_forever(0.1)


class ReceiverProcess:
    """The receiver, and how a test talks to it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.process = subprocess.Popen([sys.executable, "-m", __name__, str(self.port)])
        for _ in range(200):
            try:
                self.calls()
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise TimeoutError("the receiver does not answer")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def state(self) -> dict[str, Any]:
        return self._ask(STATE)

    def calls(self) -> int:
        """Return the number of calls, without everything that came of them."""
        return self._ask(COUNT)["calls"]

    def mode(self, **how: Any) -> None:
        """Say how it fails from now on; nothing: it does not."""
        self._ask(MODE, json.dumps(how).encode())

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}{path}", body, timeout=60) as answer:
            return json.load(answer)


@contextmanager
def receiver() -> Generator[ReceiverProcess]:
    """Start a receiver, and end it."""
    process = ReceiverProcess()
    try:
        yield process
    finally:
        process.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]))

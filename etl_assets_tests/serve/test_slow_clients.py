"""Clients that are slow, that break off, and that never read: others are served meanwhile. No Spark."""

from __future__ import annotations

import gzip
import socket
import time
from contextlib import ExitStack, suppress

import pytest

from etl_assets_tests.serve.server_process import ServerProcess, serving, write_installation

EACH = 20
SECONDS = 1


@pytest.fixture
def server(tmp_path):
    limits = {"header_timeout_seconds": SECONDS, "body_timeout_seconds": SECONDS}
    write_installation(tmp_path, serve=limits)
    with serving(tmp_path) as started:
        yield started


def head(server: ServerProcess, *more: str) -> bytes:
    lines = (
        "POST /v1/pipelines/ratings/events HTTP/1.1",
        "host: x",
        f"authorization: Bearer {server.token}",
        *more,
        "",
        "",
    )
    return "\r\n".join(lines).encode()


def stored(server: ServerProcess) -> list[str]:
    files = sorted((server.home / "data" / "journal").rglob("*"))
    return [line for file in files if file.is_file() for line in file.read_text("utf-8").splitlines()]


def answer_of(connection: socket.socket) -> bytes:
    received = b""
    while part := connection.recv(65_536):
        received += part
    return received


def test_slow_and_broken_requests_are_given_up_store_nothing_and_keep_no_other_waiting(server):
    zipped = gzip.compress(b'{"id": 1}')
    long = head(server, "content-length: 100")
    broken = (
        (long + b'{"id": 1}', "less than its Content-Length"),
        (head(server, f"content-length: {len(zipped)}", "content-encoding: gzip") + zipped[:-4], "cut gzip"),
        (head(server, "transfer-encoding: chunked") + b'9\r\n{"id": 1}\r\n', "no last chunk"),
        (long[:40], "cut in its head"),
    )
    with ExitStack() as opened, server.client() as client:

        def connect() -> socket.socket:
            return opened.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))

        # 1. All at once: heads and bodies that come byte by byte, and clients that break off.
        slow_heads, slow_bodies = ([connect() for _ in range(EACH)] for _ in range(2))
        for each in slow_bodies:
            each.sendall(long)
        for request, _ in broken:
            with socket.create_connection(("127.0.0.1", server.port)) as cut:
                cut.sendall(request)
        served = 0
        until = time.monotonic() + 2 * SECONDS
        for byte in range(len(long)):
            for each in (*slow_heads, *slow_bodies):
                with suppress(OSError):  # the server has answered, and closed
                    each.send(long[byte : byte + 1])
            began = time.monotonic()
            assert client.post(server.events, json={"good": byte}).status_code == 202
            assert time.monotonic() - began < 5, "another client waited"
            served += 1
            if time.monotonic() > until:
                break
        # 2. Each is told, and let go.
        for each in slow_heads:
            assert answer_of(each).startswith(b"HTTP/1.1 408 Request Timeout")
        for each in slow_bodies:
            assert b" 408 " in answer_of(each)
    assert stored(server) == [f'{{"good":{number}}}' for number in range(served)]


def _is_closed(connection: socket.socket, request: bytes) -> bool:
    try:
        connection.send(request)
    except (BrokenPipeError, ConnectionResetError):
        return True
    return False


def test_a_client_that_never_reads_its_answers_is_let_go_and_keeps_no_other_waiting(server):
    request = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n" * 100
    with socket.socket() as deaf, server.client() as client:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        deaf.settimeout(20)
        deaf.connect(("127.0.0.1", server.port))
        while not _is_closed(deaf, request):
            assert client.get(f"{server.url}/health").status_code == 200
        assert server.terminate() is not None, "no answer is waited for"

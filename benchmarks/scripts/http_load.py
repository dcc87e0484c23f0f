"""Events over HTTP to a server that this script starts: as fast as it goes, then at a steady rate.

16 clients, each with a connection of its own, in this process. They take a part of the machine's processors,
as clients do; what is reported as CPU is the server's alone.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from urllib.parse import SplitResult, urlsplit

from benchmarks.marks import mark
from benchmarks.processes import tree_cpu_seconds, tree_resident_bytes
from benchmarks.scripts.arguments import arguments

HURRIED, STEADY = "hurried", "steady"
CLIENTS, EVENTS = 16, 100
STEADY_EVENTS_PER_SECOND = 2_000
_START_SECONDS = 60.0
_WARM_UP_SECONDS = 1.0
_EVENT = (
    '{"id": %d, "film": "Metropolis", "stars": 5, "at": "2026-01-01T00:00:00Z", "note": "' + "x" * 80 + '"}'
)


class Client:
    """One connection, with as little work for each request as possible."""

    def __init__(self, url: SplitResult, token: str, numbers: count[int]) -> None:
        self._url, self._numbers = url, numbers
        self._head = (
            f"POST {url.path} HTTP/1.1\r\nhost: {url.netloc}\r\nauthorization: Bearer {token}\r\n"
            "content-type: application/x-ndjson\r\ncontent-length: "
        )

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._url.hostname, self._url.port)

    async def send(self) -> None:
        """Send a request, and wait for its answer."""
        body = "\n".join([_EVENT % next(self._numbers) for _ in range(EVENTS)])
        self._writer.write(f"{self._head}{len(body)}\r\n\r\n{body}".encode())
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        content = await self._reader.readexactly(int(length.split(b":")[1]))
        if not answer.startswith(b"HTTP/1.1 202"):
            raise SystemExit(content.decode())

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def hurry(clients: list[Client], seconds: float) -> tuple[int, float]:
    """Send as fast as it goes; return the events that were answered, and the seconds."""
    sent, began = 0, time.monotonic()

    async def send(client: Client) -> None:
        nonlocal sent
        while time.monotonic() - began < seconds:
            await client.send()
            sent += EVENTS

    await asyncio.gather(*map(send, clients))
    return sent, time.monotonic() - began


async def keep_pace(clients: list[Client], seconds: float) -> list[float]:
    """Send at the steady rate; return how long each answer took from when its request was due, sorted."""
    times: list[float] = []
    pause = EVENTS * len(clients) / STEADY_EVENTS_PER_SECOND
    began = time.monotonic()

    async def send(client: Client, due: float) -> None:
        while due - began < seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await client.send()
            times.append(time.monotonic() - due)
            due += pause

    await asyncio.gather(
        *(send(each, began + number * pause / len(clients)) for number, each in enumerate(clients))
    )
    return sorted(times)


async def measure(url: SplitResult, token: str, seconds: float, server: int) -> None:
    """Set the marks of both rates."""
    numbers = count()
    clients = [Client(url, token, numbers) for _ in range(CLIENTS)]
    for each in clients:
        await each.open()
    await hurry(clients, _WARM_UP_SECONDS)
    before = tree_cpu_seconds(server)
    sent, took = await hurry(clients, seconds)
    mark(
        HURRIED,
        events=sent,
        seconds=took,
        cpu_seconds=tree_cpu_seconds(server) - before,
        resident_bytes=tree_resident_bytes(server),
    )
    times = await keep_pace(clients, seconds)
    mark(
        STEADY,
        events=next(numbers),
        rate=len(times) * EVENTS / seconds,
        p50_ms=times[len(times) // 2] * 1e3,
        p99_ms=times[int(len(times) * 0.99)] * 1e3,
    )
    for each in clients:
        await each.close()


@contextmanager
def serving(command: list[str], environment: dict[str, str], url: SplitResult) -> Generator[int]:
    """Start a server, and end it by SIGTERM with the block."""
    with subprocess.Popen(command, env={**os.environ, **environment}) as process:
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not _listens(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("the server does not listen")
                time.sleep(0.1)
            yield process.pid
        finally:
            process.terminate()


def _listens(url: SplitResult) -> bool:
    import socket

    try:
        with socket.create_connection((url.hostname or "", url.port or 0), timeout=5):
            return True
    except OSError:
        return False


def main() -> None:
    told = arguments()
    url = urlsplit(told["url"])
    with serving(told["command"], told["environment"], url) as server:
        asyncio.run(measure(url, told["token"], told["seconds"], server))


if __name__ == "__main__":
    main()

"""HTTP ingest: events a second in batches of 100 with 16 clients, and latency at 2,000 events/s.

`python -m benchmarks.http_ingest URL TOKEN [--seconds 10]`, against a running `etl-assets serve`; URL is that
of the events of a pipeline. Clients are processes of this machine and take part of its processors.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from itertools import count
from urllib.parse import urlsplit

EVENTS, CLIENTS, STEADY_EVENTS_PER_SECOND = 100, 16, 2_000


class _Client:
    """One connection, with as little work for each request as possible."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._token = urlsplit(url), token

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._url.hostname, self._url.port)

    async def send(self, body: bytes) -> float:
        """Send a request, and return the seconds until its answer."""
        began = time.monotonic()
        head = (
            f"POST {self._url.path} HTTP/1.1\r\nhost: {self._url.netloc}\r\n"
            f"authorization: Bearer {self._token}\r\ncontent-type: application/x-ndjson\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        content = await self._reader.readexactly(int(length.split(b":")[1]))
        if not answer.startswith(b"HTTP/1.1 202"):
            raise SystemExit(content.decode())
        return time.monotonic() - began


async def measure(url: str, token: str, seconds: float) -> dict[str, float]:
    """Return the figures of both cases."""
    clients = [_Client(url, token) for _ in range(CLIENTS)]
    for each in clients:
        await each.open()
    numbers = count(time.time_ns())
    # 1. As fast as it goes.
    sent = 0
    began = time.monotonic()

    async def hurry(client: _Client) -> None:
        nonlocal sent
        while time.monotonic() - began < seconds:
            await client.send(_body(numbers, EVENTS))
            sent += EVENTS

    await asyncio.gather(*(hurry(each) for each in clients))
    rate = sent / (time.monotonic() - began)
    # 2. Steady: each client at its own pace.
    times: list[float] = []
    events = 10
    pause = events * CLIENTS / STEADY_EVENTS_PER_SECOND
    began = time.monotonic()

    async def pace(client: _Client, offset: float) -> None:
        due = began + offset
        while due - began < seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            await client.send(_body(numbers, events))
            times.append(time.monotonic() - due)
            due += pause

    await asyncio.gather(*(pace(each, n * pause / CLIENTS) for n, each in enumerate(clients)))
    times.sort()
    return {
        "events_per_second": round(rate),
        "steady_events_per_second": round(len(times) * events / seconds),
        "p50_ms": round(times[len(times) // 2] * 1e3),
        "p99_ms": round(times[int(len(times) * 0.99)] * 1e3),
    }


def _body(numbers: count[int], events: int) -> bytes:
    lines = (
        {
            "id": next(numbers),
            "film": "Metropolis",
            "stars": 5,
            "at": "2026-01-01T00:00:00Z",
            "note": "x" * 80,
        }
        for _ in range(events)
    )
    return "\n".join(map(json.dumps, lines)).encode()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("url")
    arguments.add_argument("token")
    arguments.add_argument("--seconds", type=float, default=10)
    given = arguments.parse_args()
    print(json.dumps(asyncio.run(measure(given.url, given.token, given.seconds))))

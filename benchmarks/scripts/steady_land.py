"""Lands files of events at a steady rate, one a second, each under its name at once; notes when it did.

Ids begin with random digits, so that they come in no order; they end with the number of their file, by which
each event's latency is known. Time is the machine's monotonic clock, right after the file got its name.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks.scripts.arguments import arguments

READY, LANDED = "ready", "landed.json"
"""Files beside the landing folder: of the worker, when it can begin; of this script, when each file was
landed.
"""
_ORDERS = 1_000_000


def main() -> None:
    told = arguments()
    home, files, rate = Path(told["home"]), told["files"], told["rate"]
    numbers = random.Random(told["seed"])
    while not (home / READY).exists():
        time.sleep(0.05)
    landed = {}
    began = time.monotonic()
    for number in range(files):
        content = b"".join(_line(numbers, number, each) for each in range(rate))
        time.sleep(max(0.0, began + number - time.monotonic()))
        folder = home / "landing" / dt.datetime.now(dt.UTC).date().isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{number:06}.jsonl"
        hidden.write_bytes(content)
        hidden.rename(folder / f"{number:06}.jsonl")
        landed[number] = time.monotonic()
    (home / LANDED).write_text(json.dumps(landed))


def event_id(numbers: random.Random, file: int, position: int) -> str:
    return f"{uuid.UUID(int=numbers.getrandbits(128)).hex}-{file}-{position}"


def file_of(event: str) -> int:
    """The number of the file an event came in."""
    return int(event.split("-")[1])


def _line(numbers: random.Random, file: int, position: int) -> bytes:
    event: dict[str, Any] = {
        "event_id": event_id(numbers, file, position),
        "tenant_id": f"tenant-{numbers.randrange(4)}",
        "aggregate_id": f"order-{numbers.randrange(_ORDERS)}",
        "event_type": "OrderCreated",
        "payload": {
            "customer_id": f"customer-{numbers.randrange(10_000)}",
            "amount": f"{numbers.randrange(1, 100_000) / 100:.2f}",
            "currency": "EUR",
        },
        "timestamp": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "schema_version": 1,
    }
    return json.dumps(event).encode() + b"\n"


if __name__ == "__main__":
    main()

"""Events on their way into the sources: into files, a Kafka topic and the HTTP server, as other programs send
them.

All of it may be repeated after a kill: a file is there or not, a request has an `Idempotency-Key`, and what a
topic has twice is a duplicate. Belongs here: sending, and counting what was sent at the sources themselves.
Does not belong here: the events (`order_events.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from itertools import islice
from pathlib import Path

from etl_assets.errors import ServerNotStarted
from etl_assets.orders.stack_demo.contents import TOPIC
from etl_assets.orders.stack_demo.order_events import event_lines
from etl_assets.stack.server import HOST

FILES, KAFKA, HTTP = "file_orders", "kafka_orders", "http_orders"
_EVENTS_PER_REQUEST = 1_000
_SECONDS = 60
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Lot:
    """What one call of the demo sends.

    Attributes:
        number: Its number; a lot whose sending was stopped is sent again.
        events: Good events, over all channels.
    """

    number: int
    events: int

    def of(self, channel: str) -> Iterator[tuple[str, bytes]]:
        """Yield the lines of a channel, with their keys."""
        channels = (FILES, KAFKA, HTTP)
        place = channels.index(channel)
        share = (self.events + place) // len(channels)
        return event_lines(channel, self.number, share, broken=channel != HTTP)


def send_files(lot: Lot, folder: Path) -> None:
    """Write a file as its sender does: under another name until it is complete."""
    file = folder / f"lot-{lot.number:06d}.jsonl"
    if file.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".jsonl.part")
    with unfinished.open("wb") as output:
        output.writelines(line + b"\n" for _, line in lot.of(FILES))
    unfinished.rename(file)


def send_kafka(lot: Lot, brokers: str) -> None:
    """Produce to the topic. The key is the order, so that its events stay in order."""
    from confluent_kafka import Producer

    options = {"enable.idempotence": True, "linger.ms": 20, "log_level": 3}
    producer = Producer({"bootstrap.servers": brokers, **options})
    for key, line in lot.of(KAFKA):
        while True:
            try:
                producer.produce(TOPIC, line, key=key)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(_SECONDS):
        raise ServerNotStarted(
            f"Kafka did not take {left} events within {_SECONDS} s",
            fix="its log is in the folder `servers/kafka`; run the command again",
            server="Kafka",
        )


def send_http(lot: Lot, port: int, token: str) -> None:
    """Post to the HTTP server, as many events in a request."""
    lines = (line for _, line in lot.of(HTTP))
    for number, batch in enumerate(_batches(lines)):
        _post(port, token, f"lot-{lot.number}-{number}", b"\n".join(batch))


def _batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(lines)
    while batch := list(islice(rest, _EVENTS_PER_REQUEST)):
        yield batch


def _post(port: int, token: str, key: str, body: bytes) -> None:
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/x-ndjson",
        "Idempotency-Key": key,
    }
    said = ""
    for attempt in range(_ATTEMPTS):
        connection = HTTPConnection(HOST, port, timeout=_SECONDS)
        try:
            connection.request("POST", f"/v1/pipelines/{HTTP}/events", body, headers)
            answer = connection.getresponse()
            said = answer.read().decode(errors="replace")
            if answer.status == 202:
                return
        except (OSError, HTTPException) as error:
            said = str(error)
        finally:
            connection.close()
        time.sleep(0.2 * 2**attempt)
    raise ServerNotStarted(
        f"the HTTP server did not take events: {said[:500]}",
        fix="its log is in the folder `servers/http`; run the command again",
        server="HTTP ingest",
    )


def sent_files(folder: Path) -> int:
    """Return the number of lines in the files."""
    return sum(_lines(file) for file in folder.glob("*.jsonl"))


def sent_kafka(brokers: str) -> int:
    """Return the number of records in the topic. Its producers have no transactions, so offsets are dense."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "etl-assets-demo"})
    try:
        partitions = consumer.list_topics(TOPIC, timeout=_SECONDS).topics[TOPIC].partitions
        ends = [
            consumer.get_watermark_offsets(TopicPartition(TOPIC, each), timeout=_SECONDS)
            for each in partitions
        ]
    finally:
        consumer.close()
    return sum(high - low for low, high in ends)


def sent_http(journal: Path) -> int:
    """Return the number of events in the journal: those that the server has answered."""
    return sum(_lines(file) for file in journal.rglob("*.jsonl") if not file.name.startswith("."))


def _lines(file: Path) -> int:
    """Count the lines of a file that are records: lines with `#` are the journal's own."""
    with file.open("rb") as content:
        return sum(1 for line in content if line.strip() and not line.startswith(b"#"))

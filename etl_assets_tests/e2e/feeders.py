"""Programs that know nothing of the platform send events: Kafka's producers, curl, pgbench, and a writer of
files.

Belongs here: sending, until all is sent. Each feeder runs in a thread of its own, and goes on when a server
is killed. Does not belong here: killing, and what has to come of the events.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from etl_assets.orders.stack_demo.order_events import event_lines
from etl_assets_tests.pgbench import pgbench
from etl_assets_tests.reference.kafka_tools import console_producer, performance_producer

TOPIC = "orders"
PGBENCH = """\
\\set id random(1, 16000)
UPDATE film_rental.rental SET returned_at = clock_timestamp(), updated_at = clock_timestamp()
    WHERE rental_id = :id;
"""


@dataclass(kw_only=True)
class Feeders:
    """All that send, on the servers of a test.

    Attributes:
        folder: Where the lines to send and the logs of the programs are.
        events: How many good events are sent, over all channels.
        seconds: How long the slow ones take at least.
        brokers, http_port, token, postgres_port, password: Where to.
    """

    folder: Path
    events: int
    seconds: int
    brokers: str
    http_port: int
    token: str
    postgres_port: int
    password: str
    landing: Path
    refusals: int = 0
    transactions: int = 0
    failures: list[BaseException] = field(default_factory=list)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for feed in (self._kafka, self._http, self._files, self._pgbench):
            thread = threading.Thread(target=self._guarded, args=(feed,), name=feed.__name__)
            thread.start()
            self._threads.append(thread)

    @property
    def are_busy(self) -> bool:
        return any(each.is_alive() for each in self._threads)

    def join(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for each in self._threads:
            each.join(max(0.1, deadline - time.monotonic()))
        assert not self.are_busy, [each.name for each in self._threads if each.is_alive()]
        assert not self.failures, self.failures

    def share(self, channel: str) -> int:
        """Good events of a channel: most over Kafka, few in files."""
        parts = {"kafka": 6, "http": 3, "files": 1}
        return self.events * parts[channel] // 10

    def ids(self, channel: str) -> set[str]:
        """The ids of a channel's good events."""
        lines = event_lines(channel, 1, self.share(channel), broken=False)
        return {event["event_id"] for _, line in lines for event in [json.loads(line)] if is_good(event)}

    def _guarded(self, feed: Callable[[], None]) -> None:
        try:
            feed()
        except BaseException as error:  # noqa: BLE001 - the test's thread raises it
            self.failures.append(error)

    def _lines(self, channel: str, *, broken: bool) -> Iterator[bytes]:
        return (line for _, line in event_lines(channel, 1, self.share(channel), broken=broken))

    def _kafka(self) -> None:
        """Half of the lines by the console producer in two goes, then lines at random by the other one."""
        lines = list(self._lines("kafka", broken=True))
        files = []
        for number, part in enumerate((lines[: len(lines) // 4], lines[len(lines) // 4 : len(lines) // 2])):
            files.append(self.folder / f"console-{number}.jsonl")
            files[-1].write_bytes(b"\n".join(part) + b"\n")
        drawn = self.folder / "performance.jsonl"
        drawn.write_bytes(b"\n".join(lines[len(lines) // 2 :]) + b"\n")
        log = self.folder / "kafka.log"
        console_producer(self.brokers, TOPIC, files[0], log)
        records = len(lines) - len(lines) // 2
        performance_producer(
            self.brokers,
            TOPIC,
            drawn,
            log,
            records=records,
            per_second=max(1, records // self.seconds),
        )
        console_producer(self.brokers, TOPIC, files[1], log)

    def _http(self) -> None:
        """Each request is repeated until it is answered, with its key."""
        lines = list(self._lines("http", broken=False))
        size = max(10, len(lines) // (2 * self.seconds))
        for number, start in enumerate(range(0, len(lines), size)):
            body = self.folder / "body.jsonl"
            body.write_bytes(b"\n".join(lines[start : start + size]))
            while self._curl(body, key=f"request-{number}") != "202":
                self.refusals += 1
                time.sleep(0.3)
            time.sleep(0.3)

    def _curl(self, body: Path, *, key: str) -> str:
        done = subprocess.run(
            [
                *("curl", "--silent", "--max-time", "20", "--noproxy", "*", "--output", "/dev/null"),
                *("--write-out", "%{http_code}", "--header", "Content-Type: application/x-ndjson"),
                *("--header", f"Idempotency-Key: {key}", "--data-binary", f"@{body}", "--config", "-"),
                f"http://127.0.0.1:{self.http_port}/v1/pipelines/http_orders/events",
            ],
            input=f'header = "Authorization: Bearer {self.token}"\n',
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout

    def _files(self) -> None:
        self.landing.mkdir(parents=True, exist_ok=True)
        lines = list(self._lines("files", broken=True))
        size = max(10, len(lines) // 5)
        for number, start in enumerate(range(0, len(lines), size)):
            file = self.landing / f"part-{number}.jsonl"
            hidden = file.with_suffix(".jsonl.part")
            hidden.write_bytes(b"\n".join(lines[start : start + size]) + b"\n")
            hidden.rename(file)
            time.sleep(self.seconds / 6)

    def _pgbench(self) -> None:
        """It ends when its server is killed, and is started again for as long as the others send."""
        script = self.folder / "pgbench.sql"
        script.write_text(PGBENCH)
        deadline = time.monotonic() + self.seconds
        while (left := int(deadline - time.monotonic())) > 0:
            self.transactions += pgbench(
                ["--file", str(script), "--time", str(max(1, left)), "--rate", "20"],
                port=self.postgres_port,
                user="etl",
                database="shop",
                password=self.password,
            )
            time.sleep(0.5)


def is_good(event: dict[str, object]) -> bool:
    """Whether an event is accepted, if nothing before it had its id."""
    return not str(event["event_id"]).endswith("-invalid")

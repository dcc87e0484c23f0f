"""latency: events produced to a topic at a steady 500 a second while a worker runs: how long after it was
produced an event is a row of PostgreSQL, and a document that searches find.

Both targets are asked four times a second, so that a latency may be a quarter of a second too long. What
comes in the first `WARM_SECONDS` is left out: a process that starts, compiles its code and makes its tables
is not in a steady state.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.arrivals import Arrivals
from benchmarks.measure import Measured, ScriptFailed, empty_folder, run_script
from benchmarks.options import Options, script_environment
from benchmarks.report import Figure, figure
from benchmarks.scripts.latency_worker import DONE, READY, WARM

if TYPE_CHECKING:
    from psycopg import Connection

CASE = "latency"
RATE = 500
WARM_SECONDS = 90
P50_SECONDS_TARGET, P99_SECONDS_TARGET = 5.0, 15.0
PARTITIONS, TOPIC, TABLE, INDEX = 2, "sold", "marts.sold", "bench_sold"
_ASK_SECONDS, _STARTING_SECONDS, _LATE_SECONDS = 0.25, 120, 180
_MOST_DOCUMENTS = 10_000
"""The most that the engine returns at once."""


def run(options: Options) -> list[Figure]:
    """Measure the case; each run takes `--seconds`, the warm-up and a minute."""
    runs = []
    for number in range(options.runs):
        print(f"  run {number + 1} of {options.runs} ...", file=sys.stderr, flush=True)
        runs.append(_run_once(options, options.folder / CASE))
    return [
        figure(
            CASE,
            of_metric[0].metric,
            statistics.median(each.ours for each in of_metric),
            load=statistics.median(each.load for each in of_metric),
            target=of_metric[0].target,
        )
        for of_metric in zip(*runs, strict=True)
    ]


def _run_once(options: Options, work: Path) -> list[Figure]:
    import psycopg

    from etl_assets.stack.kafka import KafkaServer
    from etl_assets.stack.opensearch import OpenSearchServer
    from etl_assets.stack.postgres import PostgresServer

    empty_folder(work)
    (home := work / "home").mkdir()
    broker: KafkaServer
    engine: OpenSearchServer
    database: PostgresServer
    with (
        KafkaServer(work / "broker") as broker,
        OpenSearchServer(work / "engine") as engine,
        PostgresServer() as database,
        psycopg.connect(database.url, autocommit=True) as asked,
    ):
        asked.execute("CREATE SCHEMA marts")
        _declare(home, options, broker.url, engine.url, database.url)
        arrivals = {
            "postgres": Arrivals(lambda lowest: _rows(asked, lowest), _ASK_SECONDS),
            "search": Arrivals(lambda lowest: _documents(engine.url, lowest), _ASK_SECONDS),
        }
        feed = _Feed(home, broker.url, WARM_SECONDS + options.seconds, arrivals)
        feed.start()
        password = urlsplit(database.url).password or ""
        environment = {**script_environment(), "BENCH_PASSWORD": password}
        try:
            measured = run_script("latency_worker", {"home": str(home)}, environment)
        finally:
            feed.leave()
    if feed.error is not None:
        raise feed.error
    shutil.rmtree(work, ignore_errors=True)
    return _figures(measured, feed.produced, arrivals)


def _figures(
    measured: Measured, produced: Mapping[int, float], arrivals: Mapping[str, Arrivals]
) -> list[Figure]:
    found = []
    steady = [number for number in produced if number >= WARM_SECONDS * RATE]
    for name, arrived in arrivals.items():
        late = np.array([arrived.at[number] - produced[number] for number in steady])
        for share, target in ((50, P50_SECONDS_TARGET), (99, P99_SECONDS_TARGET), (100, None)):
            seconds = float(np.quantile(late, share / 100))
            metric = f"{name}_latency_{'most' if share == 100 else f'p{share}'}_seconds"
            found.append(figure(CASE, metric, seconds, load=measured.load, target=target))
    cpu = measured.cpu_seconds(DONE, WARM) / len(steady) * 1_000
    return [*found, figure(CASE, "cpu_seconds_per_1000_events", cpu, load=measured.load)]


class _Feed(threading.Thread):
    """Produces events at a steady rate from the moment the worker is there, until all have arrived.

    Attributes:
        produced: When each event was given to the client, on the machine's monotonic clock.
        error: Why it ended early.
    """

    def __init__(self, home: Path, brokers: str, seconds: int, arrivals: Mapping[str, Arrivals]) -> None:
        super().__init__(daemon=True)
        self._home, self._brokers, self._seconds, self._arrivals = home, brokers, seconds, arrivals
        self._left = threading.Event()
        self.produced: dict[int, float] = {}
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._feed()
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            self.error = error
        finally:
            (self._home / WARM).touch()
            (self._home / DONE).touch()

    def leave(self) -> None:
        """Produce and ask no more."""
        self._left.set()
        self.join()

    def _feed(self) -> None:
        from confluent_kafka import Producer

        self._until((self._home / READY).exists, _STARTING_SECONDS)
        for each in self._arrivals.values():
            each.start()
        producer = Producer({"bootstrap.servers": self._brokers, "acks": "all", "linger.ms": 5})
        began, events = time.monotonic(), self._seconds * RATE
        for number in range(events):
            if self._left.wait(max(0.0, began + number / RATE - time.monotonic())):
                return
            if number == WARM_SECONDS * RATE:
                (self._home / WARM).touch()
            self.produced[number] = time.monotonic()
            producer.produce(TOPIC, _event(number), partition=number % PARTITIONS)
            producer.poll(0)
        producer.flush(30)
        self._until(lambda: all(each.has(events) for each in self._arrivals.values()), _LATE_SECONDS)
        for each in self._arrivals.values():
            each.leave()

    def _until(self, reached: Callable[[], bool], seconds: float) -> None:
        """Wait for something.

        Raises:
            ScriptFailed: it did not come.
        """
        deadline = time.monotonic() + seconds
        while not reached():
            if self._left.wait(_ASK_SECONDS):
                return
            if time.monotonic() > deadline:
                raise ScriptFailed(f"what was produced did not arrive within {seconds:.0f} s")


def _event(number: int) -> bytes:
    return json.dumps(
        {
            "sale_id": uuid.uuid4().hex,
            "number": number,
            "customer": f"customer {number % 5_000}",
            "amount": f"{number % 100_000 / 100:.2f}",
        }
    ).encode()


def _rows(connection: Connection, lowest: int) -> Iterable[int]:
    found = connection.execute("SELECT to_regclass(%s)", [TABLE]).fetchone()
    if found is None or found[0] is None:
        return []
    rows = connection.execute(f"SELECT number FROM {TABLE} WHERE number >= %s".encode(), [lowest])
    return [number for (number,) in rows]


def _documents(url: str, lowest: int) -> Iterable[int]:
    asked = {
        "query": {"range": {"number": {"gte": lowest}}},
        "sort": [{"number": "asc"}],
        "size": _MOST_DOCUMENTS,
        "_source": False,
        "docvalue_fields": ["number"],
    }
    request = urllib.request.Request(
        f"{url}/{INDEX}/_search?ignore_unavailable=true",
        json.dumps(asked).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        hits = json.load(answer)["hits"]["hits"]
    return [each["fields"]["number"][0] for each in hits]


def _declare(home: Path, options: Options, brokers: str, engine: str, database: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": brokers})  # kept: one that is let go of answers nothing
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(60)
    address = urlsplit(database)
    connections: dict[str, Any] = {
        "events": {"type": "kafka", "bootstrap_servers": [brokers]},
        "search": {"type": "search", "urls": [engine], "write": [f"{INDEX}*"]},
        "database": {
            "type": "postgres",
            "host": address.hostname,
            "port": address.port,
            "database": address.path.removeprefix("/"),
            "user": address.username,
            "password": "${BENCH_PASSWORD}",
            "write": ["marts.*"],
        },
    }
    platform = {
        "connections": connections,
        "pipelines": {"built_in": []},
        "spark": {"master": options.master, "config": dict(options.spark)},
    }
    pipeline = {
        "name": "sold",
        "source": {"type": "kafka", "connection": "events", "topic": TOPIC, "id": ["sale_id"]},
        "columns": {"sale_id": "string", "number": "bigint", "customer": "string", "amount": "decimal(12,2)"},
        "table": {"keys": ["sale_id"]},
        "sinks": [
            {"type": "postgres", "connection": "database", "table": TABLE},
            {"type": "search", "connection": "search", "index": INDEX},
        ],
    }
    (home / "platform.yaml").write_text(json.dumps(platform), "utf-8")
    (home / "pipelines").mkdir()
    (home / "pipelines" / "sold.yaml").write_text(json.dumps(pipeline), "utf-8")

"""From other programs to every sink while servers, worker and runs are killed: the sets are equal in the end.

The pipelines are the shipped example's. What was sent is read from Kafka's topic by a plain consumer, known
from the answers of the HTTP server, and read from the database; what arrived is read by each sink's client.
"""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import psycopg
import pytest
import yaml

from etl_assets.orders.stack_demo import feed, targets
from etl_assets.orders.stack_demo.comparison import PipelineTables, compare
from etl_assets.orders.stack_demo.contents import PASSWORD, Contents
from etl_assets.orders.stack_demo.installation import write_example
from etl_assets.serve.tokens import Tokens
from etl_assets.settings import load_settings
from etl_assets.stack.kafka import KafkaServer
from etl_assets.stack.managed import ManagedServer
from etl_assets.stack.opensearch import OpenSearchServer
from etl_assets.stack.postgres import PostgresServer
from etl_assets.stack.server import free_port
from etl_assets_tests.commands.home import SETTINGS, Home, Running
from etl_assets_tests.e2e.feeders import Feeders, is_good
from etl_assets_tests.sinks.test_kafka_sink import messages

SEED = 20_260_203
EVENT_PIPELINES = ("kafka_orders", "http_orders", "file_orders")


@dataclass(kw_only=True)
class Site:
    """The servers, the installation on them, and the processes that work for it."""

    home: Home
    servers: Any
    contents: Contents
    ports: dict[str, int]
    kills: Counter[str] = field(default_factory=Counter)
    worker: Running | None = None
    serve: Running | None = None

    def keep_up(self) -> None:
        """Start worker and HTTP server where they do not run, as a supervisor does."""
        if self.serve is None or self.serve.wait(0) is not None:
            self.serve = self.home.start("serve", "--port", str(self.ports["http"]))
        if self.worker is None or self.worker.wait(0) is not None:
            self.worker = self.home.start("worker")

    def end(self) -> None:
        for each in (self.worker, self.serve):
            if each is not None:
                each.sweep()
                each.wait(20)

    # What happens to it

    def kill_server(self, server: ManagedServer) -> None:
        self.kills[f"{server.name} killed"] += 1
        server.kill()
        time.sleep(0.5)
        server.start()

    def pause_server(self, server: ManagedServer) -> None:
        self.kills[f"{server.name} paused"] += 1
        server.pause()
        time.sleep(2)
        server.resume()

    def kill_worker(self) -> None:
        self.kills["worker killed"] += 1
        if self.worker is not None:
            self.worker.sweep()
            self.worker.wait(20)

    def pause_worker(self) -> None:
        self.kills["worker paused"] += 1
        if self.worker is not None:
            self.worker.send(signal.SIGSTOP)
            time.sleep(2)
            self.worker.send(signal.SIGCONT)

    def kill_serve(self) -> None:
        self.kills["HTTP server killed"] += 1
        if self.serve is not None:
            self.serve.sweep()
            self.serve.wait(20)

    def kill_run(self, after_seconds: float) -> None:
        """A run in place of the worker, killed on the way."""
        self.kill_worker()
        running = self.home.start("run")
        if running.wait(after_seconds) is None:
            self.kills["run killed"] += 1
        running.sweep()
        running.wait(20)


@pytest.fixture
def site(s3_server, request, monkeypatch) -> Iterator[Callable[..., Site]]:
    """The example on servers of its own, but for the store, which keeps nothing over a kill."""
    folder = Path(tempfile.mkdtemp(prefix="etl-assets-sites-"))
    folder.chmod(0o711)
    with ExitStack() as ends:
        ends.callback(shutil.rmtree, folder, ignore_errors=True)

        def build(*, own_search: bool) -> Site:
            postgres = ends.enter_context(PostgresServer(durable=False))
            kafka = ends.enter_context(KafkaServer())
            search = (
                ends.enter_context(OpenSearchServer())
                if own_search
                else request.getfixturevalue("opensearch_server")
            )
            servers = SimpleNamespace(postgres=postgres, kafka=kafka, search=search, s3=s3_server)
            contents = Contents(servers)  # ty: ignore[invalid-argument-type]  the four servers are all it uses
            contents.prepare()
            for name, value in contents.environ.items():
                monkeypatch.setenv(name, value)
            home = Home(path=folder / "home")
            home.path.mkdir()
            ports = {
                "postgres": postgres.port,
                "kafka": kafka.port,
                "opensearch": search.port,
                "s3": s3_server.port,
                "http": free_port(),
            }
            write_example(home.path, ports, dt.datetime.now(dt.UTC).date())
            file = home.path / "platform.yaml"
            file.write_text(
                yaml.safe_dump(
                    {
                        **yaml.safe_load(file.read_text()),
                        "spark": SETTINGS["spark"],
                        "worker": SETTINGS["worker"],
                    }
                )
            )
            built = Site(home=home, servers=servers, contents=contents, ports=ports)
            ends.callback(built.end)
            return built

        yield build


def troubles(site: Site, rng: random.Random, *, own_search: bool) -> list[Callable[[], None]]:
    """One of each trouble, in random order."""
    found = [
        site.kill_worker,
        site.pause_worker,
        site.kill_serve,
        lambda: site.kill_server(site.servers.postgres),
        lambda: site.kill_server(site.servers.kafka),
        lambda: site.kill_run(rng.uniform(4, 15)),
    ]
    if own_search:
        found += [
            lambda: site.kill_server(site.servers.search),
            lambda: site.pause_server(site.servers.search),
            lambda: site.pause_server(site.servers.postgres),
            lambda: site.pause_server(site.servers.kafka),
        ]
    rng.shuffle(found)
    return found


@pytest.mark.e2e
@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("events", "seconds", "rounds"),
    [
        pytest.param(3_000, 20, 1, id="short"),
        pytest.param(200_000, 480, 5, id="long", marks=pytest.mark.full),
    ],
)
def test_every_sink_has_what_was_accepted_whatever_was_killed(site, tell, events, seconds, rounds):
    is_long = rounds > 1
    built = site(own_search=is_long)
    home, rng = built.home, random.Random(SEED)
    now = dt.datetime.now(dt.UTC)
    _, token = Tokens(home.path).add("curl", now=now, pipelines=("http_orders",))
    feeders = Feeders(
        folder=home.path.parent / "sent",
        events=events,
        seconds=seconds,
        brokers=built.servers.kafka.url,
        http_port=built.ports["http"],
        token=token,
        postgres_port=built.ports["postgres"],
        password=built.contents.environ[PASSWORD],
        landing=home.path / "landing" / "orders",
    )
    built.keep_up()
    feeders.start()
    began = time.monotonic()
    for _ in range(rounds):
        for trouble in troubles(built, rng, own_search=is_long):
            trouble()
            built.keep_up()
            time.sleep(rng.uniform(1, 4 if not is_long else seconds / rounds / 10))
    while feeders.are_busy and time.monotonic() - began < 4 * seconds + 120:
        built.keep_up()
        time.sleep(0.5)
    feeders.join(60)
    built.end()
    for _ in range(4):
        done = home.call("run", seconds=600)
        if done.code == 0:
            break
    assert done.code == 0, done
    _compare(built, feeders)
    counted = ", ".join(f"{count} {what}" for what, count in sorted(built.kills.items()))
    tell(
        f"sources to sinks, seed {SEED}: {events:,} events and {feeders.transactions:,} transactions of"
        f" pgbench, {built.kills.total()} faults ({counted}), {feeders.refusals} requests repeated, nothing"
        f" lost or twice, {time.monotonic() - began:.0f} s"
    )


def _compare(site: Site, feeders: Feeders) -> None:
    sent = {
        "kafka_orders": _ids_in_topic(site.servers.kafka.url),
        "http_orders": feeders.ids("http"),
        "file_orders": feeders.ids("files"),
    }
    records = {
        "kafka_orders": feed.sent_kafka(site.servers.kafka.url),
        "http_orders": feed.sent_http(site.home.path / "data" / "journal" / "http_orders"),
        "file_orders": feed.sent_files(feeders.landing),
    }
    stack: Any = site.servers
    readers = targets.Targets(stack=stack, contents=site.contents, home=site.home.path).readers
    domain = load_settings({"ETL_ASSETS_HOME": str(site.home.path)}).placement().reader()
    for name in EVENT_PIPELINES:
        expected = Counter(dict.fromkeys(sent[name], 1))
        # By a reader that knows nothing of the platform, before the platform's own figures.
        assert Counter(row["event_id"] for row in site.home.rows(name, ["event_id"])) == expected, name
        for sink, read in readers.items():
            assert read(name, "event_id") == expected, (name, sink)
        tables = PipelineTables(name=name, domain=domain)
        assert compare(tables, sent=records[name], at_source=None, readers={}).wrong == ()
    for name, key in (("rentals", "rental_id"), ("film_rating_agg", "film_id")):
        declared = yaml.safe_load((site.home.path / "pipelines" / f"{name}.yaml").read_text())
        at_source = site.contents.keys_of_query(declared["source"]["query"], key)
        tables = PipelineTables(name=name, domain=domain)
        assert compare(tables, sent=0, at_source=at_source, readers=readers).wrong == ()
    with psycopg.connect(site.contents.database_url) as connection:
        old = connection.execute(
            "SELECT rental_id, returned_at, updated_at FROM film_rental.rental"
            " EXCEPT SELECT rental_id, returned_at, updated_at FROM analytics.rentals"
        ).fetchall()
    assert old == [], "each row is delivered as it was changed last"


def _ids_in_topic(brokers: str) -> set[str]:
    """The ids of good events in the topic: a plain consumer reads what the producers have sent."""
    found = set()
    for message in messages(brokers, feed.TOPIC):
        assert isinstance(message, confluent_kafka.Message)
        try:
            event = json.loads(message.value())
        except ValueError:
            continue
        if is_good(event):
            found.add(event["event_id"])
    return found

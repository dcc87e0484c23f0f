"""A topic, and an installation whose pipeline reads it. The step runs in this process and needs no Spark.

Belongs here: what tests of Kafka share. Does not belong here: what they expect.
"""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from etl_assets.delta.table import Table
from etl_assets.settings import load_settings
from etl_assets.sources.positions import read_positions
from etl_assets.steps.placing import place
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, StepReport, platform_table
from etl_assets_tests.commands.home import Home

SOURCE, REJECTS = "people_source", "people_source_rejects"
START = dt.date(2026, 1, 1)
SURVIVED = 7
_processes = multiprocessing.get_context("forkserver")
# Processes that begin with everything imported.
_processes.set_forkserver_preload(["deltalake", "pyarrow", "etl_assets_tests.sources.topics"])


@dataclass(slots=True)
class Topic:
    """A topic of its own on a broker, and the home folder of an installation that reads it."""

    brokers: str
    name: str
    home: Home

    @classmethod
    def create(
        cls,
        brokers: str,
        folder: Path,
        *,
        partitions: int = 1,
        domains: Sequence[str] = (),
        **source: Any,
    ) -> Topic:
        topic = cls(brokers, f"t{uuid.uuid4().hex[:8]}", Home(path=folder / "home"))
        topic.create_topic(partitions)
        connection = {"type": "kafka", "bootstrap_servers": [brokers]}
        more = {"domains": [{"name": each, "root": each} for each in domains]} if domains else {}
        topic.home.begin(start_date=START.isoformat(), connections={"events": connection}, **more)
        topic.declare(**source)
        return topic

    def declare(self, **source: Any) -> None:
        """Declare the pipeline with some fields of its source."""
        columns = source.pop("columns", {"id": "string", "age": "int"})
        spec = {
            "name": "people",
            "source": {"type": "kafka", "connection": "events", "topic": self.name, "id": ["id"], **source},
            "columns": columns,
            "table": {"keys": ["id"]},
        }
        folder = self.home.path / "pipelines"
        folder.mkdir(exist_ok=True)
        (folder / "people.yaml").write_text(json.dumps(spec), "utf-8")

    @property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.brokers})

    def create_topic(self, partitions: int = 1) -> None:
        admin = self.admin
        for done in admin.create_topics([NewTopic(self.name, partitions)]).values():
            done.result(30)

    def delete_topic(self) -> None:
        admin = self.admin
        for done in admin.delete_topics([self.name]).values():
            done.result(30)

    def add_partitions(self, number: int) -> None:
        admin = self.admin
        for done in admin.create_partitions([NewPartitions(self.name, number)]).values():
            done.result(30)

    def delete_before(self, partition: int, offset: int) -> None:
        admin = self.admin
        for done in admin.delete_records([TopicPartition(self.name, partition, offset)]).values():
            done.result(30)

    def producer(self, **options: Any) -> Producer:
        return Producer({"bootstrap.servers": self.brokers, "linger.ms": 5, **options})

    def send(self, records: Iterable[Any], *, partition: int = 0, **more: Any) -> None:
        """Send records: bytes or None as they are, others as JSON."""
        producer = self.producer()
        for each in records:
            value = each if each is None or isinstance(each, bytes) else json.dumps(each).encode()
            producer.produce(self.name, value, partition=partition, **more)
            producer.poll(0)
        assert producer.flush(30) == 0

    def ingest(self, days: Sequence[dt.date] = (), failpoint: str = "", session: Any = None) -> StepReport:
        """Run the step that ingests the topic, in this process."""
        if failpoint:
            os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
        return self._run(SOURCE, list(days) or [today()], session)

    def load(self, session: Any) -> StepReport:
        """Run the step that makes the rows of the pipeline's table, in this process."""
        return self._run("people", [], session)

    def _run(self, stage: str, days: Sequence[dt.date], session: Any) -> StepReport:
        settings = load_settings({"ETL_ASSETS_HOME": str(self.home.path)})
        domain = place(settings.placement(), stage)
        context = StepContext(
            session=no_session if session is None else lambda: session,
            domain=domain,
            clock=lambda: dt.datetime.now(dt.UTC),
            lock_wait_seconds=30,
        )
        arguments = StepArguments(settings=settings, context=context, mode=ReadMode.INCREMENTAL)
        return domain.catalog.stage(stage).build_step(arguments).run(days)

    def ingest_and_die(self, failpoint: str) -> None:
        """Run the step in a process that ends at a failpoint."""
        process = _processes.Process(
            target=_ingest, args=(self.brokers, self.name, self.home.path, failpoint)
        )
        process.start()
        process.join(100)
        assert process.exitcode == -9, f"the process did not die at {failpoint}: {process.exitcode}"

    def accepted(self) -> list[Mapping[str, Any]]:
        """The rows of the source's table, in order."""
        return sorted(self.home.rows(SOURCE), key=lambda row: row["offset"])

    def rejected(self) -> list[Mapping[str, Any]]:
        """The rows of the table of rejects, in order of their positions."""
        return sorted(self.home.rows(REJECTS), key=lambda row: row["source_position"])

    @property
    def table(self) -> Table:
        """The source's table, in the domain that serves readers."""
        settings = load_settings({"ETL_ASSETS_HOME": str(self.home.path)})
        return platform_table(SOURCE, settings.placement().reader())

    @property
    def positions(self) -> dict[str, Any]:
        """The positions that the table has."""
        return read_positions(self.table)


def today() -> dt.date:
    return dt.datetime.now(dt.UTC).date()


def no_session() -> Any:
    raise AssertionError("so few records need no Spark")


def _ingest(brokers: str, name: str, home: Path, failpoint: str) -> None:
    Topic(brokers, name, Home(path=home)).ingest(failpoint=failpoint)
    os._exit(SURVIVED)

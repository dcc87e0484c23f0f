"""kafka: 1,000,000 events from a topic to the table of records, beside the same from files, and beside Spark
Structured Streaming over the same topic.

The broker runs on this machine and counts for none of the sides; its CPU is a part of what the load shows.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.cases.bulk import WARM, WrongRows
from benchmarks.input import BulkInput, bulk_input
from benchmarks.measure import Measured, empty_folder, interleaved, median, run_script
from benchmarks.options import Options, jvm_settings_by_hand, script_environment
from benchmarks.report import Figure, figure
from benchmarks.spark_kafka import spark_kafka_jars

CASE = "kafka"
FILES_TARGET = 1.3
STREAMING_TARGET = 1.0
TOPIC, PARTITIONS = "events", 2
OURS, FILES, STREAMING = "kafka", "files", "streaming"
_DONE = "events"


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    from etl_assets.stack.kafka import KafkaServer

    given = bulk_input(options.folder, options.events)
    jars = spark_kafka_jars()
    work = options.folder / CASE
    empty_folder(work)
    with KafkaServer(work / "broker") as server:
        _fill(server.url, given)
        told = {"brokers": server.url}
        sides = {
            OURS: _side(options, given, work / OURS, "kafka_by_declared", {**told, "topic": TOPIC}),
            FILES: _side(options, given, work / FILES, "kafka_by_declared", {**told, "topic": ""}),
            STREAMING: _side(
                options, given, work / STREAMING, "kafka_by_streaming", {**told, "topic": TOPIC}, jars
            ),
        }
        measured = interleaved(options.runs, sides)
    shutil.rmtree(work, ignore_errors=True)
    return _figures(measured)


def _figures(measured: Mapping[str, list[Measured]]) -> list[Figure]:
    load = median([run for runs in measured.values() for run in runs], lambda run: run.load)
    kinds = (("cpu", Measured.cpu_seconds), ("wall", Measured.wall_seconds))
    targets = {(FILES, "wall"): FILES_TARGET, (STREAMING, "cpu"): STREAMING_TARGET}
    return [
        figure(
            CASE,
            f"beside_{other}_{kind}_seconds",
            median(measured[OURS], lambda run, of=of: of(run, _DONE, WARM)),
            median(measured[other], lambda run, of=of: of(run, _DONE, WARM)),
            load=load,
            target=targets.get((other, kind)),
        )
        for other in (FILES, STREAMING)
        for kind, of in kinds
    ] + [
        figure(
            CASE,
            "peak_resident_mib",
            median(measured[OURS], lambda run: run.peak_resident_mib(_DONE)),
            median(measured[FILES], lambda run: run.peak_resident_mib(_DONE)),
            load=load,
        )
    ]


def _side(
    options: Options,
    given: BulkInput,
    folder: Path,
    script: str,
    told: Mapping[str, Any],
    jars: tuple[Path, ...] = (),
) -> Callable[[], Measured]:
    def run_side() -> Measured:
        from etl_assets.runtime.jars import delta_jars

        empty_folder(folder)
        spark = options.spark_settings(folder / "scratch")
        arguments = {
            **told,
            "landing": str(given.landing),
            "customers": str(given.customers),
            "days": [day.isoformat() for day in given.days],
            "tables": str(folder / "tables"),
            "spark": {
                **spark,
                **(jvm_settings_by_hand(spark) if jars else {}),
                "spark.driver.extraClassPath": os.pathsep.join(map(str, (*delta_jars(), *jars))),
            },
        }
        measured = run_script(script, arguments, script_environment())
        if (found := measured.marks["verified"].figures["events"]) != given.raw_events:
            raise WrongRows(f"{script} ended with {found:,} rows, not {given.raw_events:,}")
        return measured

    return run_side


def _fill(brokers: str, given: BulkInput) -> None:
    """Send the lines of the landing folder, each at noon of its day."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    # The events are older than what brokers keep by default.
    topic = NewTopic(TOPIC, PARTITIONS, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([topic])[TOPIC].result(60)
    producer = Producer(
        {"bootstrap.servers": brokers, "acks": "all", "compression.type": "lz4", "linger.ms": 50}
    )
    sent = 0
    for day in given.days:
        noon = dt.datetime.combine(day, dt.time(12), dt.UTC)
        for path in sorted((given.landing / day.isoformat()).iterdir()):
            with path.open("rb") as file:
                for line in file:
                    _send(producer, line.rstrip(b"\n"), sent % PARTITIONS, int(noon.timestamp()) * 1_000)
                    sent += 1
    if left := producer.flush(120):
        raise WrongRows(f"{left:,} records were not sent")
    print(f"  {sent:,} records are in the topic", file=sys.stderr)


def _send(producer: Any, value: bytes, partition: int, timestamp: int) -> None:
    while True:
        try:
            producer.produce(TOPIC, value, partition=partition, timestamp=timestamp)
        except BufferError:
            producer.poll(0.1)
        else:
            producer.poll(0)
            return

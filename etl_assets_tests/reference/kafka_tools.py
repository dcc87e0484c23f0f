"""Kafka's own command-line producers, from its distribution: programs that know nothing of the platform.

Belongs here: running them on a topic. Does not belong here: what they send.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from etl_assets.runtime.jars import Jar, jars_folder
from etl_assets.runtime.java import find_java
from etl_assets.stack.jar_set import JarSet, load

_TOOLS = Jar(
    group="org.apache.kafka",
    artifact="kafka-tools",
    version="4.3.1",
    size_bytes=698_668,
    sha256="62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c",
)
# A broker that is killed comes back within the time.
PROPERTIES = ("acks=all", "enable.idempotence=true", "retries=1000", "delivery.timeout.ms=120000")


def console_producer(brokers: str, topic: str, lines: Path, log: Path) -> int:
    """Send each line of a file as a record, and return the exit code."""
    options = ["--bootstrap-server", brokers, "--topic", topic]
    for each in PROPERTIES:
        options += ["--command-property", each]
    return _run("org.apache.kafka.tools.ConsoleProducer", options, log, lines)


def performance_producer(
    brokers: str, topic: str, lines: Path, log: Path, *, records: int, per_second: int
) -> int:
    """Send that many lines of a file, drawn at random, and return the exit code."""
    options = ["--topic", topic, "--num-records", str(records), "--throughput", str(per_second)]
    options += ["--payload-file", str(lines), "--bootstrap-server", brokers]
    options += ["--command-property", *PROPERTIES]
    return _run("org.apache.kafka.tools.ProducerPerformance", options, log, None)


def _run(program: str, options: list[str], log: Path, lines: Path | None) -> int:
    java = find_java()
    tools = JarSet(title="Kafka's tools", folder=jars_folder() / "kafka-tools", jars=(_TOOLS,))
    server = load("kafka", "Kafka")
    for jars in (tools, server):
        jars.ensure(java, lambda line: None)
    command = [str(java.executable), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", f"{tools.class_path}:{server.class_path}", program, *options]
    with log.open("ab") as output, (lines or Path("/dev/null")).open("rb") as stdin:
        return subprocess.call(command, stdin=stdin, stdout=output, stderr=output, timeout=600)

"""Kafka: one broker that is its own controller (KRaft), with transactions.

Belongs here: its jars, its settings. Does not belong here: topics.
"""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from etl_assets.errors import ServerNotStarted
from etl_assets.runtime.java import Java, find_java
from etl_assets.stack.jar_set import JarSet, load
from etl_assets.stack.managed import ManagedServer
from etl_assets.stack.process import ServerProcess
from etl_assets.stack.server import HOST, free_port, last_lines

VERSION = "4.3.1"
JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    # There is one broker to keep anything.
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Fifty partitions each would cost the first transaction and the first group seconds.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # A broker that was killed comes back when its session has expired: nine seconds otherwise.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    # A misspelled topic is an error.
    "auto.create.topics.enable": "false",
}
_STARTING_SECONDS = 120
_READY = b"Kafka Server started"


class KafkaServer(ManagedServer):
    """One broker.

    Args:
        folder: Folder of its log segments; a temporary one by default.
        port: Its port; a free one by default.
        controller_port: The port on which it talks to itself; a free one by default.
        settings: More settings by name, or others than `SETTINGS`.
        advertised_port: The port that it sends its clients to: a proxy's. Its own by default.
        listeners: More listeners by name, each with its port. `settings` says what they ask of clients.
        say: Receives what a download is doing.
    """

    name = "Kafka"

    def __init__(
        self,
        folder: Path | None = None,
        port: int | None = None,
        *,
        controller_port: int | None = None,
        settings: Mapping[str, str] | None = None,
        advertised_port: int | None = None,
        listeners: Mapping[str, int] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(folder, port)
        self.settings = {**SETTINGS, **(settings or {})}
        self.controller_port = controller_port or free_port()
        self.advertised_port = advertised_port
        self.listeners = dict(listeners or {})
        self._say = say

    @property
    def url(self) -> str:
        """Value of `bootstrap.servers`."""
        return self.address

    def _launch(self) -> ServerProcess:
        java = find_java()
        jars = load("kafka", f"Kafka {VERSION}")
        jars.ensure(java, self._say)
        properties = self._write_properties()
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(java, jars, properties)
        process = ServerProcess(
            name=self.name,
            command=[*self._java(java, jars), "kafka.Kafka", str(properties)],
            log=self.log,
            folder=self.folder,
        )
        process.wait_until(lambda: process.has_logged(_READY), _STARTING_SECONDS)
        return process

    def _java(self, java: Java, jars: JarSet) -> list[str]:
        options = [
            *JVM_OPTIONS,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
        ]
        return [str(java.executable), *options, "-cp", jars.class_path]

    def _write_properties(self) -> Path:
        more = "".join(f",{name}://{HOST}:{port}" for name, port in self.listeners.items())
        settings = {
            **self.settings,
            "listeners": f"PLAINTEXT://{HOST}:{self.port},CONTROLLER://{HOST}:{self.controller_port}{more}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{self.advertised_port or self.port}{more}",
            "controller.quorum.voters": f"{self.settings['node.id']}@{HOST}:{self.controller_port}",
            "log.dirs": str(self.folder / "data"),
        }
        properties = self.folder / "server.properties"
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        properties.write_text(lines, "utf-8")
        return properties

    def _format(self, java: Java, jars: JarSet, properties: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = [*self._java(java, jars), "kafka.tools.StorageTool", "format"]
        # An identifier must not look like an option.
        command += ["--cluster-id", cluster.replace("-", "A", 1) if cluster[0] == "-" else cluster]
        command += ["--config", str(properties)]
        with self.log.open("ab") as log:
            status = subprocess.call(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=_STARTING_SECONDS
            )
        if status != 0:
            raise ServerNotStarted(
                f"Kafka's folder was not formatted (status {status}); the last lines of {self.log}:\n"
                f"{last_lines(self.log)}",
                fix="the lines above say why",
                server=self.name,
                log=self.log,
            )

"""Servers on one folder: PostgreSQL, an S3-compatible store, Kafka and OpenSearch, or PostgreSQL alone.

Belongs here: ports, order, who may start them, the list of what runs. Does not belong here: a server's own
settings, and databases, topics or buckets in them (`orders/stack_demo/`).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from etl_assets.delta.log.durability import write_durably
from etl_assets.errors import AddressUnusable, DevRunning, ServerNotStarted
from etl_assets.stack.kafka import KafkaServer
from etl_assets.stack.managed import ManagedServer
from etl_assets.stack.opensearch import OpenSearchServer
from etl_assets.stack.postgres import PostgresServer
from etl_assets.stack.running import end_left_over, read_running, running_server, write_running
from etl_assets.stack.s3 import S3Server
from etl_assets.stack.server import expect_free, free_port

PORTS: Mapping[str, int] = {
    "postgres": 15432,
    "s3": 19000,
    "kafka": 19092,
    "opensearch": 19200,
    "http": 18080,
}
"""The ports that a new folder takes where they are free."""
ROOTS_CLUSTERS = Path("/var/lib/etl-assets")
"""Where root's clusters lie that PostgreSQL's account could not reach in the folder."""
_PAUSE_SECONDS = 3.0
_TRIES = 6


class ServerStack:
    """Servers on one folder, started one after another and ended together.

    They end with this process, however it ends: the kernel kills them if it is killed. Their data stays in
    the folder.

    Args:
        folder: Folder of the servers' data and logs.
        say: Receives a line of progress.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.folder, self._say = folder, say
        self._running: list[ManagedServer] = []
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        """Start the servers.

        Raises:
            DevRunning: another process runs them.
            RuntimeMissing, ServerNotStarted: one cannot run.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._exits.enter_context(_held(self.folder))
            end_left_over(self.folder)
            self._exits.callback(write_running, self.folder, ())
            self.ports = choose_ports(self.folder)
            for server in self._servers():
                self.start(server)
        except BaseException:
            self._exits.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._running:
            self._say(f"==> ending {', '.join(each.name for each in reversed(self._running))}")
        self._exits.close()

    def start(self, server: ManagedServer) -> None:
        """Start a server, and end it with the others.

        It is tried some times: what is left of a killed one (sessions of PostgreSQL that hold its shared
        memory, a port) may take a while to go.
        """
        began = time.monotonic()
        self._say(f"    {server.name}: starting on {server.address}")
        self._exits.callback(server.close)
        for _ in range(_TRIES - 1):
            try:
                server.start()
                break
            except (ServerNotStarted, AddressUnusable):
                time.sleep(_PAUSE_SECONDS)
        else:
            server.start()
        self._running.append(server)
        running = [running_server(each.name, each.address, each.pid) for each in self._running]
        write_running(self.folder, running)
        self._say(f"    {server.name}: ready after {time.monotonic() - began:.1f} s")

    def _servers(self) -> Sequence[ManagedServer]:
        """Return the servers, in the order of their start."""
        raise NotImplementedError


class FullStack(ServerStack):
    """PostgreSQL, an S3-compatible store, whose objects are in memory only, Kafka and OpenSearch."""

    def _servers(self) -> Sequence[ManagedServer]:
        folder, ports, say = self.folder, self.ports, self._say
        self.postgres = PostgresServer(place_of_cluster(folder), ports["postgres"])
        self.s3 = S3Server(folder / "s3", ports["s3"])
        self.kafka = KafkaServer(folder / "kafka", ports["kafka"], say=say)
        self.search = OpenSearchServer(folder / "opensearch", ports["opensearch"], say=say)
        return self.postgres, self.s3, self.kafka, self.search


class PostgresStack(ServerStack):
    """PostgreSQL alone, with a log that captures can read."""

    def _servers(self) -> Sequence[ManagedServer]:
        self.postgres = PostgresServer(place_of_cluster(self.folder), self.ports["postgres"])
        return (self.postgres,)


@contextmanager
def _held(folder: Path) -> Generator[None]:
    """Hold the right to run servers on a folder, until the block or the process ends."""
    with (folder / "lock").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owners = sorted({each.owner for each in read_running(folder)})
            who = f"process {owners[0]}" if owners else "another process"
            raise DevRunning(
                f"{who} runs the servers of {folder} already",
                fix="use them (`etl-assets doctor` says where they are), or end it first (Ctrl-C, or `kill`"
                " and its process id); another demo has another ETL_ASSETS_HOME",
                home=folder,
            ) from None
        yield


def choose_ports(folder: Path) -> dict[str, int]:
    """Return a free port for each server, and remember it: those of the last time, if they are free still."""
    file = folder / "ports.json"
    try:
        remembered = {name: int(port) for name, port in json.loads(file.read_text("utf-8")).items()}
    except (FileNotFoundError, ValueError, AttributeError, TypeError):
        remembered = {}
    ports = {name: _usable(name, remembered.get(name, usual)) for name, usual in PORTS.items()}
    if ports != remembered:
        write_durably(file, json.dumps(ports, indent=1).encode())
    return ports


def _usable(name: str, port: int) -> int:
    try:
        expect_free(name, port)
    except AddressUnusable:
        return free_port()
    return port


def place_of_cluster(folder: Path) -> Path:
    """Return the folder of PostgreSQL's cluster: below the stack's, where its account can enter that.

    Root's server runs as another account, which cannot enter root's home folder, for instance.
    """
    inside = folder / "postgres"
    if os.geteuid() != 0 or all(each.stat().st_mode & 0o001 for each in (folder, *folder.parents)):
        return inside
    _forget_clusters()
    named = folder / "postgres.folder"
    try:
        found = Path(named.read_text("utf-8"))
    except FileNotFoundError:
        found = Path()
    if found.parent != ROOTS_CLUSTERS or not found.is_dir():
        found = ROOTS_CLUSTERS / secrets.token_hex(8)
        write_durably(named, str(found).encode())
        found.mkdir(parents=True)
        for each in (ROOTS_CLUSTERS, found):
            each.chmod(0o711)  # the account may pass
        (found / "stack.folder").write_text(str(folder), "utf-8")
    return found


def _forget_clusters() -> None:
    """Remove the clusters of folders that are gone, or have another one now."""
    for cluster in ROOTS_CLUSTERS.glob("*"):
        try:
            folder = Path((cluster / "stack.folder").read_text("utf-8"))
        except FileNotFoundError:  # being created
            continue
        try:
            is_used = (folder / "postgres.folder").read_text("utf-8") == str(cluster)
        except (FileNotFoundError, NotADirectoryError):
            is_used = False
        if not is_used:
            shutil.rmtree(cluster, ignore_errors=True)

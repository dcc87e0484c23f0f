"""Two control planes and three workers on one control store, and the faults that a test lets happen to them.

Each process has a home folder of its own; the tables, the source files and the target are shared. Pipelines
have a schedule that never comes, so rows move by runs alone.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml

from etl_assets.control.rows import read_leases
from etl_assets.control.run_controls import RunControls
from etl_assets.control.store import ControlStore, open_store
from etl_assets.serve.service import now_utc
from etl_assets.serve.tokens import Scope, Tokens
from etl_assets.settings import Settings
from etl_assets_tests.control import jumping_clock
from etl_assets_tests.control.warm_commands import WarmCommands, kill

PIPELINES = ("films", "books")
LEASE_SECONDS = 1.0
SERVERS, WORKERS = 2, 3
ROWS = 60
"""Rows of a file."""


@dataclass(kw_only=True)
class Member:
    """A process of the fleet, which is started again after it was killed."""

    words: tuple[str, ...]
    home: Path
    port: int = 0
    token: str = ""
    pid: int = 0

    @property
    def offset(self) -> Path:
        return self.home / "clock"


@dataclass(kw_only=True)
class Fleet:
    """The processes, what they share, and what has happened to them."""

    folder: Path
    settings: Settings
    commands: WarmCommands
    has_jumps: bool
    row_bytes: int
    store: ControlStore
    environment: dict[str, str] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)
    landed: dict[str, list[range]] = field(default_factory=lambda: {each: [] for each in PIPELINES})
    faults: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def controls(self) -> RunControls:
        return RunControls(self.store)

    @property
    def servers(self) -> list[Member]:
        return [each for each in self.members if each.port]

    @property
    def workers(self) -> list[Member]:
        return [each for each in self.members if not each.port]

    def start(self, member: Member) -> None:
        environment = {
            **self.environment,
            **jumping_clock.environment(member.offset),
            "ETL_ASSETS_HOME": str(member.home),
        }
        member.pid = self.commands.start(member.words, environment, member.home / "log")

    def wait_for_servers(self) -> None:
        for server in self.servers:
            for _ in range(300):
                with suppress(httpx.TransportError):
                    health = f"http://127.0.0.1:{server.port}/health"
                    if httpx.get(health, timeout=5, trust_env=False).status_code == 200:
                        break
                time.sleep(0.1)
            else:
                raise AssertionError((server.home / "log").read_text("utf-8")[-4_000:])

    def land(self, pipeline: str) -> None:
        """Write a source file, whole or not at all."""
        with self._lock:
            files = self.landed[pipeline]
            rows = range(len(files) * ROWS, (len(files) + 1) * ROWS)
            text, hidden = "x" * self.row_bytes, self.folder / "in" / pipeline / f".{len(files)}"
            hidden.write_text("id,text\n" + "".join(f"{each},{text}\n" for each in rows))
            hidden.rename(hidden.with_name(f"{len(files):03}.csv"))
            files.append(rows)

    def ids(self, pipeline: str) -> set[int]:
        """Return the ids of all rows that have landed."""
        with self._lock:
            return {each for rows in self.landed[pipeline] for each in rows}

    # Faults.

    def plan(self, chance: random.Random, number: int) -> list[Callable[[random.Random], None]]:
        """Return so many faults, each kind at least once if they suffice."""
        kinds: list[Callable[[random.Random], None]] = [
            self._kill_worker,
            self._stop_worker,
            self._kill_server,
        ]
        kinds += [self._jump] if self.has_jumps else []
        kinds += [self._stop_server]
        weights = [4, 4, 2, 4, 1] if self.has_jumps else [4, 4, 2, 1]
        chosen = kinds[:number]
        chosen += chance.choices(kinds, weights, k=number - len(chosen))
        chance.shuffle(chosen)
        return chosen

    def _kill_worker(self, chance: random.Random) -> None:
        worker, is_within_run = self._worker_with_run(chance)
        kill(worker.pid)
        self.faults["kills within a run" if is_within_run else "kills of idle workers"] += 1
        time.sleep(chance.uniform(0, LEASE_SECONDS / 2))
        self.start(worker)

    def _stop_worker(self, chance: random.Random) -> None:
        worker, is_within_run = self._worker_with_run(chance)
        os.kill(worker.pid, signal.SIGSTOP)
        self.faults["pauses within a run" if is_within_run else "pauses of idle workers"] += 1
        time.sleep(LEASE_SECONDS * chance.uniform(1.2, 2.5))
        os.kill(worker.pid, signal.SIGCONT)

    def _kill_server(self, chance: random.Random) -> None:
        server = chance.choice(self.servers)
        kill(server.pid)
        self.faults["kills of control planes"] += 1
        self.start(server)

    def _stop_server(self, chance: random.Random) -> None:
        server = chance.choice(self.servers)
        os.kill(server.pid, signal.SIGSTOP)
        self.faults["pauses of control planes"] += 1
        time.sleep(LEASE_SECONDS * chance.uniform(0.5, 2))
        os.kill(server.pid, signal.SIGCONT)

    def _jump(self, chance: random.Random) -> None:
        member = chance.choice(self.members)
        jumping_clock.set_clock(member.offset, chance.choice([-3 * 3_600, -60, -3, 3, 60, 3 * 3_600]))
        self.faults["clock jumps"] += 1

    def _worker_with_run(self, chance: random.Random) -> tuple[Member, bool]:
        """Return a worker, with a run if one has one soon, and whether it has."""
        for _ in range(60):
            with self.store.reading() as connection:
                runners = {lease.runner.rpartition(":")[2] for lease in read_leases(connection)}
            holders = [each for each in self.workers if str(each.pid) in runners]
            if holders:
                return chance.choice(holders), True
            time.sleep(0.05)
        return chance.choice(self.workers), False

    def logs(self) -> str:
        """Return the ends of the logs of all processes, without what changes nothing."""
        found = []
        for member in self.members:
            log = member.home / "log"
            text = log.read_text("utf-8") if log.exists() else ""
            found.append(f"--- {member.home.name}\n{text[-3_000:]}")
        return re.sub(r"x{100,}", "x…", "\n".join(found))


@contextmanager
def fleet(folder: Path, platform: dict[str, Any], commands: WarmCommands, **given: Any) -> Generator[Fleet]:
    """Start the processes, and end them with the block.

    Args:
        folder: An empty folder.
        platform: What the platform files have beside what is the same for all.
        commands: Starts the processes.
        given: The other fields of `Fleet`.
    """
    content = {
        "start_date": (dt.datetime.now(dt.UTC).date() - dt.timedelta(days=2)).isoformat(),
        "pipelines": {"built_in": []},
        "domains": [{"name": "local", "root": str(folder / "data")}],
        "spark": {"master": "local[2]"},
        "runs": {"lock_wait_seconds": 20},
        "worker": {
            "parallel": 2,
            "batch_interval_seconds": 0.05,
            "derived_interval_seconds": 0.1,
            "report_interval_seconds": 3_600,
            "max_batch_bytes": 1_048_576,
        },
        **platform,
    }
    content["control"] = {"lease_seconds": LEASE_SECONDS, **content.get("control", {})}
    exports = {"type": "folder", "path": str(folder / "out"), "write": ["*"]}
    content["connections"] = {"exports": exports, **content.get("connections", {})}
    (folder / "out").mkdir()
    members = []
    for number in range(SERVERS + WORKERS):
        home = folder / f"home_{number}"
        (home / "pipelines").mkdir(parents=True)
        (home / "platform.yaml").write_text(yaml.safe_dump(content), "utf-8")
        for name in PIPELINES:
            (folder / "in" / name).mkdir(parents=True, exist_ok=True)
            (home / "pipelines" / f"{name}.yaml").write_text(yaml.safe_dump(_declaration(folder, name)))
        if not content["control"].get("connection"):  # one file, which SQLite finds by a link
            (home / "control.db").symlink_to(folder / "control.db")
        members.append(_server(home) if number < SERVERS else Member(words=("worker",), home=home))
    store = open_store(Settings.model_validate({**content, "home": members[0].home}))
    made = Fleet(
        folder=folder,
        settings=Settings.model_validate({**content, "home": members[0].home}),
        commands=commands,
        store=store,
        members=members,
        **given,
    )
    for member in members:
        made.start(member)
    try:
        yield made
    finally:
        for member in members:
            kill(member.pid)
        store.close()


def _declaration(folder: Path, name: str) -> dict[str, Any]:
    source = {"type": "files", "path": str(folder / "in" / name / "*.csv"), "settle_seconds": 0, "id": ["id"]}
    return {
        "name": name,
        "source": source,
        "columns": {"id": "bigint", "text": "string"},
        "table": {"keys": ["id"]},
        "sinks": [{"type": "folder", "connection": "exports", "target": name}],
        "schedule": {"cron": "0 0 29 2 *"},
    }


def _server(home: Path) -> Member:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    _, token = Tokens(home).add("test", now=now_utc(), scopes=[Scope.ADMIN])
    return Member(words=("serve", "--port", str(port)), home=home, port=port, token=token)


def tokens_of_commits(table: Path) -> list[tuple[int, int]]:
    """Return version and fencing token of each commit of a run in a table's log, in order."""
    found = []
    for entry in sorted((table / "_delta_log").glob("0*.json")):
        actions = [json.loads(line) for line in entry.read_text("utf-8").splitlines()]
        info = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        run = json.loads(info.get("userMetadata") or "{}").get("run")
        found += [(int(entry.stem), int(run["token"]))] if run else []
    return found

"""A platform of three domains on small disks of their own, the runs that work on it, and what may befall them."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from etl_assets.contracts.tables import ALL_TABLES
from etl_assets.delta.log import entry_path
from etl_assets.errors import EtlAssetsError, MembershipRefused
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.placement.memory import Standing
from etl_assets.placement.policy import Stage
from etl_assets.settings import load_settings
from etl_assets.steps.keep_replicas import keep_replicas
from etl_assets.steps.step import platform_table
from etl_assets.testing.failpoints import Failpoint
from etl_assets_tests.chaos.run_process import STEPS
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.pipeline import DAY, NEXT_DAY, event

NAMES = ("local/a", "local/b", "local/c")
DAYS = (DAY, NEXT_DAY)
EVENTS_A_ROUND = 20
DISK = "48m"
RUN_SECONDS = 150
MOST_OF_A_RUN_SECONDS = 8.0
"""About as long as a run takes: troubles come at any moment of it."""

FAILPOINTS = (
    f"{Failpoint.EXCEPTIONS_AFTER_COMMIT.value}@raw_events",
    *(
        f"{point.value}@{table}"
        for table in STEPS
        for point in (
            Failpoint.TABLE_BEFORE_COMMIT,
            Failpoint.TABLE_AFTER_COMMIT,
            Failpoint.TABLE_AFTER_SYNC,
        )
    ),
    Failpoint.LEDGER_BEFORE_WRITE.value,
    Failpoint.LEDGER_AFTER_WRITE.value,
)


@dataclass
class World:
    """The platform under fire. `dice` decides everything that is left to chance."""

    home: Path
    gateway: Gateway
    dice: random.Random
    landed: list[str] = field(default_factory=list)
    days: list[dt.date] = field(default_factory=list)
    befell: Counter[str] = field(default_factory=Counter)
    runs: int = 0

    def begin(self) -> None:
        """Make the platform, and take its roots into use."""
        domains = [{"name": name, "root": name[-1]} for name in NAMES]
        (self.home / "platform.yaml").write_text(yaml.safe_dump({"domains": domains}), "utf-8")
        for name in NAMES:
            self.mount(name)
        self.placement().place(Stage.INGEST)

    def end(self) -> None:
        """Take the disks away."""
        for name in NAMES:
            while subprocess.run(["umount", "-l", str(self.root(name))], capture_output=True).returncode == 0:
                pass

    def mount(self, name: str) -> None:
        """Give a domain a disk of its own. Raises CalledProcessError where this user may not mount."""
        self.root(name).mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(self.root(name))]
        subprocess.run(command, check=True, capture_output=True)

    def placement(self) -> Placement:
        return load_settings().placement()

    def domain(self, name: str) -> FailureDomain:
        found = self.placement().named(name)
        assert found is not None
        return found

    def root(self, name: str) -> Path:
        return self.home / name[-1]

    # What goes on

    def land(self) -> None:
        """One more file: new events, and one that came before."""
        first, day = len(self.landed), self.dice.choice(DAYS)
        events = [event(number, day=day) for number in range(first, first + EVENTS_A_ROUND)]
        # Of the same day, so that the first one in source order is also the one that came first.
        if before := [number for number, of in enumerate(self.days) if of == day]:
            events.append(event(self.dice.choice(before), day=day))
        folder = self.home / "landing" / day.isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{first:06d}"
        hidden.write_text("".join(json.dumps(each) + "\n" for each in events), "utf-8")
        hidden.rename(folder / f"{first:06d}.jsonl")
        self.landed += [each["event_id"] for each in events[:EVENTS_A_ROUND]]
        self.days += [day] * EVENTS_A_ROUND

    def start(self, failpoint: str = "") -> subprocess.Popen[bytes]:
        """Start a run."""
        self.runs += 1
        days = ",".join(day.isoformat() for day in DAYS)
        gateway = (str(self.gateway.port), self.gateway.secret)
        command = [sys.executable, "-m", "etl_assets_tests.chaos.run_process", str(self.home), days, *gateway]
        with (self.home / f"run-{self.runs:04d}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, str(self.notes)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "ETL_ASSETS_HOME": str(self.home), "ETL_ASSETS_FAILPOINT": failpoint},
            )

    def finish(self, run: subprocess.Popen[bytes]) -> int:
        """Wait for a run; one that hangs is ended."""
        try:
            return run.wait(RUN_SECONDS)
        except subprocess.TimeoutExpired:
            self.befell["hung"] += 1
            run.kill()
            return run.wait()

    @property
    def notes(self) -> Path:
        return self.home / "acknowledged.jsonl"

    def acknowledged(self) -> list[dict[str, Any]]:
        """What runs reported as acknowledged."""
        return [json.loads(line) for line in self.notes.read_text("utf-8").splitlines()]

    def last_log(self) -> str:
        return (self.home / f"run-{self.runs:04d}.log").read_text("utf-8", errors="replace")[-3_000:]

    # What befalls it

    def trouble(self) -> None:
        """A run, and something that happens to it or to a domain meanwhile."""
        troubles = {
            "killed": self.killed,
            "disk gone": self.disk_gone,
            "disk read-only": self.disk_read_only,
            "disk full": self.disk_full,
            "leader paused": self.leader_paused,
            "two runs": self.two_runs,
            "emptied": self.emptied,
            "file cut": self.file_cut,
            "log entry changed": self.entry_changed,
            "failed by hand": self.failed_by_hand,
        }
        name = self.dice.choice(list(troubles))
        self.befell[name] += 1
        troubles[name](self.dice.choice(NAMES))

    def killed(self, _: str) -> None:
        self.finish(self.start(self.dice.choice(FAILPOINTS)))

    def disk_gone(self, name: str) -> None:
        self._while_running(
            lambda: subprocess.run(["mount", "--move", str(self.root(name)), str(self._aside())], check=True),
            lambda: subprocess.run(["mount", "--move", str(self._aside()), str(self.root(name))], check=True),
        )

    def disk_read_only(self, name: str) -> None:
        def remount(how: str) -> Callable[[], Any]:
            # A file that is being written keeps the disk writable: until it is closed there is no answer but "busy".
            def mount() -> None:
                deadline = time.monotonic() + RUN_SECONDS
                while subprocess.run(
                    ["mount", "-o", f"remount,{how}", str(self.root(name))], capture_output=True
                ).returncode:
                    assert time.monotonic() < deadline, f"{name} cannot be made {how}"
                    time.sleep(0.05)

            return mount

        self._while_running(remount("ro"), remount("rw"))

    def disk_full(self, name: str) -> None:
        filler = self.root(name) / "filler"

        def fill() -> None:
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"\0" * 4096)
                except OSError:
                    return

        self._while_running(fill, filler.unlink)

    def leader_paused(self, _: str) -> None:
        """A run sleeps at any moment of its work, another one does it elsewhere, the first wakes up and goes on."""
        paused = self.start()
        time.sleep(self.dice.uniform(0.5, MOST_OF_A_RUN_SECONDS))
        paused.send_signal(signal.SIGSTOP)
        leader = self._leader()
        if leader is not None:
            self.placement().memory.set_standing(leader, Standing.FAILED)
        self.finish(self.start())
        paused.send_signal(signal.SIGCONT)
        self.finish(paused)
        if leader is not None:
            self.placement().memory.set_standing(leader, Standing.IN_USE)

    def two_runs(self, _: str) -> None:
        one, other = self.start(), self.start()
        self.finish(one)
        self.finish(other)

    def emptied(self, name: str) -> None:
        """A domain loses all it had; an operator gives it its new, empty root."""

        def empty() -> None:
            for part in self.root(name).iterdir():
                shutil.rmtree(part, ignore_errors=True) if part.is_dir() else part.unlink()

        self._while_running(empty, lambda: None)
        placement = self.placement()
        placement.heal(name, new_root=True)
        placement.place(Stage.INGEST)

    def file_cut(self, name: str) -> None:
        files = sorted((self.root(name) / "tables").rglob("*.parquet"))
        if files:
            self._change(self.dice.choice(files), lambda content: content[: len(content) // 2])
        self.finish(self.start())

    def entry_changed(self, name: str) -> None:
        """Somebody edits a published log entry by hand."""
        entries = sorted((self.root(name) / "tables").glob("*/g*/_delta_log/*.json"))
        if entries:
            self._change(self.dice.choice(entries), lambda content: content.replace(b'"', b"'", 1))
        self.finish(self.start())

    def failed_by_hand(self, name: str) -> None:
        memory = self.placement().memory
        self._while_running(
            lambda: memory.set_standing(name, Standing.FAILED),
            lambda: memory.set_standing(name, Standing.IN_USE),
        )

    def _while_running(self, begin: Callable[[], Any], end: Callable[[], Any]) -> None:
        run = self.start()
        time.sleep(self.dice.uniform(0.0, MOST_OF_A_RUN_SECONDS))
        begin()
        self.finish(run)
        # What happens while a domain is away must not need it.
        if self.dice.random() < 0.5:
            self.finish(self.start())
        end()

    def _aside(self) -> Path:
        aside = self.home / "aside"
        aside.mkdir(exist_ok=True)
        return aside

    def _leader(self) -> str | None:
        noted = self.acknowledged() if self.notes.exists() else []
        return noted[-1]["domain"] if noted else None

    @staticmethod
    def _change(file: Path, change: Callable[[bytes], bytes]) -> None:
        # A copy of its own first: folders may share files by hard links.
        content = change(file.read_bytes())
        file.unlink()
        file.write_bytes(content)

    # How it comes back

    def settle(self) -> None:
        """What the sensor and an operator do: look at domains with fresh eyes, keep replicas, rebuild broken ones; then a
        run that nothing befalls.
        """
        for name in NAMES:
            self.placement().heal(name)
        self.repair()
        code = self.finish(self.start())
        assert code == 0, self.last_log()
        self.repair()

    def repair(self) -> None:
        problems: list[Any] = []
        for _ in range(12):
            placement = self.placement()
            problems = [kept for kept in keep_replicas(placement) if kept.problem]
            problems += [problem for name in STEPS for problem in self._rebuild(placement, name)]
            if not problems:
                return
            time.sleep(0.3)
        raise AssertionError(f"not repaired: {problems}")

    @staticmethod
    def _rebuild(placement: Placement, name: str) -> list[str]:
        """Build the broken replicas of a table anew, from a domain that is whole. What is still wrong."""
        try:
            seen = platform_table(name, placement.reader()).replication
            if seen is None or not seen.exists():
                return []
            broken = {domain: what for domain, what in seen.broken().items() if what}
            whole = [each for each in placement.domains if each.name not in broken]
            for domain in broken:
                mirrored = platform_table(name, whole[0]).replication
                assert mirrored is not None
                mirrored.rebuild(domain)
        except (EtlAssetsError, MembershipRefused) as error:
            return [f"{name}: {error}"]
        return [f"{name}: {broken}"] if broken else []

    # What must hold

    def check(self) -> None:
        """Everything landed is in the tables once, everything acknowledged is in the log, all replicas are the same."""
        logs = {name: self._logs(name) for name in NAMES}
        assert logs[NAMES[0]] == logs[NAMES[1]] == logs[NAMES[2]]
        for note in self.acknowledged():
            entry = logs[NAMES[0]][note["table"]][note["version"]]
            assert hashlib.sha256(entry).hexdigest() == note["entry"], note
        for name in STEPS:
            rows = self.rows(name)
            ids = [row["event_id"] for row in rows]
            assert sorted(ids) == sorted(self.landed), name
            if name != "warehouse_rows":
                assert sorted(row["offset"] for row in rows) == list(range(len(rows))), name

    def rows(self, table: str, domain: str = NAMES[0]) -> list[dict[str, Any]]:
        from deltalake import DeltaTable

        found = platform_table(table, self.domain(domain))
        version = found.version()
        return DeltaTable(str(found.path), version=version).to_pyarrow_dataset().to_table().to_pylist()

    def _logs(self, domain: str) -> dict[str, list[bytes]]:
        logs = {}
        for contract in ALL_TABLES:
            table = platform_table(contract.name, self.domain(domain))
            if (version := table.version()) >= 0:
                assert table.path.is_relative_to(self.root(domain)), f"{table.name} is not read from {domain}"
                logs[table.name] = [
                    entry_path(table.path, number).read_bytes() for number in range(version + 1)
                ]
        return logs

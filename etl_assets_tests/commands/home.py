"""An installation as its user meets it: a home folder, commands in processes of their own, tables read by
delta-rs.

Belongs here: starting commands, ending and killing them, and reading tables. Imports nothing from the
package. Does not belong here: what the tables must hold (`expected.py`, `campaign/reference.py`).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
SPARK = {
    "master": "local[2]",
    "driver_memory": "1g",
    "start": "quick",
    "config": {
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    },
}
SETTINGS: dict[str, Any] = {
    "landing": {"settle_seconds": 0},
    "spark": SPARK,
    "worker": {"batch_interval_seconds": 0.2, "derived_interval_seconds": 0.5, "report_interval_seconds": 2},
}
"""Settings for small data; a platform file in JSON is YAML too."""

_TABLE_FOLDER = re.compile(r"g(\d{6})")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """A command that has ended. `code` is negative after a signal."""

    command: str
    code: int
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        """All that a failing test should show."""
        return (
            f"$ {self.command}\nexit code {self.code} after {self.seconds:.1f}"
            f" s\n{self.out[-3000:]}\n{self.err[-6000:]}"
        )


@dataclass(slots=True)
class Running:
    """A command in a process group of its own, its output in files: a pipe would be held open by what it
    leaves.
    """

    command: str
    home: Path
    process: subprocess.Popen[bytes]
    log: Path
    began: float = field(default_factory=time.monotonic)

    def wait(self, seconds: float) -> StepOutcome | None:
        """The command once it has ended, None if it has not by then."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        return StepOutcome(
            command=self.command,
            code=code,
            out=self.log.with_suffix(".out").read_text("utf-8", errors="replace"),
            err=self.err,
            seconds=time.monotonic() - self.began,
        )

    def ended(self, seconds: float) -> StepOutcome:
        """The command once it has ended; one that hangs is killed, and fails the test."""
        if (done := self.wait(seconds)) is None:
            self.send(signal.SIGKILL)
            self.process.wait()
            raise AssertionError(f"$ {self.command}\nhas not ended after {seconds} s\n{self.err[-4000:]}")
        return done

    @property
    def err(self) -> str:
        """What it has said so far."""
        return self.log.with_suffix(".err").read_text("utf-8", errors="replace")

    def members(self) -> list[tuple[int, str]]:
        """Processes of its group, each with its command line: itself, its JVM, Python workers."""
        return sorted(members_of(self.process.pid, self.home))

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of its group."""
        for pid, _ in self.members():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def sweep(self) -> None:
        """End what a killed command has left: it would follow by itself within seconds."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)


def members_of(group: int, home: Path) -> Iterator[tuple[int, str]]:
    """The processes of a group that are alive, with their command lines.

    Only those that work for this home folder: a group that has ended may have left its number to another one.
    """
    ours = f"ETL_ASSETS_HOME={home}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            after_name = (folder / "stat").read_text("utf-8", errors="replace").rpartition(")")[2].split()
            if int(after_name[2]) != group or after_name[0] == "Z":
                continue
            if ours in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                yield int(folder.name), command


@dataclass(slots=True, kw_only=True)
class Home:
    """A home folder, its commands and its tables."""

    path: Path
    settings: dict[str, Any] = field(default_factory=dict)
    history: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def begin(self, **settings: Any) -> Home:
        """Write the platform file."""
        self.settings = {**SETTINGS, **settings}
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "platform.yaml").write_text(json.dumps(self.settings, indent=1), "utf-8")
        return self

    def copy(self, path: Path) -> Home:
        """Another home with all that this one has."""
        shutil.copytree(self.path, path, symlinks=True)
        return Home(path=path, settings=self.settings)

    @property
    def landing(self) -> Path:
        return self.path / "landing"

    def land(self, day: str, name: str, content: bytes | str) -> Path:
        """A whole file, renamed into its day."""
        folder = self.landing / day
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{name}"
        hidden.write_bytes(content if isinstance(content, bytes) else content.encode())
        return hidden.rename(folder / name)

    # Commands

    def start(self, *arguments: str, failpoint: str = "", program: str = "etl-assets") -> Running:
        """Start a command in a fresh process, which leads a group of its own."""
        shown = " ".join([program, *arguments]) + (f"   # dies at {failpoint}" if failpoint else "")
        self.history.append(shown)
        log = self.path.parent / f"{self.path.name}-logs" / f"{next(self._numbers):04d}-{arguments[0]}"
        log.parent.mkdir(exist_ok=True)
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ETL_ASSETS_", "DAGSTER_"))
        }
        if jars := os.environ.get("ETL_ASSETS_JARS"):
            environment["ETL_ASSETS_JARS"] = jars
        environment |= {
            "ETL_ASSETS_HOME": str(self.path),
            "ETL_ASSETS_FAILPOINT": failpoint,
            "DAGSTER_HOME": str(self.path / "dagster"),
            "COLUMNS": "200",
        }
        with log.with_suffix(".out").open("wb") as out, log.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                [BIN / program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
                cwd=self.path.parent,
                start_new_session=True,
            )
        return Running(command=shown, home=self.path, process=process, log=log)

    def call(
        self, *arguments: str, failpoint: str = "", program: str = "etl-assets", seconds: float = 240
    ) -> StepOutcome:
        """Run a command to its end, and end what it has left."""
        running = self.start(*arguments, failpoint=failpoint, program=program)
        try:
            return running.ended(seconds)
        finally:
            running.sweep()

    # Tables

    def folder(self, table: str, root: str = "data") -> Path | None:
        """Where a table lies under a root: its newest generation; None if there is none yet."""
        found = sorted(
            path
            for path in (self.path / root / "tables" / table).glob("g*")
            if _TABLE_FOLDER.fullmatch(path.name) and (path / "_delta_log").is_dir()
        )
        return found[-1] if found else None

    def rows(
        self, table: str, columns: Sequence[str] | None = None, root: str = "data"
    ) -> list[dict[str, Any]]:
        """All rows of a table; none if it is not there yet."""
        from deltalake import DeltaTable

        if (folder := self.folder(table, root)) is None:
            return []
        found = DeltaTable(str(folder)).to_pyarrow_dataset().to_table(columns=columns)
        return found.to_pylist()

    def alerts(self) -> list[dict[str, Any]]:
        """Lines of alerts.jsonl."""
        path = self.path / "alerts.jsonl"
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []

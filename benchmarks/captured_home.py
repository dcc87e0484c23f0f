"""An installation whose worker follows the tables of one PostgreSQL database by a capture.

Belongs here: declaring it, starting its worker, and the phases of its tables. Does not belong here: what is
measured (`cases/`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.measure import ScriptFailed

if TYPE_CHECKING:
    from benchmarks.options import Options

CAPTURE = "shop"
_POLL_SECONDS, _LEAVE_SECONDS = 0.5, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedHome:
    """The installation.

    Attributes:
        folder: Its home folder.
        address: URL of the database.
    """

    folder: Path
    address: str

    def declare(self, options: Options, *, worker: dict[str, Any] | None = None, **capture: Any) -> None:
        """Write the platform file and the capture of all tables of the schema public."""
        import yaml

        parts = urlsplit(self.address)
        connection = {
            "type": "postgres",
            "host": parts.hostname,
            "port": parts.port,
            "database": parts.path.removeprefix("/"),
            "user": parts.username,
            "password": "${BENCH_PASSWORD}",
        }
        platform = {
            "connections": {CAPTURE: connection},
            "pipelines": {"built_in": []},
            "spark": {"master": options.master, "config": dict(options.spark)},
            "worker": worker or {},
        }
        spec = {"connection": CAPTURE, "publication": CAPTURE, "slot": CAPTURE, "tables": ["public.*"]}
        (self.folder / "captures").mkdir(parents=True)
        (self.folder / "platform.yaml").write_text(yaml.safe_dump(platform), "utf-8")
        (self.folder / "captures" / f"{CAPTURE}.yaml").write_text(yaml.safe_dump(spec | capture), "utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a process that works on it."""
        password = urlsplit(self.address).password or ""
        return {**os.environ, "ETL_ASSETS_HOME": str(self.folder), "BENCH_PASSWORD": password}

    @contextmanager
    def worker(self) -> Generator[subprocess.Popen[bytes]]:
        """Run `etl-assets worker` during a block; what it logs is in `worker.log` of the home folder."""
        with (self.folder / "worker.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "etl_assets.cli.main", "worker"],
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(_LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def phases(self) -> Counter[str]:
        """Return how many tables are in each phase."""
        from etl_assets.captures import states_of
        from etl_assets.settings import load_settings

        settings = load_settings(self.environment)
        return Counter(each.phase.value for each in states_of(settings, CAPTURE))

    def until_ready(self, tables: int, seconds: float) -> None:
        """Wait until so many tables are ready.

        Raises:
            ScriptFailed: they are not in time.
        """
        deadline = time.monotonic() + seconds
        while (phases := self.phases())["ready"] < tables:
            if time.monotonic() > deadline:
                raise ScriptFailed(f"after {seconds:.0f} s the tables are in the phases {dict(phases)}")
            time.sleep(_POLL_SECONDS)

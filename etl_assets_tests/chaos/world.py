"""A platform of three domains with small roots of their own, the runs that work on it, and how it comes back.

Not here: what befalls it (`troubles.py`, `roots.py`), and what must hold afterwards (`checks.py`).
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from etl_assets.contracts.columns import TableContract
from etl_assets.delta.replicated.replication import Replication
from etl_assets.errors import EtlAssetsError
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.replicas.reconcile import reconcile_replicas
from etl_assets.settings import load_settings
from etl_assets.steps.step import platform_table
from etl_assets_tests.chaos.parts import Parts
from etl_assets_tests.chaos.roots import Bucket, Disk, Root
from etl_assets_tests.chaos.run_process import Run
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.pipeline import DAY, NEXT_DAY, event

DAYS = (DAY, NEXT_DAY)
EVENTS_A_ROUND = 20
RUN_SECONDS = 150


@dataclass
class World:
    """The platform under fire. `dice` decides everything that is left to chance."""

    home: Path
    gateway: Gateway
    dice: random.Random
    roots: tuple[Root, ...]
    landed: list[str] = field(default_factory=list)
    days: list[dt.date] = field(default_factory=list)
    befell: Counter[str] = field(default_factory=Counter)
    runs: list[Run] = field(default_factory=list)
    parts: Parts = field(init=False)
    """The declared pipeline beside orders."""
    run_seconds: float = 0.0
    """How long the last run took that nothing befell: one that found little to do, on the machine as it
    is.
    """

    def __post_init__(self) -> None:
        self.parts = Parts(home=self.home, dice=random.Random(self.dice.random()))

    def begin(self) -> None:
        """Make the platform, and take its roots into use."""
        for root in self.roots:
            root.begin()
        domains = [{"name": root.name, "root": root.uri} for root in self.roots]
        (self.home / "platform.yaml").write_text(yaml.safe_dump({"domains": domains}), "utf-8")
        self.parts.begin()
        self.placement().place(PlacementClass.INGEST)

    def end(self) -> None:
        for run in self.runs:
            run.kill()
        for root in self.roots:
            root.end()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(root.name for root in self.roots)

    @property
    def disks(self) -> tuple[Disk, ...]:
        return tuple(root for root in self.roots if isinstance(root, Disk))

    @property
    def bucket(self) -> Bucket | None:
        return next((root for root in self.roots if isinstance(root, Bucket)), None)

    @property
    def tables(self) -> tuple[TableContract, ...]:
        """All tables of the installation."""
        return tuple(load_settings().catalog().tables)

    def placement(self) -> Placement:
        return load_settings().placement()

    def replication(self, table: str, domain: FailureDomain) -> Replication:
        found = platform_table(table, domain).replication
        assert found is not None
        return found

    # What goes on

    def land(self) -> None:
        """One more file for each pipeline: new events, and one that came before."""
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
        self.parts.land(day)

    def start(self, failpoint: str = "") -> Run:
        """Start a run."""
        environment = {**os.environ, "ETL_ASSETS_HOME": str(self.home), "ETL_ASSETS_FAILPOINT": failpoint}
        run = Run(self._log(len(self.runs)), environment, self.home, DAYS, self.gateway, self.notes)
        self.runs.append(run)
        return run

    def finish(self, run: Run) -> int | None:
        """Wait for a run; one that hangs is ended."""
        if run.wait(RUN_SECONDS) is None:
            self.befell["hung"] += 1
            run.kill()
        return run.wait()

    @property
    def notes(self) -> Path:
        return self.home / "acknowledged.jsonl"

    def acknowledged(self) -> list[dict[str, Any]]:
        """What runs reported as acknowledged."""
        return [json.loads(line) for line in self.notes.read_text("utf-8").splitlines()]

    def _log(self, number: int) -> Path:
        return self.home / f"run-{number:04d}.log"

    def last_log(self) -> str:
        return self._log(len(self.runs) - 1).read_text("utf-8", errors="replace")[-3_000:]

    # How it comes back

    def settle(self, *, emptied: str | None = None) -> None:
        """What the sensor and an operator do: look at domains with fresh eyes, keep replicas, rebuild broken
        ones; then a run that nothing befalls.

        Args:
            emptied: The domain that lost all it had; its root is taken for a new one.
        """
        for name in self.names:
            self.placement().heal(name, new_root=name == emptied)
        self.placement().place(PlacementClass.INGEST)
        self.repair(self._kept, self._rebuilt)
        began = time.monotonic()
        code = self.finish(self.start())
        assert code == 0, self.last_log()
        self.run_seconds = time.monotonic() - began
        self.parts.epoch += 1
        self.repair(self._kept)

    @staticmethod
    def repair(*rounds: Callable[[], list[str]]) -> None:
        """Go round until nobody names a problem any more."""
        for _ in range(12):
            problems = [problem for go_round in rounds for problem in go_round()]
            if not problems:
                return
            time.sleep(0.3)
        raise AssertionError(f"not repaired: {problems}")

    def _kept(self) -> list[str]:
        """One round of the sensor."""
        return [str(kept) for kept in reconcile_replicas(self.placement()) if kept.problem]

    def _rebuilt(self) -> list[str]:
        """Build the broken replicas anew, from a domain that is whole, as an operator does."""
        placement, problems = self.placement(), []
        for table in self.tables:
            try:
                self._rebuild(placement, table.name)
            except EtlAssetsError as error:
                problems.append(f"{table.name}: {error}")
        return problems

    def compare_bytes(self) -> None:
        """Put the bytes that most replicas have in the place of others, as an operator does."""
        for table in self.tables:
            mirrored = self.replication(table.name, self.placement().reader())
            for each in mirrored.differing() if mirrored.exists() else ():
                mirrored.repair_files(each)

    def _rebuild(self, placement: Placement, table: str) -> None:
        seen = self.replication(table, placement.reader())
        broken = {domain for domain, what in seen.broken().items() if what} if seen.exists() else set()
        if broken:
            whole = next(domain for domain in placement.domains if domain.name not in broken)
            for domain in broken:
                self.replication(table, whole).rebuild(domain)

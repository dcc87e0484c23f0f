"""A worker works on several pipelines at the same time: one that hangs keeps no other one waiting."""

from __future__ import annotations

import datetime as dt
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from etl_assets_tests.control.warm_commands import WarmCommands, is_alive, kill
from etl_assets_tests.kill.dying_run import Gateway

pytestmark = [pytest.mark.spark, pytest.mark.kill]

PIPELINES = ("slow", "quick")


@dataclass(kw_only=True)
class Shop:
    """A home folder with two pipelines, `slow` first by its priority, and what has landed."""

    home: Path
    commands: WarmCommands
    landed: dict[str, Counter[int]] = field(default_factory=lambda: {each: Counter() for each in PIPELINES})

    def worker(self, **environment: str) -> int:
        home = {"ETL_ASSETS_HOME": str(self.home), "ETL_ASSETS_FAILPOINT": ""}
        return self.commands.start(("worker",), {**home, **environment}, self.home / "log")

    def land(self, pipeline: str) -> None:
        first = len(self.landed[pipeline])
        ids = range(first, first + 10)
        hidden = self.home / "in" / pipeline / f".{first}"
        hidden.write_text("id\n" + "".join(f"{each}\n" for each in ids))
        hidden.rename(hidden.with_name(f"{first:03}.csv"))
        self.landed[pipeline].update(ids)

    def rows(self, table: str, column: str = "id") -> Counter[int]:
        folders = sorted((self.home / "data" / "tables" / table).glob("g*"))
        if not folders or not any((folders[-1] / "_delta_log").glob("0*.json")):
            return Counter()
        found = DeltaTable(str(folders[-1])).to_pyarrow_dataset().to_table(columns=[column])
        return Counter(map(int, found[column].to_pylist()))

    def until(self, what: Callable[[], bool], why: str) -> None:
        deadline = time.monotonic() + 120
        while not what():
            assert time.monotonic() < deadline, f"{why}\n{(self.home / 'log').read_text()[-4_000:]}"
            time.sleep(0.05)


def declare(home: Path) -> None:
    platform: dict[str, Any] = {
        "start_date": dt.datetime.now(dt.UTC).date() - dt.timedelta(days=1),
        "pipelines": {"built_in": []},
        "domains": [{"name": "local", "root": str(home / "data")}],
        "spark": {"master": "local[2]"},
        "worker": {"parallel": 2, "batch_interval_seconds": 0.05, "derived_interval_seconds": 0.1},
    }
    (home / "pipelines").mkdir()
    (home / "platform.yaml").write_text(yaml.safe_dump(platform), "utf-8")
    for name in PIPELINES:
        (home / "in" / name).mkdir(parents=True)
        path = str(home / "in" / name / "*.csv")
        declaration = {
            "name": name,
            "source": {"type": "files", "path": path, "settle_seconds": 0, "id": ["id"]},
            "columns": {"id": "bigint"},
            "table": {"keys": ["id"]},
            "priority": 1 if name == "slow" else 0,
        }
        (home / "pipelines" / f"{name}.yaml").write_text(yaml.safe_dump(declaration), "utf-8")


def test_a_pipeline_that_hangs_keeps_no_other_waiting_and_a_restart_counts_all_once(spark, tmp_path):
    declare(tmp_path)
    with WarmCommands(None, Gateway.of(spark)) as commands:
        shop = Shop(home=tmp_path, commands=commands)
        for name in PIPELINES:
            shop.land(name)
        # 1. One pipeline hangs in the middle of a step; rows of the other one arrive, again and again.
        pid = shop.worker(ETL_ASSETS_FAILPOINT="hold:table.before_commit@slow_source")
        for _ in range(2):
            shop.until(lambda: shop.rows("quick") == shop.landed["quick"], "quick waits for slow")
            shop.land("quick")
        assert shop.rows("slow_source", "record_id") == Counter()
        # 2. It is killed, and started again: both are carried to their ends, and every record counts once.
        kill(pid)
        pid = shop.worker()
        shop.land("slow")
        for name in PIPELINES:
            shop.until(lambda name=name: shop.rows(name) >= shop.landed[name], f"{name} is not done")
        # 3. It leaves at a signal.
        os.kill(pid, signal.SIGTERM)
        shop.until(lambda: not is_alive(pid), "it does not leave")
        for name in PIPELINES:
            assert shop.rows(name) == shop.rows(f"{name}_source", "record_id") == shop.landed[name]


@pytest.mark.full  # the test above has a signal too, to a worker that waits for nothing
def test_it_leaves_at_a_signal_also_while_a_pipeline_hangs(spark, tmp_path):
    declare(tmp_path)
    with WarmCommands(None, Gateway.of(spark)) as commands:
        shop = Shop(home=tmp_path, commands=commands)
        for name in PIPELINES:
            shop.land(name)
        pid = shop.worker(ETL_ASSETS_FAILPOINT="hold:table.before_commit@slow_source")
        shop.until(lambda: shop.rows("quick") == shop.landed["quick"], "quick waits for slow")
        began = time.monotonic()
        os.kill(pid, signal.SIGTERM)
        shop.until(lambda: not is_alive(pid), "it does not leave")
        assert time.monotonic() - began < 30

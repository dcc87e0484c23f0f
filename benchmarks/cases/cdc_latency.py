"""cdc_latency: four captured tables whose rows a client changes at a steady 1,000 changes a second: how long
after its commit a change is in an acknowledged version of its table, and what is held back meanwhile.

`pgbench` makes 250 transactions a second, each with one change of each table. The clock of a change begins
with its commit, by the server's clock, and ends when a version of the table that has it is seen; that is
looked for four times a second. Every change counts, but those of the first `WARM_SECONDS`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.captured_home import CAPTURE, CapturedHome
from benchmarks.log_arrivals import LogArrivals, Sampler, folder_bytes
from benchmarks.measure import ScriptFailed, empty_folder
from benchmarks.options import Options
from benchmarks.peers import PeerUnavailable
from benchmarks.processes import machine_cpu_seconds, tree_cpu_seconds, tree_resident_bytes
from benchmarks.report import Figure, figure

if TYPE_CHECKING:
    from psycopg import Connection

    from etl_assets.placement.domains import FailureDomain

CASE = "cdc_latency"
TRANSACTIONS, CLIENTS = 250, 4
WARM_SECONDS = 90
P50_SECONDS_TARGET, P99_SECONDS_TARGET = 3.0, 10.0
GROWTH_TARGET = 1.2
TABLES = ("account", "teller", "branch", "entry")
SCHEMA = (
    "CREATE TABLE account (id bigint PRIMARY KEY, owner text, balance bigint, changed timestamptz)",
    "INSERT INTO account SELECT i, 'owner ' || i, 0, now() FROM generate_series(1, 100000) i",
    "CREATE TABLE teller (id bigint PRIMARY KEY, balance bigint, changed timestamptz)",
    "INSERT INTO teller SELECT i, 0, now() FROM generate_series(1, 1000) i",
    "CREATE TABLE branch (id bigint PRIMARY KEY, balance bigint, changed timestamptz)",
    "INSERT INTO branch SELECT i, 0, now() FROM generate_series(1, 100) i",
    "CREATE TABLE entry (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, account bigint, teller bigint,"
    " branch bigint, balance bigint, made timestamptz)",
)
TRANSACTION = r"""
\set account random(1, 100000)
\set teller random(1, 1000)
\set branch random(1, 100)
\set amount random(-5000, 5000)
BEGIN;
UPDATE account SET balance = balance + :amount, changed = now() WHERE id = :account;
UPDATE teller SET balance = balance + :amount, changed = now() WHERE id = :teller;
INSERT INTO entry (account, teller, branch, balance, made)
  VALUES (:account, :teller, :branch, :amount, now());
UPDATE branch SET balance = balance + :amount, changed = now() WHERE id = :branch;
END;
"""
_LOOK_SECONDS, _SAMPLE_SECONDS = 0.25, 2.0
_READY_SECONDS, _LATE_SECONDS = 300.0, 180.0
_HELD = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8 FROM pg_replication_slots"


class NotOnce(Exception):
    """A change is missing, or there more than once: the times say nothing."""


@dataclass(slots=True, kw_only=True)
class _Samples:
    """What was held back, and when."""

    session: Connection
    worker: int
    spool: Path
    times: list[float] = field(default_factory=list)
    log: list[int] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    spooled: list[int] = field(default_factory=list)

    def take(self) -> None:
        row = self.session.execute(_HELD).fetchone()
        assert row is not None  # the capture has its slot
        self.times.append(time.time())
        self.log.append(row[0])
        self.resident.append(tree_resident_bytes(self.worker))
        self.spooled.append(folder_bytes(self.spool))

    def within(self, values: Sequence[int], begin: float, end: float) -> float:
        """Return the median of a time, in 10^6 bytes."""
        found = [value for at, value in zip(self.times, values, strict=True) if begin <= at < end]
        return statistics.median(found) / 1e6


def run(options: Options) -> list[Figure]:
    """Measure the case; each run takes `--seconds`, the warm-up and half a minute."""
    client = _client()
    runs = []
    for number in range(options.runs):
        print(f"  run {number + 1} of {options.runs} ...", file=sys.stderr, flush=True)
        runs.append(_run_once(options, options.folder / CASE, client))
    return [_median(of_metric) for of_metric in zip(*runs, strict=True)]


def _median(runs: Sequence[Figure]) -> Figure:
    """A figure of several runs: the median of both sides, whose ratio is judged."""
    one = runs[0]
    return figure(
        CASE,
        one.metric,
        statistics.median(each.ours for each in runs),
        None if one.other is None else statistics.median(each.other or 0.0 for each in runs),
        load=statistics.median(each.load for each in runs),
        target=one.target,
    )


def _client() -> Path:
    from etl_assets.stack.postgres import find_binaries

    found = find_binaries() / "pgbench"
    if not found.is_file():
        raise PeerUnavailable(f"{found} is not there: install PostgreSQL's client programs")
    return found


def _run_once(options: Options, work: Path, client: Path) -> list[Figure]:
    import psycopg

    from etl_assets.settings import load_settings
    from etl_assets.stack.postgres import PostgresServer

    empty_folder(work)
    script = work / "transaction.sql"
    script.write_text(TRANSACTION, "utf-8")
    server: PostgresServer
    with (
        # After a checkpoint the server writes whole pages, which has nothing to do with who reads the log.
        PostgresServer(settings={"checkpoint_timeout": "1h", "max_wal_size": "4GB"}) as server,
        psycopg.connect(server.url, autocommit=True) as session,
        psycopg.connect(server.url, autocommit=True) as asked,
    ):
        for statement in SCHEMA:
            session.execute(statement.encode())
        home = CapturedHome(folder=work / "home", address=server.url)
        home.declare(options)
        with home.worker() as worker:
            home.until_ready(len(TABLES), _READY_SECONDS)
            domain = load_settings(home.environment).placement().reader()
            arrivals = LogArrivals(domain, [f"{CAPTURE}_{name}" for name in TABLES])
            samples = _Samples(session=asked, worker=worker.pid, spool=home.folder / "captured")
            threads = (Sampler(arrivals.look, _LOOK_SECONDS), Sampler(samples.take, _SAMPLE_SECONDS))
            for each in threads:
                each.start()
            began, before, all_before = time.time(), tree_cpu_seconds(os.getpid()), machine_cpu_seconds()
            ours_before = tree_cpu_seconds(worker.pid)
            made = _make_changes(client, script, server.url, WARM_SECONDS + options.seconds)
            ended = time.time()
            load = machine_cpu_seconds() - all_before - (tree_cpu_seconds(os.getpid()) - before)
            spent = tree_cpu_seconds(worker.pid) - ours_before
            _wait_for_all(session, domain)
            for each in threads:
                each.leave()
            arrivals.look()  # at the last versions
        late, slowest = _latencies(domain, arrivals, made, began)
    figures = _figures(late, samples, began, ended, load / (ended - began), spent / made / len(TABLES))
    print(f"  most seconds by table: {slowest}", file=sys.stderr)
    shutil.rmtree(work, ignore_errors=True)
    return figures


def _make_changes(client: Path, script: Path, url: str, seconds: int) -> int:
    """Change rows at a steady rate; return the number of transactions.

    Raises:
        ScriptFailed: the client failed, or was too slow.
    """
    done = subprocess.run(
        [
            *(str(client), "--no-vacuum", "--file", str(script), "--client", str(CLIENTS), "--jobs", "1"),
            *("--rate", str(TRANSACTIONS), "--time", str(seconds), url),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"number of transactions actually processed: (\d+)", done.stdout)
    if done.returncode or found is None:
        raise ScriptFailed(f"pgbench ended with {done.returncode}: {done.stderr[-2_000:]}")
    made = int(found.group(1))
    if made < 0.95 * TRANSACTIONS * seconds:
        raise ScriptFailed(f"pgbench made {made / seconds:.0f} transactions a second, not {TRANSACTIONS}")
    return made


def _wait_for_all(session: Connection, domain: FailureDomain) -> None:
    """Wait until the tables have the rows of the source.

    Raises:
        ScriptFailed: they have not in time.
    """
    from etl_assets.query.sql import run_query

    asked = "SELECT count(*), sum(balance), sum(id % 97 * (balance % 1009)) FROM "
    deadline = time.monotonic() + _LATE_SECONDS
    for name in TABLES:
        row = session.execute(f"{asked}{name}".encode()).fetchone()
        assert row is not None  # an aggregate has one row
        source = tuple(map(int, row))
        while True:
            (found,) = run_query(f"{asked}{CAPTURE}_{name}", domain).reader.read_all().to_pylist()
            if tuple(found.values()) == source:
                break
            if time.monotonic() > deadline:
                raise ScriptFailed(f"{name} has {tuple(found.values())}, not {source}")
            time.sleep(1)


def _latencies(
    domain: FailureDomain, arrivals: LogArrivals, made: int, began: float
) -> tuple[np.ndarray, Mapping[str, float]]:
    """Return the latencies of all changes after the warm-up, and the longest one of each table.

    Raises:
        NotOnce: the records do not have every change once.
    """
    from deltalake import DeltaTable

    from etl_assets.steps.step import platform_table

    found, slowest = [], {}
    for name in TABLES:
        table = platform_table(f"{CAPTURE}_{name}_source", domain)
        rows = DeltaTable(str(table.path), version=table.version()).to_pyarrow_dataset()
        records = map(json.loads, rows.to_table(columns=["record"]).column("record").to_pylist())
        changes = {
            (each["postgres.lsn"], each["postgres.sequence"]): each["postgres.committed_at"]
            for each in records
            if each["postgres.operation"] in ("insert", "update")
        }
        if len(changes) != made:
            raise NotOnce(f"{name} has {len(changes):,} changes, not {made:,}")
        commits = np.array([lsn for lsn, _ in changes])
        times = np.array([dt.datetime.fromisoformat(each).timestamp() for each in changes.values()])
        late = arrivals.latencies(f"{CAPTURE}_{name}", commits, times)[times >= began + WARM_SECONDS]
        found.append(late)
        slowest[name] = round(float(late.max()), 2)
    return np.concatenate(found), slowest


def _figures(
    late: np.ndarray, samples: _Samples, began: float, ended: float, load: float, cpu: float
) -> list[Figure]:
    warm = began + WARM_SECONDS
    window = min(120.0, (ended - warm) / 4)

    def grown(metric: str, values: Sequence[int]) -> Figure:
        early = samples.within(values, warm, warm + window)
        return figure(
            CASE,
            f"{metric}_megabytes_at_the_end_by_the_start",
            samples.within(values, ended - window, ended),
            early,
            load=load,
            target=GROWTH_TARGET,
        )

    return [
        figure(CASE, "latency_p50_seconds", _quantile(late, 0.5), load=load, target=P50_SECONDS_TARGET),
        figure(CASE, "latency_p99_seconds", _quantile(late, 0.99), load=load, target=P99_SECONDS_TARGET),
        figure(CASE, "latency_most_seconds", _quantile(late, 1.0), load=load),
        grown("retained_log", samples.log),
        grown("resident", samples.resident),
        figure(CASE, "retained_log_megabytes_most", max(samples.log) / 1e6, load=load),
        figure(CASE, "resident_megabytes_most", max(samples.resident) / 1e6, load=load),
        figure(CASE, "spool_megabytes_most", max(samples.spooled) / 1e6, load=load),
        figure(CASE, "changes_per_second", len(late) / (ended - warm), load=load),
        figure(CASE, "cpu_seconds_per_1000_changes", cpu * 1_000, load=load),
    ]


def _quantile(late: np.ndarray, share: float) -> float:
    return float(np.quantile(late, share))

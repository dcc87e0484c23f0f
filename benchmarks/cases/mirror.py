"""mirror: the time from the end of Spark's commit to its acknowledgement, on three folders of this machine, and from the
loss of the leader's folder to the first commit acknowledged elsewhere.

A small commit (10 rows: one data file of 4 kB), at 10 and at 10,000 versions of the table. No Spark: the log entry and its
data file are written as Spark would. The disks' fsync is most of it. Then the time to open the table, with the checkpoints that
whoever looks after it makes, and without any.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.measure import empty_folder
from benchmarks.options import Options
from benchmarks.report import Figure, figure
from etl_assets.delta.replication import Replication
from etl_assets.delta.table import Snapshot
from etl_assets.mirroring.checkpoints import EVERY
from etl_assets.mirroring.locator import Role
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.memory import DomainsMemory
from etl_assets.placement.site import Site

CASE = "mirror"
VERSIONS = 10_000
MILLISECONDS_TARGET = 50.0
GROWTH_TARGET = 1.2
RECOVERY_SECONDS_TARGET = 5.0
OPENING_TARGET = 0.33
_COMMITS = 41
_LOSSES = 9
_NAMES = "abc"
_DATA = b"x" * 4_000
_ADDED = {"modificationTime": 0, "dataChange": True, "stats": '{"numRecords":10}'}
_SCHEMA = {
    "type": "struct",
    "fields": [{"name": "event_id", "type": "string", "nullable": True, "metadata": {}}],
}
_FIRST = (
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {
        "metaData": {
            "id": "6f2d6f1e-7f0c-4f5c-9d0e-0c7d3b9f3a10",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_SCHEMA),
            "partitionColumns": [],
            "configuration": {},
        }
    },
)


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    work = empty_folder(options.folder / CASE)
    _take_roots(work)
    table = _table(work, "a")
    table.create()
    _milliseconds(table, 10)
    few = _milliseconds(table, _COMMITS)
    _milliseconds(table, VERSIONS - 10 - 2 * _COMMITS)
    many = _milliseconds(table, _COMMITS)
    recovery = _recovery_seconds(work)
    checkpoints = _checkpoint_milliseconds(table)
    opened, replayed = _opening_milliseconds(table, work / "without")
    shutil.rmtree(work, ignore_errors=True)
    at_few, at_many = statistics.median(few), statistics.median(many)
    return [
        figure(CASE, "acknowledge_milliseconds", at_many, load=0.0, target=MILLISECONDS_TARGET),
        figure(CASE, "acknowledge_milliseconds_grown", at_many, at_few, load=0.0, target=GROWTH_TARGET),
        figure(
            CASE,
            "recovery_seconds",
            statistics.median(recovery),
            load=0.0,
            target=RECOVERY_SECONDS_TARGET,
        ),
        figure(CASE, "recovery_seconds_at_most", max(recovery), load=0.0),
        figure(CASE, "open_milliseconds", opened, replayed, load=0.0, target=OPENING_TARGET),
        figure(CASE, "checkpoint_milliseconds", checkpoints, load=0.0),
    ]


def _sites(work: Path) -> tuple[Site, ...]:
    return tuple(Site(name=name, root=str(work / name), role=Role.VOTER) for name in _NAMES)


def _take_roots(work: Path) -> None:
    memory = DomainsMemory(work / "domains.json")
    for site in _sites(work):
        memory.take(site.name, site.root)


def _table(work: Path, home: str) -> Replication:
    """The table as a process that works in a domain sees it."""
    return Replication("events", FailureDomain(name=home, root=work / home, sites=_sites(work)))


def _recovery_seconds(work: Path) -> list[float]:
    """Take the leader's folder away, again and again; how long until another domain has a commit acknowledged."""
    found = []
    for loss in range(_LOSSES):
        leader, successor = _NAMES[loss % len(_NAMES)], _NAMES[(loss + 1) % len(_NAMES)]
        away = (work / leader).rename(work / "away")
        began = time.perf_counter()
        table = _table(work, successor)
        _milliseconds(table, 1)
        found.append(time.perf_counter() - began)
        away.rename(work / leader)
        table.follow()
    return found


def _checkpoint_milliseconds(table: Replication) -> float:
    """The next checkpoint in all replicas, made of the last one."""
    table.checkpoint()
    _milliseconds(table, EVERY)
    table.follow()
    began = time.perf_counter()
    table.checkpoint()
    return (time.perf_counter() - began) * 1_000


def _opening_milliseconds(table: Replication, copy: Path) -> tuple[float, float]:
    """The table opened with its checkpoints, and a copy of its log without."""
    lead = table.lead()
    log = table.folder(lead) / "_delta_log"
    shutil.copytree(
        log, copy / "_delta_log", ignore=shutil.ignore_patterns("*.checkpoint.parquet", "_last_checkpoint")
    )
    times: dict[Path, list[float]] = {log.parent: [], copy: []}
    for _ in range(5):
        for folder, found in times.items():
            began = time.perf_counter()
            Snapshot(DeltaTable(str(folder), version=lead.version)).row_count()
            found.append((time.perf_counter() - began) * 1_000)
    opened, replayed = (statistics.median(found) for found in times.values())
    return opened, replayed


def _milliseconds(table: Replication, commits: int) -> list[float]:
    lead, found = table.lead(), []
    for _ in range(commits):
        version, folder = lead.version + 1, table.folder(lead)
        (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
        (folder / f"part-{version}.parquet").write_bytes(_DATA)
        add = {"path": f"part-{version}.parquet", "size": len(_DATA), "partitionValues": {}}
        actions = [*(_FIRST if version == 0 else ()), {"add": {**add, **_ADDED}}]
        entry = b"".join(json.dumps(action).encode() + b"\n" for action in actions)
        (folder / "_delta_log" / f"{version:020d}.json").write_bytes(entry)
        began = time.perf_counter()
        table.acknowledge(lead, entry)
        found.append((time.perf_counter() - began) * 1_000)
        lead = table.lead()
    return found

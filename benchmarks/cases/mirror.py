"""mirror: the time from the end of Spark's commit to its acknowledgement, on three folders of this machine,
and from the loss of the leader's folder, which is gone or hangs, to the first commit acknowledged elsewhere.

A small commit (10 rows: one data file of 4 kB), at 10 and at 10,000 versions of a table, in turns. No Spark:
the log entry and its data file are written as Spark would. The disks' fsync is most of it. Then the time to
open the table, with the checkpoints that whoever looks after it makes, and without any.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from deltalake import DeltaTable

from benchmarks.measure import Load, empty_folder
from benchmarks.options import Options
from benchmarks.report import Figure, figure
from etl_assets.delta.replicated.replication import Replication
from etl_assets.delta.snapshot import Snapshot
from etl_assets.installed import built_in_catalog
from etl_assets.mirroring.protocol.checkpoints import EVERY
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.stores.circuit_breaker import DEFAULT_TIMEOUT_SECONDS
from etl_assets.pipelines.placement_class import PlacementClass
from etl_assets.placement.domain_registry import DomainRegistry
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.placement.observations import Observations
from etl_assets.placement.probes import Watch
from etl_assets.placement.site import Site
from etl_assets.testing.hanging_mount import hanging

CASE = "mirror"
VERSIONS = 10_000
MILLISECONDS_TARGET = 50.0
GROWTH_TARGET = 1.2
RECOVERY_SECONDS_TARGET = 5.0
OPENING_TARGET = 0.33
_COMMITS = 121
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
    work, load = empty_folder(options.folder / CASE), Load()
    _take_roots(work)
    long, short = (_table(work, "a", name) for name in ("long", "short"))
    for table, versions in ((long, VERSIONS - _COMMITS), (short, 10)):
        table.create()
        _milliseconds(table, versions)
    os.sync()
    sides: dict[Replication, list[float]] = {long: [], short: []}
    for turn in range(_COMMITS):
        for table, found in list(sides.items())[:: 1 if turn % 2 else -1]:
            found += _milliseconds(table, 1)
    gone = _recovery_seconds(work, _gone)
    hung = _recovery_seconds(work, hanging) if _may_mount(work) else []
    checkpoints = _checkpoint_milliseconds(_table(work, "a", "long"))
    opened, replayed = _opening_milliseconds(_table(work, "a", "long"), work / "without")
    shutil.rmtree(work, ignore_errors=True)
    at_many, at_few = (statistics.median(found) for found in sides.values())
    busy = load.cores()
    return [
        figure(CASE, "acknowledge_milliseconds", at_many, load=busy, target=MILLISECONDS_TARGET),
        figure(CASE, "acknowledge_milliseconds_grown", at_many, at_few, load=busy, target=GROWTH_TARGET),
        *_recovery("recovery_seconds", gone, busy),
        *_recovery("recovery_seconds_from_hanging", hung, busy),
        figure(CASE, "open_milliseconds", opened, replayed, load=busy, target=OPENING_TARGET),
        figure(CASE, "checkpoint_milliseconds", checkpoints, load=busy),
    ]


def _recovery(metric: str, seconds: list[float], load: float) -> list[Figure]:
    if not seconds:
        return []
    return [
        figure(CASE, metric, statistics.median(seconds), load=load, target=RECOVERY_SECONDS_TARGET),
        figure(CASE, f"{metric}_at_most", max(seconds), load=load),
    ]


def _sites(work: Path) -> tuple[Site, ...]:
    return tuple(Site(name=name, root=str(work / name), role=Role.VOTER) for name in _NAMES)


def _take_roots(work: Path) -> None:
    memory = DomainRegistry(work / "domains.json")
    for site in _sites(work):
        memory.take(site.name, site.root)


def _placement(work: Path) -> Placement:
    """The domains as the processes of an installation with default settings see them."""
    sites, observations = _sites(work), Observations(work / "health.json")
    return Placement(
        domains=tuple(
            FailureDomain(
                name=site.name,
                root=Path(site.root),
                sites=sites,
                observations=observations,
                catalog=built_in_catalog(),
            )
            for site in sites
        ),
        sites=sites,
        watch=Watch(
            memory=DomainRegistry(work / "domains.json"),
            observations=observations,
            timeout_seconds=DEFAULT_TIMEOUT_SECONDS,
        ),
    )


def _table(work: Path, home: str, name: str) -> Replication:
    """A table as a process sees it that works in a domain and has not looked at the table yet."""
    domain = _placement(work).named(home)
    assert domain is not None
    return Replication(name, domain)


@contextmanager
def _gone(root: Path) -> Generator[None]:
    """Take a folder away until the end of the block."""
    away = root.rename(root.with_name("away"))
    try:
        yield
    finally:
        away.rename(root)


def _may_mount(work: Path) -> bool:
    """Whether a folder can be made to hang here: it takes the right to mount."""
    try:
        with hanging(empty_folder(work / "mount")):
            return True
    except OSError:
        return False


def _recovery_seconds(work: Path, lost: Callable[[Path], AbstractContextManager[None]]) -> list[float]:
    """Lose the leader's folder, again and again; how long until another domain has a commit acknowledged.

    The loss is found out by the placement, as by a step that is begun.
    """
    found = []
    for loss in range(_LOSSES):
        leader = _NAMES[loss % len(_NAMES)]
        _milliseconds(_table(work, leader, "long"), 1)
        with lost(work / leader):
            began = time.perf_counter()
            successor = _placement(work).place(PlacementClass.TRANSFORM, leader=leader)
            table = _table(work, successor.name, "long")
            _milliseconds(table, 1)
            found.append(time.perf_counter() - began)
        _placement(work).heal(leader)
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

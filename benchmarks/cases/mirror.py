"""mirror: the time from the end of Spark's commit to its acknowledgement, on three folders of this machine.

A small commit (10 rows: one data file of 4 kB), at 10 and at 10,000 versions of the table. No Spark: the log entry and its
data file are written as Spark would. The disks' fsync is most of it.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from pathlib import Path

from benchmarks.measure import empty_folder
from benchmarks.options import Options
from benchmarks.report import Figure, figure
from etl_assets.delta.replication import Replication
from etl_assets.mirroring.locator import Role
from etl_assets.placement.domains import FailureDomain, Site
from etl_assets.placement.memory import DomainsMemory

CASE = "mirror"
VERSIONS = 10_000
MILLISECONDS_TARGET = 50.0
GROWTH_TARGET = 1.2
_COMMITS = 41
_DATA = b"x" * 4_000


def run(options: Options) -> list[Figure]:
    """Measure the case."""
    work = empty_folder(options.folder / CASE)
    table = _table(work)
    _milliseconds(table, 10)
    few = _milliseconds(table, _COMMITS)
    _milliseconds(table, VERSIONS - 10 - 2 * _COMMITS)
    many = _milliseconds(table, _COMMITS)
    shutil.rmtree(work, ignore_errors=True)
    at_few, at_many = statistics.median(few), statistics.median(many)
    return [
        figure(CASE, "acknowledge_milliseconds", at_many, load=0.0, target=MILLISECONDS_TARGET),
        figure(CASE, "acknowledge_milliseconds_grown", at_many, at_few, load=0.0, target=GROWTH_TARGET),
    ]


def _table(work: Path) -> Replication:
    sites = tuple(Site(name=name, root=str(work / name), role=Role.VOTER) for name in "abc")
    memory = DomainsMemory(work / "domains.json")
    for site in sites:
        memory.take(site.name, Path(site.root))
    table = Replication("events", FailureDomain(name="a", root=work / "a", sites=sites))
    table.create()
    return table


def _milliseconds(table: Replication, commits: int) -> list[float]:
    lead, found = table.lead(), []
    for _ in range(commits):
        version, folder = lead.version + 1, table.folder(lead)
        (folder / "_delta_log").mkdir(parents=True, exist_ok=True)
        (folder / f"part-{version}.parquet").write_bytes(_DATA)
        add = {"path": f"part-{version}.parquet", "size": len(_DATA), "partitionValues": {}}
        entry = json.dumps({"add": add}).encode() + b"\n"
        (folder / "_delta_log" / f"{version:020d}.json").write_bytes(entry)
        began = time.perf_counter()
        table.acknowledge(lead, entry)
        found.append((time.perf_counter() - began) * 1_000)
        lead = table.lead()
    return found

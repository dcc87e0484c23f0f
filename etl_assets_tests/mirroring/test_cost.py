"""What mirroring one small commit costs on three folders, and that it grows with the commit and not with the table.

Also a program that prints the figures: `python -m etl_assets_tests.mirroring.test_cost`.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from itertools import repeat
from pathlib import Path

from etl_assets.mirroring.chain import GENESIS, extend_all
from etl_assets.mirroring.couriers import ThreadCouriers
from etl_assets.mirroring.local_store import LocalStore
from etl_assets.mirroring.record import Published
from etl_assets_tests.mirroring.platform import Platform, Process

COMMITS = 41


def platform_of(root: Path, couriers: ThreadCouriers) -> Platform:
    for domain in "abc":
        (root / domain).mkdir(parents=True)
    stores = {domain: LocalStore(root / domain) for domain in "abc"}
    platform = Platform(stores, couriers=couriers)
    platform.bootstrap()
    return platform


def mirror_seconds(process: Process, commits: int) -> list[float]:
    """Time from the end of Spark's commit to its acknowledgement, publishing included, for each of some commits."""
    seconds = []
    lead = process.lead()
    for _ in range(commits):
        entry = process.spark_commit(lead, b"x" * 4000)
        began = time.perf_counter()
        process.mirror.acknowledge(lead, entry)
        seconds.append(time.perf_counter() - began)
        lead = process.leadership.current()
    return seconds


def test_a_small_commit_is_mirrored_in_less_than_fifty_milliseconds_when_nothing_else_runs(tmp_path):
    couriers = ThreadCouriers()
    platform = platform_of(tmp_path, couriers)
    # The fastest one: what is slower waited for other work on the machine.
    assert min(mirror_seconds(platform.process("a"), COMMITS)) < 0.05
    couriers.close()


def age(root: Path, platform: Platform, versions: int) -> None:
    """Let a table that nobody has led have that many published versions, each of them empty, in every domain."""
    entry = b'{"commitInfo":{}}'
    for domain in "abc":
        log = root / domain / "tables/events/g000001/_delta_log"
        log.mkdir(parents=True)
        for version in range(versions):
            (log / f"{version:020d}.json").write_bytes(entry)
        register = platform.table(domain).replica(domain).register
        held = register.read()
        assert held is not None
        assert held.record.accepted is not None
        chain = extend_all(GENESIS, repeat(entry, versions))
        state = replace(held.record.accepted, version=versions - 1, chain=chain)
        published = Published(version=versions - 1, chain=chain, folder=1)
        assert register.write(held, replace(held.record, accepted=state, published=published))


def main() -> None:
    """Print the medians over the length of the log."""
    for versions in (10, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            couriers = ThreadCouriers()
            platform = platform_of(Path(folder), couriers)
            age(Path(folder), platform, versions)
            os.sync()  # else the first commits would wait for what was written just now
            seconds = mirror_seconds(platform.process("a"), COMMITS)
            couriers.close()
        median, worst = statistics.median(seconds) * 1000, max(seconds) * 1000
        sys.stdout.write(
            f"{versions} versions: median {median:.1f} ms, longest of {COMMITS} {worst:.1f} ms\n"
        )


if __name__ == "__main__":
    main()

"""What mirroring one small commit costs on three folders, and that it grows with the commit and not with the table.

Also a program that prints the figures: `python -m etl_assets_tests.mirroring.test_cost`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

from etl_assets.mirroring.couriers import ThreadCouriers
from etl_assets.mirroring.local_store import LocalStore
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


def test_a_small_commit_is_mirrored_in_less_than_fifty_milliseconds(tmp_path):
    couriers = ThreadCouriers()
    platform = platform_of(tmp_path, couriers)
    assert statistics.median(mirror_seconds(platform.process("a"), COMMITS)) < 0.05
    couriers.close()


def main(versions: int = 10_000) -> None:
    """Print the medians at 10 and at many versions."""
    with tempfile.TemporaryDirectory() as folder:
        couriers = ThreadCouriers()
        platform = platform_of(Path(folder), couriers)
        process = platform.process("a")
        mirror_seconds(process, 10)
        few = mirror_seconds(process, COMMITS)
        began = time.perf_counter()
        mirror_seconds(process, versions - 10 - 2 * COMMITS)
        pace = (time.perf_counter() - began) / versions
        many = mirror_seconds(process, COMMITS)
        couriers.close()
    sys.stdout.write(
        f"mirror step of a small commit on three folders, median: {statistics.median(few) * 1000:.1f} ms at 10 versions, "
        f"{statistics.median(many) * 1000:.1f} ms at {versions} ({pace * 1000:.1f} ms on the way)\n"
    )


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))

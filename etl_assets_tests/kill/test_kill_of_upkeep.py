"""Upkeep killed by SIGKILL, and run again: it finishes, and the table is as before. Without Spark."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etl_assets.delta.maintenance.vacuum import find_unneeded
from etl_assets.delta.table import Table
from etl_assets.failpoints import Failpoint
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site
from etl_assets_tests.reference.mirrored_log import all_that_it_says, commit_entries
from etl_assets_tests.reference.tables import CATALOG

pytestmark = pytest.mark.kill

UPKEEP = [Failpoint.VACUUM_DURING_REMOVE, Failpoint.LOG_BEFORE_REMOVE]
KEEP = 5
LONG_AGO = (dt.datetime.now(dt.UTC) - dt.timedelta(days=30)).timestamp()


def table_of(home: Path) -> Table:
    sites = tuple(Site(name=each, root=str(home / each), role=Role.VOTER) for each in "abc")
    return Table(name="events", domain=FailureDomain(catalog=CATALOG, name="a", root=home / "a", sites=sites))


def vacuum(home: Path) -> None:
    for unneeded in find_unneeded(table_of(home), dt.timedelta(days=7), dt.datetime.now(dt.UTC)):
        unneeded.remove()


def shorten(home: Path) -> None:
    mirrored = table_of(home).replication
    assert mirrored is not None
    mirrored.shorten(KEEP)


def dying(upkeep: Callable[[Path], None], home: Path, failpoint: str) -> None:
    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    upkeep(home)
    os._exit(99)


@pytest.mark.parametrize(
    ("upkeep", "failpoint"), [(vacuum, UPKEEP[0]), (shorten, UPKEEP[1])], ids=["vacuum", "shorten"]
)
def test_upkeep_that_was_killed_is_finished_by_the_next(tmp_path, upkeep, failpoint):
    from etl_assets_tests.reference.mirrored_log import three_replications

    mirrored, *_ = three_replications(tmp_path)
    newest = commit_entries(mirrored, 25)
    mirrored.follow()
    for path in tmp_path.rglob("*.*"):
        os.utime(path, (LONG_AGO, LONG_AGO))
    table = table_of(tmp_path)
    before = said(table)
    process: Any = multiprocessing.get_context("spawn").Process(
        target=dying, args=(upkeep, tmp_path, failpoint.value)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -9
    assert said(table) == before
    left = files(tmp_path)
    upkeep(tmp_path)
    done = files(tmp_path)
    assert done < left, "the killed one had not finished"
    upkeep(tmp_path)
    assert files(tmp_path) == done
    assert said(table) == before
    assert mirrored.broken() == {domain: [] for domain in "abc"}
    assert commit_entries(mirrored, 1) == newest + 1


def said(table: Table) -> dict[str, Any]:
    snapshot = table.snapshot()
    assert snapshot is not None
    return all_that_it_says(snapshot)


def files(home: Path) -> set[Path]:
    return {
        path for path in home.rglob("*") if path.name.endswith(("parquet", "json")) and "tables" in path.parts
    }

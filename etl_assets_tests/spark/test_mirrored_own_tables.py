"""Tables of users' own assets that three failure domains hold: what a write mode promises holds in each of
them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.delta.table import Table
from etl_assets.delta.write.write_spec import SchemaChanges, WriteMode, WriteSpec
from etl_assets.io_managers.frame_step import FrameStep
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.placement.domain_registry import DomainRegistry
from etl_assets.placement.domains import FailureDomain
from etl_assets.placement.site import Site

pytestmark = pytest.mark.spark

DAY, OTHER = "2026-01-01", "2026-01-02"


@pytest.fixture
def tables(tmp_path: Path) -> list[Table]:
    """One table, seen from each of three domains."""
    sites = tuple(Site(name=name, root=str(tmp_path / name), role=Role.VOTER) for name in "abc")
    memory = DomainRegistry(tmp_path / "domains.json")
    for site in sites:
        memory.take(site.name, site.root)
    return [
        Table(name="mine", domain=FailureDomain(name=site.name, root=Path(site.root), sites=sites))
        for site in sites
    ]


def write(spark: Any, table: Table, mode: WriteMode, run: str, sql: str, *days: str) -> Any:
    step = FrameStep(
        rows=spark.sql(sql),
        table=table,
        spec=WriteSpec(write_mode=mode, delta_partition="day", schema_changes=SchemaChanges.WIDEN),
        all_keys=days,
        partitions={day: PartitionFilter.of(day) for day in days},
        run_id=run,
    )
    return step.run(days)


def rows(spark: Any, table: Table) -> list[dict[str, Any]]:
    return [row.asDict() for row in table.read(spark, table.version()).orderBy("id").collect()]


def test_every_domain_has_what_was_replaced_appended_and_added_to_the_columns(spark, tables):
    first, second, third = tables
    values = f"SELECT * FROM VALUES (1, '{DAY}'), (2, '{OTHER}') AS t(id, day)"
    write(spark, first, WriteMode.REPLACE, "r1", values, DAY, OTHER)
    write(spark, second, WriteMode.REPLACE, "r2", f"SELECT 3 AS id, '{DAY}' AS day", DAY)
    for run in ("r3", "r3", "r4"):
        write(
            spark,
            first,
            WriteMode.APPEND,
            run,
            f"SELECT 5000000000 AS id, '{DAY}' AS day, 'new' AS added",
            DAY,
        )
    expected = [
        {"id": 2, "day": OTHER, "added": None},
        {"id": 3, "day": DAY, "added": None},
        *[{"id": 5_000_000_000, "day": DAY, "added": "new"}] * 2,
    ]
    assert rows(spark, third) == expected
    mirrored = first.replication
    assert mirrored is not None
    mirrored.lead()
    mirrored.follow()
    logs = [
        {file.name: file.read_bytes() for file in sorted(table.path.glob("_delta_log/*.json"))}
        for table in tables
    ]
    assert [len(log) for log in logs] == [first.version() + 1] * 3
    assert logs[1] == logs[0]
    assert logs[2] == logs[0]
    assert [str(table.path).startswith(str(table.domain.root)) for table in tables] == [True] * 3
    assert [rows(spark, table) for table in tables] == [expected] * 3

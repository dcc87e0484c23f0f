"""A table that applies changes in three failure domains: its rows and tombstones are the same in each,
whichever domain the changes came in.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from etl_assets.mirroring.protocol.locator import Role
from etl_assets.placement.domain_registry import DomainRegistry
from etl_assets.placement.site import Site
from etl_assets_tests.reference.declared_pipeline import CHANGES, Declared, declared, delete, truncate, upsert

pytestmark = pytest.mark.spark


def test_deletes_of_one_domain_make_late_changes_of_another_late(spark, tmp_path):
    sites = tuple(Site(name=name, root=str(tmp_path / name), role=Role.VOTER) for name in "abc")
    memory = DomainRegistry(tmp_path / "domains.json")
    for site in sites:
        memory.take(site.name, site.root)
    first, second, third = (
        Declared(
            root=Path(site.root),
            session=lambda: spark,
            spec=declared(**CHANGES),
            domain=site.name,
            sites=sites,
        )
        for site in sites
    )
    first.accept([upsert("a", 1), upsert("b", 1), upsert("c", 9), delete("d", 5)])
    first.load()
    second.accept([delete("a", 3)])
    assert second.load().total()["deleted"] == 1, "a commit that only removes rows"
    third.accept([upsert("a", 2), upsert("d", 4), truncate(2), upsert("e", 3)])
    third.load()
    for pipeline in (first, second, third):
        rows = {row["id"]: row["changed_at"] for row in pipeline.rows()}
        kept = {row["id"]: row["changed_at"] for row in pipeline.rows("people_tombstones")}
        assert (rows, kept) == ({"c": 9, "e": 3}, {"a": 3, "d": 5, None: 2}), pipeline.domain
    for name in ("people", "people_tombstones"):
        mirrored = first.context.table(name).replication
        assert mirrored is not None
        mirrored.lead()
        mirrored.follow()
        tables = [pipeline.context.table(name) for pipeline in (first, second, third)]
        versions = {table.version() for table in tables}
        logs = [
            {file.name: file.read_bytes() for file in table.path.glob("_delta_log/*.json")}
            for table in tables
        ]
        assert len(versions) == 1
        assert logs[0] == logs[1] == logs[2]

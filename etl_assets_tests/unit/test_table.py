"""What a process keeps of the logs it has read."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

from etl_assets.contracts.tables import REPLAYS
from etl_assets.delta.table import Table
from etl_assets.delta.write.records import commit_rows
from etl_assets_tests.reference.tables import local_domain


def test_a_process_that_goes_on_for_long_keeps_few_versions_of_a_table(tmp_path: Path):
    table = Table(name=REPLAYS.name, domain=local_domain(tmp_path), contract=REPLAYS)
    seen = []
    for _ in range(12):
        commit_rows(table, [], base_version=table.version())
        snapshot = table.snapshot()
        assert snapshot is not None
        assert table.snapshot() is snapshot
        seen.append(weakref.ref(snapshot))
        del snapshot
    gc.collect()
    assert sum(each() is not None for each in seen) <= 2

"""The logs of many tables are read once, however often all of them are looked at in turn."""

from __future__ import annotations

from etl_assets.delta import snapshot_cache
from etl_assets.delta.log.entries import entry_path


def test_tables_looked_at_in_turn_are_read_once(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(snapshot_cache, "_load", lambda path, version: read.append(path))
    tables = [tmp_path / f"table_{number}" for number in range(300)]
    for table in tables:
        entry = entry_path(table, 0)
        entry.parent.mkdir(parents=True)
        entry.touch()
    for _ in range(3):
        for table in tables:
            snapshot_cache.snapshot_in(table, 0)
    assert read == tables

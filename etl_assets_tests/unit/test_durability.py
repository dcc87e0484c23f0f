"""Files of a commit are made durable together, before the folders that name them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from etl_assets.delta.log import durability

FILES = 40
"""With as many folders, and two above them."""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    made = [tmp_path / "table" / f"day={number}" / "rows.parquet" for number in range(FILES)]
    for path in made:
        path.parent.mkdir(parents=True)
        path.write_bytes(b"rows")
    return made


def test_many_files_are_synced_at_once_and_then_their_folders(files, tmp_path, monkeypatch):
    synced: list[Path] = []
    several = threading.Barrier(2)

    def fsync(descriptor: int) -> None:
        several.wait(10)  # breaks unless two are under way
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(durability.os, "fsync", fsync)
    folders = {tmp_path, tmp_path / "table", *(path.parent for path in files)}
    durability.sync_files(tmp_path / "table", files)
    assert set(synced[: len(files)]) == set(files)
    assert set(synced[len(files) :]) == folders


def test_a_file_that_cannot_be_synced_is_an_error_before_any_folder_is(files, tmp_path, monkeypatch):
    synced: list[Path] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path == files[7]:
            raise OSError(5, "Input/output error", str(path))
        synced.append(path)

    monkeypatch.setattr(durability.os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error"):
        durability.sync_files(tmp_path / "table", files)
    assert set(synced) <= set(files)

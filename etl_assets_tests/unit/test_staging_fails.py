"""What a batch says when its lines cannot be staged: the source file if that is it, else what the disk
said.
"""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from etl_assets.error_policy import advice
from etl_assets.errors import SourceUnreadable
from etl_assets.ingest import ingest_batch
from etl_assets.ingest.ingest_batch import IngestBatch
from etl_assets.sources import lines
from etl_assets.sources.batch_plan import BatchPlan
from etl_assets.sources.landing import LANDING, Folders
from etl_assets_tests.pipeline import DAY, RECORDS, Pipeline, event
from etl_assets_tests.reference.tables import CATALOG


@pytest.fixture
def batch(tmp_path) -> IngestBatch:
    """A batch of one file."""
    pipeline = Pipeline(root=tmp_path / "data", landing=tmp_path / "landing", session=lambda: None)
    pipeline.land([event(1)])
    folders = Folders(source=LANDING, path=pipeline.landing)
    files = folders.list_day(DAY, now_ns=2**62, settle_seconds=0).files
    (tmp_path / "staging").mkdir()
    return IngestBatch(
        context=pipeline.context,
        table=pipeline.context.table("raw_events"),
        rejects=CATALOG.table("raw_events_exceptions"),
        stage="ingest",
        folders=(folders,),
        records=RECORDS,
        plan=BatchPlan(batch_id=1, files=files),
        staging=tmp_path / "staging",
    )


def failing(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def stage_lines(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ingest_batch, "stage_lines", stage_lines)


def test_a_full_disk_is_told_and_no_source_file_is_looked_at(batch, monkeypatch):
    failing(monkeypatch, errno.ENOSPC)
    monkeypatch.setattr(Folders, "verify", lambda *_: pytest.fail("looked at"))
    with pytest.raises(OSError, match="No space left") as failed:
        batch._stage()
    assert "free space" in advice(failed.value)


@pytest.mark.parametrize("number", [errno.EROFS, errno.EIO])
def test_a_disk_that_cannot_be_written_to_is_told_as_it_is(batch, monkeypatch, number):
    failing(monkeypatch, number)
    with pytest.raises(OSError, match=os.strerror(number)):
        batch._stage()


def test_of_a_file_that_is_gone_the_name_is_told(batch: IngestBatch):
    (file,) = batch.plan.files
    path: Path = batch.folders[0].path_of(file)
    path.unlink()
    with pytest.raises(SourceUnreadable, match=r"a\.jsonl cannot be read"):
        batch._stage()


def test_of_a_file_that_is_opened_and_cannot_be_read_the_name_is_told(batch: IngestBatch, monkeypatch):
    # At its first byte the kernel answers as for a bad sector.
    monkeypatch.setattr(lines, "_open", lambda _: io.FileIO("/proc/self/mem"))
    with pytest.raises(SourceUnreadable, match=r"a\.jsonl cannot be read: Input/output error") as failed:
        batch._stage()
    assert "move the file out" in failed.value.fix
    path = batch.folders[0].path_of(batch.plan.files[0])
    assert (failed.value.file, failed.value.day) == (str(path), DAY)


def test_a_worker_that_cannot_read_a_file_names_it_in_its_own_words(batch: IngestBatch, monkeypatch):
    from pyspark.errors import PythonException

    path = str(batch.folders[0].path_of(batch.plan.files[0]))

    def stage_lines(*_: Any) -> None:
        error = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        raise PythonException(f"Traceback (most recent call last):\n  ...\nFileNotFoundError: {error}")

    monkeypatch.setattr(ingest_batch, "stage_lines", stage_lines)
    with pytest.raises(SourceUnreadable, match=r"a\.jsonl cannot be read: by a worker of Spark"):
        batch._stage()

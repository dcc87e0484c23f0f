"""Little input is validated by the step's own process, which asks for no Spark session."""

from __future__ import annotations

import datetime as dt
import gzip
from pathlib import Path
from typing import Any

import pytest

from etl_assets.ingest import stage_lines as staging
from etl_assets.ingest.json_records import JsonRecords
from etl_assets.ingest.stage_lines import stage_lines
from etl_assets.sources.source_files import InputFile
from etl_assets_tests.reference.staged_lines import input_file

DAY = dt.date(2026, 1, 2)
RECORDS = JsonRecords(id_fields=("id",), max_record_bytes=1_000)
LINES = b"".join(b'{"id":%d}\n' % number for number in range(100))


class _Asked(Exception):
    """Spark would share the tasks out."""


def session() -> Any:
    raise _Asked


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch):
    monkeypatch.setattr(staging, "TASK_BYTES", 200)


def file_of(folder: Path, name: str, content: bytes) -> InputFile:
    (folder / name).write_bytes(content)
    return input_file(str(folder / name), len(content), DAY)


def staged_ids(files: list[InputFile], folder: Path) -> list[str]:
    folder.mkdir()
    staged = stage_lines(session, files, RECORDS, folder)
    return [name for piece in staged.columns(["record_id"]) for name in piece.column(0).to_pylist()]


def test_little_input_is_validated_in_process_in_its_order_though_it_is_several_tasks(tmp_path):
    files = [file_of(tmp_path, "a.jsonl", LINES), file_of(tmp_path, "b.jsonl", b'{"id":100}\n')]
    assert staged_ids(files, tmp_path / "staged") == [str(number) for number in range(101)]


def test_more_input_is_shared_out(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "LITTLE_BYTES", len(LINES) - 1)
    monkeypatch.setattr(staging, "LITTLE_BY_COLUMNS", len(LINES) - 1)
    with pytest.raises(_Asked):
        staged_ids([file_of(tmp_path, "a.jsonl", LINES)], tmp_path / "staged")


def test_more_input_in_canonical_form_is_validated_in_process_too(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "TASK_BYTES", len(LINES) - 1)
    monkeypatch.setattr(staging, "LITTLE_BYTES", len(LINES) - 1)
    monkeypatch.setattr(staging, "LITTLE_BY_COLUMNS", len(LINES))
    files = [file_of(tmp_path, "a.jsonl", LINES)]
    assert staged_ids(files, tmp_path / "staged") == [str(number) for number in range(100)]
    odd = LINES.replace(b'{"id":', b'{ "id":')
    monkeypatch.setattr(staging, "LITTLE_BY_COLUMNS", len(odd))
    with pytest.raises(_Asked):
        staged_ids([file_of(tmp_path, "b.jsonl", odd)], tmp_path / "odd")


def test_compressed_files_count_for_more_than_their_size(tmp_path, monkeypatch):
    packed = gzip.compress(LINES)
    files = [file_of(tmp_path, f"{number}.jsonl.gz", packed) for number in range(3)]
    monkeypatch.setattr(staging, "LITTLE_BYTES", 4 * len(packed))
    monkeypatch.setattr(staging, "LITTLE_BY_COLUMNS", 4 * len(packed))
    with pytest.raises(_Asked):
        staged_ids(files, tmp_path / "staged")

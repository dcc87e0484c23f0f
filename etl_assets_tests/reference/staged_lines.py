"""Landing files of named kinds of lines, staged and placed without Spark, for tests of what is made of staged
lines.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from etl_assets.ingest import stage_lines
from etl_assets.ingest.located_blocks import LocatedBlock
from etl_assets.ingest.stage_lines import StagedBlock, _stage, _tasks
from etl_assets.sources import lines
from etl_assets.sources.source_files import InputFile, SourceFile
from etl_assets.transforms.line_positions import first_ordinal
from etl_assets_tests.pipeline import DAY, RECORDS, event

KINDS = ("event", "duplicate", "conflict", "row again", "bad", "blank")
"""Lines: a new event, events whose id has been accepted, no event, nothing."""
OUTCOMES = {"duplicate": "duplicate", "conflict": "conflict", "row again": "accepted"}
OFFSET_OF_ORIGINAL = 17
"""That of the event which a conflict contradicts, and a duplicate repeats that has no new event of the batch
before it.
"""


def write_lines(path: Path, index: int, day: dt.date, kinds: list[str]) -> Path:
    texts = {"bad": "bad", "blank": " \t"}
    written = [
        texts[kind] if kind in texts else json.dumps(event(event_id=f"event-{index}-{number}", day=day))
        for number, kind in enumerate(kinds)
    ]
    path.write_text("".join(f"{line}\n" for line in written), "utf-8")
    return path


def input_file(path: str, size: int, day: dt.date, *, name: str = "") -> InputFile:
    file = SourceFile(day=day, source="landing", name=name or Path(path).name, size=size, mtime_ns=0)
    return InputFile(file=file, path=path, identity=file.position)


def stage(files: list[tuple[str, int, dt.date]], folder: Path) -> list[StagedBlock]:
    inputs = [input_file(*file) for file in files]
    batches = [batch for task in _tasks(inputs) for batch in _stage(task, RECORDS, folder)]
    return [StagedBlock(**row) for batch in batches for row in batch.to_pylist()]


def cut_and_place(
    patch: pytest.MonkeyPatch, files: list[tuple[dt.date, list[str]]], folder: Path, *, task: int, piece: int
) -> tuple[list[LocatedBlock], tuple[str, ...]]:
    """Landing files of days and kinds of lines, staged in tasks and pieces of about so many bytes, and
    placed.
    """
    patch.setattr(stage_lines, "TASK_BYTES", task)
    patch.setattr(stage_lines, "_PIECE_BYTES", piece)
    patch.setattr(lines, "_PIECE_BYTES", piece)
    paths = [write_lines(folder / f"{index}.jsonl", index, *file) for index, file in enumerate(files)]
    found = [(str(path), path.stat().st_size, day) for path, (day, _) in zip(paths, files, strict=True)]
    return place(stage(found, folder), files, folder)


def placed_block(
    block: StagedBlock,
    *,
    day: dt.date = DAY,
    path: str = "",
    lines_before: int = 0,
    new: int = 0,
    repeated: int = 0,
) -> LocatedBlock:
    return LocatedBlock(
        staged=block,
        input_file=input_file(path, 0, day, name=str(block.file_index)),
        lines_before=lines_before,
        new=new,
        repeated=repeated,
    )


def place(
    staged: list[StagedBlock], files: list[tuple[dt.date, list[str]]], folder: Path
) -> tuple[list[LocatedBlock], tuple[str, ...]]:
    """The blocks as `ingest_batch` places them, and the file that names the repeats.

    A conflict is with an event of the table; a duplicate is of the new event before it, if there is one.
    """
    placed, repeats = [], []
    newest: int | None = None
    before: dict[int, int] = {}
    for block in staged:
        first = before.get(block.file_index, 0)
        day, kinds = files[block.file_index]
        base = first_ordinal(block.file_index, block.block_start)
        of_block = kinds[first : first + block.lines]
        for number, kind in enumerate(of_block):
            newest = base + number if kind == "event" else newest
            if kind in OUTCOMES:
                original = newest if kind == "duplicate" else None
                offset = OFFSET_OF_ORIGINAL if original is None else None
                repeats.append((base + number, OUTCOMES[kind], offset, original))
        new, repeated = of_block.count("event"), of_block.count("duplicate") + of_block.count("conflict")
        path = str(folder / f"{block.file_index}.jsonl")
        placed.append(placed_block(block, day=day, path=path, lines_before=first, new=new, repeated=repeated))
        before[block.file_index] = first + block.lines
    file = folder / "repeats.parquet"
    types = {
        "ordinal": pa.int64(),
        "outcome": pa.string(),
        "original_offset": pa.int64(),
        "original_ordinal": pa.int64(),
    }
    columns = zip(*repeats[::-1], strict=True) if repeats else ((), (), (), ())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types.values(), strict=True)]
    pq.write_table(pa.table(arrays, names=list(types)), file)
    return placed, (str(file),)

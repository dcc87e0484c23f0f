"""Staged files of a query: rows, and rows that are gone, which say so by their file's name.

Belongs here: the names of the files, and what a line of them is to the validation. Does not belong here:
which rows are read (`source.py`, `full_load.py`).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from etl_assets.contracts.envelope import AnnotatedRecord, Record
from etl_assets.sources.formats import JSON_LINES
from etl_assets.sources.lines import Block
from etl_assets.sources.ranges import ReadRange, StagedFile

ROWS, WITHOUT_KEY, DELETED = "rows.jsonl", "rows-without-key.jsonl", "deleted.jsonl"
"""Names of files, without the number of a full load."""
COLUMNS = "rows.arrow"
"""Name of the file with rows as columns, where no records are kept."""
IDS = "ids.jsonl"
"""The ids of all rows, beside the folders of days: not a file of records."""
DELETED_FIELD = "sql.deleted"
"""Field that a record of a row that is gone has."""
QUERY = "query"
"""The one partition of the input, in positions."""
_PIECE_BYTES = 1 << 20
_NAME = re.compile(rf"(?:load-(?P<load>\d+)-)?(?P<kind>{ROWS}|{COLUMNS}|{WITHOUT_KEY}|{DELETED})")


def file_name(kind: str, load: int | None) -> str:
    """Return the name of a file with rows of a kind, and of a full load if it has a number."""
    return kind if load is None else f"load-{load}-{kind}"


@dataclass(frozen=True, slots=True)
class QueryLines:
    """JSON Lines. A record of a row that is gone says so.

    Attributes:
        deleted_field: The field by which it says so.
    """

    deleted_field: str = DELETED_FIELD

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Suffixes of the names of its files."""
        return (".jsonl",)

    def blocks(self, path: str, size: int, most_bytes: int) -> Iterator[Block]:
        """Cut a file into blocks."""
        return JSON_LINES.blocks(path, size, most_bytes)

    def read(self, block: Block, held_bytes: int) -> Generator[tuple[int, list[Record]]]:
        """Yield the lines of a block."""
        is_deleted = block.path.endswith(DELETED)
        for position, lines in JSON_LINES.read(block, held_bytes):
            if is_deleted:
                lines = [self._deleted(line) if isinstance(line, bytes) and line else line for line in lines]
            yield position, lines

    def positions(self, first: int, records: Sequence[Record]) -> Iterable[int]:
        """Return the first byte of each line."""
        return JSON_LINES.positions(first, records)

    def _deleted(self, line: bytes) -> AnnotatedRecord:
        record = AnnotatedRecord(line)
        record.added = {self.deleted_field: True}
        return record


def version_of(name: str) -> str:
    """Return what tells the records of a file from others: their load, and whether their rows are gone."""
    found = _NAME.fullmatch(name)
    assert found is not None  # it is named here
    return f"{found['load'] or ''}{'deleted' if found['kind'] == DELETED else ''}"


def staged_files(wanted: ReadRange, paths: tuple[Path, ...]) -> tuple[StagedFile, ...]:
    """Return those of some files of a range that have rows; empty ones are removed."""
    files = []
    for path in paths:
        if not path.exists():
            continue
        if path.stat().st_size == 0:
            path.unlink()
            continue
        files.append(
            StagedFile(
                day=dt.date.fromisoformat(path.parent.name),
                name=path.name,
                place=f"{_place_of(wanted)}/{path.name}",
                version=version_of(path.name),
            )
        )
    return tuple(files)


def join_files(path: Path, parts: Iterable[Path]) -> None:
    """Append files to another one, and remove them."""
    with path.open("ab") as whole:
        for part in parts:
            with part.open("rb") as file:
                shutil.copyfileobj(file, whole, _PIECE_BYTES)
            part.unlink()


def _place_of(wanted: ReadRange) -> str:
    """Return what no other range is called, so that no two records have one source position."""
    text = json.dumps([wanted.begin, wanted.end], sort_keys=True)
    return f"{QUERY}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"

"""Random records of declared pipelines, and files of them in each format.

Belongs here: records as producers send them, and the bytes of a file with the place of each record. Does not
belong
here: what becomes of them (`reference.py`).
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Record = dict[str, str | None]
FORMATS = ("json_lines", "csv", "parquet")
NAMES = ("number", "part", "stock", "price", "updated_at", "note")
"""Fields of a record; in CSV and Parquet all of them are columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A record in a file.

    Attributes:
        record: Its values; the bytes where a format reads none.
        line: Its number in source positions, from 1.
        place: What the platform takes for its place in the file, for ids of records without one.
    """

    record: Record | bytes
    line: int
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file and its records."""

    name: str
    content: bytes
    records: tuple[Placed, ...]


def random_record(dice: random.Random, number: int) -> Record | bytes:
    """A record with its own number, mostly good."""
    record: Record = {
        "number": f"r{number}",
        "part": f"part {dice.randrange(6)}",
        "stock": str(dice.randrange(100)),
        "price": f"{dice.randrange(900)}.{dice.randrange(100):02}",
        "updated_at": f"2026-02-0{dice.randrange(1, 9)}T{dice.randrange(24):02}:00:00Z",
        "note": dice.choice(["", "plain", "ä\u2028ß", 'a "quoted" one', "two\nlines", "a, comma"]) or None,
    }
    wrong = dice.random()
    if wrong < 0.25:
        name, value = dice.choice(
            [
                ("stock", "many"), ("stock", "-1"), ("price", "1000"), ("price", "1.234"), ("part", None),
                ("updated_at", "yesterday"), ("updated_at", None), ("number", None), ("stock", None),
            ]
        )  # fmt: skip
        record[name] = value
    elif wrong < 0.32:
        return b"no record at all"
    return record


def data_file(dice: random.Random, format_: str, stem: str, records: Sequence[Record | bytes]) -> DataFile:
    """A file of records in a format, compressed now and then."""
    if format_ == "parquet":
        return _parquet(f"{stem}.parquet", [each for each in records if isinstance(each, dict)])
    made = _csv(stem, records) if format_ == "csv" else _json_lines(stem, records)
    if dice.random() < 0.3:
        packed = gzip.compress(made.content, mtime=0)
        return DataFile(name=f"{made.name}.gz", content=packed, records=made.records)
    return made


def again(file: DataFile, format_: str, records: Sequence[Record | bytes]) -> DataFile:
    """The file under its name with other records."""
    stem = file.name.split(".", 1)[0]
    made = data_file(random.Random(0), format_, stem, records)  # which does not compress: 0.84
    if file.name.endswith(".gz"):
        return DataFile(name=file.name, content=gzip.compress(made.content, mtime=0), records=made.records)
    assert made.name == file.name
    return made


def cut_off(file: DataFile) -> DataFile | None:
    """The beginning of a plain file of lines, as a reader of half a file takes it; None for what cannot be
    read at all.
    """
    if not file.name.endswith(".jsonl") or len(file.records) < 2:
        return None
    last = file.records[-1]
    content = file.content[: last.place + 6]
    kept = (*file.records[:-1], Placed(record=content[last.place :], line=last.line, place=last.place))
    return DataFile(name=file.name, content=content, records=kept)


def _json_lines(stem: str, records: Sequence[Record | bytes]) -> DataFile:
    content, placed = b"", []
    for number, record in enumerate(records, 1):
        line = (
            record if isinstance(record, bytes) else json.dumps(_present(record), ensure_ascii=False).encode()
        )
        placed.append(
            Placed(
                record=record if isinstance(record, bytes) else _present(record),
                line=number,
                place=len(content),
            )
        )
        content += line + b"\n"
    return DataFile(name=f"{stem}.jsonl", content=content, records=tuple(placed))


def _csv(stem: str, records: Sequence[Record | bytes]) -> DataFile:
    text = io.StringIO(",".join(NAMES) + "\n")
    text.seek(0, io.SEEK_END)
    writer = csv.writer(text, lineterminator="\n")
    placed = []
    for record in records:
        line = text.getvalue().count("\n") + 1  # the record's first one
        if isinstance(record, bytes):
            text.write(record.decode() + "\n")
        else:
            writer.writerow([record[name] or "" for name in NAMES])
        placed.append(Placed(record=record, line=line, place=line - 1))
    return DataFile(name=f"{stem}.csv", content=text.getvalue().encode(), records=tuple(placed))


def _parquet(name: str, records: Sequence[Record]) -> DataFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    held = io.BytesIO()
    rows: Any = [dict(record) for record in records]
    pq.write_table(
        pa.Table.from_pylist(rows, schema=pa.schema([(each, pa.string()) for each in NAMES])), held
    )
    placed = (Placed(record=record, line=number + 1, place=number) for number, record in enumerate(records))
    return DataFile(name=name, content=held.getvalue(), records=tuple(placed))


def _present(record: Record) -> Record:
    return {name: value for name, value in record.items() if value is not None}

"""The four CSV files of a folder of real orders, read row by row, with each value checked in its place.

Belongs here: finding, opening and reading the files, and errors that name file, line, column and fix. Does
not belong here: the meaning of the rows (`olist.py`).
"""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import NoReturn
from zoneinfo import ZoneInfo

from etl_assets.errors import InputError

_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,20})?")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}")


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One row and its place.

    Args:
        file: The file's path.
        line: The line the row begins on, from 1; the header is line 1.
        values: The row's texts by column.
    """

    file: Path
    line: int
    values: dict[str, str]

    def text(self, column: str) -> str:
        """Return the text of a column without surrounding spaces, possibly empty."""
        return self.values[column].strip()

    def key(self, column: str) -> str:
        """Return the text of a column, which may not be empty."""
        return self.text(column) or self._fail(column, "is empty", "give the row its key, or remove the row")

    def number(self, column: str) -> Decimal:
        """Return the exact number in a column."""
        text = self.text(column)
        if not _NUMBER.fullmatch(text):
            self._fail(
                column,
                f"{text!r} is not a number",
                "write digits with a point, like 12.90, at most 15 before it and 20 after",
            )
        return Decimal(text)

    def time(self, column: str, zone: ZoneInfo) -> datetime | None:
        """Return the local time in a column, in UTC; None if it is empty.

        A time that the clocks skipped is read with the offset before the change. A time that they showed
        twice is the first of the two (fold 0).
        """
        text = self.text(column)
        if not text:
            return None
        try:
            if _TIME.fullmatch(text) and "1900" <= text < "3000":
                return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)
        except ValueError:
            pass
        return self._fail(
            column,
            f"{text!r} is not a time",
            "write YYYY-MM-DD HH:MM:SS without an offset, from 1900 to 2999, or leave it empty",
        )

    def refuse_second(self, seen: dict[str, int], key: str, what: str) -> None:
        """Record a key, and raise an error if it occurred before."""
        if key in seen:
            raise InputError(
                f"{self.file}, line {self.line}: {what} is there a second time, first on line {seen[key]}",
                fix="remove one of the two rows",
                file=str(self.file),
                line=self.line,
            )
        seen[key] = self.line

    def _fail(self, column: str, problem: str, fix: str) -> NoReturn:
        raise InputError(
            f"{self.file}, line {self.line}, column {column}: {problem}",
            fix=fix,
            file=str(self.file),
            line=self.line,
            column=column,
        )


def rows(folder: Path, name: str, columns: Sequence[str]) -> Iterator[CsvRow]:
    """Yield the rows of `<folder>/<name>.csv` or `<name>.csv.gz`, with a header line, in UTF-8.

    Args:
        folder: The folder of the file.
        name: The file's name without a suffix.
        columns: The columns that are read; the file may have others.

    Raises:
        InputError: The file is missing or exists twice, cannot be read, lacks a column, or a row has more or
            fewer values than the header.
    """
    path, line = folder / f"{name}.csv", 1
    try:
        path = _found(folder, name)
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as binary:
            reader = csv.reader((text.decode() for text in binary), strict=True)
            header = _header(path, next(reader, []), columns)
            line = reader.line_num + 1
            for values in reader:
                if values:
                    yield CsvRow(path, line, _by_column(path, line, header, values))
                line = reader.line_num + 1
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            f"{path}, line {line}: the file cannot be read: {error}",
            fix="give a complete CSV file in UTF-8, plain or compressed by gzip, that this user may read",
            file=str(path),
            line=line,
        ) from error


def _found(folder: Path, name: str) -> Path:
    there = [path for path in (folder / f"{name}.csv", folder / f"{name}.csv.gz") if path.exists()]
    if len(there) == 1:
        return there[0]
    raise InputError(
        f"{folder} has {'both' if there else 'neither'} {name}.csv {'and' if there else 'nor'} {name}.csv.gz",
        fix="keep one of them"
        if there
        else "give the folder that holds orders, order_items, order_payments and "
        "customers, each as .csv or .csv.gz",
        file=str(folder / f"{name}.csv"),
    )


def _header(path: Path, header: list[str], columns: Sequence[str]) -> list[str]:
    header = [column.removeprefix("\ufeff").strip() for column in header]
    missing = [column for column in columns if column not in header]
    if missing:
        raise InputError(
            f"{path}, line 1, column {missing[0]}: the column is missing; there are"
            f" {', '.join(header) or 'none'}",
            fix=f"give the file a header with {', '.join(columns)}",
            file=str(path),
            line=1,
            column=missing[0],
        )
    return header


def _by_column(path: Path, line: int, header: list[str], values: list[str]) -> dict[str, str]:
    if len(values) != len(header):
        raise InputError(
            f"{path}, line {line}: the row has {len(values)} values, the header {len(header)}",
            fix="give the row one value for each column; a value with a comma stands in double quotes",
            file=str(path),
            line=line,
        )
    return dict(zip(header, values, strict=True))

"""The first records of a file, and the columns that they suggest.

Types are guessed conservatively: a guess that is too narrow makes dead letters, and a text never does.

Belongs here: looking at one file for a new declaration. Does not belong here: reading a source (`sources/`),
and the text of the declaration (`starting_file.py`).
"""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import itertools
import json
import re
import unicodedata
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

from etl_assets.errors import InputError
from etl_assets.pipelines.file_path import FileFormat
from etl_assets.pipelines.spec_fields import MAX_NAME_CHARACTERS

MAX_RECORDS = 1_000
_MAX_BYTES = 64_000_000
_FORMATS = {
    ".csv": FileFormat.CSV,
    ".tsv": FileFormat.CSV,
    ".jsonl": FileFormat.JSON_LINES,
    ".ndjson": FileFormat.JSON_LINES,
    ".parquet": FileFormat.PARQUET,
}
_DELIMITERS = ",;\t|"
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_FRACTION = re.compile(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,18})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(
    _DATE.pattern + r"T[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_KEY = re.compile(r"(?:^|_)(?:id|key|uuid|code|number)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledColumn:
    """A column that a field suggests.

    Attributes:
        name: Its name.
        field: The field of the records.
        type: Its type; None if no column can be taken from the field.
        note: What should be known of the guess; may be empty.
        is_key: Whether its values identify the sampled records, and it is named like something that does.
    """

    name: str
    field: str
    type: str | None
    note: str = ""
    is_key: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What the first records of a file suggest."""

    path: Path
    suffix: str
    format: FileFormat
    delimiter: str
    columns: tuple[SampledColumn, ...]


def read_sample(path: Path) -> Sample:
    """Read the first records of a CSV, JSON Lines or Parquet file; the first two may be compressed by gzip.

    Raises:
        InputError: the file cannot be read, is of another format, or has no records.
    """
    name = path.name.lower()
    plain, gz = (name.removesuffix(".gz"), ".gz" if name.endswith(".gz") else "")
    suffix = Path(plain).suffix
    form = _FORMATS.get(suffix)
    if form is None or (gz and form is FileFormat.PARQUET):
        raise InputError(
            f"{path} is of no format that is known by its name",
            fix=f"name a file that ends with {', '.join(_FORMATS)}; the first four also with .gz",
            file=str(path),
        )
    try:
        delimiter, fields, records = _records(path, form, bool(gz))
    except (OSError, EOFError, zlib.error, ValueError, csv.Error) as error:
        raise InputError(
            f"{path} cannot be read: {error}",
            fix="name a whole file of the format that its name says",
            file=str(path),
        ) from error
    fields = list(dict.fromkeys([*fields, *itertools.chain.from_iterable(records)]))
    if not records or not fields:
        raise InputError(f"{path} has no records", fix="name a file with some", file=str(path))
    return Sample(
        path=path,
        suffix=path.name[-len(suffix + gz) :],
        format=form,
        delimiter=delimiter,
        columns=tuple(_columns(fields, records)),
    )


def _records(path: Path, form: FileFormat, is_gzip: bool) -> tuple[str, list[str], list[Mapping[str, Any]]]:
    """Return the delimiter, the fields that the file names before its records, and the first records."""
    if form is FileFormat.PARQUET:
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            batches = file.iter_batches(batch_size=MAX_RECORDS)
            return (
                ",",
                file.schema_arrow.names,
                next(iter([b.to_pylist() for b in itertools.islice(batches, 1)]), []),
            )
    with gzip.open(path) if is_gzip else path.open("rb") as file:
        lines = _lines(file)
        if form is FileFormat.JSON_LINES:
            return ",", [], list(itertools.islice(_objects(lines), MAX_RECORDS))
        first = next(lines, "")
        delimiter = max(_DELIMITERS, key=first.count)
        rows = csv.reader(itertools.chain([first], lines), delimiter=delimiter)
        fields = next(rows, [])
        if len(set(fields)) < len(fields) or any(not field.strip() for field in fields):
            raise ValueError("its header has a column without a name, or one name twice")
        found = (dict(zip(fields, map(_text, row), strict=True)) for row in rows if len(row) == len(fields))
        return delimiter, fields, list(itertools.islice(found, MAX_RECORDS))


def _lines(file: BinaryIO | gzip.GzipFile) -> Iterator[str]:
    left = _MAX_BYTES
    while left > 0 and (line := file.readline(left)):
        yield line.decode("utf-8-sig" if left == _MAX_BYTES else "utf-8")
        left -= len(line)


def _objects(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            record = json.loads(line, parse_float=Decimal)
        except (ValueError, RecursionError):  # it would be a dead letter
            continue
        if isinstance(record, dict):
            yield record


def _text(value: str) -> str | None:
    return value or None


def _columns(fields: Collection[str], records: Collection[Mapping[str, Any]]) -> Iterator[SampledColumn]:
    taken: set[str] = set()
    for number, field in enumerate(fields, start=1):
        values = [record.get(field) for record in records]
        present = [value for value in values if value is not None]
        type_, note = _type(present) if field else (None, "a field without a name")
        name = _name(field, number, taken)
        taken.add(name)
        yield SampledColumn(
            name=name,
            field=field,
            type=type_,
            note=note,
            is_key=bool(_KEY.search(name))
            and type_ in ("string", "bigint")
            and len(present) == len(values) == len(set(present)),
        )


def _name(field: str, number: int, taken: Collection[str]) -> str:
    """Return a column name for a field: lower case, digits and underscores, and not taken."""
    ascii_ = unicodedata.normalize("NFKD", field.replace("ß", "ss")).encode("ascii", "ignore").decode()
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", ascii_).lower()
    name = re.sub(r"[^a-z0-9]+", "_", words).strip("_")[: MAX_NAME_CHARACTERS - 8].strip("_")
    if not name:
        name = f"column_{number}"
    elif not name[0].isalpha():
        name = f"column_{name}"
    options = itertools.chain([name], (f"{name}_{again}" for again in itertools.count(2)))
    return next(option for option in options if option not in taken)


def _type(values: list[Any]) -> tuple[str | None, str]:
    """Return the type that all values have, and a note."""
    if not values:
        return "string", "no value in the sample"
    if any(isinstance(value, (dict, list, tuple)) for value in values):
        return None, "nested"
    kinds = {_kind(value) for value in values}
    if kinds == {"time without a zone"}:
        return "string", "a time without a zone"
    if kinds <= {"bigint", "decimal"}:
        return ("bigint", "") if kinds == {"bigint"} else _decimal(values)
    if len(kinds) == 1:
        return kinds.pop(), ""
    return "string", "" if all(isinstance(value, str) for value in values) else "values of several types"


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "bigint" if -(2**63) <= value < 2**63 else "decimal"
        case Decimal() | float():
            return "decimal"
        case dt.datetime():
            return "time without a zone" if value.tzinfo is None else "timestamp"
        case dt.date():
            return "date"
        case str():
            return _kind_of_text(value)
        case _:
            return "string"


def _kind_of_text(text: str) -> str:
    if text in ("true", "false"):
        return "boolean"
    if _WHOLE.fullmatch(text):
        return "bigint"
    if _FRACTION.fullmatch(text):
        return "decimal"
    if _DATE.fullmatch(text) and _is(dt.date.fromisoformat, text):
        return "date"
    if (time := _TIME.fullmatch(text)) and _is(dt.datetime.fromisoformat, text):
        return "timestamp" if time[1] else "time without a zone"
    return "string"


def _is(parse: Any, text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _decimal(values: Iterable[Any]) -> tuple[str, str]:
    """Return a decimal type with room for the values, and for more digits before the point."""
    scale = whole = 0
    for value in values:
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        if not number.is_finite():
            return "string", "not a number in the sample"
        _, digits, exponent = number.as_tuple()
        scale, whole = max(scale, -int(exponent)), max(whole, len(digits) + int(exponent))
    scale = max(scale, 2)
    if scale + whole <= 16:
        return f"decimal(18,{scale})", ""
    if scale + whole <= 36:
        return f"decimal(38,{scale})", ""
    return "string", "numbers with more than 36 digits"

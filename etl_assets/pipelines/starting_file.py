"""The text of a new pipeline file: a declaration to begin with, with comments.

Belongs here: the text. Does not belong here: looking at a file (`sample.py`), and writing
(`cli/pipelines.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from etl_assets.errors import InputError
from etl_assets.pipelines.file_path import FileFormat, default_delimiter
from etl_assets.pipelines.problem import printable
from etl_assets.pipelines.sample import Sample, SampledColumn

SCHEMA_FILE = ".schema.json"
"""The copy of the JSON Schema beside the files, for editors."""
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_EXAMPLE = (
    SampledColumn(name="id", field="id", type="bigint", is_key=True),
    SampledColumn(name="title", field="title", type="string"),
    SampledColumn(name="updated_at", field="updated_at", type="timestamp"),
)


def starting_file(name: str, sample: Sample | None, home: Path, *, component: Path | None = None) -> str:
    """Return the text of a valid declaration.

    Args:
        name: The pipeline's name.
        sample: What a file suggests; None for an example.
        home: The home folder, which paths are relative to.
        component: The file of a Dagster project that the declaration is for, whose editors get the schema
            from `dg`.

    Raises:
        InputError: the sampled file's folder cannot be written as a pattern.
    """
    return (
        "\n".join([*_head(name, component), *_source(name, sample, home), *_columns(sample), *_table(sample)])
        + "\n"
    )


def _head(name: str, component: Path | None) -> Iterator[str]:
    if component is None:
        yield f"# yaml-language-server: $schema={SCHEMA_FILE}"
    yield (
        "# A pipeline: the records of a source become the rows of a table. Every field is in"
        " docs/pipelines.md."
    )
    yield f"# What is wrong with this file: etl-assets pipelines validate {component or name}"
    yield f"name: {scalar(name)}"
    yield 'description: ""'
    yield ""


def _source(name: str, sample: Sample | None, home: Path) -> Iterator[str]:
    yield "source:"
    yield "  type: files"
    yield (
        "  # `{day}` in the path stands for a folder for each day, named YYYY-MM-DD. Without it a file"
        " belongs to the"
    )
    yield "  # day on which it was last changed (UTC)."
    yield f"  path: {scalar(f'incoming/{name}/*.csv' if sample is None else _pattern(sample, home))}"
    if (
        sample is not None
        and sample.format is FileFormat.CSV
        and sample.delimiter != default_delimiter(sample.path.name)
    ):
        yield f"  delimiter: {scalar(sample.delimiter)}"
    yield (
        "  # Fields that identify a record: one that comes again is a duplicate, or a dead letter if it"
        " differs."
    )
    yield "  # id: [order_number]"
    yield ""


def _pattern(sample: Sample, home: Path) -> str:
    folder = sample.path.absolute().parent
    parts = [*folder.parts]
    day = "{day}" if _DAY.fullmatch(parts[-1]) else None
    if day:
        parts.pop()
    base = Path(*parts)
    shown = base.relative_to(home) if base.is_relative_to(home) else base
    if re.search(r"[*?\[\]{}]", str(shown)) or not str(shown).isprintable():
        raise InputError(
            f"the folder {printable(str(folder))} has characters with a meaning in a pattern",
            fix="move the file to a folder without `*?[]{}` in its name",
        )
    text = str(shown / (day or "") / f"*{sample.suffix}")
    return text.replace("${", "$${")


def _columns(sample: Sample | None) -> Iterator[str]:
    yield (
        "# `column: type`, or a mapping with rules: from, required, at_least, at_most, one_of, matches,"
        " not_empty,"
    )
    yield "# max_length. A record whose value is of another type is a dead letter."
    if sample is not None:
        yield f"# Guessed from the first records of {printable(sample.path.name)}."
    yield "columns:"
    columns = _EXAMPLE if sample is None else sample.columns
    if all(column.type is None for column in columns):
        raise InputError(
            "no field of the file has a single value", fix="name a file with fields that are not nested"
        )
    key = _key(columns)
    for column in columns:
        field = scalar(column.field)
        if column.type is None:
            yield f"  # {printable(field)} is {column.note}, and is not taken"
            continue
        parts = [f"type: {scalar(column.type)}"]
        parts += [f"from: {field}"] if column.field != column.name else []
        parts += ["required: true"] if column is key else []
        short = len(parts) == 1
        value = scalar(column.type) if short else f"{{{', '.join(parts)}}}"
        yield f"  {scalar(column.name)}: {value}{f'  # {column.note}' if column.note else ''}"
    yield ""


def _table(sample: Sample | None) -> Iterator[str]:
    yield "# Applied in this order: filter, map, sql, python, lookup, expectations."
    yield "# transforms:"
    yield '#   - {type: filter, where: "title is not null"}'
    yield ""
    yield "table:"
    yield "  # upsert keeps the newest row of each key, insert the first one, append every row."
    key = _key(_EXAMPLE if sample is None else sample.columns)
    if key is None:
        yield "  write_mode: append"
        yield "  # write_mode: upsert"
        yield "  # keys: [id]"
    else:
        yield "  write_mode: upsert"
        yield f"  keys: [{scalar(key.name)}]"


def _key(columns: tuple[SampledColumn, ...]) -> SampledColumn | None:
    return next((column for column in columns if column.is_key), None)


def scalar(text: str) -> str:
    """Return a text as a YAML value that every reader takes for a text."""
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=1_000_000).strip()

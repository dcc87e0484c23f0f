"""The declaration of a pipeline, as a YAML file or a REST request gives it.

Belongs here: the fields, their types, and the rules that one field or block can check by itself. Does not
belong here: rules that need other pipelines or Spark (`declared.py`), reading files (`pipeline_file.py`), and
the stages that follow from a declaration.
"""

from __future__ import annotations

import difflib
import re
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from etl_assets.contracts import column_types
from etl_assets.contracts.columns import PARTITION_DATE
from etl_assets.contracts.write_mode import WriteMode
from etl_assets.errors import ContractError
from etl_assets.pipelines.dagster_names import owner
from etl_assets.pipelines.file_path import FileFormat, default_delimiter, format_by_name, path_problem

NAME_PATTERN = r"[a-z][a-z0-9_]*"
"""Names of pipelines, tables and columns. A leading underscore is the platform's own."""
MAX_NAME_CHARACTERS = 64


class Spec(BaseModel):
    """A block of a declaration: immutable, and an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


_MAX_TYPE_CHARACTERS = 1_000
_TYPES = "use string, int, bigint, double, timestamp, date, boolean, decimal(18,2), array<…>, map<…, …> or struct<name: …>"
_OTHER_WORDS = {
    "integer": "int",
    "smallint": "int",
    "long": "bigint",
    "int64": "bigint",
    "text": "string",
    "str": "string",
    "varchar": "string",
    "uuid": "string",
    "bool": "boolean",
    "datetime": "timestamp",
    "timestamptz": "timestamp",
    "decimal": "decimal(18,2)",
    "numeric": "decimal(18,2)",
    "number": "decimal(18,2)",
    "float": "double",
    "list": "array<string>",
}
"""What types are called elsewhere."""


def _column_type(value: str) -> str:
    if len(value) > _MAX_TYPE_CHARACTERS:
        raise ValueError(f"a type of more than {_MAX_TYPE_CHARACTERS:,} characters; make it simpler")
    try:
        return column_types.canonical(value)
    except ContractError as error:
        word = re.split(r"[(<\s]", value.strip().lower())[0]
        meant = _OTHER_WORDS.get(word) or next(
            iter(difflib.get_close_matches(word, [each.lower() for each in column_types.SCALARS], n=1)), None
        )
        near = f"did you mean `{meant}`? " if meant else ""
        raise ValueError(f"it is not a type of a column; {near}{_TYPES}") from error


Name = Annotated[
    str, Field(pattern=f"^{NAME_PATTERN}$", max_length=MAX_NAME_CHARACTERS, examples=["suppliers"])
]
"""A name of lower-case letters, digits and underscores that begins with a letter."""
TypeName = Annotated[
    str, AfterValidator(_column_type), Field(examples=["string", "bigint", "decimal(18,2)", "timestamp"])
]
"""A column type, as SQL writes it, in any case."""
Number = Annotated[Decimal, Field(max_digits=column_types.MAX_DECIMAL_PRECISION)]
SqlText = Annotated[str, Field(min_length=1, description="Spark SQL")]


def _path(value: str) -> str:
    if why := path_problem(value):
        raise ValueError(why)
    return value


def _delimiter(value: str | None) -> str | None:
    if value is not None and (value in '"\r\n' or not value.isascii()):
        raise ValueError("it cannot separate values; use one ASCII character, such as `;`, `|` or a tab")
    return value


def _id(value: tuple[str, ...]) -> tuple[str, ...]:
    if "" in value:
        raise ValueError("a field has no name; name the fields that identify a record")
    if len(set(value)) < len(value):
        raise ValueError("a field stands twice; name each once")
    return value


class FilesSource(Spec):
    """Records from files of a folder.

    A file is read once it has not changed for a while. If it changes later it is read again, and what it had before is
    known by the ids of its records.
    """

    type: Literal["files"]
    path: Annotated[
        str,
        AfterValidator(_path),
        Field(
            min_length=1,
            examples=["landing/suppliers/*.csv", "/data/sales/{day}/*.jsonl.gz"],
            description=(
                "Folder and file name pattern (`*`, `?`, `[…]`), relative to the home folder. `{day}` just before the file"
                " name stands for a folder for each day, named YYYY-MM-DD; without it a file belongs to the day on"
                " which it was last changed (UTC). Files that end with .gz are decompressed. Names that begin with `.` or `_`,"
                " or end with .tmp, .part or .inprogress, are those of unfinished files."
            ),
        ),
    ]
    format: Annotated[FileFormat | None, Field(description="by default what the file name says")] = None
    id: Annotated[
        tuple[str, ...],
        AfterValidator(_id),
        Field(
            description=(
                "Fields that identify a record. A record with a known id is a duplicate if it is the same, and"
                " otherwise a dead letter. Without them each place of a file has a record of its own: one that has changed when"
                " the file is read again is a new record."
            ),
        ),
    ] = ()
    delimiter: Annotated[
        str | None,
        AfterValidator(_delimiter),
        Field(
            min_length=1,
            max_length=1,
            description="CSV: what separates two values; by default a comma, and in .tsv files a tab",
        ),
    ] = None
    null_value: Annotated[str, Field(description="CSV: the text that stands for no value")] = ""
    settle_seconds: Annotated[
        float, Field(ge=0, le=3600, description="a file is read once it has not changed for this long")
    ] = 2.0
    max_record_bytes: Annotated[
        int, Field(ge=1_024, le=16_777_216, description="longer records are dead letters")
    ] = 1_048_576

    @property
    def file_format(self) -> FileFormat:
        """The format, declared or by the file name."""
        found = self.format or format_by_name(self.path)
        assert found is not None  # validated
        return found

    @property
    def value_delimiter(self) -> str:
        """What separates two values of a CSV file, declared or by the file name."""
        return self.delimiter or default_delimiter(self.path)

    @model_validator(mode="after")
    def _names_are_of_a_format(self) -> FilesSource:
        if self.format is None and format_by_name(self.path) is None:
            raise ValueError(
                "the file name pattern in path shows no format; end it with .csv, .tsv, .jsonl, .ndjson (each also with"
                f" .gz) or .parquet, or add `format: ` with one of {', '.join(FileFormat)}"
            )
        if self.file_format is FileFormat.PARQUET and self.path.lower().endswith(".gz"):
            raise ValueError("Parquet files are not decompressed; let path end with .parquet")
        return self


class ColumnSpec(Spec):
    """A column that is taken from a field of the records. A value of another type is a dead letter."""

    type: TypeName
    from_: Annotated[
        str | None,
        Field(alias="from", min_length=1, description="the field's name; by default the column's"),
    ] = None
    required: Annotated[bool, Field(description="whether a record without a value is a dead letter")] = False
    description: Annotated[str, Field(description="what the value means, with its unit")] = ""
    at_least: Annotated[Number | None, Field(description="least number")] = None
    at_most: Annotated[Number | None, Field(description="greatest number")] = None
    one_of: Annotated[tuple[str, ...] | None, Field(min_length=1, description="allowed texts")] = None
    matches: Annotated[
        str | None, Field(min_length=1, description="regular expression that the whole text matches")
    ] = None
    not_empty: Annotated[bool, Field(description="whether the empty text is a dead letter")] = False
    max_length: Annotated[int | None, Field(ge=1, description="most characters of a text")] = None


def _column(value: Any) -> Any:
    """Accept `name: type` in place of a mapping."""
    return {"type": value} if isinstance(value, str) else value


Columns = Annotated[
    dict[Name, Annotated[ColumnSpec, BeforeValidator(_column)]],
    Field(min_length=1, description="`name: type`, or a mapping with rules"),
]
OutputColumns = Annotated[
    dict[Name, TypeName] | None,
    Field(min_length=1, description="columns of the result and their types; by default as before"),
]


class FilterTransform(Spec):
    """Keep the rows for which a condition is true. The others are left out, and are no dead letters."""

    type: Literal["filter"]
    where: SqlText


class MappedColumn(Spec):
    """A column computed by an expression over the other columns."""

    expression: SqlText
    type: TypeName
    description: str = ""


class MapTransform(Spec):
    """Add columns, or replace some. All expressions see the columns as they were before."""

    type: Literal["map"]
    columns: Annotated[
        dict[Name, MappedColumn],
        Field(min_length=1, description="columns to add or to replace, by their names"),
    ]


class SqlTransform(Spec):
    """Select from `input`, the rows so far, and from other tables by their names.

    Rows that keep `_offset` can still become dead letters; `select *` keeps it.
    """

    type: Literal["sql"]
    select: SqlText
    columns: OutputColumns = None


class PythonTransform(Spec):
    """Call a Python function: DataFrame to DataFrame, or with `batches` RecordBatch to RecordBatch."""

    type: Literal["python"]
    function: Annotated[
        str,
        Field(
            pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
            examples=["my_shop.suppliers:clean"],
            description="`module:function`, importable where the platform runs",
        ),
    ]
    batches: Annotated[bool, Field(description="whether it takes and returns Arrow record batches")] = False
    columns: OutputColumns = None


class LookupTransform(Spec):
    """Add columns of a table with reference data. A row without a match has null there."""

    type: Literal["lookup"]
    table: Annotated[Name, Field(description="the table with reference data")]
    on: Annotated[
        dict[Name, Name],
        Field(min_length=1, description="columns that are equal: `column: column of the table`"),
    ]
    columns: Annotated[
        dict[Name, Name],
        Field(min_length=1, description="columns to add: `new name: column of the table`"),
    ]


class OnViolation(StrEnum):
    """What happens to a row that does not meet an expectation.

    WARN: it is counted, and stays.
    DROP: it becomes a dead letter.
    FAIL: the run fails, and nothing is written.
    """

    WARN = "warn"
    DROP = "drop"
    FAIL = "fail"


class Expectation(Spec):
    """A condition that every row should meet. A row for which it is null does not meet it."""

    name: Name
    condition: SqlText
    on_violation: OnViolation = OnViolation.WARN


class ExpectationsTransform(Spec):
    """Check conditions on the rows so far."""

    type: Literal["expectations"]
    rules: Annotated[
        tuple[Expectation, ...],
        Field(min_length=1, description="the conditions, each with a name of its own"),
    ]

    @model_validator(mode="after")
    def _names_differ(self) -> ExpectationsTransform:
        names = [rule.name for rule in self.rules]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"the name {twice[0]} stands for two rules; give each a name of its own")
        return self


Transform = Annotated[
    FilterTransform | MapTransform | SqlTransform | PythonTransform | LookupTransform | ExpectationsTransform,
    Field(discriminator="type"),
]
Source = Annotated[FilesSource, Field(description="where the records come from")]


def _mode(value: WriteMode) -> WriteMode:
    if value is WriteMode.REPLACE:
        raise ValueError("a pipeline's table is not replaced as a whole; use upsert, insert or append")
    return value


class TableSpec(Spec):
    """The table that a pipeline keeps.

    `upsert` keeps the newest row of each key, `insert` the first one, `append` every row.
    """

    name: Annotated[Name | None, Field(description="by default the pipeline's name")] = None
    description: str = ""
    write_mode: Annotated[
        WriteMode,
        AfterValidator(_mode),
        WithJsonSchema(
            {"type": "string", "enum": [each for each in WriteMode if each is not WriteMode.REPLACE]}
        ),
        Field(description="what a record does to the row of its keys, if there is one"),
    ] = WriteMode.UPSERT
    keys: Annotated[tuple[Name, ...], Field(description="columns that identify a row")] = ()
    sequence_by: Annotated[
        Name | None,
        Field(description="column whose higher value is the newer row; by default the order of arrival"),
    ] = None
    partition_by: Annotated[Name | None, Field(description="column by which files are laid out")] = None

    @model_validator(mode="after")
    def _keys_go_with_the_mode(self) -> TableSpec:
        if self.write_mode.by_key and not self.keys:
            raise ValueError(f"write_mode {self.write_mode} needs keys; to keep every row: append")
        if not self.write_mode.by_key and (self.keys or self.sequence_by):
            raise ValueError("write_mode append keeps every row, and takes neither keys nor sequence_by")
        if self.write_mode is WriteMode.INSERT and self.sequence_by:
            raise ValueError("write_mode insert keeps the first row to arrive, and takes no sequence_by")
        if len(set(self.keys)) < len(self.keys):
            raise ValueError("a column stands twice in keys")
        if self.partition_by == PARTITION_DATE:
            raise ValueError(
                f"partition_by {PARTITION_DATE} is for tables that the platform lays out by day of arrival; "
                "give the column another name"
            )
        return self


class PipelineSpec(Spec):
    """A pipeline: records of a source become the rows of a table.

    The source's records are kept as they came in the table `<name>_source`. Records that are not accepted are
    dead letters.
    """

    name: Name
    description: str = ""
    owners: Annotated[
        tuple[Annotated[str, AfterValidator(owner)], ...],
        Field(
            examples=["team:data-platform"],
            description="owners of its assets: e-mail addresses or `team:name`; by default the platform file's",
        ),
    ] = ()
    source: Source
    columns: Columns
    transforms: Annotated[tuple[Transform, ...], Field(description="applied in this order")] = ()
    table: TableSpec

    @property
    def table_name(self) -> str:
        """Name of the table, which is also the asset's."""
        return self.table.name or self.name

    @property
    def source_table_name(self) -> str:
        """Name of the table with the accepted records."""
        return f"{self.name}_source"

    @property
    def sensor_name(self) -> str:
        """Name of the sensor that looks for new files."""
        return f"{self.name}_files"

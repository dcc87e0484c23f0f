"""Declaration of a source of files.

Belongs here: its fields, and the rules of the block. Does not belong here: the pattern of the file names
(`file_path.py`), and reading (`sources/`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from etl_assets.pipelines.file_path import FileFormat, default_delimiter, format_by_name, path_problem
from etl_assets.pipelines.source_specs import id_fields
from etl_assets.pipelines.spec_fields import Spec


def _path(value: str) -> str:
    if why := path_problem(value):
        raise ValueError(why)
    return value


def _delimiter(value: str | None) -> str | None:
    if value is not None and (value in '"\r\n' or not value.isascii()):
        raise ValueError("it cannot separate values; use one ASCII character, such as `;`, `|` or a tab")
    return value


class FilesSource(Spec):
    """Records from files of a folder, of this machine or of an object store.

    A file is read once it has not changed for a while. If it changes later it is read again, and what it had
    before is known by the ids of its records.
    """

    type: Literal["files"]
    path: Annotated[
        str,
        AfterValidator(_path),
        Field(
            min_length=1,
            examples=["landing/suppliers/*.csv", "/data/sales/{day}/*.jsonl.gz"],
            description=(
                "Folder and file name pattern (`*`, `?`, `[…]`), relative to the home folder. `{day}` just"
                " before the file name stands for a folder for each day, named YYYY-MM-DD; without it a file"
                " belongs to the day on which it was last changed (UTC). Files that end with .gz are"
                " decompressed. Names that begin with `.` or `_`, or end with .tmp, .part or .inprogress, are"
                " those of unfinished files."
            ),
        ),
    ]
    connection: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=64,
            examples=["lake"],
            description=(
                "a connection of type `object_store` in the platform file; path is then below its root. By"
                " default files are on this machine"
            ),
        ),
    ] = None
    manifest: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1_000,
            examples=["incoming/suppliers/manifest.json"],
            description=(
                "with `connection`: the object that names the files to read, as JSON (`files`) or one on each"
                " line; below the connection's root. By default all files are listed"
            ),
        ),
    ] = None
    format: Annotated[FileFormat | None, Field(description="by default what the file name says")] = None
    id: Annotated[
        tuple[str, ...],
        AfterValidator(id_fields),
        Field(
            description=(
                "Fields that identify a record. A record with a known id is a duplicate if it is the same,"
                " and otherwise a dead letter. Without them each place of a file has a record of its own: one"
                " that has changed when the file is read again is a new record."
            ),
        ),
    ] = ()
    delimiter: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1,
            description="CSV: what separates two values; by default a comma, and in .tsv files a tab",
        ),
        AfterValidator(_delimiter),
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
    def _places_are_of_the_store(self) -> FilesSource:
        if self.connection is None:
            if self.manifest is not None:
                raise ValueError("manifest is for files of an object store; add `connection`")
            return self
        for field, value in (("path", self.path), ("manifest", self.manifest or "x")):
            if value.startswith(("/", "~")) or any(part in ("", ".", "..") for part in value.split("/")):
                raise ValueError(
                    f"{field} is below the root of the connection; such as `incoming/suppliers/*.csv`"
                )
        return self

    @model_validator(mode="after")
    def _names_are_of_a_format(self) -> FilesSource:
        if self.format is None and format_by_name(self.path) is None:
            raise ValueError(
                "the file name pattern in path shows no format; end it with .csv, .tsv, .jsonl, .ndjson (each"
                f" also with .gz) or .parquet, or add `format: ` with one of {', '.join(FileFormat)}"
            )
        if self.file_format is FileFormat.PARQUET and self.path.lower().endswith(".gz"):
            raise ValueError("Parquet files are not decompressed; let path end with .parquet")
        return self

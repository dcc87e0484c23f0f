"""The declaration of a pipeline, as a YAML file or a REST request gives it.

Belongs here: the fields, their types, and the rules that one field or block can check by itself. Does not
belong here: rules that need other pipelines or Spark (`declared.py`), reading files (`pipeline_file.py`), and
the stages that follow from a declaration.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)

from etl_assets.contracts.columns import PARTITION_DATE
from etl_assets.contracts.tables.tombstones import tombstones_name
from etl_assets.contracts.write_mode import WriteMode
from etl_assets.pipelines.change_history import expect_history, history_name, versions_name
from etl_assets.pipelines.dagster_names import owner
from etl_assets.pipelines.debezium_spec import DebeziumSource
from etl_assets.pipelines.deleted_rows import expect_deletes, field_of_gone_rows
from etl_assets.pipelines.direct_load import expect_direct_load
from etl_assets.pipelines.files_spec import FilesSource
from etl_assets.pipelines.log_changes import applied, expect_fit, is_applied, log_of
from etl_assets.pipelines.partition_by import PartitionByOrName
from etl_assets.pipelines.postgres_cdc_spec import PostgresCdcSource
from etl_assets.pipelines.schedule_spec import ScheduleSpec
from etl_assets.pipelines.sink_specs import SinkSpec
from etl_assets.pipelines.source_specs import HttpSource, KafkaSource, SqlSource
from etl_assets.pipelines.spec_fields import Name, Number, Spec, SqlText, TypeName
from etl_assets.pipelines.table_source_spec import TableSource
from etl_assets.pipelines.transform_specs import Transform


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
Source = Annotated[
    FilesSource | HttpSource | KafkaSource | SqlSource | PostgresCdcSource | DebeziumSource | TableSource,
    Field(discriminator="type", description="where the records come from"),
]


def _mode(value: WriteMode) -> WriteMode:
    if value is WriteMode.REPLACE:
        raise ValueError(
            "a pipeline's table is not replaced as a whole; use upsert, insert, append or apply_changes"
        )
    return value


class TableSpec(Spec):
    """The table that a pipeline keeps.

    `upsert` keeps the newest row of each key, `insert` the first one, `append` every row. `apply_changes`
    keeps the newest row of each key too, and takes deletes: a key whose newest change is one has no row.
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
    partition_by: Annotated[
        PartitionByOrName,
        Field(description="column by which files are laid out, or the hour, day or month of one"),
    ] = None
    apply_as_deletes: Annotated[
        SqlText | None,
        Field(
            examples=["op = 'D'"],
            description=(
                "apply_changes: condition on the columns after the transforms; a row that meets it deletes"
                " the row of its keys, and needs nothing but the keys and `sequence_by`"
            ),
        ),
    ] = None
    apply_as_truncates: Annotated[
        SqlText | None,
        Field(
            examples=["op = 'T'"],
            description=(
                "apply_changes: condition like `apply_as_deletes`; a row that meets it removes every row that"
                " is older than itself, and needs nothing but `sequence_by`"
            ),
        ),
    ] = None
    history: Annotated[
        bool,
        Field(
            description=(
                "sources of type postgres_cdc and debezium: whether every change is kept in a table of its"
                " own, `<table>_history`, from which `<table>_versions` follows: the versions of each row,"
                " with the time from which and until which it was there"
            )
        ),
    ] = False
    trace_context: Annotated[
        Name | None,
        Field(
            examples=["traceparent"],
            description=(
                "column with the W3C trace context of a record, as in the header `traceparent`: sinks of type"
                " kafka and webhook send it on, and `etl-assets trace --trace-id` finds rows by it. A value"
                " of another form is not sent"
            ),
        ),
    ] = None
    except_column_list: Annotated[
        tuple[Name, ...],
        Field(
            examples=[["op"]],
            description="columns that the table does not store, such as the kind of a change",
        ),
    ] = ()

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
        if self.write_mode is not WriteMode.APPLY_CHANGES and (
            self.apply_as_deletes or self.apply_as_truncates
        ):
            raise ValueError(
                f"write_mode {self.write_mode} deletes no rows; for apply_as_deletes and apply_as_truncates:"
                " apply_changes"
            )
        laid_out_by = None if self.partition_by is None else self.partition_by.column
        for name in (*self.keys, self.sequence_by, laid_out_by, self.trace_context):
            if name in self.except_column_list:
                raise ValueError(
                    f"the column {name} is needed in the table, and stands in except_column_list"
                )
        if self.partition_by is not None and self.partition_by.name == PARTITION_DATE:
            raise ValueError(
                f"partition_by {PARTITION_DATE} is for tables that the platform lays out by day of arrival; "
                "give the column another name"
            )
        return self


DELETED_COLUMN = "deleted_in_source"
"""Column by which rows that are gone from the source are deleted; no table stores it."""
IS_GONE = f"coalesce({DELETED_COLUMN}, false)"
"""The condition on the records of such rows."""


class PipelineSpec(Spec):
    """A pipeline: records of a source become the rows of a table.

    The source's records are kept as they came in the table `<name>_source`, unless the source says
    `keep_records: false`. Records that are not accepted are dead letters.
    """

    name: Name
    description: str = ""
    owners: Annotated[
        tuple[Annotated[str, AfterValidator(owner)], ...],
        Field(
            examples=["team:data-platform"],
            description="owners of its assets: e-mail addresses or `team:name`; by default the platform"
            " file's",
        ),
    ] = ()
    source: Source
    columns: Columns
    transforms: Annotated[
        tuple[Transform, ...],
        Field(description="applied in this order; the rows of the last one are those of the table"),
    ] = ()
    table: TableSpec
    sinks: Annotated[
        tuple[SinkSpec, ...],
        Field(description="targets outside the platform that follow the table"),
    ] = ()
    schedule: Annotated[
        ScheduleSpec | None,
        Field(description="when it runs; by default as soon as its source has something new"),
    ] = None
    priority: Annotated[
        int,
        Field(
            ge=-1_000,
            le=1_000,
            description="the higher, the sooner: the order of runs in Dagster's queue and of the worker",
        ),
    ] = 0

    @model_validator(mode="after")
    def _sinks_have_names_of_their_own(self) -> PipelineSpec:
        names = [each.sink_name for each in self.sinks]
        if twice := [each for each in names if names.count(each) > 1]:
            raise ValueError(f"two sinks are called {twice[0]}; give each a `name`")
        return self

    @model_validator(mode="after")
    def _records_are_kept_where_needed(self) -> PipelineSpec:
        if not self.keeps_records:
            expect_direct_load(self)
        return self

    @model_validator(mode="after")
    def _rows_that_are_gone_are_deleted(self) -> PipelineSpec:
        """Let the table apply the deletes that the source reports, by a column that it does not store."""
        table = self.table
        if (from_ := field_of_gone_rows(self)) is None:
            return self
        column = ColumnSpec.model_validate({"type": "boolean", "from": from_})
        if self.columns.get(DELETED_COLUMN) == column and DELETED_COLUMN in table.except_column_list:
            return self  # it was done before this declaration was written down
        expect_deletes(self, DELETED_COLUMN)
        deletes = IS_GONE
        if table.apply_as_deletes is not None:
            deletes = f"({table.apply_as_deletes}) OR {deletes}"
        changed = {
            "write_mode": WriteMode.APPLY_CHANGES,
            "apply_as_deletes": deletes,
            "except_column_list": (*table.except_column_list, DELETED_COLUMN),
        }
        # A declaration does not change after this.
        object.__setattr__(self, "columns", {**self.columns, DELETED_COLUMN: column})
        object.__setattr__(self, "table", table.model_copy(update=changed))
        return self

    @model_validator(mode="after")
    def _changes_of_a_log_are_applied(self) -> PipelineSpec:
        """Let the table apply the changes of a database's log, in their order there."""
        log = log_of(self.source)
        if self.table.history:
            expect_history(self)
        if log is None:
            return self
        added = {name: ColumnSpec.model_validate(each) for name, each in log.columns.items()}
        # A declaration does not change after this.
        if not is_applied(self, added, log):
            expect_fit(self, log)
            object.__setattr__(self, "table", self.table.model_copy(update=applied(self.table, log)))
        object.__setattr__(self, "columns", {**self.columns, **added})
        return self

    @property
    def keeps_records(self) -> bool:
        """Whether there is a table with the accepted records; if not, rows go straight into the table."""
        return not isinstance(self.source, SqlSource | PostgresCdcSource) or self.source.keep_records

    @property
    def table_name(self) -> str:
        """Name of the table, which is also the asset's."""
        return self.table.name or self.name

    @property
    def tombstones_name(self) -> str | None:
        """Name of the table with the tombstones of deleted rows; None if no row is deleted."""
        return tombstones_name(self.table_name) if self.table.write_mode is WriteMode.APPLY_CHANGES else None

    @property
    def history_name(self) -> str | None:
        """Name of the table with every change of the table; None if there is none."""
        return history_name(self.table_name) if self.table.history else None

    @property
    def versions_name(self) -> str | None:
        """Name by which the versions of the table's rows are queried; None if there are none."""
        return versions_name(self.table_name) if self.table.history else None

    @property
    def source_table_name(self) -> str:
        """Name of the table with the accepted records."""
        return f"{self.name}_source"

    @property
    def sensor_name(self) -> str:
        """Name of the sensor that looks for new files."""
        return f"{self.name}_files"

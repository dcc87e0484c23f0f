"""From the declaration of a pipeline to its tables: their contracts, and the columns at each point.

Belongs here: what follows from a declaration and the catalog, without I/O and Spark. Does not belong here:
the declaration (`spec.py`), its file (`pipeline_file.py`), and what the stages do with rows (`steps/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import (
    AtLeast,
    AtMost,
    HexDigits,
    Matches,
    MaxCharacters,
    NotEmpty,
    OneOf,
    Rule,
)
from etl_assets.contracts.tables.deliveries import deliveries_of
from etl_assets.contracts.tables.exceptions import exceptions_of
from etl_assets.contracts.tables.recurring_columns import COMMIT_STAMPS, label, position
from etl_assets.contracts.tables.tombstones import tombstones_of
from etl_assets.contracts.write_mode import WriteMode
from etl_assets.errors import ContractError
from etl_assets.pipelines.change_history import history_spec
from etl_assets.pipelines.direct_load import problem_of_type
from etl_assets.pipelines.partition_by import time_column
from etl_assets.pipelines.spec import ColumnSpec, PipelineSpec
from etl_assets.pipelines.transform_inputs import OF_RECORDS, inputs_of, label_of, united_columns
from etl_assets.pipelines.transform_specs import (
    LookupTransform,
    MapTransform,
    PythonTransform,
    SqlTransform,
    Transform,
)

OFFSET, BATCH_ID = "_offset", "_batch_id"
"""Columns that the platform adds to a pipeline's table, beside those that the declaration names."""
MAX_ID_CHARACTERS = 4_096
_T = TypeVar("_T")
ContractOf = Callable[[str], TableContract]
"""Returns the contract of another table of the catalog; raises `NotFound`."""


@dataclass(frozen=True, kw_only=True)
class DeclaredTables:
    """The tables of a declared pipeline.

    Raises:
        ContractError: parts of the declaration contradict each other: a key that is no column, a rule that
            does not fit its type. Carries `field`, the place in the declaration, such as `table.keys`.
    """

    spec: PipelineSpec
    contract_of: ContractOf

    @cached_property
    def source(self) -> TableContract:
        """The table of accepted records, as they came."""
        name = self.spec.source_table_name
        return TableContract(
            name=name,
            description=(
                f"Every accepted record of the source of {self.spec.name}, once, in order of acceptance, as"
                f" it came: the columns are taken from `record` when the rows of {self.spec.table_name} are"
                " made."
            ),
            columns=(
                position("offset", "Place in the order of acceptance: dense, from 0, over all days."),
                Column(
                    "record_id",
                    "STRING",
                    "What identifies the record: the values of its id, or its place and content.",
                    rules=(NotEmpty(), MaxCharacters(MAX_ID_CHARACTERS)),
                ),
                Column("record", "STRING", "The record as canonical JSON.", rules=(NotEmpty(),)),
                Column(
                    "fingerprint", "STRING", "SHA-256 of the record's canonical JSON.", rules=(HexDigits(64),)
                ),
                label("source", "Name of the source: `files`, or `dead_letters` for a replayed record."),
                label("source_position", "Where in the source: `<day>/<file>:<line>`."),
                label("ingest_domain", "Failure domain that accepted it."),
                Column("ingested_at", "TIMESTAMP", "When it was accepted, by the platform's clock (UTC)."),
                *COMMIT_STAMPS,
            ),
            merge_key=("record_id",),
            ordering="offset",
            offset_column="offset",
            delta_partition=("partition_date",),
            append_only=True,
        )

    @cached_property
    def source_rejects(self) -> TableContract:
        """The table of records that the source stage did not accept."""
        return exceptions_of(self.source, read_from=None, name=f"{self.source.name}_rejects")

    @cached_property
    def rejects(self) -> TableContract:
        """The table of records that do not become rows of the table."""
        read_from = self.source if self.spec.keeps_records else None
        return exceptions_of(self.table, read_from=read_from, name=f"{self.table.name}_rejects")

    @property
    def of_source(self) -> TableContract:
        """The table that the source is read into."""
        return self.source if self.spec.keeps_records else self.table

    @cached_property
    def tombstones(self) -> TableContract | None:
        """The table of what deletes and truncates leave; None if the table does not apply changes."""
        if self.spec.table.write_mode is not WriteMode.APPLY_CHANGES:
            return None
        return tombstones_of(self.table, order=self.order)

    @cached_property
    def history(self) -> DeclaredTables | None:
        """The tables by which every change of the table is kept; None if it is not."""
        if not self.spec.table.history:
            return None
        return DeclaredTables(spec=history_spec(self.spec), contract_of=self.contract_of)

    @property
    def all(self) -> tuple[TableContract, ...]:
        """All tables."""
        tombstones = () if self.tombstones is None else (self.tombstones,)
        history = () if self.history is None else (self.history.table,)
        of_sinks = (each for sink in self.deliveries for each in (sink, self.rejects_of(sink)))
        records = (self.source, self.source_rejects) if self.spec.keeps_records else ()
        return (*records, self.table, self.rejects, *tombstones, *history, *of_sinks)

    @cached_property
    def deliveries(self) -> tuple[TableContract, ...]:
        """The tables of deliveries, one for each sink."""
        return tuple(deliveries_of(self.table.name, sink.sink_name) for sink in self.spec.sinks)

    def rejects_of(self, deliveries: TableContract) -> TableContract:
        """Return the table of rows that a sink did not accept."""
        return exceptions_of(deliveries, read_from=None, name=f"{deliveries.name}_rejects")

    @property
    def order(self) -> tuple[str, ...]:
        """The table's columns that say which of two rows of a key is newer, the first one first."""
        return tuple(filter(None, (self.spec.table.sequence_by, OFFSET)))

    @cached_property
    def parsed_columns(self) -> tuple[Column, ...]:
        """The columns as they are taken from the records, with their rules."""
        return tuple(self._column(name, column) for name, column in self.spec.columns.items())

    @cached_property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """The positions of the transforms whose rows each transform takes; `OF_RECORDS` for the records."""
        return inputs_of(self.spec.transforms)

    @property
    def may_repeat_records(self) -> bool:
        """Whether a record may have several rows."""
        return self.first_that_repeats is not None

    @property
    def first_that_repeats(self) -> int | None:
        """The position of the first transform that may make several rows of a record; None if none does."""
        for index, each in enumerate(self.spec.transforms):
            if len(self.inputs[index]) > 1 or isinstance(each, SqlTransform | PythonTransform):
                return index
        return None

    def columns_before(self, transform: int) -> tuple[Column, ...]:
        """Return the columns that a transform gets, by its position: of several inputs, all of them."""
        return self._before(transform, self._columns)

    def columns_after(self, transform: int) -> tuple[Column, ...]:
        """Return the columns after a transform, by its position; `OF_RECORDS` for those of the records."""
        return self._columns[transform]

    @cached_property
    def _columns(self) -> dict[int, tuple[Column, ...]]:
        """The columns after each transform, by its position."""
        found = {OF_RECORDS: self.parsed_columns}
        for index, each in enumerate(self.spec.transforms):
            found[index] = self._after(each, self._before(index, found), f"transforms.{index}")
        return found

    def _before(self, transform: int, after: Mapping[int, tuple[Column, ...]]) -> tuple[Column, ...]:
        sources = self.inputs[transform]
        if len(sources) == 1:
            return after[sources[0]]
        labelled = [(label_of(self.spec.transforms, source), after[source]) for source in sources]
        return united_columns(labelled, f"transforms.{transform}")

    @cached_property
    def table(self) -> TableContract:
        """The pipeline's table."""
        spec = self.spec.table
        columns = self.columns_after(len(self.spec.transforms) - 1)
        names = [column.name for column in columns]
        for place, wanted in self._named():
            if wanted not in names:
                raise _wrong(place, f"there is no column {wanted!r}", f"use one of {', '.join(names)}")
        traced = next((column for column in columns if column.name == spec.trace_context), None)
        if traced is not None and traced.type != "STRING":
            raise _wrong(
                "table.trace_context", f"{traced.name} is {traced.type}", "name a column of type string"
            )
        laid_out_by = spec.partition_by
        time = None if laid_out_by is None else time_column(laid_out_by, columns)
        keys = spec.keys or (OFFSET,)
        is_append = spec.write_mode is WriteMode.APPEND
        return TableContract(
            name=self.spec.table_name,
            description=spec.description or self.spec.description or f"The table of {self.spec.name}.",
            columns=(
                *(
                    _required(column) if column.name in keys else column
                    for column in columns
                    if column.name not in spec.except_column_list
                ),
                *(() if time is None else (time,)),
                position(
                    OFFSET,
                    "Offset of the record that the row is from."
                    if self.spec.keeps_records
                    else "Place in the order of arrival; numbers of rows that were rejected are left out.",
                    derived_from=self._of_records("offset"),
                ),
                Column(BATCH_ID, "BIGINT", "The table's version that wrote the row.", rules=(AtLeast(0),)),
            ),
            merge_key=keys,
            ordering=None if is_append else spec.sequence_by or OFFSET,
            delta_partition=() if laid_out_by is None else (laid_out_by.name,),
            append_only=is_append,
            trace_column=spec.trace_context,
        )

    def _named(self) -> Iterator[tuple[str, str]]:
        """Yield the columns that the table's block names, with their places."""
        spec = self.spec.table
        for field, names in (("keys", spec.keys), ("except_column_list", spec.except_column_list)):
            yield from ((f"table.{field}.{index}", name) for index, name in enumerate(names))
        if spec.sequence_by is not None:
            yield "table.sequence_by", spec.sequence_by
        if spec.trace_context is not None:
            yield "table.trace_context", spec.trace_context
        if spec.partition_by is not None:
            yield ".".join(("table", *spec.partition_by.place)), spec.partition_by.column

    def _column(self, name: str, column: ColumnSpec) -> Column:
        place = f"columns.{name}"
        with_rules = _at(place, lambda: tuple(_rules(column)))
        made = _at(
            place,
            lambda: Column(
                name,
                column.type,
                column.description or f"The field {column.from_ or name} of the record.",
                nullable=not column.required,
                rules=with_rules,
                derived_from=self._of_records("record"),
            ),
        )
        if not self.spec.keeps_records and (problem := problem_of_type(made)) is not None:
            raise _wrong(place, problem, "choose a simple type, or remove keep_records")
        return made

    def _of_records(self, column: str) -> tuple[str, ...]:
        """Return where a column comes from, if there is a table of records."""
        return (f"{self.source.name}.{column}",) if self.spec.keeps_records else ()

    def _after(self, transform: Transform, columns: tuple[Column, ...], place: str) -> tuple[Column, ...]:
        """Return the columns of a transform's result."""
        match transform:
            case MapTransform():
                made = {
                    name: Column(
                        name, each.type, each.description or f"`{_line(each.expression)}`", nullable=True
                    )
                    for name, each in transform.columns.items()
                }
                return _with(columns, made)
            case SqlTransform() | PythonTransform() if transform.columns is not None:
                before = {column.name: column for column in columns}
                return tuple(
                    before[name]
                    if name in before and before[name].type == type_
                    else Column(name, type_, f"A column of {place}.", nullable=True)
                    for name, type_ in transform.columns.items()
                )
            case LookupTransform():
                return _with(columns, self._looked_up(transform, columns, place))
            case _:
                return columns

    def _looked_up(
        self, transform: LookupTransform, columns: tuple[Column, ...], place: str
    ) -> dict[str, Column]:
        table = self.contract_of(transform.table)
        known = {column.name: column for column in columns}
        for mine, theirs in transform.on.items():
            if mine not in known:
                raise _wrong(
                    f"{place}.on.{mine}", f"there is no column {mine!r}", f"use one of {', '.join(known)}"
                )
            other = _at(f"{place}.on.{mine}", lambda theirs=theirs: table.column(theirs))
            if other.type != known[mine].type:
                raise _wrong(
                    f"{place}.on.{mine}",
                    f"{mine} is {known[mine].type}, and {transform.table}.{theirs} is {other.type}",
                    "compare columns of one type",
                )
        if not set(table.merge_key) <= set(transform.on.values()):
            raise _wrong(
                f"{place}.on",
                f"a row may match several rows of {transform.table}",
                f"compare its whole key: {', '.join(table.merge_key)}",
            )
        return {
            name: Column(
                name,
                theirs.type,
                theirs.description,
                nullable=True,
                derived_from=(f"{transform.table}.{theirs.name}",),
            )
            for name, of in transform.columns.items()
            for theirs in [_at(f"{place}.columns.{name}", lambda of=of: table.column(of))]
        }


def _rules(column: ColumnSpec) -> Iterator[Rule]:
    if column.not_empty:
        yield NotEmpty()
    if column.max_length is not None:
        yield MaxCharacters(column.max_length)
    if column.at_least is not None:
        yield AtLeast(column.at_least)
    if column.at_most is not None:
        yield AtMost(column.at_most)
    if column.one_of is not None:
        yield OneOf(column.one_of)
    if column.matches is not None:
        yield Matches(column.matches, f"of the form {column.matches}")


def _required(column: Column) -> Column:
    return replace(column, nullable=False)


def _with(columns: tuple[Column, ...], made: dict[str, Column]) -> tuple[Column, ...]:
    """Return columns with some replaced, and the others added at the end."""
    names = {column.name for column in columns}
    replaced = (made.get(column.name, column) for column in columns)
    return (*replaced, *(column for name, column in made.items() if name not in names))


def _line(text: str) -> str:
    return " ".join(text.split())


def _at(place: str, make: Callable[[], _T]) -> _T:
    """Name the place in the declaration behind an error."""
    try:
        return make()
    except ContractError as error:
        raise ContractError(error.message, fix=error.fix, **{**error.fields, "field": place}) from error


def _wrong(place: str, what: str, fix: str) -> ContractError:
    return ContractError(what, fix=fix, field=place)

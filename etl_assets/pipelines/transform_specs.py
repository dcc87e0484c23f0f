"""The transforms of a declaration: their fields, and the rules that one of them can check by itself.

Does not belong here: what they do with rows (`transforms/declared_transforms.py`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    model_validator,
)

from etl_assets.pipelines.spec_fields import Name, OutputColumns, Spec, SqlText, TypeName

RECORDS = "records"
"""What `inputs` calls the records with their columns, before any transform."""
_RESERVED = {RECORDS: "the records before any transform", "input": "the rows that a `sql` transform takes"}


def _name(value: str) -> str:
    if value in _RESERVED:
        raise ValueError(f"it stands for {_RESERVED[value]}; use another name")
    return value


def _inputs(value: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(value)) < len(value):
        raise ValueError("an input stands twice; name each once")
    return value


class TransformSpec(Spec):
    """What every transform has."""

    type: str
    name: Annotated[
        Annotated[Name, AfterValidator(_name)] | None,
        Field(description="what `inputs` of later transforms call its rows"),
    ] = None
    inputs: Annotated[
        tuple[Name, ...],
        Field(
            min_length=1,
            description=(
                "names of earlier transforms whose rows it takes, or `records` for those before any"
                " transform; of several all"
                " rows, with their columns by name. By default the rows of the transform above"
            ),
        ),
        AfterValidator(_inputs),
    ] = ()


class FilterTransform(TransformSpec):
    """Keep the rows for which a condition is true. The others are left out, and are no dead letters."""

    type: Literal["filter"]
    where: SqlText


class MappedColumn(Spec):
    """A column computed by an expression over the other columns."""

    expression: SqlText
    type: TypeName
    description: str = ""


class MapTransform(TransformSpec):
    """Add columns, or replace some. All expressions see the columns as they were before."""

    type: Literal["map"]
    columns: Annotated[
        dict[Name, MappedColumn],
        Field(min_length=1, description="columns to add or to replace, by their names"),
    ]


class SqlTransform(TransformSpec):
    """Select from `input`, the rows so far, and from other tables by their names.

    Several `inputs` are tables of their names, in place of `input`. Rows that keep `_offset` can still become
    dead letters; `select *` keeps it.
    """

    type: Literal["sql"]
    select: SqlText
    columns: OutputColumns = None

    @model_validator(mode="after")
    def _columns_of_several_inputs(self) -> SqlTransform:
        if len(self.inputs) > 1 and self.columns is None:
            raise ValueError(
                "a `sql` transform of several inputs needs `columns`; write the columns of its result,"
                " `name: type`"
            )
        return self


class PythonTransform(TransformSpec):
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


class LookupTransform(TransformSpec):
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


class ExpectationsTransform(TransformSpec):
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

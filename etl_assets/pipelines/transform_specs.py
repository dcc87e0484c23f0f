"""The transforms of a declaration: their fields, and the rules that one of them can check by itself.

Does not belong here: what they do with rows (`transforms/declared_transforms.py`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import (
    Field,
    model_validator,
)

from etl_assets.pipelines.spec_fields import Name, OutputColumns, Spec, SqlText, TypeName


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

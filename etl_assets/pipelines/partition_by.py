"""The column by which a declared table's files are laid out: one of its own, or the hour, day or month of
one.

Belongs here: the block of the declaration, and the column that follows from it. Does not belong here: the
values of that column (`transforms/time_partition.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from etl_assets.contracts.columns import Column
from etl_assets.errors import ContractError
from etl_assets.pipelines.spec_fields import Name, Spec


class TimeUnit(StrEnum):
    """What part of a time, in UTC, lays out the files.

    HOUR: a text such as `2026-01-31T05`.
    DAY: a date.
    MONTH: a text such as `2026-01`.
    """

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


_TYPES = {TimeUnit.HOUR: "STRING", TimeUnit.DAY: "DATE", TimeUnit.MONTH: "STRING"}
_FORMS = {TimeUnit.HOUR: "2026-01-31T05", TimeUnit.DAY: "2026-01-31", TimeUnit.MONTH: "2026-01"}


class PartitionBy(Spec):
    """The column by which files are laid out; with `by`, the hour, day or month of a time.

    The table has it as another column, `<column>_<by>`, such as `ordered_at_hour`. It is null where the time
    is. A query that compares it reads only the files of these hours, days or months. A row whose time changes
    moves.
    """

    column: Annotated[Name, Field(description="a column of the table")]
    by: Annotated[
        TimeUnit | None,
        Field(
            description=(
                "the part of a time in UTC: `hour` is a text such as `2026-01-31T05`, `day` a date, `month` a"
                " text such as `2026-01`; without it the column itself lays out the files"
            )
        ),
    ] = None

    @property
    def name(self) -> str:
        """Name of the column by which the files are laid out."""
        return self.column if self.by is None else f"{self.column}_{self.by}"

    @property
    def place(self) -> tuple[str, ...]:
        """Where the table's block names the column."""
        return ("partition_by",) if self.by is None else ("partition_by", "column")

    @model_serializer(mode="wrap")
    def _short(self, handler: SerializerFunctionWrapHandler) -> Any:
        """Return the column's name alone where it says everything, as people write it."""
        return self.column if self.by is None else handler(self)


def _partition_by(value: Any) -> Any:
    """Accept a column's name in place of a mapping."""
    return {"column": value} if isinstance(value, str) else value


PartitionByOrName = Annotated[PartitionBy | None, BeforeValidator(_partition_by)]


def time_column(spec: PartitionBy, columns: Sequence[Column]) -> Column | None:
    """Return the column that a table has in addition, None if its files are laid out by one of its own.

    Args:
        spec: The block; its column is one of the table's.
        columns: The table's columns.

    Raises:
        ContractError: the column is no time, or the table has a column of that name. Carries `field`.
    """
    if spec.by is None:
        return None
    source = next(column for column in columns if column.name == spec.column)
    wanted = ("TIMESTAMP",) if spec.by is TimeUnit.HOUR else ("TIMESTAMP", "DATE")
    if source.type not in wanted:
        whole = f"a whole {source.type}" if source.type == "DATE" else source.type
        raise ContractError(
            f"`{spec.column}` is {whole}, which has no {spec.by}",
            fix=f"name a column of the type {' or '.join(wanted)}, or leave out `by`",
            field="table.partition_by.by" if source.type == "DATE" else "table.partition_by.column",
        )
    if spec.name in [column.name for column in columns]:
        raise ContractError(
            f"the files would be laid out by `{spec.name}`, the {spec.by} of `{spec.column}`, and another"
            " column has that name",
            fix=f"name the other column otherwise; if it is that {spec.by}, write `partition_by:"
            f" {spec.name}`",
            field="table.partition_by",
        )
    return Column(
        spec.name,
        _TYPES[spec.by],
        f"The {spec.by} of {spec.column} (UTC), such as {_FORMS[spec.by]}; the files are laid out by it.",
        nullable=True,
    )

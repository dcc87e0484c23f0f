"""pandera models: the full check of a table's rows, for asset checks.

Belongs here: a contract as a pandera schema, and pandera's findings as records of our own. Does not belong
here: the one-pass split of good and bad rows inside a step (`rules.first_violation`).

pandera on Spark does not raise, takes seconds to import, and its own checks cost one or two Spark jobs per
rule. So it is imported when a model is first requested, and the checks here use the rules' SQL. A check that
runs on its own costs one job; within `violations` all checks read from one pass that has counted each rule's
bad rows.

Two more traits of pandera shape this module. Its message about a missing column shows a row's values, and it
reports a check that could not be evaluated as failed. So columns are compared, and rows computed, before
pandera is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from etl_assets.contracts.column_types import ArrayType, MapType, StructType
from etl_assets.contracts.columns import TableContract
from etl_assets.contracts.rules import NotNull, Rule
from etl_assets.contracts.spark_types import schema_differences, struct_type

if TYPE_CHECKING:
    from pandera.api.pyspark.types import PysparkDataframeColumnObject
    from pandera.pyspark import DataFrameSchema
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One violation of a table's contract.

    Attributes:
        table: The table's name.
        column: The column, or the columns of the merge key separated by commas.
        check: The requirement, as a sentence: `amount must be at least 0`. Never a row's value.
        count: Rows that break a rule; for the merge key, keys shared by several rows. None if the column
            itself is missing or has another type, in which case no row was checked.
    """

    table: str
    column: str
    check: str
    count: int | None

    def __str__(self) -> str:
        return self.check if self.count is None else f"{self.check} ({self.count} broken)"


# pandera's names of its findings (`SchemaErrorReason`).
_BROKEN = "DATAFRAME_CHECK"
_NULLS = "SERIES_CONTAINS_NULLS"
_REPEATED = "DUPLICATES"

Judge = Callable[["DataFrame", str, Rule], bool]
"""Function that returns whether no row of the frame breaks the rule of a column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Complaint:
    """One of pandera's errors, without its text, which may show values."""

    kind: str
    column: str
    check: str

    def is_about(self, rule: Rule, column: str) -> bool:
        if self.column != column:
            return False
        if isinstance(rule, NotNull):
            return self.kind == _NULLS
        return self.kind == _BROKEN and self.check == rule.explain(column)


@cache
def model(contract: TableContract) -> DataFrameSchema:
    """Return the pandera schema of a table: types, nullability, rules, unique merge key.

    Built once per contract.

    The first call in a process imports pandera, which takes about 2 CPU seconds. Validation with the schema
    runs a Spark job per rule; `violations` needs one pass.
    """
    return _schema(contract, _holds_in)


def violations(contract: TableContract, frame: DataFrame) -> tuple[Violation, ...]:
    """Run the full model over a frame.

    One pass counts the rows that break each rule, and another finds repeated merge keys (within the frame).
    Each NOT NULL column that the frame considers nullable costs one more pass; frames read from Delta have
    none.

    Args:
        contract: The table.
        frame: The table's rows. Columns that the contract does not have are ignored.

    Returns:
        The violations, in the order of the columns; empty for a good frame.
    """
    differences = [d for d in schema_differences(contract, frame.schema) if d.expected is not None]
    if differences:
        return tuple(
            Violation(table=contract.name, column=d.column, check=str(d), count=None) for d in differences
        )
    frame = _as_declared(contract, frame)
    broken = _broken_rows(contract, frame)
    complaints = _complaints(_schema(contract, lambda _frame, column, rule: broken[column, rule] == 0), frame)
    return (
        *_broken_rules(contract, broken, complaints),
        *_repeated_keys(contract, frame, complaints),
        *_anything_else(contract, complaints),
    )


def _schema(contract: TableContract, judge: Judge) -> DataFrameSchema:
    import pandera.pyspark as pandera

    def no_row_breaks(data: PysparkDataframeColumnObject, rule: Rule) -> bool:
        return judge(cast("DataFrame", data.dataframe), data.column_name, rule)

    fields = {field.name: field for field in struct_type(contract).fields}
    return pandera.DataFrameSchema(
        {
            column.name: pandera.Column(
                cast(Any, fields[column.name].dataType),  # pandera's annotation leaves out DataType instances
                checks=[
                    pandera.Check(no_row_breaks, rule=rule, error=rule.explain(column.name))
                    for rule in column.rules
                ],
                nullable=column.nullable,
                description=column.description,
            )
            for column in contract.columns
        },
        name=contract.name,
        description=contract.description,
        unique=list(contract.merge_key),
    )


def _holds_in(frame: DataFrame, column: str, rule: Rule) -> bool:
    return frame.where(f"NOT {rule.sql(column)}").isEmpty()


def _broken_rows(contract: TableContract, frame: DataFrame) -> dict[tuple[str, Rule], int]:
    """Return the number of rows that break each rule of each column, in one pass."""
    from pyspark.sql import functions

    rules = [(column.name, rule) for column in contract.columns for rule in column.all_rules]
    counts = frame.agg(
        *(
            functions.expr(f"count_if(NOT {rule.sql(column)})").alias(str(i))
            for i, (column, rule) in enumerate(rules)
        )
    ).collect()[0]
    return dict(zip(rules, counts, strict=True))


def _as_declared(contract: TableContract, frame: DataFrame) -> DataFrame:
    """Return the declared columns, nested ones with the nullability that Delta reads back.

    pandera compares nullability as well.
    """
    from pyspark.sql import functions

    fields = {field.name: field for field in struct_type(contract).fields}
    return frame.select(
        *(
            functions.col(column.name).cast(fields[column.name].dataType).alias(column.name)
            if isinstance(column.parsed_type, ArrayType | MapType | StructType)
            else functions.col(column.name)
            for column in contract.columns
        )
    )


def _complaints(schema: DataFrameSchema, frame: DataFrame) -> frozenset[_Complaint]:
    from pandera.config import ValidationDepth, config_context

    # Override pandera's environment variables: a skipped check would look like one that passed.
    with config_context(validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA):
        validated = schema.validate(frame)
    errors = cast(Mapping[str, Mapping[str, list[dict[str, Any]]]], cast(Any, validated).pandera.errors)
    return frozenset(
        _Complaint(kind=kind, column=str(complaint["column"]), check=str(complaint["check"]))
        for kinds in errors.values()
        for kind, complaints in kinds.items()
        for complaint in complaints
    )


def _broken_rules(
    contract: TableContract, broken: Mapping[tuple[str, Rule], int], complaints: frozenset[_Complaint]
) -> Iterator[Violation]:
    for (column, rule), count in broken.items():
        if any(complaint.is_about(rule, column) for complaint in complaints):
            yield Violation(table=contract.name, column=column, check=rule.explain(column), count=count)


def _repeated_keys(
    contract: TableContract, frame: DataFrame, complaints: frozenset[_Complaint]
) -> Iterator[Violation]:
    if not any(complaint.kind == _REPEATED for complaint in complaints):
        return
    key = ", ".join(contract.merge_key)
    repeated = frame.groupBy(*contract.merge_key).count().where("count > 1").count()
    yield Violation(table=contract.name, column=key, check=f"{key} must be unique", count=repeated)


def _anything_else(contract: TableContract, complaints: frozenset[_Complaint]) -> Iterator[Violation]:
    """Yield pandera's errors beyond the contract. None are expected, and none may be ignored."""
    for complaint in sorted(complaints, key=str):
        if complaint.kind not in (_BROKEN, _NULLS, _REPEATED):
            check = f"{complaint.column} must pass pandera's {complaint.check} ({complaint.kind})"
            yield Violation(table=contract.name, column=complaint.column, check=check, count=None)

"""The transforms of a declared pipeline: what each makes of the rows that it takes.

`filter`, `map`, `lookup` and `expectations` look at one row at a time. They leave rejected rows alone and
mark rows instead of removing them, so that every row can be counted after one pass. `sql` and `python` see
only the rows that go on, with the user's columns and `_offset`, and their result replaces these rows.

A value that does not fit the type that is declared for it makes its row a dead letter; it is never stored as
null or rounded. An expression that fails by itself (a division by zero, a cast of a bad text) fails the run,
as in Spark SQL; `try_divide` and `try_cast` give null instead.

Belongs here: what each transform does with rows. Does not belong here: user functions
(`python_functions.py`), Spark's messages about what the user wrote (`analysis.py`), the order of transforms
(`branches.py`), and the order of writing (`steps/load_table.py`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from etl_assets.contracts.columns import Column
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.contracts.sql_text import identifier
from etl_assets.errors import ContractError, NotFound, SchemaMismatch
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.pipelines.transform_specs import (
    Expectation,
    ExpectationsTransform,
    FilterTransform,
    LookupTransform,
    MapTransform,
    OnViolation,
    PythonTransform,
    SqlTransform,
)
from etl_assets.transforms.analysis import analyzed, fitted, place_of
from etl_assets.transforms.change_kinds import needs_place_only
from etl_assets.transforms.python_functions import call_on_batches, call_on_frame, load_function
from etl_assets.transforms.typed_records import ERROR, OFFSET, REASON

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

LEFT_OUT = "_left_out"
"""Whether a filter left the row out."""
GOES_ON = f"({REASON} IS NULL AND NOT {LEFT_OUT})"
"""The condition on the rows that are neither rejected nor left out."""
ReadTable = Callable[[str], "DataFrame"]
"""Returns the rows of another table of the catalog."""
_WORD = re.compile(r"[A-Za-z_]\w*")


def unmet(transform: int, rule: int) -> str:
    """Return the column that is true for rows that do not meet an expectation which does not drop them."""
    return f"_unmet_{transform}_{rule}"


@dataclass(frozen=True, kw_only=True)
class DeclaredTransforms:
    """The transforms of a pipeline in a session.

    Attributes:
        spark: The session.
        tables: The pipeline's tables.
        read_table: Reads another table of the catalog.
    """

    spark: SparkSession
    tables: DeclaredTables
    read_table: ReadTable
    _views: list[str] = field(default_factory=list)

    def by_row(self, index: int) -> bool:
        """Return whether a transform looks at one row at a time."""
        return not isinstance(self.tables.spec.transforms[index], SqlTransform | PythonTransform)

    def apply(self, index: int, *inputs: DataFrame) -> DataFrame:
        """Apply one transform.

        Args:
            index: Its place in the declaration.
            inputs: The rows of each of its inputs, in their order: the columns there, `_offset`, `_reason`,
                `_error`, `_left_out` and any number of `_unmet_…`. For `sql` and `python` the last ones are
                not kept.

        Returns:
            The columns after it, and the same others.

        Raises:
            ContractError, SchemaMismatch: Spark does not accept what the user wrote, or the result has other
                columns than declared. The message names the transform.
        """
        transform = self.tables.spec.transforms[index]
        if isinstance(transform, SqlTransform):
            return self._sql(index, transform, inputs)
        rows = self._united(index, inputs)
        match transform:
            case FilterTransform():
                return self._filter(index, transform, rows)
            case MapTransform():
                return self._map(index, transform, rows)
            case LookupTransform():
                return self._lookup(index, transform, rows)
            case ExpectationsTransform():
                return self._expectations(index, transform, rows)
            case PythonTransform():
                return self._python(index, transform, rows)

    @contextmanager
    def views(self) -> Generator[None]:
        """Keep the views that `sql` transforms read from until the end of the block."""
        try:
            yield
        finally:
            while self._views:
                self.spark.catalog.dropTempView(self._views.pop())

    def _united(self, index: int, inputs: Sequence[DataFrame]) -> DataFrame:
        """Return the rows of all inputs; a column that an input lacks is null in its rows."""
        if len(inputs) == 1:
            return inputs[0]
        rows = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), inputs)
        return rows.select(*(column.name for column in self.tables.columns_before(index)), *_hidden(rows))

    def _filter(self, index: int, transform: FilterTransform, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        where = self._condition(index, "where", transform.where, rows)
        stays = F.when(F.expr(GOES_ON), F.coalesce(where, F.lit(False))).otherwise(~F.col(LEFT_OUT))
        return analyzed(self._place(index), lambda: rows.withColumn(LEFT_OUT, ~stays), rows.columns)

    def _map(self, index: int, transform: MapTransform, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        place = self._place(index)
        values = {
            name: F.when(F.expr(GOES_ON), self._expression(index, f"columns.{name}", each.expression, rows))
            for name, each in transform.columns.items()
        }
        raw = analyzed(
            place,
            lambda: rows.select("*", *(value.alias(f"_value_{name}") for name, value in values.items())),
            rows.columns,
        )
        sources = {name: f"_value_{name}" for name in values}
        return self._fit(index, raw, sources).drop(*sources.values())

    def _lookup(self, index: int, transform: LookupTransform, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        keys = {
            mine: (f"_key_{number}", theirs) for number, (mine, theirs) in enumerate(transform.on.items())
        }
        found = self.read_table(transform.table).select(
            *(F.col(identifier(theirs)).alias(alias) for alias, theirs in keys.values()),
            *(F.col(identifier(of)).alias(f"_value_{name}") for name, of in transform.columns.items()),
        )
        matches = [rows[mine] == found[alias] for mine, (alias, _) in keys.items()]
        joined = rows.join(found, matches, "left")
        names = [column.name for column in self.tables.columns_after(index)]
        return joined.select(
            *(
                F.col(f"_value_{name}").alias(name) if name in transform.columns else F.col(name)
                for name in names
            ),
            *_hidden(rows),
        )

    def _expectations(self, index: int, transform: ExpectationsTransform, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        place = self._place(index)
        conditions = [
            self._condition(index, f"rules.{number}", rule.condition, rows)
            for number, rule in enumerate(transform.rules)
        ]
        for number, (rule, condition) in enumerate(zip(transform.rules, conditions, strict=True)):
            exempt = needs_place_only(rows, self.tables.spec.table)
            broken = F.when(F.expr(GOES_ON) & ~exempt, ~F.coalesce(condition, F.lit(False))).otherwise(
                F.lit(False)
            )
            if rule.on_violation is OnViolation.DROP:
                changes = self._rejected(broken, DeadLetterReason.EXPECTATION_FAILED, _said(rule))
            else:
                changes = {unmet(index, number): broken}
            rows = analyzed(place, lambda changes=changes, rows=rows: rows.withColumns(changes), rows.columns)
        return rows

    def _rejected(self, broken: SparkColumn, reason: DeadLetterReason, error: str) -> dict[str, SparkColumn]:
        from pyspark.sql import functions as F

        return {
            REASON: F.when(broken, F.lit(reason.value)).otherwise(F.col(REASON)),
            ERROR: F.when(broken, F.lit(error)).otherwise(F.col(ERROR)),
        }

    def _sql(self, index: int, transform: SqlTransform, rows: Sequence[DataFrame]) -> DataFrame:
        place = self._place(index)
        named = {
            name: going_on(each, self.tables.columns_after(source))
            for name, each, source in zip(
                transform.inputs or ("input",), rows, self.tables.inputs[index], strict=True
            )
        }
        if len(named) == 1:
            named["input"] = next(iter(named.values()))
        tables = {**self._named_in(transform.select, named), **named}
        parts = [
            f"{identifier(name)} AS (SELECT * FROM {self._view(frame)})" for name, frame in tables.items()
        ]
        # In parentheses only a query is valid. Lines of its own end a comment in the statement's last line.
        select = transform.select.strip().rstrip(";")
        text = f"WITH {', '.join(parts)} SELECT * FROM (\n{select}\n)"
        known = sorted({column for frame in tables.values() for column in frame.columns})
        return self._replaced(index, analyzed(place, lambda: self.spark.sql(text), known, named))

    def _named_in(self, text: str, inputs: Collection[str]) -> dict[str, DataFrame]:
        """Return the tables of the catalog whose names occur in a statement, but for inputs and the
        pipeline's own.

        A table that is made from itself would depend on how often it is made.
        """
        found = {}
        for word in dict.fromkeys(word.lower() for word in _WORD.findall(text)):
            if word in inputs or word == self.tables.spec.table_name:
                continue
            try:
                name = self.tables.contract_of(word).name
            except NotFound:
                continue
            found[name] = self.read_table(name)
        return found

    def _view(self, frame: DataFrame) -> str:
        name = f"pipeline_{uuid.uuid4().hex}"
        frame.createOrReplaceTempView(name)
        self._views.append(name)
        return identifier(name)

    def _python(self, index: int, transform: PythonTransform, rows: DataFrame) -> DataFrame:
        place = self._place(index)
        function = load_function(transform.function, place)
        given = going_on(rows, self.tables.columns_before(index))
        if transform.batches:
            columns = self.tables.columns_after(index)
            return self._replaced(index, call_on_batches(function, given, columns, place))
        made = call_on_frame(function, given, place)
        return self._replaced(index, analyzed(place, lambda: made, given.columns))

    def _replaced(self, index: int, made: DataFrame) -> DataFrame:
        """Return the result of `sql` or `python` as rows, if it has the declared columns."""
        from pyspark.sql import functions as F

        place, columns = self._place(index), self.tables.columns_after(index)
        check_result(made, columns, place)
        rows = made.select(
            *(F.col(column.name).alias(f"_value_{column.name}") for column in columns),
            F.col(OFFSET).cast("bigint").alias(OFFSET),
            F.lit(None).cast("string").alias(REASON),
            F.lit(None).cast("string").alias(ERROR),
            F.lit(False).alias(LEFT_OUT),
        )
        sources = {column.name: f"_value_{column.name}" for column in columns}
        return self._fit(index, rows, sources).drop(*sources.values())

    def _fit(self, index: int, rows: DataFrame, sources: dict[str, str]) -> DataFrame:
        """Return rows with values in the types of the columns after a transform.

        Args:
            index: The transform.
            rows: Rows with the values.
            sources: The column of `rows` that holds the value of each computed column.
        """
        from pyspark.sql import functions as F

        place, selected, problems = self._place(index), [], []
        for column in self.tables.columns_after(index):
            if column.name not in sources:
                selected.append(F.col(column.name))
                continue
            value, misfit = fitted(rows, sources[column.name], column, place)
            selected.append(value.alias(column.name))
            if misfit is not None:
                error = f"the value of {column.name} from {place} does not fit the type {column.type}"
                problems.append((misfit, error))
        hidden = [name for name in _hidden(rows) if not name.startswith("_value_")]
        done = rows.select(
            *selected,
            *hidden,
            *sources.values(),
            *(misfit.alias(f"_misfit_{number}") for number, (misfit, _) in enumerate(problems)),
        )
        for number, (_, error) in enumerate(problems):
            broken = F.expr(GOES_ON) & F.col(f"_misfit_{number}")
            done = done.withColumns(self._rejected(broken, DeadLetterReason.CONTRACT_VIOLATION, error))
        return done.drop(*(f"_misfit_{number}" for number in range(len(problems))))

    def _expression(self, index: int, where: str, text: str, rows: DataFrame) -> SparkColumn:
        """Return the user's expression as one column, if Spark accepts it."""
        from pyspark.sql import functions as F

        place = f"{self._place(index)}, {where}"
        found = analyzed(place, lambda: rows.select(F.expr(text)), rows.columns)
        if len(found.columns) != 1:
            raise ContractError(
                f"{place}: the expression gives {len(found.columns)} columns",
                fix="write an expression that gives one value",
                field=f"transforms.{index}.{where}",
            )
        return F.expr(text)

    def _condition(self, index: int, where: str, text: str, rows: DataFrame) -> SparkColumn:
        condition = self._expression(index, where, text, rows)
        found = rows.select(condition).schema[0].dataType.simpleString()
        if found not in ("boolean", "void"):
            raise ContractError(
                f"{self._place(index)}, {where}: the condition is {found}, not true or false",
                fix="compare the value with something, such as: age >= 0",
                field=f"transforms.{index}.{where}",
            )
        return condition.cast("boolean")

    def _place(self, index: int) -> str:
        return place_of(index, self.tables.spec.transforms[index].type)


def going_on(rows: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Return the user's columns and `_offset` of the rows that are neither rejected nor left out."""
    return rows.where(GOES_ON).select(*(column.name for column in columns), OFFSET)


def check_result(made: DataFrame, columns: Sequence[Column], place: str) -> None:
    """Reject a result that lacks `_offset`, or has other columns than declared.

    Raises:
        SchemaMismatch: carries `column`.
    """
    found, names = made.columns, [column.name for column in columns]
    if OFFSET not in found:
        raise SchemaMismatch(
            f"{place}: the result has no column {OFFSET}, which says what record a row is from",
            fix=f"select `{OFFSET}` too, or `select *`",
            column=OFFSET,
        )
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice:
        raise SchemaMismatch(
            f"{place}: the result has more than one column {twice[0]}",
            fix="name the columns instead of `*`, each of them once",
            column=twice[0],
        )
    if missing := [name for name in names if name not in found]:
        raise SchemaMismatch(
            f"{place}: the result has no column {', '.join(missing)}",
            fix="add it to the result, or declare the columns of the result in `columns`",
            column=missing[0],
        )
    if more := [name for name in found if name not in (*names, OFFSET)]:
        raise SchemaMismatch(
            f"{place}: the result has the undeclared column {', '.join(more)}",
            fix="declare the columns of the result in `columns`, with their types, or leave it out",
            column=more[0],
        )


def _said(rule: Expectation) -> str:
    return f"{rule.name}: the row does not meet the expectation"


def _hidden(rows: DataFrame) -> list[str]:
    return [name for name in rows.columns if name.startswith("_")]

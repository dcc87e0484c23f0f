"""What Spark's analyzer says about the user's SQL and Python, as errors that name the transform.

Belongs here: Spark's messages in the platform's form, and which types fit each other. Does not belong here:
the transforms themselves (`declared_transforms.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from etl_assets.contracts.columns import Column
from etl_assets.contracts.sql_text import identifier
from etl_assets.errors import ContractError, SchemaMismatch
from etl_assets.pipelines.problem import near

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

_WHOLE = ("tinyint", "smallint", "int", "bigint")
_EXACT_NUMBER = re.compile(r"tinyint|smallint|int|bigint|decimal\(.*\)")
_NUMBER = re.compile(r"tinyint|smallint|int|bigint|decimal\(.*\)|float|double")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_END = re.compile(r"\s*(Did you mean one of the following\?.*|SQLSTATE: \w+.*)", re.DOTALL)
"""The fix names near columns of the user's alone."""


def place_of(index: int, kind: str) -> str:
    """Return the name of a transform in errors: `transforms[1] (sql)`."""
    return f"transforms[{index}] ({kind})"


def analyzed(
    place: str, make: Callable[[], DataFrame], columns: Collection[str], inputs: Collection[str] = ("input",)
) -> DataFrame:
    """Return a frame that Spark has analyzed.

    Args:
        place: The transform, for errors.
        make: Makes the frame.
        columns: Columns that the user may name, for near misses.
        inputs: The names of the rows that a statement may select from.

    Raises:
        ContractError: Spark does not accept it. Carries `place`.
    """
    from pyspark.errors import AnalysisException, ParseException

    try:
        made = make()
        _ = made.schema  # A remote session analyzes only here.
    except (AnalysisException, ParseException) as error:
        raise ContractError(
            f"{place}: {_message(error)}", fix=_fix(error, columns, inputs), place=place
        ) from error
    return made


def is_condition(rows: DataFrame, text: str) -> bool:
    """Return whether Spark takes a text for a condition on the columns of a frame."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as F

    try:
        found = rows.select(F.expr(text)).schema.fields
    except (AnalysisException, ParseException):
        return False
    return len(found) == 1 and found[0].dataType.simpleString() == "boolean"


def fitted(
    rows: DataFrame, source: str, column: Column, place: str
) -> tuple[SparkColumn, SparkColumn | None]:
    """Return a value in the type of its column, and whether it does not fit, if that can happen.

    Args:
        rows: The rows with the value.
        source: The column that holds the value.
        column: The declared column.
        place: The transform, for errors.

    Raises:
        SchemaMismatch: a value of that type is not taken for the declared type.
    """
    from pyspark.sql import functions as F

    from etl_assets.contracts.spark_types import spark_type

    wanted = spark_type(column.parsed_type)
    found = rows.schema[source].dataType
    value = F.col(source)
    if found.simpleString() == wanted.simpleString():
        return value, None
    if not _casts(found, wanted):
        raise SchemaMismatch(
            f"{place}: {column.name} is {found.simpleString()}, and {column.type} is declared",
            fix=f"write CAST(… AS {column.type}) where it is made, or declare another type",
            column=column.name,
            expected=column.type,
            found=found.simpleString(),
        )
    as_wanted = F.expr(f"try_cast({identifier(source)} AS {column.type})")
    if not (_EXACT_NUMBER.fullmatch(found.simpleString()) and _EXACT_NUMBER.fullmatch(wanted.simpleString())):
        return as_wanted, None
    # A number that would be cut off or rounded differs from what it becomes.
    return as_wanted, value.isNotNull() & (as_wanted.isNull() | (as_wanted != value))


def _casts(found: DataType, wanted: DataType) -> bool:
    """Return whether values of a type may stand for another type without a cast of the user's."""
    one, other = found.simpleString(), wanted.simpleString()
    if one == "void":
        return True
    if _EXACT_NUMBER.fullmatch(one):
        return bool(_NUMBER.fullmatch(other))
    return (one, other) in {
        ("float", "double"),
        ("date", "timestamp"),
        ("timestamp_ntz", "timestamp"),
    } or (other == "string" and one.startswith(("char", "varchar")))


def _message(error: BaseException) -> str:
    """Return the sentence of a Spark error, without its condition and the query plan."""
    text = _END.sub("", str(error))
    first = next((line for line in text.splitlines() if line.strip()), "Spark does not accept it")
    return _CONDITION.sub("", first).strip()


def _fix(error: BaseException, columns: Collection[str], inputs: Collection[str]) -> str:
    parameters = getattr(error, "getMessageParameters", lambda: None)() or {}
    name = str(parameters.get("objectName") or parameters.get("relationName") or "")
    wanted = name.replace("`", "").rpartition(".")[2]
    seen = [each for each in columns if not each.startswith("_") or each == "_offset"]
    if close := difflib.get_close_matches(wanted, seen, n=1) if wanted else []:
        return f"did you mean {close[0]!r}?"
    if "objectName" in parameters:
        return f"use one of {', '.join(seen)}"
    if "relationName" in parameters:
        if meant := near(wanted, inputs):
            return meant.strip()
        names = ", ".join(f"`{name}`" for name in inputs)
        return (
            f"select from {names}, or from a table that `etl-assets tables list` shows, but not from the"
            " pipeline's own"
        )
    return "write Spark SQL that gives a value; a transform of type sql is a single SELECT"

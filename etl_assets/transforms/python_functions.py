"""Python functions of users as transforms: finding them, and calling them on frames or record batches.

Belongs here: what a function gets and must return. Does not belong here: the columns of its result
(`declared_transforms.py`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.columns import Column
from etl_assets.errors import ContractError, SchemaMismatch
from etl_assets.transforms.typed_records import OFFSET

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def load_function(reference: str, place: str) -> Callable[[Any], Any]:
    """Import `module:function`.

    Raises:
        ContractError: there is no such module or function. Carries `place`.
    """
    module_name, _, name = reference.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ContractError(
            f"{place}: the module {module_name} cannot be imported: {error}",
            fix="install the package that has it where the platform runs, or correct `function`",
            place=place,
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        what = "has no function" if function is None else "has something else than a function as"
        raise ContractError(
            f"{place}: the module {module_name} {what} {name}",
            fix="correct `function`: module:function",
            place=place,
        )
    return function


def call_on_frame(function: Callable[[Any], Any], rows: DataFrame, place: str) -> DataFrame:
    """Return the frame that a function makes of rows.

    Raises:
        ContractError: it returns something else.
    """
    try:
        made = function(rows)
    except Exception as error:
        error.add_note(f"raised by the function of {place}")
        raise
    if not (hasattr(made, "schema") and hasattr(made, "mapInArrow")):
        raise ContractError(
            f"{place}: the function returned a {type(made).__name__}",
            fix="return a Spark DataFrame, or set `batches: true` for a function of record batches",
            place=place,
        )
    return made


def call_on_batches(
    function: Callable[[Any], Any], rows: DataFrame, columns: Sequence[Column], place: str
) -> DataFrame:
    """Return the rows that a function makes of each Arrow record batch.

    The columns of its batches are cast to the declared types; a value that would change fails the run.

    Args:
        function: Takes a record batch and returns one.
        rows: The user's columns and `_offset`.
        columns: The declared columns of the result.
        place: The transform, for errors.
    """
    from pyspark.sql import types

    from etl_assets.contracts.arrow_types import arrow_type
    from etl_assets.contracts.spark_types import spark_type

    schema = types.StructType(
        [
            *(types.StructField(column.name, spark_type(column.parsed_type)) for column in columns),
            types.StructField(OFFSET, types.LongType()),
        ]
    )
    arrow = {column.name: arrow_type(column.parsed_type) for column in columns}
    return rows.mapInArrow(_Batches(function=function, columns=arrow, place=place), schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batches:
    """The function over a partition's batches, run by Spark's Python workers."""

    function: Callable[[Any], Any]
    columns: dict[str, pa.DataType]
    place: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            made = self.function(batch)
            if not isinstance(made, pa.RecordBatch):
                raise ContractError(
                    f"{self.place}: the function returned a {type(made).__name__}",
                    fix="return a pyarrow.RecordBatch",
                )
            yield self._as_declared(made)

    def _as_declared(self, made: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        wanted = self.columns | {OFFSET: pa.int64()}
        found = made.schema.names
        wrong = [name for name in wanted if found.count(name) != 1]
        wrong += [name for name in found if name not in wanted]
        if wrong:
            raise SchemaMismatch(
                f"{self.place}: the result has the columns {', '.join(found)}, and the declared ones are"
                f" {', '.join(wanted)}",
                fix=f"return each declared column once, and `{OFFSET}`; differing: {', '.join(wrong)}",
                column=wrong[0],
            )
        arrays = [as_declared(made.column(name), type_) for name, type_ in wanted.items()]
        return pa.RecordBatch.from_arrays(arrays, names=list(wanted))


def as_declared(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return a column as a declared type.

    A text becomes a decimal by way of 256 bits: Arrow's cast to 128 returns another number where the digits
    and the zeros up to the scale do not fit.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    import pyarrow as pa
    from pyarrow import types

    is_text = types.is_string(column.type) or types.is_large_string(column.type)
    if is_text and types.is_decimal128(type_):
        column = column.cast(pa.decimal256(76, type_.scale))
    return column.cast(type_)

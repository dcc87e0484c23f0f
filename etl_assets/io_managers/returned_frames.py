"""Convert what an asset returned to a Spark DataFrame with the same values and types.

Accepted are frames of Spark, pandas, Polars and pyarrow. These packages are looked up among the imported
modules: an asset that returns a frame has imported its package. Does not belong here: which Arrow types can
be stored (`arrow_types.py`), and what an asset is given (`requested_frames.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from etl_assets.errors import ContractError, SchemaMismatch
from etl_assets.io_managers.arrow_types import storable

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_NOT_ARROWS = ("Object", "Int128", "UInt128", "Unknown")
"""Polars types without an equivalent in Arrow."""


def spark_frame(
    obj: Any,
    *,
    spark: Callable[[], SparkSession],
    known: Callable[[], StructType | None],
    asset: str,
) -> DataFrame:
    """Return a Spark DataFrame with the rows of a frame.

    Args:
        obj: The object that the asset returned.
        spark: Returns the session; called if the frame is not Spark's.
        known: Returns the columns of the asset's table, if it has one. A pandas column of Python objects
            takes its type from there.
        asset: The asset's name, for errors.

    Raises:
        ContractError: the object is not a frame.
        SchemaMismatch: a column cannot be stored with the same values.
    """
    # Check the class: a frame also has an attribute for each of its columns.
    if hasattr(type(obj), "sparkSession"):
        return obj
    table = _arrow_table(obj, known, asset=asset)
    if table is None:
        raise ContractError(
            f"the asset {asset} returned {_type_name(obj)}",
            fix="return a DataFrame of Spark, pandas or Polars, or a pyarrow.Table",
            asset=asset,
        )
    return _of_arrow(spark(), storable(table, asset=asset))


def _arrow_table(obj: Any, known: Callable[[], StructType | None], *, asset: str) -> pa.Table | None:
    pandas, polars, pyarrow = (sys.modules.get(name) for name in ("pandas", "polars", "pyarrow"))
    if pandas is not None and isinstance(obj, pandas.DataFrame):
        return _of_pandas(obj, known(), asset=asset)
    if polars is not None and isinstance(obj, polars.LazyFrame):
        obj = obj.collect()
    if polars is not None and isinstance(obj, polars.DataFrame):
        for name, type_ in obj.schema.items():
            for part in _polars_parts(type_):
                if type(part).__name__ in _NOT_ARROWS or str(part) in _NOT_ARROWS:
                    raise _unstorable(name, str(type_), asset=asset)
        return obj.to_arrow()
    if pyarrow is not None and isinstance(obj, pyarrow.Table):
        return obj
    return None


def _of_arrow(spark: SparkSession, table: pa.Table) -> DataFrame:
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    # pyspark splits nested columns by their offsets, which in a slice do not start at zero.
    whole = pa.Table.from_batches(
        [pa.concat_batches([batch]) for batch in table.combine_chunks().to_batches()], schema=table.schema
    )
    rows: Any = whole if table.num_rows else table.schema.empty_table()
    return spark.createDataFrame(rows, schema)


def _of_pandas(frame: Any, known: StructType | None, *, asset: str) -> pa.Table:
    """Convert a pandas frame by column. Values that pandas considers missing, NaN included, become null."""
    import pyarrow as pa

    if named := [str(name) for name in frame.index.names if name is not None]:
        raise SchemaMismatch(
            f"the frame that the asset {asset} returned has the index {', '.join(named)}, and an index is"
            " not stored",
            fix="make it a column: frame.reset_index(); or leave it out: frame.reset_index(drop=True)",
            asset=asset,
            column=named[0],
        )
    types = _types_of(known)
    names, columns = [], []
    for position, name in enumerate(frame.columns):
        if not isinstance(name, str):
            raise SchemaMismatch(
                f"the frame that the asset {asset} returned has the column {name!r}, whose name is no text",
                fix="rename it: frame.columns = [...]",
                asset=asset,
                column=str(name),
            )
        series = frame.iloc[:, position]
        wanted = types.get(name) if str(series.dtype) == "object" else None
        try:
            # pyarrow's type stubs do not declare that it accepts a series.
            values: Any = series
            columns.append(pa.array(values, type=wanted, from_pandas=True))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
            raise SchemaMismatch(
                f"the column {name} that the asset {asset} returned has values that are not all of one type"
                + (f", or not exactly {wanted} as in its table" if wanted is not None else ""),
                fix=f"give every row of {name} a value of the same type, or None",
                asset=asset,
                column=name,
                found=str(series.dtype),
            ) from error
        names.append(name)
    return pa.Table.from_arrays(columns, names=names)


def _types_of(known: StructType | None) -> Mapping[str, pa.DataType]:
    from pyspark.sql.pandas.types import to_arrow_schema

    if known is None:
        return {}
    return {field.name: field.type for field in to_arrow_schema(known, timezone="UTC")}


def _polars_parts(type_: Any) -> Iterator[Any]:
    """Yield a Polars type and the types nested in it."""
    yield type_
    if (inner := getattr(type_, "inner", None)) is not None:
        yield from _polars_parts(inner)
    for field in getattr(type_, "fields", ()):
        yield from _polars_parts(field.dtype)


def _unstorable(column: str, type_: str, *, asset: str) -> SchemaMismatch:
    return SchemaMismatch(
        f"the column {column} that the asset {asset} returned has the type {type_}, which cannot be stored",
        fix=f"cast {column} to another type: a number, a text, a date or a timestamp",
        asset=asset,
        column=column,
        found=type_,
    )


def _type_name(obj: Any) -> str:
    kind = type(obj)
    package = kind.__module__.partition(".")[0]
    return kind.__qualname__ if package == "builtins" else f"{package}.{kind.__qualname__}"

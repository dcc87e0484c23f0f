"""What a row does to a table that applies changes: it is an upsert, a delete or a truncate.

Belongs here: the conditions `apply_as_deletes` and `apply_as_truncates` on the rows of a declared pipeline,
and which values such rows need. Does not belong here: what becomes of the changes (`delta/write/changes.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.contracts.write_mode import WriteMode
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.errors import ContractError
from etl_assets.transforms.analysis import analyzed, is_condition
from etl_assets.transforms.typed_records import Partial

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.pipelines.spec import TableSpec

DELETES, TRUNCATES = "table.apply_as_deletes", "table.apply_as_truncates"
"""Places in the declaration."""


def conditions(spec: TableSpec) -> dict[str, str]:
    """Return the conditions of a table, by their places in the declaration."""
    given = {TRUNCATES: spec.apply_as_truncates, DELETES: spec.apply_as_deletes}
    return {place: text for place, text in given.items() if text is not None}


def partial_records(spec: TableSpec) -> list[Partial]:
    """Return which records need few values: deletes the keys and the sequence, truncates the sequence."""
    order = set() if spec.sequence_by is None else {spec.sequence_by}
    needs = {DELETES: frozenset({*spec.keys, *order}), TRUNCATES: frozenset(order)}
    return [Partial(condition=text, needs=needs[place]) for place, text in conditions(spec).items()]


def needs_place_only(rows: DataFrame, spec: TableSpec) -> Column:
    """Return whether a row is a delete or a truncate, as far as the columns before a transform say so."""
    from pyspark.sql import functions as F

    found = F.lit(False)
    for text in conditions(spec).values():
        if is_condition(rows, text):
            found = found | F.coalesce(F.expr(text), F.lit(False))
    return found


def with_kinds(rows: DataFrame, tables: DeclaredTables) -> DataFrame:
    """Return the rows after the transforms with `_is_deleted` and `_is_truncate`, if their table applies
    changes.

    Raises:
        ContractError: a condition is not one on these columns. Carries `field`.
    """
    from pyspark.sql import functions as F

    spec = tables.spec.table
    if spec.write_mode is not WriteMode.APPLY_CHANGES:
        return rows
    found = {place: _condition(rows, place, text) for place, text in conditions(spec).items()}
    truncates, deletes = (found.get(place, F.lit(False)) for place in (TRUNCATES, DELETES))
    return rows.withColumns({IS_TRUNCATE: truncates, IS_DELETED: deletes & ~truncates})


def check_conditions(rows: DataFrame, spec: TableSpec) -> Iterator[ContractError]:
    """Yield what Spark's analyzer says against the conditions of a table.

    Args:
        rows: A frame with the columns after the transforms.
        spec: The table's block.
    """
    for place, text in conditions(spec).items():
        try:
            _condition(rows, place, text)
        except ContractError as error:
            yield error


def _condition(rows: DataFrame, place: str, text: str) -> Column:
    """Return a condition that is true or false for each row."""
    from pyspark.sql import functions as F

    try:
        found = analyzed(place, lambda: rows.select(F.expr(text)), rows.columns).schema
    except ContractError as error:
        raise ContractError(error.message, fix=error.fix, field=place) from error
    kinds = [field.dataType.simpleString() for field in found.fields]
    if kinds != ["boolean"]:
        raise ContractError(
            f"{place}: the condition is {', '.join(kinds)}, not true or false",
            fix="compare a column with something, such as: op = 'D'",
            field=place,
        )
    return F.coalesce(F.expr(text), F.lit(False))

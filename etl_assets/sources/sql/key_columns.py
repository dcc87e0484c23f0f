"""Whether the columns that order a query's rows are still what a position was made of.

Belongs here: comparing types. Does not belong here: what is wrong with a declaration (`validation.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from etl_assets.errors import SourceRefused

if TYPE_CHECKING:
    from etl_assets.sources.sql.bounds import Key, Pair
    from etl_assets.sources.sql.database import Database

_SAME = ({"int2", "int4", "int8", "numeric"}, {"text", "varchar"})
"""Types whose values compare alike: a column may change from one to another."""


def check_key_columns(database: Database, name: str, columns: tuple[str, str], before: Pair | None) -> None:
    """Check two key columns against the query's result and a position.

    Args:
        database: The query.
        name: What messages call it.
        columns: The columns of a pair.
        before: The pair of the position.

    Raises:
        SourceRefused: a key column is missing, or has another type than the position.
    """
    described = {each.name: each for each in database.columns()}
    held: Mapping[str, Key | None] = {
        columns[0]: before.key if before else None,
        columns[1]: before.id if before else None,
    }
    for column_name, key in held.items():
        if (column := described.get(column_name)) is None:
            raise SourceRefused(
                f"{name}: the query's result has no column {column_name} any more",
                fix=f"let the query return it again; it returns {', '.join(described)}",
                source=name,
            )
        if column.type and not column.orders:
            raise _type_refused(name, column_name, column.type, "it has no order that positions can follow")
        if key is not None and not _alike(key, column.type):
            why = f"the position has a value of type {key.type}"
            raise _type_refused(name, column_name, column.type, why)


def _type_refused(name: str, column: str, type_: str, why: str) -> SourceRefused:
    return SourceRefused(
        f"{name}: the column {column} is {type_}, and {why}",
        fix=f"cast it in the query to the type that it had, or name another key than {column}",
        source=name,
    )


def _alike(key: Key, type_: str) -> bool:
    return not type_ or key.type == type_ or any({key.type, type_} <= kinds for kinds in _SAME)

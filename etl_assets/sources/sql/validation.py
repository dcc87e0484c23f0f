"""Whether a query and its key columns can be read, asked of the database before anything is read.

Belongs here: problems by the field of the declaration. Does not belong here: the lines of a file
(`pipelines/`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from etl_assets.sources.sql.bounds import KeyBounds

if TYPE_CHECKING:
    from etl_assets.sources.sql.database import Database, QueryColumn

CHECKED_ROWS = 10_000
"""Rows among which repeated pairs are looked for."""
INCREMENTAL, FULL = ("incremental_key", "incremental_id_key"), ("id", "id")
"""Fields of a declaration that name the two key columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryProblem:
    """What is wrong with a field of the source's declaration."""

    field: str
    message: str
    fix: str


def query_problems(
    database: Database,
    *,
    key: str,
    id: str,
    overlap: Decimal | None,
    fields: tuple[str, str] = INCREMENTAL,
) -> list[QueryProblem]:
    """Return what keeps a query from being read by two key columns, which may be one.

    Raises:
        SourceUnavailable: the database does not answer, so nothing is known.
        SourceRefused: it refuses the query.
    """
    columns = database.columns()
    named = tuple(dict.fromkeys(zip(fields, (key, id), strict=True)))
    found = [*_of_columns(columns), *_of_keys(columns, named, overlap=overlap)]
    return found or list(_of_rows(database, named))


def _of_columns(columns: tuple[QueryColumn, ...]) -> Iterator[QueryProblem]:
    names = [each.name for each in columns]
    for name in dict.fromkeys(each for each in names if names.count(each) > 1):
        yield QueryProblem(
            field="query",
            message=f"the query returns two columns named `{name}`",
            fix=f"name one of them differently: `AS {name}_2`",
        )
    for column in columns:
        if column.refusal:
            yield QueryProblem(
                field="query",
                message=f"the column `{column.name}` of the query cannot be read: "
                f"{column.refusal.partition('; ')[0]}",
                fix=column.refusal.partition("; ")[2],
            )


def _of_keys(
    columns: tuple[QueryColumn, ...], named: tuple[tuple[str, str], ...], *, overlap: Decimal | None
) -> Iterator[QueryProblem]:
    by_name = {each.name: each for each in columns}
    for field, name in named:
        column = by_name.get(name)
        if column is None:
            yield QueryProblem(
                field=field,
                message=f"the query returns no column `{name}`",
                fix=f"one of its columns, by the name that it has after AS: {', '.join(by_name)}",
            )
        elif column.type and not column.orders:
            yield QueryProblem(
                field=field,
                message=f"`{name}` is {column.type}, which has no order that positions can follow",
                fix="a column of a time, date, integer, numeric, uuid or text type",
            )
        elif field == "incremental_key" and overlap is not None and column.type and not column.overlaps:
            yield QueryProblem(
                field="overlap",
                message=f"`{name}` is {column.type}, from which no overlap can be taken",
                fix="remove overlap, or use a key that is a time or a number",
            )


def _of_rows(database: Database, named: tuple[tuple[str, str], ...]) -> Iterator[QueryProblem]:
    names = [name for _, name in named]
    with database.snapshot():
        if database.lacks_keys():
            yield QueryProblem(
                field=named[0][0],
                message=f"the query returns rows without a `{'` or without an `'.join(names)}`",
                fix="leave them out: `WHERE "
                + " AND ".join(f"{name} IS NOT NULL" for name in names)
                + "`, or give them a value",
            )
        if database.repeated_pair(CHECKED_ROWS):
            yield QueryProblem(
                field=named[-1][0],
                message=f"the query returns several rows with the same `{'` and `'.join(names)}`",
                fix="a column that identifies a row of the query's result; a join may repeat rows",
            )
        # A query may fail only once it has to compute values.
        database.count(KeyBounds(), 1)

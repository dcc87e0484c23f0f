"""The target's table and that of positions: made, extended, and compared with the contract.

Belongs here: DDL. Does not belong here: rows (`sink.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from psycopg import sql

from etl_assets.contracts.postgres_types import can_widen, holds, postgres_type
from etl_assets.errors import SinkRefused
from etl_assets.pipelines.sink_specs.postgres import POSITIONS

if TYPE_CHECKING:
    import psycopg

    from etl_assets.contracts.columns import TableContract

_LOCK = 0x65746C61
"""Key of the advisory lock under which tables are made and changed."""
_MAX_NAME_BYTES = 63


def columns_of(contract: TableContract) -> list[str]:
    """Return the columns of the target: the table's, without the version that wrote the row."""
    return [name for name in contract.names if name != contract.batch_column]


def prepare_tables(
    session: psycopg.Connection,
    contract: TableContract,
    schema: str,
    table: str,
    owner: tuple[str, str],
    target: str,
) -> None:
    """Create or extend the tables, in one transaction."""
    with session.transaction():
        session.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        found = session.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
        if found is None:
            session.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        positions = sql.Identifier(schema, POSITIONS)
        if not _exists(session, schema, POSITIONS):
            session.execute(
                sql.SQL(
                    "CREATE TABLE {} (pipeline text NOT NULL, sink text NOT NULL, target text NOT NULL"
                    " UNIQUE, table_id text NOT NULL, version bigint NOT NULL, tombstones bigint NOT NULL,"
                    " delivered_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (pipeline, sink))"
                ).format(positions)
            )
        held = session.execute(
            sql.SQL("SELECT pipeline, sink FROM {} WHERE target = %s").format(positions), (table,)
        ).fetchone()
        if held is not None and tuple(held) != owner:
            _refuse(
                target,
                f"it is the target of the sink {held[1]} of the pipeline {held[0]}",
                f"name another table, or delete that row of {schema}.{POSITIONS} if the sink is gone",
            )
        if _exists(session, schema, table):
            _extend(session, contract, schema, table, target, is_ours=held is not None)
        else:
            _create(session, contract, schema, table, target)


def _exists(session: psycopg.Connection, schema: str, table: str) -> bool:
    query = (
        "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace"
        " WHERE nspname = %s AND relname = %s"
    )
    return session.execute(query, (schema, table)).fetchone() is not None


def _create(
    session: psycopg.Connection, contract: TableContract, schema: str, table: str, target: str
) -> None:
    parts = [
        sql.SQL("{} {}{}").format(
            _identifier(name, target),
            sql.SQL(postgres_type(contract.column(name).parsed_type)),  # ty: ignore[invalid-argument-type]
            sql.SQL(" NOT NULL" if name in contract.merge_key else ""),
        )
        for name in columns_of(contract)
    ]
    keys = sql.SQL(", ").join(map(sql.Identifier, contract.merge_key))
    session.execute(
        sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(
            sql.Identifier(schema, table), sql.SQL(", ").join(parts), keys
        )
    )


def _extend(
    session: psycopg.Connection,
    contract: TableContract,
    schema: str,
    table: str,
    target: str,
    *,
    is_ours: bool,
) -> None:
    name = sql.Identifier(schema, table)
    if not is_ours and session.execute(sql.SQL("SELECT 1 FROM {} LIMIT 1").format(name)).fetchone():
        _refuse(
            target,
            "the table has rows that this sink did not deliver",
            "name another table, or empty this one",
        )
    there = {
        column: (kind, required)
        for column, kind, required in session.execute(
            "SELECT attname, format_type(atttypid, atttypmod), attnotnull AND NOT atthasdef AND attidentity ="
            " '' FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            (name.as_string(session),),
        )
    }
    wanted = columns_of(contract)
    for column, (_, required) in there.items():
        if required and column not in wanted:
            _refuse(
                target,
                f"its column {column} must have a value, and {contract.name} has no such column",
                f"ALTER TABLE {schema}.{table} ALTER COLUMN {column} DROP NOT NULL, or give it a default",
            )
    for column in wanted:
        kind = postgres_type(contract.column(column).parsed_type)
        change = None
        if column not in there:
            change = "ADD COLUMN {} {}"
        elif not holds(there[column][0], kind):
            if not can_widen(there[column][0], kind):
                _refuse(
                    target,
                    f"its column {column} is {there[column][0]}, and {contract.name} has {kind}",
                    f"ALTER TABLE {schema}.{table} ALTER COLUMN {column} TYPE {kind} USING …, or drop it",
                )
            change = "ALTER COLUMN {} TYPE {}"
        if change is not None:
            session.execute(
                sql.SQL("ALTER TABLE {} ").format(name)
                + sql.SQL(change).format(_identifier(column, target), sql.SQL(kind))  # ty: ignore[invalid-argument-type]
            )
    _expect_unique(session, contract, schema, table, target)


def _expect_unique(
    session: psycopg.Connection, contract: TableContract, schema: str, table: str, target: str
) -> None:
    found = session.execute(
        "SELECT array_agg(attname::text) FROM pg_index JOIN pg_attribute ON attrelid = indrelid"
        " AND attnum = ANY(indkey) WHERE indrelid = %s::regclass AND indisunique AND indimmediate"
        " AND indpred IS NULL AND indexprs IS NULL GROUP BY indexrelid",
        (sql.Identifier(schema, table).as_string(session),),
    ).fetchall()
    if not any(set(names) == set(contract.merge_key) for (names,) in found):
        keys = ", ".join(contract.merge_key)
        _refuse(
            target,
            f"it has no primary key or unique index of {keys}, the keys of {contract.name}",
            f"ALTER TABLE {schema}.{table} ADD PRIMARY KEY ({keys}), or drop the table",
        )


def _identifier(column: str, target: str) -> sql.Identifier:
    if len(column.encode()) > _MAX_NAME_BYTES:
        _refuse(
            target,
            f"PostgreSQL cuts off the name of the column {column}",
            "give it one of at most 63 characters",
        )
    return sql.Identifier(column)


def _refuse(target: str, why: str, fix: str) -> NoReturn:
    raise SinkRefused(f"{target} cannot be written: {why}", fix=fix, sink=target)

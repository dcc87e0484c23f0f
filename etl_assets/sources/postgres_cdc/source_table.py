"""The table whose changes are read: its columns as the log has them, and whether it can be followed.

Belongs here: describing it by the server's catalog. Does not belong here: its rows (`table_copy.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from etl_assets.errors import SourceRefused
from etl_assets.sources.postgres_cdc.messages import RelationColumn, RelationMessage
from etl_assets.sources.postgres_cdc.server_state import (
    PublicationState,
    SourceTableState,
    read_publication_state,
    read_table_state,
)
from etl_assets.sources.sql.postgres_text import quoted

if TYPE_CHECKING:
    import psycopg

_UNIQUE = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid
        AND i.indpred IS NULL AND i.indexprs IS NULL AND (
            SELECT array_agg(a.attname::text ORDER BY a.attname) FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
        ) = %s::text[]
), (
    SELECT count(*) FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = %s AND a.attname = ANY (%s) AND a.attnotnull
)
"""
_ALL_OPERATIONS = frozenset({"insert", "update", "delete", "truncate"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTable:
    """A table that can be followed.

    Attributes:
        oid: Its OID.
        name: Its name, quoted and with its schema.
        keys: Columns that identify a row: unique and never null.
        relation: Its columns as the log has them.
        key_types: Types of the key columns, as SQL has them.
        sends_whole_rows: Whether the log has all values of a changed row, long ones that did not change too.
    """

    oid: int
    name: str
    keys: tuple[str, ...]
    relation: RelationMessage
    key_types: tuple[str, ...]
    sends_whole_rows: bool = True


def quoted_table(name: str) -> str:
    """Return the name of a table, such as `public.films`, quoted."""
    return ".".join(quoted(part) for part in name.split("."))


def expect_source_table(session: psycopg.Connection, name: str) -> None:
    """Expect that there is a table of a name, whose changes are in the log.

    Raises:
        SourceRefused: there is none.
    """
    _expect_logged(read_table_state(session, quoted_table(name)), name)


def find_source_table(
    session: psycopg.Connection,
    name: str,
    *,
    publication: str,
    keys: Sequence[str],
    needs_all_values: bool = False,
) -> SourceTable:
    """Return the table, if its changes can be followed.

    Args:
        session: A session in autocommit mode.
        name: Schema and name, as the catalog has them.
        publication: Name of the publication, which exists.
        keys: Columns that are to identify a row.
        needs_all_values: Whether an update has to have long values too that it did not change.

    Raises:
        SourceRefused: something is missing; the fix has the statement that adds it.
    """
    state = read_table_state(session, quoted_table(name))
    _expect_logged(state, name)
    published = read_publication_state(session, publication)
    sent = _sent_columns(state, published, publication)
    if needs_all_values:
        _expect_full_identity(state, sent)
    _expect_key(session, state, keys, sent)
    schema, _, table = name.partition(".")
    columns = [each for each in state.columns if each.name in sent]
    return SourceTable(
        oid=state.oid,
        name=state.name,
        keys=tuple(keys),
        relation=RelationMessage(
            None,
            state.oid,
            schema,
            table,
            state.identity,
            tuple(
                RelationColumn(each.name, each.type_oid, each.type_modifier, each.is_key) for each in columns
            ),
        ),
        key_types=tuple(next(each.type for each in columns if each.name == key) for key in keys),
        sends_whole_rows=state.identity == "f"
        or not any(each.may_be_long and not each.is_key for each in columns),
    )


def _expect_logged(state: SourceTableState, name: str) -> None:
    if not state.name:
        _refused(name, f"there is no table {name}", "correct source.table, with its schema: public.films")
    if state.kind not in ("r", "p") or not state.is_logged:
        _refused(
            name,
            f"{state.name} is no table, or an unlogged one: its changes are not in the log",
            f"ALTER TABLE {state.name} SET LOGGED, or read it by a source of type sql",
        )
    if state.hides_rows:
        _refused(
            name,
            f"row-level security hides rows of {state.name} from the user of the connection",
            "ALTER ROLE ... BYPASSRLS",
        )


def _sent_columns(
    state: SourceTableState, published: PublicationState | None, publication: str
) -> frozenset[str]:
    """Return the columns that the log has values of."""
    alter = f"ALTER PUBLICATION {quoted(publication)}"
    found = None if published is None else next((t for t in published.tables if t.name == state.name), None)
    if found is None and published is not None and state.kind == "p" and not published.via_root:
        _refused(
            state.name,
            f"the publication {publication} sends changes of {state.name} as those of its partitions",
            f"{alter} SET (publish_via_partition_root = true)",
        )
    if published is None or found is None:
        _refused(
            state.name,
            f"the publication {publication} lacks {state.name}",
            f"{alter} ADD TABLE {state.name}",
        )
    if left_out := sorted(_ALL_OPERATIONS - published.operations):
        _refused(
            state.name,
            f"the publication {publication} leaves out {', '.join(left_out)}",
            f"{alter} SET (publish = 'insert, update, delete, truncate')",
        )
    if found.has_filter:
        _refused(
            state.name,
            f"the publication {publication} leaves out rows of {state.name} by a condition",
            f"{alter} SET TABLE {state.name}",
        )
    names = frozenset(each.name for each in state.columns if not each.is_generated)
    return names if found.columns is None else names & frozenset(found.columns)


def _expect_full_identity(state: SourceTableState, sent: frozenset[str]) -> None:
    long = [each.name for each in state.columns if each.may_be_long and not each.is_key and each.name in sent]
    if state.identity != "f" and long:
        _refused(
            state.name,
            f"the pipeline's transforms take whole rows, and the log leaves long values of {state.name} out"
            f" of an update that does not change them: {', '.join(long)}",
            f"ALTER TABLE {state.name} REPLICA IDENTITY FULL",
        )


def _expect_key(
    session: psycopg.Connection, state: SourceTableState, keys: Sequence[str], sent: frozenset[str]
) -> None:
    if missing := [key for key in keys if key not in sent]:
        _refused(
            state.name,
            f"{state.name} has no column {missing[0]}, or the log has no values of it",
            f"name columns that identify a row in table.keys: of {', '.join(sorted(sent))}",
        )
    identity = {each.name for each in state.columns if each.is_key}
    row = session.execute(_UNIQUE, [state.oid, sorted(keys), state.oid, [*keys]]).fetchone()
    assert row is not None  # it has one row
    is_unique, not_null = row
    if not set(keys) <= identity or not is_unique or not_null != len(keys):
        names = ", ".join(quoted(key) for key in keys)
        _refused(
            state.name,
            f"{', '.join(keys)} does not identify the rows of {state.name}: it needs a primary key or a"
            " unique index without nulls, which is the replica identity unless that is FULL",
            f"name the primary key's columns in table.keys, or ALTER TABLE {state.name} ADD PRIMARY KEY"
            f" ({names})",
        )


def _refused(table: str, message: str, fix: str) -> NoReturn:
    raise SourceRefused(message, fix=fix, source=table)

"""What a PostgreSQL server says of itself, as far as reading its log depends on it.

Belongs here: the queries, in one read-only transaction. Does not belong here: what is wrong with the answers
(`observability/cdc_checks.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

OUTPUT_PLUGIN = "pgoutput"
SETTINGS = (
    *("wal_level", "max_replication_slots", "max_wal_senders", "max_slot_wal_keep_size"),
    *("synchronous_commit", "fsync"),
    *("synchronized_standby_slots", "sync_replication_slots", "hot_standby_feedback", "primary_slot_name"),
)
"""Settings of the server that matter, in the units of `pg_settings`. Older servers lack some."""
HAS_FAILOVER_SLOTS = 170_000
"""The first version whose standbys can keep logical slots in step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleState:
    """The user of a connection, and what it may do.

    Attributes:
        name: Its name, quoted as SQL has it.
        replicates: Whether it may read the log.
        may_create: Whether it may create objects in the database, such as a publication.
        is_superuser: Whether it may do anything.
    """

    name: str
    replicates: bool
    may_create: bool
    is_superuser: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotState:
    """A replication slot.

    Attributes:
        name: Its name.
        plugin: Its output plugin; empty for a physical slot.
        database: Its database; empty for a physical slot.
        is_active: Whether a session reads it now.
        wal_status: `reserved`, `extended`, `unreserved` or `lost`; empty before its first use.
        held_bytes: How much of the log it keeps.
        is_failover: Whether standbys keep it in step.
    """

    name: str
    plugin: str
    database: str
    is_active: bool
    wal_status: str
    held_bytes: int
    is_failover: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedTable:
    """A table of a publication.

    Attributes:
        name: Its name, quoted and with its schema.
        columns: Names of the columns that are published; None: all.
        has_filter: Whether a condition leaves rows out.
    """

    name: str
    columns: tuple[str, ...] | None
    has_filter: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationState:
    """A publication.

    Attributes:
        name: Its name.
        has_all_tables: Whether it was made `FOR ALL TABLES`.
        operations: Which of insert, update, delete and truncate it publishes.
        via_root: Whether changes of partitions are those of the partitioned table.
        tables: Its tables.
    """

    name: str
    has_all_tables: bool
    operations: frozenset[str]
    via_root: bool
    tables: tuple[PublishedTable, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnState:
    """A column of a table.

    Attributes:
        name: Its name.
        type: Its type, as PostgreSQL writes it, such as `numeric(10,2)`.
        type_oid: OID of the type.
        type_modifier: Its modifier.
        is_generated: Whether the server computes it.
        is_key: Whether it is a column of the replica identity.
        may_be_long: Whether a value may be kept apart from its row (TOAST).
    """

    name: str
    type: str
    type_oid: int
    type_modifier: int
    is_generated: bool
    is_key: bool
    may_be_long: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTableState:
    """A table.

    Attributes:
        wanted: The name by which it was asked for.
        oid: Its OID.
        name: Its name, quoted and with its schema; empty if there is none.
        schema: Its schema, quoted.
        kind: `r` for a table, `p` for a partitioned one; others have no log of their own.
        is_logged: Whether its changes are in the log.
        identity: `d` (primary key), `n` (nothing), `f` (full) or `i` (an index).
        may_enter_schema: Whether the user may use its schema.
        may_read: Whether the user may read it.
        is_owned: Whether the user owns it.
        hides_rows: Whether row-level security hides rows from the user.
        columns: Its columns.
    """

    wanted: str
    oid: int = 0
    name: str = ""
    schema: str = ""
    kind: str = ""
    is_logged: bool = False
    identity: str = ""
    may_enter_schema: bool = False
    may_read: bool = False
    is_owned: bool = False
    hides_rows: bool = False
    columns: tuple[ColumnState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """What the server says.

    Attributes:
        version: Its version, such as 150004.
        version_text: The same for people, such as `15.4`.
        database: The connection's database, quoted.
        is_standby: Whether it is a standby.
        settings: The settings of `SETTINGS`.
        role: The connection's user.
        slots: All replication slots.
        walsenders: How many processes send the log now.
        publication: The publication that was asked for; None if there is none.
        tables: The tables that were asked for; without any, those of the publication.
    """

    version: int
    version_text: str
    database: str
    is_standby: bool
    settings: Mapping[str, str]
    role: RoleState
    slots: tuple[SlotState, ...]
    walsenders: int
    publication: PublicationState | None
    tables: tuple[SourceTableState, ...]


_SERVER = """
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
    quote_ident(current_database()), pg_is_in_recovery(), (SELECT count(*) FROM pg_stat_replication)
"""
_SETTINGS = "SELECT name, setting FROM pg_catalog.pg_settings WHERE name = ANY (%s)"
_ROLE = """
SELECT quote_ident(r.rolname),
    r.rolreplication OR r.rolsuper OR EXISTS (
        SELECT FROM pg_catalog.pg_roles AS m
        WHERE m.rolname = 'rds_replication' AND pg_has_role(current_user, m.oid, 'member')
    ),
    has_database_privilege(current_database(), 'CREATE'), r.rolsuper
FROM pg_catalog.pg_roles AS r WHERE r.rolname = current_user
"""
_SLOTS = """
SELECT slot_name, coalesce(plugin, ''), coalesce(database, ''), active, coalesce(wal_status, ''),
    coalesce(pg_wal_lsn_diff(
        CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn
    ), 0)::int8, coalesce((to_jsonb(s) ->> 'failover')::bool, false)
FROM pg_catalog.pg_replication_slots AS s ORDER BY 1
"""
_PUBLICATION = """
SELECT oid::int8, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot
FROM pg_catalog.pg_publication WHERE pubname = %s
"""
_PUBLISHED = """
SELECT format('%%I.%%I', t.schemaname, t.tablename), {columns}
FROM pg_catalog.pg_publication_tables AS t WHERE t.pubname = %s ORDER BY 1
"""
_FIND_TABLE = """
SELECT c.oid::int8 FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace,
    parse_ident(%s) AS ident(parts)
WHERE c.relname = parts[array_upper(parts, 1)] AND CASE array_length(parts, 1)
    WHEN 1 THEN n.nspname = ANY (current_schemas(false)) WHEN 2 THEN n.nspname = parts[1] ELSE false END
ORDER BY array_position(current_schemas(false), n.nspname) LIMIT 1
"""
"""Unlike `to_regclass`, it finds tables of schemas that the user may not use."""
_TABLE = """
SELECT format('%%I.%%I', n.nspname, c.relname), quote_ident(n.nspname), c.relkind::text,
    c.relpersistence = 'p', c.relreplident::text, has_schema_privilege(n.oid, 'USAGE'),
    has_table_privilege(c.oid, 'SELECT'), pg_has_role(c.relowner, 'USAGE'), row_security_active(c.oid),
    c.reltoastrelid <> 0
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = %s
"""
_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.atttypid::int8, a.atttypmod,
    a.attgenerated <> '', coalesce(a.attnum = ANY (i.indkey), false), a.attstorage <> 'p' AND a.attlen = -1
FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
LEFT JOIN pg_catalog.pg_index AS i ON i.indrelid = c.oid AND CASE c.relreplident
    WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_PUBLISHES_COLUMNS = 150_000
_OPERATIONS = ("insert", "update", "delete", "truncate")


def read_server_state(
    session: psycopg.Connection, *, publication: str | None, tables: Sequence[str]
) -> ServerState:
    """Ask a server, in one read-only transaction. Changes nothing.

    Args:
        session: A connection in autocommit mode.
        publication: Name of the publication; None: none is looked for.
        tables: Names of tables, as SQL has them; without any, those of the publication.
    """
    with session.transaction():
        session.execute("SET TRANSACTION READ ONLY")
        version, version_text, database, is_standby, walsenders = _one(session, _SERVER)
        name, replicates, may_create, is_superuser = _one(session, _ROLE)
        found = None if publication is None else _publication(session, publication, version)
        wanted = tables or [each.name for each in (() if found is None else found.tables)]
        return ServerState(
            version=version,
            version_text=version_text,
            database=database,
            is_standby=is_standby,
            settings=dict(session.execute(_SETTINGS, [[*SETTINGS]]).fetchall()),
            role=RoleState(
                name=name, replicates=replicates, may_create=may_create, is_superuser=is_superuser
            ),
            slots=tuple(_slot(row) for row in session.execute(_SLOTS)),
            walsenders=walsenders,
            publication=found,
            tables=tuple(_table(session, each) for each in dict.fromkeys(wanted)),
        )


def read_publication_state(session: psycopg.Connection, name: str) -> PublicationState | None:
    """Return what a server says of a publication; None if there is none."""
    return _publication(session, name, session.info.server_version)


def read_table_state(session: psycopg.Connection, wanted: str) -> SourceTableState:
    """Return what a server says of one table."""
    return _table(session, wanted)


def _one(session: psycopg.Connection, statement: str) -> tuple[Any, ...]:
    row = session.execute(statement.encode()).fetchone()
    assert row is not None  # each of these has one row
    return row


def _slot(row: tuple[Any, ...]) -> SlotState:
    name, plugin, database, is_active, wal_status, held, is_failover = row
    return SlotState(
        name=name,
        plugin=plugin,
        database=database,
        is_active=is_active,
        wal_status=wal_status,
        held_bytes=max(held, 0),
        is_failover=is_failover,
    )


def _publication(session: psycopg.Connection, name: str, version: int) -> PublicationState | None:
    row = session.execute(_PUBLICATION, [name]).fetchone()
    if row is None:
        return None
    _, has_all_tables, *publishes, via_root = row
    columns = "t.attnames::text[], t.rowfilter IS NOT NULL"
    statement = _PUBLISHED.format(columns=columns if version >= _PUBLISHES_COLUMNS else "NULL, false")
    return PublicationState(
        name=name,
        has_all_tables=has_all_tables,
        operations=frozenset(each for each, is_on in zip(_OPERATIONS, publishes, strict=True) if is_on),
        via_root=via_root,
        tables=tuple(
            PublishedTable(name=table, columns=None if names is None else tuple(names), has_filter=has_filter)
            for table, names, has_filter in session.execute(statement.encode(), [name])
        ),
    )


def _table(session: psycopg.Connection, wanted: str) -> SourceTableState:
    from psycopg import errors

    try:
        with session.transaction():
            row = session.execute(_FIND_TABLE, [wanted]).fetchone()
    except errors.InvalidParameterValue:  # it is no name
        row = None
    oid = None if row is None else row[0]
    described = None if oid is None else session.execute(_TABLE, [oid]).fetchone()
    if oid is None or described is None:
        return SourceTableState(wanted=wanted)
    name, schema, kind, is_logged, identity, may_enter, may_read, is_owned, hides, has_toast = described
    return SourceTableState(
        wanted=wanted,
        oid=oid,
        name=name,
        schema=schema,
        kind=kind,
        is_logged=is_logged,
        identity=identity,
        may_enter_schema=may_enter,
        may_read=may_read,
        is_owned=is_owned,
        hides_rows=hides,
        columns=tuple(
            ColumnState(
                name=column,
                type=type_,
                type_oid=type_oid,
                type_modifier=modifier,
                is_generated=is_generated,
                is_key=is_key or identity == "f",
                # Without a TOAST table no row can be so long that a value is kept apart.
                may_be_long=may_be_long and (has_toast or kind == "p"),
            )
            for column, type_, type_oid, modifier, is_generated, is_key, may_be_long in session.execute(
                _COLUMNS, [oid]
            )
        ),
    )

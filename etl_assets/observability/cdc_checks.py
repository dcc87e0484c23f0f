"""Checks of a PostgreSQL server whose log is to be read: what it lacks, and the statement that adds it.

Belongs here: pure decisions over what the server says. Does not belong here: asking it
(`sources/postgres_cdc/server_state.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from etl_assets.observability.failover_checks import check_failover
from etl_assets.observability.findings import Finding, fail, ok, warn
from etl_assets.observability.publication_checks import (
    PUBLICATION,
    own_tables_in,
    published_operations,
    published_tables,
    quoted_or_plain,
    some,
)
from etl_assets.pipelines.sink_specs.postgres import POSITIONS
from etl_assets.sources.postgres_cdc.server_state import (
    OUTPUT_PLUGIN,
    ServerState,
    SlotState,
    SourceTableState,
)
from etl_assets.sources.postgres_cdc.types import BUILT_IN_TYPES, ValueKind, ValuePolicies, value_type

SERVER, SETTINGS, SLOTS, WALSENDERS = "server", "settings", "replication slots", "walsenders"
PRIVILEGES, IDENTITY, COLUMNS = "privileges", "replica identity", "columns"
TABLES = "tables"
OLDEST_VERSION = 140_000
SMALLEST_KEPT_MEGABYTES = 1_024
_RESTART = "then restart the server"
_RELOAD = "SELECT pg_reload_conf()"
_SHOWN = 5
_KEEPS_OWN_TEXT = frozenset({"text", "varchar", "bpchar", "name", "char"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcTarget:
    """What is to be read.

    Attributes:
        publication: Name of the publication; None: it is not checked.
        slot: Name of the replication slot; None: one that is not made yet.
        makes_publication: Whether the first run makes the publication where it may.
        own_tables: Names, without schemas, of tables in which the platform keeps its own state.
        copies: Tables that are copied at the same time, each with a slot of its own.
        follows_published: Whether tables that the publication lacks are left out, rather than refused.
        adds_tables: Whether tables that the publication lacks are added to it.
        failover: Whether a standby is to go on with the slot after a failover.
    """

    publication: str | None = None
    slot: str | None = None
    makes_publication: bool = False
    own_tables: frozenset[str] = frozenset({POSITIONS})
    copies: int = 1
    follows_published: bool = False
    adds_tables: bool = False
    failover: bool = False


def check_cdc(state: ServerState, target: CdcTarget) -> Iterator[Finding]:
    """Yield what is right and wrong with a server for change data capture."""
    yield from _server(state)
    yield from _settings(state)
    yield from _slots(state, target)
    if target.failover:
        yield from check_failover(state, target.slot)
    yield from _walsenders(state, target.copies)
    yield from _role(state)
    yield from _tables(state, target)
    for table in state.tables:
        if table.name:
            yield from _table(state, table)
    if target.publication is not None:
        yield from _publication(state, target.publication, target)


def _server(state: ServerState) -> Iterator[Finding]:
    if state.is_standby:
        yield fail(
            SERVER,
            "it is a standby, and slots are made on the primary",
            "let the connection of the platform file name the primary",
        )
    if state.version < OLDEST_VERSION:
        yield fail(
            SERVER, f"PostgreSQL {state.version_text} is too old", "upgrade it to PostgreSQL 14 or later"
        )
    else:
        yield ok(SERVER, f"PostgreSQL {state.version_text}, database {state.database}")


def _settings(state: ServerState) -> Iterator[Finding]:
    level = state.settings["wal_level"]
    if level == "logical":
        yield ok(SETTINGS, "wal_level is logical")
    else:
        yield fail(
            SETTINGS,
            f"wal_level is {level}, so the log has no rows",
            f"ALTER SYSTEM SET wal_level = 'logical', {_RESTART}",
        )
    kept = int(state.settings["max_slot_wal_keep_size"])
    if kept < 0:
        yield warn(
            SETTINGS,
            "max_slot_wal_keep_size is -1: a slot that is not read keeps the log until the disk is full",
            f"ALTER SYSTEM SET max_slot_wal_keep_size = '50GB' (less than the disk has free); {_RELOAD}",
        )
    elif kept < SMALLEST_KEPT_MEGABYTES:
        yield warn(
            SETTINGS,
            f"max_slot_wal_keep_size is {kept} MB: after so much log without a reader the slot is lost, and"
            " tables have to be copied again",
            f"ALTER SYSTEM SET max_slot_wal_keep_size = '50GB' (less than the disk has free); {_RELOAD}",
        )
    else:
        yield ok(SETTINGS, f"max_slot_wal_keep_size is {kept} MB")
    if (commits := state.settings["synchronous_commit"]) == "off":
        yield warn(
            SETTINGS,
            "synchronous_commit is off: a crash of the server loses commits that it had confirmed",
            f"ALTER SYSTEM SET synchronous_commit = 'on'; {_RELOAD}",
        )
    else:
        yield ok(SETTINGS, f"synchronous_commit is {commits}")
    if state.settings["fsync"] == "off":
        yield warn(
            SETTINGS,
            "fsync is off: a power cut may take back changes that were read already",
            f"ALTER SYSTEM SET fsync = 'on'; {_RELOAD}",
        )


def _slots(state: ServerState, target: CdcTarget) -> Iterator[Finding]:
    most = int(state.settings["max_replication_slots"])
    own = next((each for each in state.slots if each.name == target.slot), None)
    if own is not None:
        yield from _own_slot(state, own)
    needed = target.copies + (own is None)
    free = most - len(state.slots)
    if free >= needed:
        yield ok(SLOTS, f"max_replication_slots is {most}, {free} are free")
        return
    idle = [each.name for each in state.slots if not each.is_active and each is not own]
    drop = f"drop one that nobody needs: SELECT pg_drop_replication_slot('{idle[0]}'), or " if idle else ""
    yield fail(
        SLOTS,
        f"max_replication_slots is {most} and {free} are free; {needed} are needed, {target.copies} of them"
        " for copies" + (f"; not in use: {', '.join(idle[:_SHOWN])}" if idle else ""),
        f"{drop}ALTER SYSTEM SET max_replication_slots = {most + needed - free}, {_RESTART}",
    )


def _own_slot(state: ServerState, slot: SlotState) -> Iterator[Finding]:
    remake = f"SELECT pg_drop_replication_slot('{slot.name}'); the tables are copied again"
    if slot.plugin != OUTPUT_PLUGIN or quoted_or_plain(slot.database) != state.database:
        found = f"of {slot.plugin or 'physical replication'}" + (
            f" in the database {slot.database}" if slot.database else ""
        )
        yield fail(
            SLOTS,
            f"the slot {slot.name} is one {found}, not one of {OUTPUT_PLUGIN} in {state.database}",
            "use another name for the slot",
        )
    elif slot.wal_status == "lost":
        yield fail(SLOTS, f"the slot {slot.name} is lost: the server removed log that was not read", remake)
    elif slot.wal_status == "unreserved":
        yield warn(
            SLOTS,
            f"the slot {slot.name} is about to be lost: it keeps {slot.held_bytes:,} bytes of log",
            f"read it now, or ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; {_RELOAD}",
        )
    else:
        yield ok(SLOTS, f"the slot {slot.name} keeps {slot.held_bytes:,} bytes of log")


def _walsenders(state: ServerState, needed: int) -> Iterator[Finding]:
    most = int(state.settings["max_wal_senders"])
    free = most - state.walsenders
    if free < needed:
        yield fail(
            WALSENDERS,
            f"max_wal_senders is {most}, and {free or 'none'} is free; the first copy needs {needed}",
            f"ALTER SYSTEM SET max_wal_senders = {most + needed - free}, {_RESTART}",
        )
    else:
        yield ok(WALSENDERS, f"max_wal_senders is {most}, {free} are free")


def _role(state: ServerState) -> Iterator[Finding]:
    role = state.role
    if role.replicates:
        yield ok(PRIVILEGES, f"{role.name} may read the log")
    else:
        yield fail(
            PRIVILEGES,
            f"{role.name} may not read the log",
            f"ALTER ROLE {role.name} REPLICATION; on Amazon RDS: GRANT rds_replication TO {role.name}",
        )


def _tables(state: ServerState, target: CdcTarget) -> Iterator[Finding]:
    if not state.tables:
        published = (
            "" if target.publication is None else f", and the publication {target.publication} has none"
        )
        yield warn(TABLES, f"no table was named{published}", "name them: --table public.films")
    for table in state.tables:
        if not table.name:
            yield fail(
                TABLES,
                f"there is no table {table.wanted}",
                "name it as SQL does, with its schema: public.films",
            )


def _table(state: ServerState, table: SourceTableState) -> Iterator[Finding]:
    role = state.role.name
    if table.kind not in ("r", "p"):
        yield fail(
            TABLES,
            f"{table.name} is no table, and its changes are not in the log",
            "name the tables below it, or read it by a source of type sql",
        )
        return
    if not table.is_logged:
        yield fail(
            TABLES,
            f"{table.name} is unlogged: its changes are not in the log",
            f"ALTER TABLE {table.name} SET LOGGED",
        )
    if not table.may_enter_schema:
        yield fail(
            PRIVILEGES,
            f"{role} may not use the schema {table.schema}",
            f"GRANT USAGE ON SCHEMA {table.schema} TO {role}",
        )
    if not table.may_read:
        yield fail(
            PRIVILEGES,
            f"{role} may not read {table.name}, which the first copy does",
            f"GRANT SELECT ON {table.name} TO {role}",
        )
    if table.hides_rows:
        yield fail(
            PRIVILEGES,
            f"row-level security hides rows of {table.name} from {role}: the first copy would lack them",
            f"ALTER ROLE {role} BYPASSRLS",
        )
    yield from _identity(table)
    yield from _columns(table)


def _identity(table: SourceTableState) -> Iterator[Finding]:
    full = f"ALTER TABLE {table.name} REPLICA IDENTITY FULL"
    keys = [each.name for each in table.columns if each.is_key]
    if table.identity == "n":
        yield fail(
            IDENTITY,
            f"{table.name} has the replica identity NOTHING: the log does not say which row was changed",
            f"ALTER TABLE {table.name} REPLICA IDENTITY DEFAULT, if it has a primary key; otherwise {full}",
        )
    elif not keys:
        yield fail(
            IDENTITY,
            f"{table.name} has neither a primary key nor another replica identity: PostgreSQL refuses its"
            " updates and deletes once it is published",
            f"give it a primary key, or {full}",
        )
    elif table.identity == "f":
        yield ok(IDENTITY, f"{table.name}: FULL")
    else:
        what = "primary key" if table.identity == "d" else "index"
        yield ok(IDENTITY, f"{table.name}: {what} ({', '.join(keys)})")


def _columns(table: SourceTableState) -> Iterator[Finding]:
    texts, lists = [], []
    for column in table.columns:
        if column.is_generated:
            yield warn(
                COLUMNS,
                f"{table.name}: {column.name} is generated, and PostgreSQL before 18 does not log it",
                f"leave {column.name} out of the pipeline's columns, or compute it in a transform",
            )
            continue
        becomes = value_type(column.type_oid, column.type_modifier, BUILT_IN_TYPES, ValuePolicies())
        known = BUILT_IN_TYPES.get(column.type_oid)
        if becomes.kind is ValueKind.TEXT and (known is None or known.name not in _KEEPS_OWN_TEXT):
            texts.append(f"{column.name} ({column.type})")
        if becomes.kind is ValueKind.LIST:
            lists.append(f"{column.name} ({column.type})")
    if lists:
        yield warn(
            COLUMNS,
            f"{table.name}: {some(lists)}: a value of more than one dimension is a dead letter",
            "nothing, if every value has one dimension; otherwise leave the column out",
        )
    if texts:
        yield ok(COLUMNS, f"{table.name}: read as text: {', '.join(texts)}")


def _publication(state: ServerState, name: str, target: CdcTarget) -> Iterator[Finding]:
    found, role = state.publication, state.role
    tables = [each for each in state.tables if each.name and each.kind in ("r", "p")]
    if found is None:
        others = [each.name for each in tables if not each.is_owned]
        if target.makes_publication and role.may_create and not others:
            yield ok(PUBLICATION, f"{name} is not there yet, and the first run makes it")
            return
        listed = ", ".join(each.name for each in tables) or "..."
        statement = f"CREATE PUBLICATION {quoted_or_plain(name)} FOR TABLE {listed}"
        if not role.may_create:
            statement = (
                f"GRANT CREATE ON DATABASE {state.database} TO {role.name}, or as the owner of the tables:"
                f" {statement}"
            )
        elif others:
            statement = f"as the owner of {some(others)}: {statement}"
        yield fail(PUBLICATION, f"there is no publication {name} in {state.database}", statement)
        return
    yield from published_operations(found)
    yield from published_tables(found, tables, target)
    yield from own_tables_in(found, target.own_tables)

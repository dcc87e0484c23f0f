"""A database whose content at each place of its log is known without reading the log as the platform does.

Triggers note each change with its transaction, in a table of their own. `pg_waldump`, which comes with the
server, says where in the log each transaction committed. So the rows of a table at any place are its changes
by the transactions that committed before it.

Belongs here: noting, and what tables had at a place. Does not belong here: who changes them (`writers.py`).
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg

from etl_assets.sources.postgres_cdc.lsn import parse_lsn
from etl_assets.stack.postgres import PostgresServer, find_binaries

Key = tuple[Any, ...]
Rows = dict[Key, dict[str, Any]]

_NOTES = """
CREATE SCHEMA audit;
CREATE TABLE audit.note (
    number bigserial PRIMARY KEY, transaction bigint, of_table text, old_row jsonb, new_row jsonb
);
CREATE FUNCTION audit.take_note() RETURNS trigger LANGUAGE plpgsql SET synchronous_commit = on AS $$ BEGIN
    INSERT INTO audit.note (transaction, of_table, old_row, new_row) VALUES (
        pg_current_xact_id()::text::bigint, TG_TABLE_NAME,
        CASE WHEN TG_OP IN ('UPDATE', 'DELETE') THEN to_jsonb(OLD) END,
        CASE WHEN TG_OP IN ('INSERT', 'UPDATE') THEN to_jsonb(NEW) END
    );
    RETURN NULL;
END $$
"""
_COMMIT = re.compile(r"tx:\s+(\d+), lsn: ([0-9A-F]+/[0-9A-F]+),.*desc: COMMIT(?:_PREPARED)? ")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    table: str
    old: dict[str, Any] | None
    new: dict[str, Any] | None


@dataclass(slots=True)
class Audited:
    """The audit of a database.

    Attributes:
        server: The server, which this machine has.
        url: The database's.
        slot: Name of a physical slot, which keeps the log from being removed.
        keys: The columns of each table's key.
    """

    server: PostgresServer
    url: str
    slot: str
    begins: str = ""
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def begin(self) -> None:
        """Begin to take notes. Tables are made afterwards."""
        with psycopg.connect(self.url, autocommit=True) as session:
            session.execute("SELECT pg_create_physical_replication_slot(%s, true)", [self.slot])
            row = session.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None  # a function has one row
            self.begins = row[0]
            session.execute(_NOTES)

    def follow(self, session: psycopg.Connection, table: str, *keys: str) -> None:
        """Note changes of a table that has no rows yet."""
        self.keys[table] = keys
        for timing in ("AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH ROW", "AFTER TRUNCATE ON {}"):
            name = "audit_rows" if "ROW" in timing else "audit_truncate"
            session.execute(
                f"CREATE TRIGGER {name} {timing.format(table)} EXECUTE FUNCTION audit.take_note()".encode()
            )

    def states(self, table: str, places: Iterable[int]) -> Iterator[tuple[int, Rows]]:
        """Yield what a table had at places of the log, in their order; the mapping is the same each time."""
        keys, rows = self.keys[table], Rows()
        notes = iter(self._notes(table))
        ahead = next(notes, None)
        for place in sorted(set(places)):
            while ahead is not None and ahead[0] < place:
                _apply(rows, ahead[1], keys)
                ahead = next(notes, None)
            yield place, rows

    def _notes(self, table: str) -> list[tuple[int, _Note]]:
        """Return the changes of a table that were committed, in the order of commits."""
        commits = self.commits()
        found = []
        with psycopg.connect(self.url, autocommit=True) as session, session.cursor() as cursor:
            cursor.execute(
                "SELECT transaction, number, old_row::text, new_row::text FROM audit.note"
                " WHERE of_table = %s",
                [table],
            )
            for transaction, number, old, new in cursor:
                note = _Note(table=table, old=_loaded(old), new=_loaded(new))
                found.append((commits[transaction], number, note))
        found.sort(key=lambda each: each[:2])
        return [(lsn, note) for lsn, _, note in found]

    def commits(self) -> dict[int, int]:
        """Return the place in the log at which each transaction committed."""
        with psycopg.connect(self.url, autocommit=True) as session:
            row = session.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None  # a function has one row
        done = subprocess.run(
            [
                *(str(waldump()), "--path", str(self.server.folder / "data" / "pg_wal")),
                *("--rmgr", "Transaction", "--start", self.begins, "--end", row[0]),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        found = {int(each[1]): parse_lsn(each[2]) for each in _COMMIT.finditer(done.stdout)}
        assert found, done.stderr
        return found

    def close(self) -> None:
        """Let the server remove its log."""
        with psycopg.connect(self.url, autocommit=True) as session:
            session.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])


def waldump() -> Path:
    """Return the program that shows the log of a server."""
    return find_binaries() / "pg_waldump"


def _loaded(text: str | None) -> dict[str, Any] | None:
    return None if text is None else json.loads(text, parse_float=Decimal)


def _apply(rows: Rows, note: _Note, keys: tuple[str, ...]) -> None:
    if note.old is None and note.new is None:
        rows.clear()
    if note.old is not None:
        del rows[tuple(note.old[key] for key in keys)]
    if note.new is not None:
        rows[tuple(note.new[key] for key in keys)] = note.new

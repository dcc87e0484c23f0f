"""A PostgreSQL server whose log is read: its slot, its publication, and transactions from the slot.

The log is read by the functions for logical decoding, not by a streaming connection: a run reads what is
there and ends, and a reader of their result needs no thread that keeps the server informed.

Belongs here: SQL. Does not belong here: what is read next (`source.py`), and messages (`decoder.py`).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from etl_assets.errors import SourceRefused, SourceUnavailable
from etl_assets.sources.postgres_cdc.lsn import lsn_text, parse_lsn
from etl_assets.sources.postgres_cdc.server_state import (
    HAS_FAILOVER_SLOTS,
    OUTPUT_PLUGIN,
    read_publication_state,
)
from etl_assets.sources.postgres_cdc.timelines import Timelines, parse_history
from etl_assets.sources.postgres_cdc.types import SESSION_SETTINGS
from etl_assets.sources.sql.postgres_text import quoted

if TYPE_CHECKING:
    import psycopg

MESSAGE = "etl-assets"
"""Prefix of the messages that the platform writes into the log."""
_LATER = ("08", "25P03", "40", "53", "55006", "55P03", "57", "58")
"""SQLSTATEs after which the same call may succeed."""
_WORDS = {
    "40001": "it is a standby, and recovery ended the statement",
    "53300": "it has no session left",
    "55006": "another session reads the slot",
    "55P03": "another transaction held a lock for longer than `lock_timeout_seconds`",
    "57014": "the statement took longer than `statement_timeout_seconds`, or was cancelled",
}
_NO_ANSWER = "it does not answer"
_FIXES = {
    "40001": "read the primary, or raise `max_standby_streaming_delay`",
    "53300": "raise `max_connections`, or lower `max_copies` and `read_sessions`",
    "55006": "end the other session: a slot has one reader at a time",
    "55P03": "nothing, if it is given up: what holds it is in `pg_locks`",
    "57014": "raise `statement_timeout_seconds` of the connection, or see what the server is busy with",
}
_FETCHED_FIRST, _FETCHED, _FETCHED_BYTES = 100, 2_000, 16 << 20
"""Messages that are fetched at once: at first, at most, and about how many bytes of them."""
_OPTIONS = "'proto_version', '1', 'publication_names', %s, 'messages', 'true'"
_CHANGES = f"pg_logical_slot_peek_binary_changes(%s, NULL, %s, {_OPTIONS})"
_HAS_CHANGES = f"""
SELECT count(*), coalesce(bool_or(is_wanted AND ended > %s::pg_lsn), false) FROM (
    SELECT max(lsn) FILTER (WHERE get_byte(data, 0) = ascii('C')) AS ended,
        bool_or(CASE chr(get_byte(data, 0))
            WHEN 'I' THEN substring(data, 2, 4) = int4send(%s)
            WHEN 'U' THEN substring(data, 2, 4) = int4send(%s)
            WHEN 'D' THEN substring(data, 2, 4) = int4send(%s)
            WHEN 'T' THEN true WHEN 'M' THEN true ELSE false END) AS is_wanted
    FROM {_CHANGES} GROUP BY xid
) AS transactions
"""
_SLOT = """
SELECT plugin, database = current_database(), coalesce(wal_status, ''), confirmed_flush_lsn::text,
    coalesce(pg_current_wal_lsn() - restart_lsn, 0)::int8
FROM pg_catalog.pg_replication_slots WHERE slot_name = %s
"""


def publication_lost(name: str) -> str:
    """Return why the log cannot be read on after a publication was dropped."""
    return f"the publication {name} was dropped, and the log has no changes of the time without it"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSlot:
    """The slot of a source.

    Attributes:
        is_usable: Whether it is one of pgoutput in this database.
        is_lost: Whether the server removed log that it had to keep.
        confirmed_lsn: Until where its reader has confirmed the log.
        held_bytes: How much of the log the server keeps for it.
        may_be_lost: Whether that is more than the server promises to keep: the next checkpoint may remove it.
    """

    is_usable: bool
    is_lost: bool
    confirmed_lsn: int
    held_bytes: int = 0
    may_be_lost: bool = False


@dataclass(slots=True, kw_only=True)
class LogServer:
    """The server. One caller at a time.

    Attributes:
        name: Name of the connection, for messages.
        address: libpq's connection string; it is in no message.
        slot: Name of the slot.
        publication: Name of the publication.
        application: Name of the session on the server; empty: the connection's.
        failover: Whether a slot that is made here is one that standbys keep in step, where the server can.
        statement_timeout_seconds: For one statement, by the server.
    """

    name: str
    address: str = field(repr=False)
    slot: str
    publication: str
    application: str = ""
    failover: bool = False
    statement_timeout_seconds: float = 600.0
    _open: psycopg.Connection | None = field(default=None, init=False, repr=False)

    @property
    def session(self) -> psycopg.Connection:
        """The session, which is opened on first use, in autocommit mode."""
        import psycopg

        if self._open is None or self._open.closed:
            self._open = psycopg.connect(self.address, autocommit=True)
            settings = {
                **SESSION_SETTINGS,
                "statement_timeout": str(int(self.statement_timeout_seconds * 1_000)),
                "idle_in_transaction_session_timeout": "0",
                "search_path": "pg_catalog",
                **({"application_name": self.application} if self.application else {}),
            }
            for name, value in settings.items():
                self._open.execute("SELECT set_config(%s, %s, false)", [name, value])
        return self._open

    @property
    def has_transaction(self) -> bool:
        """Whether the session is there, and in a transaction."""
        from psycopg.pq import TransactionStatus

        found = self._open
        return (
            found is not None
            and not found.closed
            and (found.info.transaction_status is TransactionStatus.INTRANS)
        )

    @property
    def replication_address(self) -> str:
        """The connection string of a session that takes commands for replication."""
        from psycopg.conninfo import make_conninfo

        return make_conninfo(self.address, replication="database")

    @contextmanager
    def asked(self) -> Generator[None]:
        """Raise what the platform calls an error of the server.

        Raises:
            SourceUnavailable: the server does not answer now.
            SourceRefused: it refuses.
        """
        import psycopg

        try:
            yield
        except psycopg.Error as error:
            self._failed(error)

    def system(self) -> str:
        """Return what identifies the server's data: a copy of it has the same, another server has not."""
        return self._value("SELECT system_identifier::text FROM pg_control_system()")

    def timeline(self) -> int:
        """Return the timeline of the server. The promotion of a standby begins a new one."""
        return int(self._value("SELECT pg_walfile_name(pg_current_wal_lsn())")[:8], 16)

    def timelines(self) -> Timelines:
        """Return the server's timeline, with where the earlier ones ended."""
        import psycopg

        current = self.timeline()
        if current == 1:
            return Timelines(current=1, ends={})
        with psycopg.connect(self.replication_address, autocommit=True) as sender:
            row = sender.execute(f"TIMELINE_HISTORY {current}".encode()).fetchone()
        assert row is not None  # the command has one row
        return Timelines(current=current, ends=parse_history(row[1]))

    def diverged(self, timeline: int, lsn: int) -> str | None:
        """Return why the server's log lacks a place that was read on a timeline; None if it has it."""
        if not timeline or self.timeline() == timeline:
            return None
        return self.timelines().lacks(timeline, lsn)

    def slot_state(self) -> LogSlot | None:
        """Return the slot; None if there is none."""
        row = self.session.execute(_SLOT, [self.slot]).fetchone()
        if row is None:
            return None
        plugin, is_here, status, confirmed, held = row
        return LogSlot(
            is_usable=plugin == OUTPUT_PLUGIN and bool(is_here),
            is_lost=status == "lost",
            confirmed_lsn=0 if confirmed is None else parse_lsn(confirmed),
            held_bytes=held,
            may_be_lost=status == "unreserved",
        )

    def create_slot(self) -> None:
        """Create the slot. From then on the server keeps the log for it."""
        session, option = self.session, ""
        if self.failover and session.info.server_version >= HAS_FAILOVER_SLOTS:
            option = ", failover => true"
        session.execute(
            f"SELECT pg_create_logical_replication_slot(%s, %s{option})".encode(), [self.slot, OUTPUT_PLUGIN]
        )

    def make_slot_again(self) -> LogSlot:
        """Create the slot, in the place of one that is there, and return it."""
        if self.slot_state() is not None:
            self.drop_slot()
        self.create_slot()
        made = self.slot_state()
        assert made is not None  # it has been made
        return made

    def drop_slot(self) -> None:
        """Drop the slot."""
        self.session.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])

    def publication_exists(self) -> bool:
        """Return whether the publication is there."""
        return read_publication_state(self.session, self.publication) is not None

    def publication_oid(self) -> int:
        """Return what identifies the publication, which is another one if made again; 0 if there is none."""
        statement = "SELECT oid::int8 FROM pg_catalog.pg_publication WHERE pubname = %s"
        row = self.session.execute(statement, [self.publication]).fetchone()
        return 0 if row is None else row[0]

    def expect_publication(self, oid: int) -> None:
        """Expect that the publication has been there while the log was read.

        From version 18 on a server sends nothing of the time without it, and does not say so.

        Raises:
            SourceUnavailable: it was dropped meanwhile; what was read may lack changes.
        """
        if self.publication_oid() != oid:
            raise SourceUnavailable(
                f"the publication {self.publication} was dropped or made while the log was read",
                fix="nothing: the step is repeated, and says what is missing",
                source=self.name,
            )

    def expect_timeline(self, timeline: int, table: str) -> None:
        """Expect that the session leads to the server that the reading of a table was planned on.

        Args:
            timeline: Its timeline; 0: it is not known.
            table: The table, for the message.

        Raises:
            SourceUnavailable: a standby was promoted meanwhile.
        """
        if timeline and self.timeline() != timeline:
            raise SourceUnavailable(
                f"a standby of the connection {self.name} was promoted while {table} was read",
                fix="nothing: the step is repeated, and looks at the new primary first",
                source=self.name,
            )

    def create_publication(self, table: str) -> None:
        """Create the publication for one table, whose name is quoted."""
        self.session.execute(
            f"CREATE PUBLICATION {quoted(self.publication)} FOR TABLE {table}"
            " WITH (publish_via_partition_root = true)".encode()
        )

    def end_lsn(self) -> int:
        """Return the end of the log."""
        return parse_lsn(self._value("SELECT pg_current_wal_flush_lsn()::text"))

    def has_changes(self, table_oid: int, after_lsn: int) -> bool:
        """Return whether a transaction that ended after a place has changed the table.

        A truncate of any table and a message count too.
        """
        signed = table_oid - (1 << 32) if table_oid >= 1 << 31 else table_oid
        for most in (1, None):
            row = self.session.execute(
                _HAS_CHANGES.encode(),
                [lsn_text(after_lsn), signed, signed, signed, self.slot, most, self.publication],
            ).fetchone()
            assert row is not None  # an aggregate has one row
            if row[1] or not row[0]:
                return bool(row[1])
        return False

    def messages(self, most_changes: int | None) -> Generator[list[bytes]]:
        """Yield messages of whole transactions from the slot on, some at a time, without moving it.

        Args:
            most_changes: After so many messages no other transaction begins; None: all there are.
        """
        with self.session.transaction(), self.session.cursor("changes", binary=True) as cursor:
            cursor.execute(
                f"SELECT data FROM {_CHANGES}".encode(), [self.slot, most_changes, self.publication]
            )
            most = _FETCHED_FIRST
            while rows := cursor.fetchmany(most):
                found = [data for (data,) in rows]
                yield found
                most = max(1, min(_FETCHED, 4 * most, _FETCHED_BYTES * len(found) // sum(map(len, found))))

    def end_sessions_of_others(self) -> None:
        """End other sessions with the name of this one, and what their processes were about to do."""
        self.session.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE pid <> pg_backend_pid()"
            " AND usename = current_user AND application_name = current_setting('application_name')"
        )

    def write_message(self) -> None:
        """Write a message into the log, so that there is a transaction to read and to confirm."""
        self.session.execute("SELECT pg_logical_emit_message(true, %s, %s)", [MESSAGE, self.slot])

    def confirm(self, lsn: int) -> None:
        """Let the server forget the log before a place, if the slot is not beyond it."""
        self.session.execute(
            "SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn) FROM pg_catalog.pg_replication_slots"
            " WHERE slot_name = %s AND confirmed_flush_lsn < %s::pg_lsn",
            [lsn_text(lsn), self.slot, lsn_text(lsn)],
        )

    def close(self) -> None:
        """Close the session. Never raises."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _value(self, statement: str) -> Any:
        row = self.session.execute(statement.encode()).fetchone()
        assert row is not None  # a function has one row
        return row[0]

    def _failed(self, error: psycopg.Error) -> NoReturn:
        self.close()
        state = error.sqlstate
        if not state or state.startswith(_LATER):
            words = _WORDS.get(state or "", _NO_ANSWER)
            raise SourceUnavailable(
                f"the log of the connection {self.name} cannot be read now: {words} ({type(error).__name__}"
                f"{f', SQLSTATE {state}' if state else ''})",
                fix=_FIXES.get(state or "", "start the server, or correct the connection"),
                source=self.name,
                sqlstate=state or "",
            ) from error
        # Messages of these classes are about objects and privileges, and have no values of rows.
        primary = error.diag.message_primary or ""
        words = f": {primary}" if state.startswith(("42", "55", "0A", "25")) else ""
        raise SourceRefused(
            f"the server of the connection {self.name} refuses to have its log read"
            f" ({type(error).__name__}, SQLSTATE {state}){words}",
            fix=f"`etl-assets cdc check --connection {self.name}` says what it lacks",
            source=self.name,
        ) from error
